/* A table with an entry for each communicator of NCCL. An ncclComm_t is never wrapped, so every call looks it up
 * here. */
#ifndef CECL_NCCL_COMMS_H
#define CECL_NCCL_COMMS_H

#include "nccl/abi.h"
#include "nccl/life.h"
#include "nccl/meeting.h"
#include "nccl/reason.h"

/* An entry of the table. Entries are never freed, so a look-up needs no lock. A later communicator
 * may get the entry of one that has ended. */
struct cecl_nccl_comm {
    _Atomic(ncclComm_t) nccl; /* the key; NULL: look-ups do not find the entry */
    struct cecl_nccl_comm *next;
    cecl_nccl_life life;
    /* -- written before the life is READY -- */
    /* cecl's communicator over the same ranks; NULL: NCCL makes all calls */
    ceclComm_t ours;
    ceclLimits_t limits;           /* limits of `ours`; limits.smPolicy: the policy of calls */
    enum cecl_nccl_reason reason;  /* why `ours` is NULL; otherwise NO_REASON */
    struct cecl_nccl_learn *learn; /* see learn.c; NULL: no trials */
    /* [nranks] words by which ranks agree (agree.c); NULL: there are none */
    _Atomic(struct cecl_nccl_words *) words;
    uint64_t drawn;       /* a random number, equal on all ranks */
    bool is_non_blocking; /* NCCL does its work in the background */
    bool learns;          /* trials decide on the calls */
    int nranks, rank;
    int together; /* how many communicators, this one included, were made in one call or group */
    int ordinal;  /* number of the GPU; -1: a stand-in for NCCL works on memory of the host */
    /* -- used by the thread that makes calls -- */
    uint64_t served, agreed; /* how many collectives cecl made; how many agreements there were */
    int policy;              /* the ceclSmPolicy_t that `ours` has now (serve.c) */
    /* -- shared by threads -- */
    /* the error, if ranks could not agree whether to make cecl's communicator, or if finalizing it has failed */
    _Atomic(ncclResult_t) result;
    _Atomic bool has_told; /* an error of this communicator was printed */
    /* the number of the group in which the program registered the communicator's first symmetric window; UINT64_MAX:
     * outside a group; 0: there is no window. On all ranks the window must count from the same call on, but ranks may
     * make the calls of a group in any order. So it counts only once its group has ended */
    _Atomic uint64_t windows;
};

/* Finds the entry of `comm`; NULL: there is none, or this is a forked child. */
struct cecl_nccl_comm *cecl_nccl_comm_find(ncclComm_t comm);

/* Counts the thread as inside the entry of `comm`, if entry->life is in one of `states`. Returns false if it is not, or
 * if another communicator has the entry now. Until cecl_nccl_comm_leave no other thread frees a part of the entry. */
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
/* Finds and enters the entry of `comm`. NULL: there is no entry, or its life is not in CECL_NCCL_MADE. */
struct cecl_nccl_comm *cecl_nccl_comm_enter_made(ncclComm_t comm);
static inline void cecl_nccl_comm_leave(struct cecl_nccl_comm *entry)
{
    cecl_nccl_life_leave(&entry->life);
}

/* -- begin.c -- */

/* A new communicator of NCCL, for which cecl is to make its own. */
struct cecl_nccl_wish {
    /* where NCCL writes the handle; it writes NULL on a rank that ncclCommSplit leaves out */
    ncclComm_t *comm;
    ncclComm_t made;                   /* the handle; NULL: not read from `comm` yet */
    ncclComm_t parent;                 /* NULL: no parent */
    struct cecl_nccl_meeting *meeting; /* see meeting.h; NULL: there is no meeting */
};

/* The handle; NULL if NCCL has not written the handle yet, or never will. */
static inline ncclComm_t cecl_nccl_wish_handle(const struct cecl_nccl_wish *wish)
{
    return wish->made ? wish->made : __atomic_load_n(wish->comm, __ATOMIC_ACQUIRE);
}

/* Makes a cecl communicator for each new NCCL communicator. Collective over the ranks of each communicator, blocking.
 * Each is made on all of its ranks or on none. If on none, its entry says why, and the result is ncclSuccess. Errors:
 * ranks could not agree; no memory or thread. Closes the meetings. */
ncclResult_t cecl_nccl_comms_make(const struct cecl_nccl_wish *wishes, int count);

