/* Finds names at the smallest distance: letters to insert, to delete and to replace. */
#include "tune/nearest.h"

#include <string.h>

#define LONGEST 64 /* how many letters of a name count */

static size_t least_of(size_t a, size_t b, size_t c)
{
    const size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* The usual dynamic programming, one row at a time: row[j] is the distance between the letters of
 * `a` read so far and the first j letters of `b`. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t above = row[j];
            row[j] = least_of(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}

enum cecl_threshold cecl_tuning_nearest(const char *word, size_t length)
{
    enum cecl_threshold nearest = (enum cecl_threshold)0;
    size_t least = SIZE_MAX;
    if (length > LONGEST)
        length = LONGEST;
    for (int t = 0; t < CECL_TUNE_COUNT; t++) {
        const char *name = cecl_thresholds[t].name;
        const size_t letters = strlen(name) < LONGEST ? strlen(name) : LONGEST;
        const size_t d = distance(word, length, name, letters);
        if (d < least) {
            least = d;
            nearest = (enum cecl_threshold)t;
        }
    }
    return nearest;
}
