/* Passes the calls of a settled period. A period is settled while a verdict is in force by which NCCL makes all of
 * its calls. Then a call is only compared with the one that the period expects next. If they are equal, it is passed,
 * and learning does not hear of it. The first call that differs ends this: learning then catches up on the calls
 * that it has missed, so that its state is as if it had heard of each.
 *
 * What this file decides follows from the sequence of calls, so ranks do not differ. While a period is settled, nobody
 * asks whether a call is captured: captured calls count as calls of the period.
 *
 * These functions do not enter the communicator, so this state is in its entry, which is never freed. */
#ifndef CECL_NCCL_SETTLED_H
#define CECL_NCCL_SETTLED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cecl_nccl_call;
struct cecl_nccl_comm;

struct cecl_nccl_settled_call {
    size_t count;
    int op, type, redop, root;
    bool reduces;
};

/* Used by the thread that makes calls. Starts zeroed. */
struct cecl_nccl_settled {
    /* how many calls may be passed before learning must hear of one; 0: not settled */
    uint64_t left;
    uint32_t next; /* which call of the period is expected */
    uint32_t length;
    struct cecl_nccl_settled_call *calls; /* [room]; kept for the entry's next communicator */
    uint32_t room;
    uint32_t noted; /* how many calls of the current period are in `calls` */
    uint64_t most;  /* what `left` was at first; 0: learning has missed no call */
};

/* For another communicator in the same entry. */
static inline void cecl_nccl_settled_forget(struct cecl_nccl_settled *settled)
{
    settled->left = settled->most = 0;
    settled->noted = 0;
}

/* Whether `call` is passed because its period is settled. If so, notes that the call was made. */
bool cecl_nccl_settled_passes(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call);

/* -- for learn.c, which is inside the communicator. It calls the first function before it hears of a call, and the
 * second one afterwards. passes: NCCL makes this call whenever the verdict is in force -- */

void cecl_nccl_settled_catch_up(struct cecl_nccl_comm *comm);
void cecl_nccl_settled_note(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                            bool passes);

#endif
