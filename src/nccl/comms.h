/* The side table: what cecl has beside each communicator of NCCL's. An ncclComm_t is never wrapped,
 * so every call looks its communicator up here. */
#ifndef CECL_NCCL_COMMS_H
#define CECL_NCCL_COMMS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "nccl/abi.h"
#include "nccl/reason.h"

/* How far an entry is. */
enum cecl_nccl_stage {
    CECL_NCCL_READY,      /* all fields may be read */
    CECL_NCCL_MAKING,     /* a thread of this library makes what the entry is to hold */
    CECL_NCCL_GIVEN_UP,   /* the communicator has ended before that; the thread frees the entry */
    CECL_NCCL_FINALIZING, /* a thread of this library waits until the calls on `ours` are done */
};

/* Threads may end one communicator in several ways at once; NCCL must end it once. */
enum cecl_nccl_end { CECL_NCCL_BY_NONE, CECL_NCCL_BY_DESTROY, CECL_NCCL_BY_ABORT };

/* One communicator. Entries are never freed, so a look-up needs no lock; a later communicator may get
 * the entry of one that has ended. All fields but the atomic ones are written before `stage`. */
struct cecl_nccl_comm {
    _Atomic(ncclComm_t) nccl; /* NULL: the entry is free */
    struct cecl_nccl_comm *next;
    _Atomic(enum cecl_nccl_stage) stage;
    ceclComm_t ours;              /* cecl's, over the same ranks; NULL: calls are passed */
    enum cecl_nccl_reason reason; /* why `ours` is NULL, otherwise NO_REASON */
    /* an error: ranks could not even exchange what they can do, or the thread could not finalize */
    _Atomic(ncclResult_t) result;
    int nranks, rank;
    bool on_gpu;              /* otherwise on memory of the host, with a stand-in for NCCL */
    int ordinal;              /* which GPU; -1: the host device */
    bool flags_on_host;       /* the flags of `ours` lie in memory of the host */
    _Atomic bool has_windows; /* NCCL has symmetric windows of it: registering them is collective */
    /* the thread's open group registers one; `next_to_register` is the next such entry */
    bool is_to_register;
    struct cecl_nccl_comm *next_to_register;
    _Atomic int inside;   /* threads that use `ours` now, or NCCL's while ours is being made */
    _Atomic int awaiting; /* threads that are inside to destroy it, and wait for the others */
    _Atomic bool ends;    /* no thread may begin to use it */
    _Atomic(enum cecl_nccl_end) ended_by; /* which call ends NCCL's communicator */
    _Atomic bool has_told;                /* an error of it was printed */
};

/* Finds what there is beside `comm`; NULL: the table does not know it. */
struct cecl_nccl_comm *cecl_nccl_comm_find(ncclComm_t comm);

/* Makes a communicator of cecl's beside each new one of NCCL's. Collective over the ranks of each,
 * blocking. If one cannot be made, it is made on no rank, and the table says why. Returns an error
 * if ranks could not even exchange that: then NCCL's communicator is of no use either. */
ncclResult_t cecl_nccl_comms_make(const ncclComm_t *comms, int count);

/* The same without waiting, for a communicator that NCCL itself makes in the background: a thread waits
 * for NCCL, and makes ours. `together` is how many communicators the caller makes at once. */
ncclResult_t cecl_nccl_comm_make_later(ncclComm_t comm, int together);

/* Whether that thread still makes ours. It has `comm` to itself then. */
bool cecl_nccl_comm_is_in_progress(ncclComm_t comm);
/* Whether a thread still makes or finalizes ours, which this prints. All calls but an abort are refused
 * then, as NCCL refuses calls on a communicator that is not ready. */
bool cecl_nccl_comm_refuses(ncclComm_t comm, const char *function);
#define CECL_NCCL_REFUSED ((ncclResult_t)ceclInvalidArgument) /* NCCL's answer to such a call */

static inline void cecl_nccl_comm_leave(struct cecl_nccl_comm *comm)
{
    atomic_fetch_sub(&comm->inside, 1);
}
/* Begins to use `comm->ours`. False: it is about to end. Ends with cecl_nccl_comm_leave.
 *
 * The order of the two atomic operations here and of those in `close_door` of comms.c decides: either this
 * thread sees that the communicator ends, or the thread that ends it sees this one inside. */
static inline bool cecl_nccl_comm_enter(struct cecl_nccl_comm *comm)
{
    atomic_fetch_add(&comm->inside, 1);
    if (!atomic_load(&comm->ends))
        return true;
    cecl_nccl_comm_leave(comm);
    return false;
}

/* End what there is beside `comm`, if the table knows it. The last one may be called while another
 * thread is inside a call: that thread gets an error, and this one waits until it is out. */
ceclResult_t cecl_nccl_comm_finalize(ncclComm_t comm);
/* The same without waiting, for a communicator that NCCL itself finalizes in the background. */
void cecl_nccl_comm_finalize_later(ncclComm_t comm);
/* Both return whether the caller is to end NCCL's, too. False: another thread does, which was faster. */
bool cecl_nccl_comm_destroy(ncclComm_t comm);
bool cecl_nccl_comm_abort(ncclComm_t comm);

/* Aborts cecl's communicator beside `comm`, where NCCL keeps `comm`, which may still get children.
 * If cecl has none beside it, the entry stays and still says why. */
void cecl_nccl_comm_revoke(ncclComm_t comm);

/* The asynchronous error of cecl's communicator beside `comm`, by NCCL's numbers, or the error with which
 * cecl_nccl_comm_make_later or cecl_nccl_comm_finalize_later ended; ncclInProgress while the latter one
 * goes on. */
ncclResult_t cecl_nccl_comm_error(ncclComm_t comm);

/* Of a result of cecl's, NCCL's number; prints the message of the first error on `comm`. NULL: a
 * communicator that was aborted. */
ncclResult_t cecl_nccl_comm_result(struct cecl_nccl_comm *comm, ceclResult_t result);

#endif
