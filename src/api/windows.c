/* The public functions for memory that ranks share for one-sided calls. Sharing it has these steps:
 *
 *     each rank    registers its memory
 *     all ranks    tell each other where their memory lies
 *     each rank    opens the memory of all peers, and keeps it open until the window is freed
 *     all ranks    agree: all have the window, or none
 *
 * So no one-sided call has to wait for an import. */

#include <inttypes.h>
#include <stdlib.h>

#include "api/life.h"
#include "device/nvtx.h"
#include "flags/flags.h"
#include "launch/exchange.h"
#include "launch/group.h"
#include "launch/launcher.h"

/* What each rank sends to its peers. */
struct told {
    struct cecl_verdict verdict;
    uint32_t number; /* the window's number */
    uint64_t bytes;
    struct cecl_peer_buffer at;
    uint64_t posted; /* how many notices about its memory the rank has sent so far */
};
_Static_assert(sizeof(struct told) <= CECL_EXCHANGE_BYTES, "the launcher has room for it");

/* ---- handles */

static struct cecl_handles handles = CECL_HANDLES(0);

static void put_back(ceclWindow_t window)
{
    cecl_handle_free(&handles, window, sizeof(*window));
}

static ceclWindow_t new_window(ceclComm_t comm)
{
    ceclWindow_t window = cecl_handle_new(&handles, sizeof(*window));
    if (!window)
        return NULL;
    window->comm = comm;
    window->number = comm->launcher->one_sided.nwindows + 1;
    window->parts = calloc((size_t)comm->nranks, sizeof(*window->parts));
    if (window->parts)
        return window;
    put_back(window);
    return NULL;
}

/* Drops the window's references to the peers' memory. */
static void close_parts(ceclWindow_t window)
{
    ceclComm_t comm = window->comm;
    for (int r = 0; r < comm->nranks; r++) {
        struct cecl_imports *imports = &window->parts[r].imports;
        cecl_imports_hold(&comm->registry, imports, false);
        cecl_imports_drop(imports);
        free(imports->list);
    }
    free(window->parts);
    window->parts = NULL;
}

/* Frees a window, and what it holds so far. */
static ceclResult_t discard(ceclWindow_t window)
{
    ceclComm_t comm = window->comm;
    ceclResult_t result = ceclSuccess;
    close_parts(window);
    if (window->registration)
        result = cecl_registration_end(comm, window->registration);
    put_back(window);
    return result;
}

/* ---- exchanging */

/* Exchanges `mine`, and requires that all ranks name the same window. local: as in cecl_exchange. */
static ceclResult_t exchange(ceclComm_t comm, const char *name, struct told *mine,
                             ceclResult_t local)
{
    const struct told *all = comm->launcher->exchange;
    CECL_TRY(cecl_exchange(comm, name, "window", &mine->verdict, sizeof(*mine), local));
    for (int r = 0; r < comm->nranks; r++)
        if (all[r].number != mine->number)
            return cecl_fail(ceclInvalidUsage,
                             "%s: ranks differ in the window: number %" PRIu32
                             " on rank %d, %" PRIu32 " on rank %d",
                             name, mine->number, comm->rank, all[r].number, r);
    return ceclSuccess;
}

/* ---- sharing */

static ceclResult_t check_new(ceclComm_t comm, const void *ptr, size_t bytes, const void *out)
{
    CECL_TRY(cecl_check_given("window", out));
    if (comm->nranks > CECL_ONE_SIDED_RANKS)
        return cecl_fail(ceclInvalidUsage,
                         "one-sided calls in a communicator of %d ranks: at most %d ranks expected",
                         comm->nranks, CECL_ONE_SIDED_RANKS);
    if (bytes > 0 && !ptr)
        return cecl_fail(ceclInvalidArgument, "ptr: NULL, with %zu bytes", bytes);
    return ceclSuccess;
}

