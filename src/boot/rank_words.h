/* Ranks in messages. A message names ranks of its communicator in one form, "rank 3" or "ranks 0, 3
 * and 5" (rank_list.h). While a communicator is made of another one, the parent, its messages say
 * "rank 3 of the parent" of ranks that may not be in it. The caller has only the parent then, so what
 * it is told in the end names all ranks by the parent's numbers. */
#ifndef CECL_BOOT_RANK_WORDS_H
#define CECL_BOOT_RANK_WORDS_H

#include "util/error.h"

#define CECL_OF_PARENT " of the parent"

/* Turns a message of the new communicator into one of the parent. It is cut where it gets too long.
 * parent_ranks  [nranks] of the new communicator's ranks, in its order */
void cecl_words_for_parent(const char *words, const int *parent_ranks, int nranks,
                           char out[CECL_MESSAGE_BYTES]);

/* Turns a message of the parent into one that the new communicator may pass on. */
void cecl_words_for_child(const char *words, char out[CECL_MESSAGE_BYTES]);

/* Returns the part of `words` that starts with "rank N gave up: ...", or NULL. Of several such
 * parts the last: each rank passes on the reason of another one, so the last rank gave up first. */
const char *cecl_words_who_began(const char *words);

#endif
