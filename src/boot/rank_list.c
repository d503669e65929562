/* See rank_list.h. */
#include "boot/rank_list.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(literal) (sizeof(literal) - 1)
#define GAVE_UP " gave up: "

const char *cecl_rank_list_words(struct cecl_rank_list *list)
{
    const int named = list->count < CECL_RANKS_NAMED ? list->count : CECL_RANKS_NAMED;
    const char *noun = list->count == 0 ? "no rank" : list->count == 1 ? "rank" : "ranks";
    size_t used = (size_t)snprintf(list->text, sizeof(list->text), "%s", noun);
    for (int i = 0; i < named; i++)
        used += (size_t)snprintf(list->text + used, sizeof(list->text) - used, "%s%d",
                                 i == 0                 ? " "
                                 : i == list->count - 1 ? " and "
                                                        : ", ",
                                 list->ranks[i]);
    if (list->count > named)
        snprintf(list->text + used, sizeof(list->text) - used, " and %d more", list->count - named);
    return list->text;
}

/* ---- comparing */

int cecl_ranks_compare(const void *all, size_t bytes, int nranks,
                       bool (*alike)(const void *a, const void *b), struct cecl_rank_list *odd)
{
    const char *items = all, *first_odd = NULL;
    int common = 0, most = 0;
    for (int r = 0; r < nranks; r++) {
        int same = 0;
        for (int q = 0; q < nranks; q++)
            same += alike(items + (size_t)q * bytes, items + (size_t)r * bytes);
        if (same > most) {
            most = same;
            common = r;
        }
    }
    odd->count = 0;
    for (int r = 0; r < nranks; r++) {
        const char *item = items + (size_t)r * bytes;
        if (alike(item, items + (size_t)common * bytes) || (first_odd && !alike(item, first_odd)))
            continue;
        first_odd = first_odd ? first_odd : item;
        cecl_rank_list_add(odd, r);
    }
    return common;
}

/* ---- reading lists */

static bool begins(const char *at, const char *with)
{
    return strncmp(at, with, strlen(with)) == 0;
}

static const char *skip_number(const char *at)
{
    return at + strspn(at, "0123456789");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns where the first number of the next list of ranks is, or NULL. */
static const char *find_list(const char *words, const char *from)
{
    for (const char *at = from; (at = strstr(at, "rank")); at++) {
        const char *number = at + LENGTH("rank") + (at[LENGTH("rank")] == 's');
        const bool is_word = at == words || !isalnum((unsigned char)at[-1]);
        if (is_word && number[0] == ' ' && is_digit(number[1]))
            return number + 1;
    }
    return NULL;
}

/* Returns the list's next number, after the one that ends at `at`, or NULL. */
static const char *next_of_list(const char *at)
{
    const size_t skipped = begins(at, ", ")      ? LENGTH(", ")
                           : begins(at, " and ") ? LENGTH(" and ")
                                                 : 0;
    const bool is_rank =
        skipped > 0 && is_digit(at[skipped]) && !begins(skip_number(at + skipped), " more");
    return is_rank ? at + skipped : NULL;
}

/* Only a list that begins with "ranks" has several numbers. */
static const char *end_of_list(const char *number)
{
    const bool is_plural = number[-2] == 's';
    const char *end = skip_number(number);
    for (const char *next; is_plural && (next = next_of_list(end));)
        end = skip_number(next);
    return end;
}

/* ---- writing */

struct text {
    char *out; /* [CECL_MESSAGE_BYTES] */
    size_t used;
};

static void put(struct text *text, const char *from, size_t bytes)
{
    const size_t room = CECL_MESSAGE_BYTES - 1 - text->used;
    bytes = bytes < room ? bytes : room;
    memcpy(text->out + text->used, from, bytes);
    text->used += bytes;
    text->out[text->used] = '\0';
}

/* Writes a list with the new name of each rank. A number that is not a rank stays as it is. */
static void put_renamed(struct text *text, const char *list, const char *end, const int *names,
                        int count)
{
    while (list < end) {
        const char *after = skip_number(list), *next = after < end ? next_of_list(after) : end;
        const long rank = strtol(list, NULL, 10);
        char name[16];
        if (rank < count) {
            snprintf(name, sizeof(name), "%d", names[rank]);
            put(text, name, strlen(name));
            list = after;
        }
        put(text, list, (size_t)(next - list));
        list = next;
    }
}

void cecl_words_for_parent(const char *words, const int *parent_ranks, int nranks,
                           char out[CECL_MESSAGE_BYTES])
{
    struct text text = {.out = out};
    const char *at = words;
    out[0] = '\0';
    for (const char *list; (list = find_list(words, at)); at = end_of_list(list)) {
        put(&text, at, (size_t)(list - at));
        put_renamed(&text, list, end_of_list(list), parent_ranks, nranks);
    }
    put(&text, at, strlen(at));
}

/* ---- who began */

const char *cecl_words_who_began(const char *words)
{
    const char *found = NULL;
    for (const char *list = words; (list = find_list(words, list));)
        if (begins(skip_number(list), GAVE_UP))
            found = list - LENGTH("rank ");
    return found;
}