/* Registers this rank's memory, and fills in *mine with its place. */
static ceclResult_t offer(ceclWindow_t window, void *ptr, size_t bytes, struct told *mine)
{
    ceclComm_t comm = window->comm;
    if (bytes == 0)
        return ceclSuccess;
    CECL_TRY(cecl_registration_add(comm, ptr, bytes, &window->registration));
    mine->bytes = bytes;
    mine->at = cecl_buffer_told(cecl_window_find(&comm->windows, ptr));
    mine->posted = comm->registry.posted;
    window->parts[comm->rank].address = ptr;
    return ceclSuccess;
}

/* Opens the memory of a peer, and keeps it open. */
static ceclResult_t open_part(ceclWindow_t window, int rank, uint64_t posted)
{
    ceclComm_t comm = window->comm;
    struct cecl_share_part *part = &window->parts[rank];
    void *at = NULL;
    cecl_registry_promised(&comm->registry, rank, posted);
    CECL_TRY(cecl_window_reach(&comm->windows, part->at, part->bytes, rank, &at));
    part->address = at;
    CECL_TRY(cecl_imports_add(&comm->registry, rank, part->at.window, &part->imports));
    cecl_imports_hold(&comm->registry, &part->imports, true);
    return ceclSuccess;
}

/* The error of a failed import. If the communicator has failed, returns its error. If the worker could not carry out a
 * peer's message, fails the communicator, because no call can use new memory of that peer any more. */
static ceclResult_t cause_of(ceclComm_t comm, ceclResult_t result)
{
    CECL_TRY(cecl_comm_async(comm));
    bool broken = false;
    pthread_mutex_lock(&comm->registry.lock);
    for (int r = 0; r < comm->nranks; r++)
        broken = broken || comm->registry.peers[r].failed != ceclSuccess;
    pthread_mutex_unlock(&comm->registry.lock);
    return broken ? cecl_comm_break(comm, result) : result;
}

static ceclResult_t open_parts(ceclWindow_t window)
{
    ceclComm_t comm = window->comm;
    const struct told *all = comm->launcher->exchange;
    struct cecl_launch waiting = {.comm = comm}; /* only its time limit is used */
    ceclResult_t result = ceclSuccess;
    cecl_launch_bound_waits(&waiting);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++) {
        window->parts[r].at = all[r].at;
        window->parts[r].bytes = all[r].bytes;
        if (r != comm->rank && all[r].bytes > 0)
            result = open_part(window, r, all[r].posted);
    }
    comm->launcher->making = NULL;
    cecl_registry_made(&comm->registry);
    return result == ceclSuccess ? ceclSuccess : cause_of(comm, result);
}

#define CURE "ceclWindowShare and ceclWindowFree need a thread for each rank"

static ceclResult_t share(ceclComm_t comm, void *ptr, size_t bytes, ceclWindow_t *out)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    struct told mine = {.number = room->nwindows + 1};
    char words[CECL_MESSAGE_BYTES];
    ceclWindow_t window = new_window(comm);
    ceclResult_t result = window ? check_new(comm, ptr, bytes, out)
                                 : cecl_fail(ceclOutOfMemory, "no host memory for a window");
    if (result == ceclSuccess)
        result = offer(window, ptr, bytes, &mine);
    result = exchange(comm, "ceclWindowShare", &mine, result);
    if (result == ceclSuccess)
        result = cecl_comm_exchanged(comm, cecl_mesh_agree(comm->mesh, open_parts(window)));
    if (result == ceclSuccess) {
        window->magic = CECL_SHARE_MAGIC;
        window->next = room->windows;
        room->nwindows++;
        *out = room->windows = window;
        return ceclSuccess;
    }
    result = cecl_comm_cause(comm, result); /* the cause may be a peer's failure */
    cecl_keep_message(words);
    if (window)
        (void)!discard(window);
    return cecl_comm_add_cure(comm, cecl_fail_with(result, words), CURE);
}

/* ---- freeing */

static bool is_pending(const struct ceclWindow *window)
{
    const struct cecl_flags *flags = &window->comm->engine.flags;
    bool pending = false;
    for (uint32_t line = 0; line < CECL_LINES; line++)
        pending =
            pending || !cecl_line_is_done(flags, (struct cecl_line_at){line, window->used[line]});
    return pending;
}

static void take_out(ceclWindow_t window)
{
    ceclWindow_t *at = &window->comm->launcher->one_sided.windows;
    while (*at != window)
        at = &(*at)->next;
    *at = window->next;
}

