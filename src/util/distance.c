/* Levenshtein's distance, computed row by row. */
#include "util/distance.h"

#include <ctype.h>
#include <stdbool.h>

static size_t at_most(size_t letters)
{
    return letters < CECL_DISTANCE_LETTERS ? letters : CECL_DISTANCE_LETTERS;
}

static bool differ(char a, char b)
{
    return toupper((unsigned char)a) != toupper((unsigned char)b);
}

static size_t least_of(size_t a, size_t b, size_t c)
{
    const size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* row[j] is the distance between two beginnings: the letters of `a` so far, and the first j letters of `b`. */
size_t cecl_distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[CECL_DISTANCE_LETTERS + 1];
    const size_t height = at_most(na), width = at_most(nb);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; i <= height; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            const size_t above = row[j];
            row[j] = least_of(above + 1, row[j - 1] + 1, diagonal + differ(a[i - 1], b[j - 1]));
            diagonal = above;
        }
    }
    return row[width];
}
