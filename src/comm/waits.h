/* For whom each rank waits, in words that all ranks of the host see. A late rank may wait for another
 * one itself. A rank whose time is up finds that here, and names the one at the end. */
#ifndef CECL_COMM_WAITS_H
#define CECL_COMM_WAITS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/rank_list.h"

struct cecl_waits {
    /* [nranks] rows: when the rank last told (0: it waits for nobody), and a bit for each rank */
    _Atomic uint64_t *words;
    int rank, nranks;
};

size_t cecl_waits_bytes(int nranks);
/* `memory` is of cecl_waits_bytes, shared by all ranks and zeroed. */
void cecl_waits_open(struct cecl_waits *waits, void *memory, int rank, int nranks);

/* Tells for whom this rank waits: the ranks that a list names; an empty list: nobody.
 *
 * now_ms  the monotonic clock, which all processes of a host share */
void cecl_waits_tell(const struct cecl_waits *waits, const struct cecl_rank_list *late,
                     int64_t now_ms);

/* Follows from the ranks in `late` to those for which they wait, and so on, and leaves in `late` those
 * that wait for nobody. If there are none, because ranks wait for each other, or if `late` holds more
 * ranks than it names, it stays as it is. What was told before `since_ms` does not count: a rank that
 * stands still tells nothing new. */
void cecl_waits_follow(const struct cecl_waits *waits, int64_t since_ms,
                       struct cecl_rank_list *late);

#endif