/* Each rank first checks that its own copies are done. So after the exchange no peer's copy is pending. */
static ceclResult_t free_window(ceclComm_t comm, ceclWindow_t window)
{
    struct told mine = {0};
    ceclResult_t result = cecl_window_handle_check(comm, window);
    if (result == ceclSuccess) {
        mine.number = window->number;
        if (is_pending(window))
            result = cecl_fail(ceclInvalidUsage,
                               "window %" PRIu32 ": a call of this rank that copies to it, or from "
                               "it, is pending; synchronize its stream first",
                               window->number);
    }
    result = exchange(comm, "ceclWindowFree", &mine, result);
    if (result != ceclSuccess)
        return cecl_comm_add_cure(comm, result, CURE);
    take_out(window);
    return discard(window);
}

ceclResult_t cecl_windows_check_free(ceclComm_t comm, uint64_t offset)
{
    const struct ceclWindow *window = comm->launcher->one_sided.windows;
    uint64_t start, bytes;
    if (!cecl_blocks_find(&comm->pool.blocks, offset, &start, &bytes))
        return ceclSuccess;
    for (; window; window = window->next)
        for (int r = 0; r < comm->nranks; r++) {
            const struct cecl_share_part *part = &window->parts[r];
            if (part->at.window == CECL_WINDOW_POOL && part->at.offset < offset + bytes &&
                offset < part->at.offset + part->bytes)
                return cecl_fail(ceclInvalidUsage,
                                 "window %" PRIu32
                                 " shares this memory of rank %d: call ceclWindowFree first",
                                 window->number, r);
        }
    return ceclSuccess;
}

void cecl_windows_end(ceclComm_t comm, bool drained)
{
    struct cecl_one_sided_room *room = comm->launcher ? &comm->launcher->one_sided : NULL;
    while (room && room->windows) {
        ceclWindow_t window = room->windows;
        room->windows = window->next;
        window->magic = 0;
        if (!drained) /* pending work may still use the window's memory, so it stays */
            continue;
        close_parts(window);
        put_back(window);
    }
}

/* ---- public */

static ceclResult_t check(ceclComm_t comm)
{
    CECL_TRY(cecl_comm_check(comm));
    return cecl_comm_check_own(comm, "windows of peers", "send messages (ceclSend, ceclRecv)");
}

CECL_API ceclResult_t ceclWindowShare(ceclComm_t comm, void *ptr, size_t bytes,
                                      ceclWindow_t *window)
{
    CECL_PUBLIC;
    CECL_TRY(check(comm));
    CECL_TRY(cecl_group_check_outside("ceclWindowShare", ""));
    CECL_INSIDE(comm, "ceclWindowShare");
    CECL_NVTX_RANGE(comm->has_ranges, "ceclWindowShare");
    return share(comm, ptr, bytes, window);
}

CECL_API ceclResult_t ceclWindowFree(ceclComm_t comm, ceclWindow_t window)
{
    CECL_PUBLIC;
    CECL_TRY(check(comm));
    CECL_TRY(cecl_group_check_outside("ceclWindowFree", ""));
    CECL_INSIDE(comm, "ceclWindowFree");
    CECL_NVTX_RANGE(comm->has_ranges, "ceclWindowFree");
    return free_window(comm, window);
}

CECL_API ceclResult_t ceclWindowPointer(ceclComm_t comm, ceclWindow_t window, int peer, void **ptr)
{
    CECL_PUBLIC;
    CECL_TRY(check(comm));
    CECL_INSIDE(comm, "ceclWindowPointer");
    CECL_TRY(cecl_window_handle_check(comm, window));
    CECL_TRY(cecl_check_given("ptr", ptr));
    CECL_TRY(cecl_peer_check(comm, peer));
    if (!window->parts[peer].address)
        return cecl_fail(ceclInvalidArgument, "window %" PRIu32 ": rank %d shares no memory in it",
                         window->number, peer);
    if (peer != comm->rank)
        atomic_store(&comm->gave_pointers, true);
    *ptr = window->parts[peer].address;
    return ceclSuccess;
}