/* Like cecl_nccl_comms_make, but for a communicator that NCCL makes in the background. Does not wait: a new thread
 * waits for NCCL, and then makes cecl's communicator. `together` is how many communicators the caller makes in one call
 * or group. The meeting belongs to this function from now on. */
ncclResult_t cecl_nccl_comm_make_later(ncclComm_t comm, int together,
                                       struct cecl_nccl_meeting *meeting);

/* Notes that NCCL will write the handle of a child. `together` and the meeting: as in cecl_nccl_comm_make_later. */
ncclResult_t cecl_nccl_birth_expect(const struct cecl_nccl_wish *wish, int together);

/* Must be called when NCCL says that `parent` is ready. Begins to make cecl's communicators for the children whose
 * handles NCCL has written. Returns ncclInProgress until all of them are made, because a program may use a child as
 * soon as it learns that the parent is ready. */
ncclResult_t cecl_nccl_birth_look(ncclComm_t parent);

/* Must be called when `parent` ends. */
void cecl_nccl_birth_forget(ncclComm_t parent);

/* -- make.c. For begin.c -- */

/* Makes a cecl communicator for `comm`. Collective over the ranks of `comm` that meet. Either all ranks get one in
 * their `entry`, or no rank does, and then all ranks that meet have the same entry->reason. Closes the meeting. Returns
 * an error only if ranks could not agree. If `in_background`, NCCL makes `comm` in the background, and this function
 * first waits for NCCL. Once the life of the entry is GIVING_UP, this function stops using `comm` and soon returns. */
ncclResult_t cecl_nccl_make(ncclComm_t comm, struct cecl_nccl_comm *entry, int together,
                            bool in_background, struct cecl_nccl_meeting *meeting);

/* -- comms.c. For begin.c -- */

/* Reserves an entry, and sets its life to MAKING. NULL: no host memory. */
struct cecl_nccl_comm *cecl_nccl_comm_reserve(ncclComm_t comm);
/* Takes the step, and hides the entry from cecl_nccl_comm_find. Returns false and does neither if the entry is not in
 * the state where the step begins. */
bool cecl_nccl_comm_retire(struct cecl_nccl_comm *entry, enum cecl_nccl_step step);

/* -- comms.c. For the functions of NCCL -- */

/* Calls `each` with every entry, including unused ones. */
void cecl_nccl_comms_each(void (*each)(struct cecl_nccl_comm *entry));

/* Whether the life of the entry of `comm` is in one of `states`. */
bool cecl_nccl_comm_is(ncclComm_t comm, unsigned states);
/* Whether a call of `function` must be refused, because a thread is still making or finalizing cecl's communicator.
 * Prints the refusal. NCCL also refuses all calls except an abort while a communicator is not ready. */
bool cecl_nccl_comm_refuses(ncclComm_t comm, const char *function);
#define CECL_NCCL_REFUSED ((ncclResult_t)ceclInvalidArgument) /* NCCL's answer to such a call */

/* Waits until the calls on cecl's communicator are done. */
ncclResult_t cecl_nccl_comm_finalize(ncclComm_t comm);
/* Like cecl_nccl_comm_finalize, for a communicator that NCCL finalizes in the background: a new thread waits. */
void cecl_nccl_comm_finalize_later(ncclComm_t comm);

/* End cecl's communicator for `comm`, if there is one. If another thread is inside a call, an abort makes that call
 * return an error, and waits until the thread has left. Both functions return whether the caller must end NCCL's
 * communicator; false: another thread ends it. */
bool cecl_nccl_comm_destroy(ncclComm_t comm);
bool cecl_nccl_comm_abort(ncclComm_t comm);
/* Aborts cecl's communicator for `comm`. NCCL's communicator stays, and may still get children. If cecl has made no
 * communicator for `comm`, the entry stays, because it says why. */
void cecl_nccl_comm_revoke(ncclComm_t comm);

/* The asynchronous error of cecl's communicator for `comm`, as an ncclResult_t, or the error of making or
 * finalizing that communicator in the background. */
ncclResult_t cecl_nccl_comm_error(ncclComm_t comm);

/* The ncclResult_t for a result of libcecl.so. Prints the message of the first error on `comm`. comm NULL: there is no
 * entry any more, because the communicator was aborted. */
ncclResult_t cecl_nccl_comm_result(struct cecl_nccl_comm *comm, ceclResult_t result);
/* Like cecl_nccl_comm_result, for an error of this library, whose message cecl_fail has recorded. */
ncclResult_t cecl_nccl_comm_own_result(struct cecl_nccl_comm *comm, ceclResult_t result);

#endif
