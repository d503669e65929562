/* For which ranks each rank waits, in words that all ranks of the host see. A late rank may itself wait for another
 * rank. A rank whose time limit has passed follows these waits to their end, and names the rank at the end. */
#ifndef CECL_COMM_WAITS_H
#define CECL_COMM_WAITS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/rank_list.h"

struct cecl_waits_row {
    _Atomic int64_t told_ms; /* when the rank published last; 0: it waits for no rank */
    _Atomic uint64_t late[CECL_RANK_WORDS]; /* the ranks for which it waits */
};

struct cecl_waits {
    struct cecl_waits_row *rows; /* [nranks] */
    int rank, nranks;
};

size_t cecl_waits_bytes(int nranks);
/* `memory` has cecl_waits_bytes bytes, is zeroed, and is shared by all ranks. */
void cecl_waits_open(struct cecl_waits *waits, void *memory, int rank, int nranks);

/* Publishes that this rank waits for the ranks in `late`, which may be empty.
 *
 * now_ms  the monotonic clock, which all processes of a host share */
void cecl_waits_tell(const struct cecl_waits *waits, const struct cecl_rank_set *late,
                     int64_t now_ms);
/* The ranks for which `rank` waits; empty if it has not published them since `since_ms`. A broken rank may have written
 * anything. */
struct cecl_rank_set cecl_waits_of(const struct cecl_waits *waits, int rank, int64_t since_ms);

/* Follows the waits from the ranks in `late` to the ranks for which these wait, and so on. Replaces `late` by the ranks
 * at which this ends: those that wait for no rank. If there is no such rank, because ranks wait for each other in a
 * circle, `late` is unchanged. Waits that were published before `since_ms` do not count, because a stopped rank
 * publishes nothing new. */
void cecl_waits_follow(const struct cecl_waits *waits, int64_t since_ms,
                       struct cecl_rank_set *late);

#endif
