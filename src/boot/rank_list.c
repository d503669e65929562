/* See rank_list.h. */
#include "boot/rank_list.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(literal) (sizeof(literal) - 1)
#define GAVE_UP " gave up: "

struct cecl_rank_list cecl_rank_list_of(const struct cecl_rank_set *set, int nranks, bool in)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < nranks; r++)
        if (cecl_rank_set_has(set, r) == in)
            cecl_rank_list_add(&list, r);
    return list;
}

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

/* ---- agreeing */

struct cecl_vote cecl_vote_of(ceclResult_t mine)
{
    struct cecl_vote vote = {.result = (int32_t)mine};
    cecl_keep_message(vote.words);
    return vote;
}

ceclResult_t cecl_votes_count(const void *all, size_t apart, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        const struct cecl_vote *its = (const void *)((const char *)all + (size_t)r * apart);
        if (its->result != ceclSuccess)
            return cecl_fail((ceclResult_t)its->result, "rank %d: %.*s", r, CECL_MESSAGE_BYTES - 1,
                             its->words);
    }
    return ceclSuccess;
}

/* ---- ranks in messages */

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

/* Returns where the next rank's number begins, from `at` on, or NULL. *in_list says whether the number before `at` is
 * in a list that begins with "ranks"; it is set for the number that is returned. */
static const char *next_rank(const char *words, const char *at, bool *in_list)
{
    const size_t skipped = !*in_list             ? 0
                           : begins(at, ", ")    ? LENGTH(", ")
                           : begins(at, " and ") ? LENGTH(" and ")
                                                 : 0;
    if (skipped > 0 && is_digit(at[skipped]) && !begins(skip_number(at + skipped), " more"))
        return at + skipped;
    for (; (at = strstr(at, "rank")); at++) {
        const char *number = at + LENGTH("rank") + (at[LENGTH("rank")] == 's');
        *in_list = number[-1] == 's';
        if ((at == words || !isalnum((unsigned char)at[-1])) && number[0] == ' ' &&
            is_digit(number[1]))
            return number + 1;
    }
    return NULL;
}

static void put(char out[CECL_MESSAGE_BYTES], size_t *used, const char *from, size_t bytes)
{
    const size_t room = CECL_MESSAGE_BYTES - 1 - *used;
    bytes = bytes < room ? bytes : room;
    memcpy(out + *used, from, bytes);
    *used += bytes;
    out[*used] = '\0';
}

/* Leaves a number unchanged that is no rank of the new communicator. */
void cecl_words_for_parent(const char *words, const int *parent_ranks, int nranks,
                           char out[CECL_MESSAGE_BYTES])
{
    const char *at = words;
    size_t used = 0;
    bool in_list = false;
    for (const char *number; (number = next_rank(words, at, &in_list)); at = skip_number(number)) {
        const long rank = strtol(number, NULL, 10);
        char name[16];
        put(out, &used, at, (size_t)(number - at));
        if (rank < nranks)
            snprintf(name, sizeof(name), "%d", parent_ranks[rank]);
        put(out, &used, rank < nranks ? name : number,
            rank < nranks ? strlen(name) : (size_t)(skip_number(number) - number));
    }
    put(out, &used, at, strlen(at));
}

const char *cecl_words_who_began(const char *words)
{
    const char *found = NULL, *at = words;
    bool in_list = false;
    for (const char *number; (number = next_rank(words, at, &in_list)); at = skip_number(number))
        if (!in_list && begins(skip_number(number), GAVE_UP))
            found = number - LENGTH("rank ");
    return found;
}
