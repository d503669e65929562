/* For which ranks each rank waits, in words that all ranks of the host see. A late rank may itself
 * wait for another rank. A rank whose time limit has passed follows these waits to their end, and
 * names the rank at the end. */
#ifndef CECL_COMM_WAITS_H
#define CECL_COMM_WAITS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/rank_list.h"

struct cecl_waits {
    /* [nranks] rows: when the rank published last (0: it waits for nobody), and a bit for each
     * rank */
    _Atomic uint64_t *words;
    int rank, nranks;
    struct cecl_rank_list late; /* what a look of the watchdog has added so far */
};

size_t cecl_waits_bytes(int nranks);
/* `memory` is of cecl_waits_bytes, shared by all ranks and zeroed. */
void cecl_waits_open(struct cecl_waits *waits, void *memory, int rank, int nranks);

/* Publishes that this rank waits for the ranks in `late`, which may be none.
 *
 * now_ms  the monotonic clock, which all processes of a host share */
void cecl_waits_tell(const struct cecl_waits *waits, const struct cecl_rank_list *late,
                     int64_t now_ms);

/* A look of the watchdog has several parts, each of which may find ranks that are late. Each part adds
 * its ranks, which are published at once, and the end publishes that there were none. */
void cecl_waits_begin(struct cecl_waits *waits);
void cecl_waits_add(struct cecl_waits *waits, const struct cecl_rank_list *late, int64_t now_ms);
void cecl_waits_end(struct cecl_waits *waits, int64_t now_ms);

/* Follows from the ranks in `late` to the ranks for which these wait, and so on. Leaves in `late`
 * the ranks at the ends, which wait for nobody. Leaves `late` unchanged if there are no ends (ranks
 * wait for each other in a circle), and if `late` has more ranks than it names. Waits that were
 * published before `since_ms` do not count, because a stopped rank publishes nothing new. */
void cecl_waits_follow(const struct cecl_waits *waits, int64_t since_ms,
                       struct cecl_rank_list *late);

#endif
