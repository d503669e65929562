/* One-sided calls: copies to and from windows that ranks share, signals, and waits for signals.
 *
 * A one-sided call is not a launch. Its stream and signals order it among other calls. This rank tells peers nothing
 * about it, and no peer's host takes part in it. It is lowered, bound and issued at once. Each stream has a line, a
 * word that counts the stream's one-sided calls that are done (flags/lines.c). A call is pending until this word has
 * counted it. */
#ifndef CECL_LAUNCH_ONE_SIDED_H
#define CECL_LAUNCH_ONE_SIDED_H

#include "ce/bound.h"
#include "ce/one_sided.h"
#include "comm/comm.h"

#define CECL_SHARE_MAGIC 0x63656377u

/* One rank's memory in a window that ranks share. */
struct cecl_share_part {
    struct cecl_peer_buffer at;
    uint64_t bytes; /* 0: the rank shares no memory */
    char *address;  /* the address at which this rank reaches that memory */
    struct cecl_imports
        imports; /* imports of a peer's registered memory; held until the window is freed */
};

/* A window that ranks share. The struct's memory is reused for new windows, and never freed, so calls can refuse the
 * handle of a freed window. */
struct ceclWindow {
    struct cecl_handle handle;
    uint32_t magic;
    ceclComm_t comm;
    uint32_t number; /* number of the window in the communicator, from 1 on; equal on all ranks */
    struct cecl_share_part *parts; /* [nranks] */
    /* registration of this rank's memory; NULL: this rank shares no memory */
    ceclRegistration_t registration;
    uint64_t used[CECL_LINES]; /* by line: the last call that uses the window; 0: none */
    struct ceclWindow *next;   /* in the communicator's list */
};

/* A communicator's state for one-sided calls, a part of its launcher. */
struct cecl_one_sided_room {
    ceclWindow_t windows;                /* a list */
    uint32_t nwindows;                   /* how many windows were shared so far */
    struct cecl_one_sided_signal *waits; /* [waits_room] */
    uint32_t waits_room;
};

/* The caller's arguments. */
struct cecl_one_sided_args {
    const char *name;
    void *local; /* sendbuff or recvbuff */
    size_t count, offset;
    ceclDataType_t type;
    int peer;
    ceclWindow_t window;           /* if is_copy */
    int signal;                    /* if is_signal */
    const ceclSignalWait_t *waits; /* [nwaits] */
    int nwaits;
    bool is_copy, gets, is_signal, is_wait;
};

/* Carries out a call. The caller is inside the communicator. */
ceclResult_t cecl_one_sided_make(ceclComm_t comm, const struct cecl_one_sided_args *args,
                                 ceclStream_t stream);

/* Refuses a peer that is no rank of the communicator. */
ceclResult_t cecl_peer_check(ceclComm_t comm, int peer);
/* Refuses a handle that is NULL, was freed, or belongs to a different communicator. */
ceclResult_t cecl_window_handle_check(ceclComm_t comm, ceclWindow_t window);

#endif
