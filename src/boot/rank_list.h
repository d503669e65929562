/* Sets of ranks, and ranks in messages: "rank 3", "ranks 0, 3 and 5"; a long list ends in "and 984 more".
 *
 * While a communicator is made out of a parent, messages must number ranks as in the parent, because the caller knows
 * only these numbers. A message may come from a peer as text, so the numbers are replaced within the text. */
#ifndef CECL_BOOT_RANK_LIST_H
#define CECL_BOOT_RANK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_MEETING_RANKS 1024 /* the most ranks of a communicator */
#define CECL_RANK_WORDS (CECL_MEETING_RANKS / 64)

struct cecl_rank_set {
    uint64_t words[CECL_RANK_WORDS];
};

static inline bool cecl_rank_set_has(const struct cecl_rank_set *set, int rank)
{
    return set->words[rank / 64] >> (rank % 64) & 1;
}

static inline void cecl_rank_set_add(struct cecl_rank_set *set, int rank)
{
    set->words[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static inline void cecl_rank_set_remove(struct cecl_rank_set *set, int rank)
{
    set->words[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}

static inline void cecl_rank_set_join(struct cecl_rank_set *all, const struct cecl_rank_set *more)
{
    for (int i = 0; i < CECL_RANK_WORDS; i++)
        all->words[i] |= more->words[i];
}

static inline int cecl_rank_set_count(const struct cecl_rank_set *set)
{
    int count = 0;
    for (int i = 0; i < CECL_RANK_WORDS; i++)
        for (uint64_t left = set->words[i]; left != 0; left &= left - 1)
            count++;
    return count;
}

#define CECL_RANKS_NAMED 16

/* A zeroed list is empty. */
struct cecl_rank_list {
    int ranks[CECL_RANKS_NAMED]; /* the first ranks that were added */
    int count;
    char text[160];
};

static inline void cecl_rank_list_add(struct cecl_rank_list *list, int rank)
{
    if (list->count < CECL_RANKS_NAMED)
        list->ranks[list->count] = rank;
    list->count++;
}

/* Lists the ranks that are in a set or, if `in` is false, those that are not. */
struct cecl_rank_list cecl_rank_list_of(const struct cecl_rank_set *set, int nranks, bool in);
/* The list as text, which lives as long as the list. */
const char *cecl_rank_list_words(struct cecl_rank_list *list);

/* What a rank sends to the others if all must succeed or all fail. */
struct cecl_vote {
    int32_t result; /* ceclResult_t, with `words` */
    char words[CECL_MESSAGE_BYTES];
};
/* This rank's vote; if `mine` is an error, its message must be the last one recorded. */
struct cecl_vote cecl_vote_of(ceclResult_t mine);
/* Returns the vote's result, with the vote's message recorded again. */
static inline ceclResult_t cecl_vote_again(const struct cecl_vote *vote)
{
    return vote->result == ceclSuccess ? ceclSuccess
                                       : cecl_fail_with((ceclResult_t)vote->result, vote->words);
}
/* Fails with the result and the message, "rank R: ...", of the first rank whose vote is an error. The votes begin at
 * `all`, `apart` bytes from each other. */
ceclResult_t cecl_votes_count(const void *all, size_t apart, int nranks);

/* Replaces the new communicator's numbers of ranks in a message by the parent's. A message that becomes too long is
 * cut.
 * parent_ranks  [nranks] the number in the parent of each rank of the new communicator */
void cecl_words_for_parent(const char *words, const int *parent_ranks, int nranks,
                           char out[CECL_MESSAGE_BYTES]);

/* Returns the part of `words` that begins with the last "rank N gave up: ", or NULL. Each rank puts its name before the
 * reason that it passes on, so the last rank named in the message gave up first. */
const char *cecl_words_who_began(const char *words);

#endif
