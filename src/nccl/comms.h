/* The side table: what cecl has beside each communicator of NCCL's. An ncclComm_t is never wrapped,
 * so every call looks its communicator up here. */
#ifndef CECL_NCCL_COMMS_H
#define CECL_NCCL_COMMS_H

#include "nccl/abi.h"
#include "nccl/life.h"
#include "nccl/reason.h"

/* One communicator. Entries are never freed, so a look-up needs no lock; a later communicator may get
 * the entry of one that has ended. */
struct cecl_nccl_comm {
    _Atomic(ncclComm_t) nccl; /* by which it is found; NULL: it is not */
    struct cecl_nccl_comm *next;
    cecl_nccl_life life;
    /* -- written before the life is READY -- */
    ceclComm_t ours;                     /* cecl's, over the same ranks; NULL: calls are passed */
    ceclLimits_t limits;                 /* of `ours` */
    enum cecl_nccl_reason reason;        /* why `ours` is NULL, otherwise NO_REASON */
    struct cecl_nccl_learn *learn;       /* learn.h; NULL: the built-in table decides */
    const struct cecl_nccl_known *known; /* of CECL_NCCL_LEARNED; NULL: nothing */
    const struct cecl_nccl_known *measured; /* the same, if all ranks have equal gains */
    bool learns;                            /* trials or verdicts of the file decide */
    int nranks, rank;
    int ordinal; /* which GPU; -1: memory of the host, where a stand-in is in NCCL's place */
    /* -- */
    /* an error: ranks could not even exchange what they can do, or the thread could not finalize */
    _Atomic(ncclResult_t) result;
    _Atomic bool has_told;    /* an error of it was printed */
    _Atomic bool has_windows; /* NCCL has symmetric windows of it: registering them is collective */
    /* the thread's open group registers one; `next_to_register` is the next such entry */
    bool is_to_register;
    struct cecl_nccl_comm *next_to_register;
};

/* Finds what there is beside `comm`; NULL: the table does not know it, or this is a child of fork. */
struct cecl_nccl_comm *cecl_nccl_comm_find(ncclComm_t comm);

/* Goes inside the entry of `comm`, if its life is in one of the states. False: it is not, or another
 * communicator has the entry by now. Nothing of it ends until cecl_nccl_comm_leave. */
static inline bool cecl_nccl_comm_enter(struct cecl_nccl_comm *entry, ncclComm_t comm,
                                        unsigned states)
{
    if (!cecl_nccl_life_enter(&entry->life, states))
        return false;
    if (atomic_load(&entry->nccl) == comm)
        return true;
    cecl_nccl_life_leave(&entry->life);
    return false;
}
static inline void cecl_nccl_comm_leave(struct cecl_nccl_comm *entry)
{
    cecl_nccl_life_leave(&entry->life);
}

/* -- begin.c -- */

/* A communicator that NCCL makes. */
struct cecl_nccl_wish {
    ncclComm_t
        *comm; /* where NCCL writes it; it stays NULL on a rank that ncclCommSplit leaves out */
    ncclComm_t parent; /* NULL: it has none */
};

/* Makes a communicator of cecl's beside each new one of NCCL's. Collective over the ranks of each,
 * blocking. If one cannot be made, it is made on no rank, and the table says why. Returns an error
 * if ranks could not even exchange that: then NCCL's communicator is of no use either. */
ncclResult_t cecl_nccl_comms_make(const struct cecl_nccl_wish *wishes, int count);

/* The same without waiting, for a communicator that NCCL itself makes in the background: a thread waits
 * for NCCL, and makes ours. `together` is how many communicators the caller makes at once. */
ncclResult_t cecl_nccl_comm_make_later(ncclComm_t comm, int together);

/* -- make.c. For begin.c -- */

/* Makes a communicator of cecl's beside `comm`, by exchanges through NCCL's own communicator.
 * Collective over its ranks. All ranks get one of cecl's in their `entry`, or none
 * does, with equal reasons. `together` is how many ranks the thread makes at once. Returns an error only if
 * ranks could not exchange what each of them can do.
 * in_background: NCCL makes `comm` in the background, so this first waits for NCCL. Once the life of the entry
 * is GIVING_UP, this uses `comm` no more, and ends with an error: at once, or after CECL_INIT_TIMEOUT_MS if
 * it waits for a peer by then. */
ncclResult_t cecl_nccl_make(ncclComm_t comm, struct cecl_nccl_comm *entry, int together,
                            bool in_background);

/* -- comms.c. For begin.c -- */

/* Gives out an entry, MAKING, that nobody finds before it is published. NULL: no host memory. */
struct cecl_nccl_comm *cecl_nccl_comm_reserve(ncclComm_t comm);
void cecl_nccl_comm_publish(struct cecl_nccl_comm *entry, ncclComm_t comm);
/* Takes a step after which nobody finds the entry. False: its life is not where the step begins. */
bool cecl_nccl_comm_retire(struct cecl_nccl_comm *entry, enum cecl_nccl_step step);

/* -- comms.c. For the functions of NCCL -- */

/* Whether the life of what stands beside `comm` is in one of the states. */
bool cecl_nccl_comm_is(ncclComm_t comm, unsigned states);
/* Whether a thread still makes or finalizes ours, which this prints. All calls but an abort are refused
 * then, as NCCL refuses calls on a communicator that is not ready. */
bool cecl_nccl_comm_refuses(ncclComm_t comm, const char *function);
#define CECL_NCCL_REFUSED ((ncclResult_t)ceclInvalidArgument) /* NCCL's answer to such a call */

/* Waits until the calls on ours are done. */
ncclResult_t cecl_nccl_comm_finalize(ncclComm_t comm);
/* The same without waiting, for a communicator that NCCL itself finalizes in the background. */
void cecl_nccl_comm_finalize_later(ncclComm_t comm);

/* End what there is beside `comm`, if the table knows it. An abort may come while another thread is inside
 * a call: that thread gets an error, and this one waits until it is out. Both return whether the caller is
 * to end NCCL's, too. False: another thread does, which was faster. */
bool cecl_nccl_comm_destroy(ncclComm_t comm);
bool cecl_nccl_comm_abort(ncclComm_t comm);
/* Aborts cecl's communicator beside `comm`, where NCCL keeps `comm`, which may still get children.
 * If cecl has none beside it, the entry stays and still says why. */
void cecl_nccl_comm_revoke(ncclComm_t comm);

/* The asynchronous error of cecl's communicator beside `comm`, by NCCL's numbers, or the error with which
 * it was made or finalized in the background; ncclInProgress while it is finalized so. */
ncclResult_t cecl_nccl_comm_error(ncclComm_t comm);

/* NCCL's number for a result of cecl's. Prints the message of the first error on `comm`. NULL: a
 * communicator that was aborted. */
ncclResult_t cecl_nccl_comm_result(struct cecl_nccl_comm *comm, ceclResult_t result);

#endif
