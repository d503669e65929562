/* Windows of NCCL's that cecl shares, too, for one-sided calls.
 *
 * Signals are counted for each pair of ranks, and not for each window, so one library has all one-sided
 * calls of a communicator. Which one is decided when its first window is registered, by all ranks
 * together (agree.h): cecl, if it can share the window's memory on all ranks, and no rank has
 * made a one-sided call before. */
#ifndef CECL_NCCL_WINDOWS_H
#define CECL_NCCL_WINDOWS_H

#include "nccl/comms.h"

struct cecl_nccl_window {
    ncclWindow_t nccl; /* NCCL's handle on this rank */
    ceclWindow_t ours; /* NULL: cecl cannot share its memory */
    void *buff;
    size_t bytes;
    bool is_closed; /* the program has deregistered it on this rank */
};

/* Begins, on a communicator whose `ours` is set, and rails.exist. */
void cecl_nccl_windows_open(struct cecl_nccl_comm *entry);
void cecl_nccl_windows_forget(struct cecl_nccl_comm *entry);

/* NCCL has registered *win for memory of this rank, or does so when the thread's outermost group ends.
 * Collective, blocking outside of a group. *win NULL: NCCL gives no window, or not yet. */
ncclResult_t cecl_nccl_window_registered(struct cecl_nccl_comm *entry, ncclComm_t comm, void *buff,
                                         size_t bytes, const ncclWindow_t *win);
/* NCCL has ended the outermost group with `ended`, and so has the group's windows, or will have them. */
ncclResult_t cecl_nccl_windows_end_group(ncclResult_t ended);

/* NCCL deregisters a window, which concerns this rank alone. cecl ends it when all ranks have deregistered
 * it and register the next one, or with the communicator. */
void cecl_nccl_window_deregistered(struct cecl_nccl_comm *entry, ncclWindow_t win);

/* The window of a handle; NULL: there is none. */
const struct cecl_nccl_window *cecl_nccl_window_find(const struct cecl_nccl_comm *entry,
                                                     ncclWindow_t win);

#endif
