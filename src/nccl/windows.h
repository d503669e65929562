/* NCCL's windows that cecl also shares, for one-sided calls.
 *
 * Signals are counted for each pair of ranks, and not for each window, so one library must carry out all one-sided
 * calls of a communicator. When the first window is registered, ranks decide on that library by an agreement
 * (agree.h). It is cecl if cecl can share the window's memory on all ranks, and if no rank has made a one-sided
 * call before. */
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

/* Prepares a communicator whose `ours` is set. */
void cecl_nccl_windows_open(struct cecl_nccl_comm *entry);
void cecl_nccl_windows_forget(struct cecl_nccl_comm *entry);

/* Called after NCCL has registered *win for memory of this rank, or will do so when the thread's outermost
 * group ends. Collective, and blocking outside of a group. *win NULL: NCCL gives no window, or has not
 * given it yet. */
ncclResult_t cecl_nccl_window_registered(struct cecl_nccl_comm *entry, ncclComm_t comm, void *buff,
                                         size_t bytes, const ncclWindow_t *win);
/* Called after NCCL has ended the outermost group with `ended`, and has registered the group's windows, or
 * will do so. */
ncclResult_t cecl_nccl_windows_end_group(ncclResult_t ended);

/* Called when NCCL deregisters a window, which is a local call. cecl frees the window when all ranks have
 * deregistered it and then register another window, or else when the communicator ends. */
void cecl_nccl_window_deregistered(struct cecl_nccl_comm *entry, ncclWindow_t win);

/* The window of a handle; NULL: there is none. */
const struct cecl_nccl_window *cecl_nccl_window_find(const struct cecl_nccl_comm *entry,
                                                     ncclWindow_t win);

#endif
