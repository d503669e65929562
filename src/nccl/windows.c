/* See windows.h. */
#include "nccl/windows.h"

#include <stdlib.h>
#include <string.h>

#include "nccl/agree.h"
#include "nccl/depth.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "util/grow.h"
#include "util/log.h"
#include "util/thread.h"

/* The first NCCL that has ncclPutSignal. */
#define OLDEST CECL_NCCL_VERSION(2, 29)

/* The bits of an agreement: this rank can share the new window; and, for each of the first MOST_CLOSED
 * windows, this rank has deregistered it. */
enum { CAN_SHARE = 1, FIRST_CLOSED = 1, MOST_CLOSED = 31 };

struct cecl_nccl_windows {
    /* [count] in the order of registering, which is equal on all ranks */
    struct cecl_nccl_window *list;
    int count, room;
};

/* Between nodes cecl has no one-sided calls. */
void cecl_nccl_windows_open(struct cecl_nccl_comm *entry)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    const bool may = process->policy >= CECL_NCCL_ALL && process->real.version >= OLDEST &&
                     entry->nranks <= CECL_ONE_SIDED_RANKS;
    entry->windows = may ? calloc(1, sizeof(*entry->windows)) : NULL;
    entry->one_sided = may ? CECL_NCCL_ONE_SIDED_OPEN : CECL_NCCL_ONE_SIDED_PASSED;
    entry->has_passed_one_sided = false;
}

/* cecl's windows end with its communicator. */
void cecl_nccl_windows_forget(struct cecl_nccl_comm *entry)
{
    if (entry->windows)
        free(entry->windows->list);
    free(entry->windows);
    entry->windows = NULL;
}

const struct cecl_nccl_window *cecl_nccl_window_find(const struct cecl_nccl_comm *entry,
                                                     ncclWindow_t win)
{
    const struct cecl_nccl_windows *windows = entry->windows;
    for (int i = windows ? windows->count - 1 : -1; i >= 0; i--)
        if (windows->list[i].nccl == win && !windows->list[i].is_closed)
            return &windows->list[i];
    return NULL;
}

void cecl_nccl_window_deregistered(struct cecl_nccl_comm *entry, ncclWindow_t win)
{
    const struct cecl_nccl_window *window = cecl_nccl_window_find(entry, win);
    if (window)
        entry->windows->list[window - entry->windows->list].is_closed = true;
}

/* ---- registering: all ranks call these functions for the same window */

static uint32_t closed_bits(const struct cecl_nccl_windows *windows)
{
    uint32_t bits = 0;
    for (int i = 0; windows && i < windows->count && i < MOST_CLOSED; i++)
        bits |= (uint32_t)windows->list[i].is_closed << (FIRST_CLOSED + i);
    return bits;
}

/* Frees the windows that all ranks have deregistered. If a rank still has a pending call to a window,
 * ceclWindowFree fails on all ranks, and the next registration tries again. */
static void end_closed(struct cecl_nccl_comm *entry, uint32_t bits)
{
    struct cecl_nccl_windows *windows = entry->windows;
    for (int i = MOST_CLOSED - 1; i >= 0; i--) {
        if (!(bits >> (FIRST_CLOSED + i) & 1))
            continue;
        const ceclWindow_t ours = windows->list[i].ours;
        if (ours && cecl_nccl_library()->ceclWindowFree(entry->ours, ours) != ceclSuccess)
            continue;
        windows->count--;
        memmove(&windows->list[i], &windows->list[i + 1],
                (size_t)(windows->count - i) * sizeof(*windows->list));
    }
}

static bool has_room(struct cecl_nccl_windows *windows)
{
    return windows && CECL_HAS_ROOM(windows->list, windows->count, windows->room);
}

static ceclResult_t share(struct cecl_nccl_comm *entry, struct cecl_nccl_window window)
{
    const bool has_place = has_room(entry->windows),
               can = has_place && window.nccl && !entry->has_passed_one_sided;
    uint32_t bits = 0;
    cecl_nccl_agree_tell(entry, closed_bits(entry->windows) | (can ? CAN_SHARE : 0));
    /* If one rank's bit is missing, cecl is not used. So this rank, which cannot share the window, need not wait
     * for the others. NCCL may not wait here either, and the program's thread may register windows for other ranks
     * next. */
    if (!can && entry->one_sided == CECL_NCCL_ONE_SIDED_OPEN) {
        entry->one_sided = CECL_NCCL_ONE_SIDED_PASSED;
        return ceclSuccess;
    }
    CECL_TRY(cecl_nccl_agree_await(entry, "a window is registered", &bits));
    if (entry->windows)
        end_closed(entry, bits);
    if ((bits & CAN_SHARE) && /* ceclWindowShare succeeds on all ranks or on none */
        cecl_nccl_library()->ceclWindowShare(entry->ours, window.buff, window.bytes,
                                             &window.ours) != ceclSuccess)
        cecl_log(CECL_LOG_INFO, entry->rank, "a window is not shared for one-sided calls: %s",
                 cecl_nccl_library()->ceclGetLastError(NULL));
    if (entry->one_sided == CECL_NCCL_ONE_SIDED_OPEN)
        entry->one_sided = window.ours ? CECL_NCCL_ONE_SIDED_SERVED : CECL_NCCL_ONE_SIDED_PASSED;
    if (has_place && entry->one_sided == CECL_NCCL_ONE_SIDED_SERVED)
        entry->windows->list[entry->windows->count++] = window;
    return ceclSuccess;
}

/* A window that a call registers, now or at the end of its group. */
struct registered {
    struct cecl_nccl_comm *entry;
    ncclComm_t comm;
    const ncclWindow_t *win;
    void *buff;
    size_t bytes;
    int left; /* at the group's end: how many windows the group's list has from here on, with this one */
    ncclResult_t result;
    pthread_t thread;
    bool is_done, has_thread;
};

static void register_one(struct registered *one)
{
    const struct cecl_nccl_window window = {
        .nccl = one->win ? __atomic_load_n(one->win, __ATOMIC_ACQUIRE) : NULL,
        .buff = one->buff,
        .bytes = one->bytes};
    one->is_done = true;
    if (!cecl_nccl_comm_enter(one->entry, one->comm, CECL_NCCL_MADE))
        return;
    if (one->entry->one_sided != CECL_NCCL_ONE_SIDED_PASSED)
        one->result = cecl_nccl_comm_own_result(one->entry, share(one->entry, window));
    cecl_nccl_comm_leave(one->entry);
}

/* ---- groups */

static _Thread_local struct {
    struct registered *list;
    int count, room;
} group;

static void forget(void)
{
    free(group.list);
    group.list = NULL;
    group.count = group.room = 0;
}

static ncclResult_t keep(const struct registered *one)
{
    static struct cecl_thread_end end = CECL_THREAD_END_NONE;
    if (group.count == 0)
        cecl_thread_at_end(&end, forget);
    if (!CECL_HAS_ROOM(group.list, group.count, group.room))
        return ceclSystemError;
    group.list[group.count++] = *one;
    return ceclSuccess;
}

ncclResult_t cecl_nccl_window_registered(struct cecl_nccl_comm *entry, ncclComm_t comm, void *buff,
                                         size_t bytes, const ncclWindow_t *win)
{
    struct registered one = {
        .entry = entry, .comm = comm, .win = win, .buff = buff, .bytes = bytes};
    if (cecl_nccl_group_depth() > 0) {
        if (keep(&one) == ceclSuccess)
            return ceclSuccess;
        /* the window cannot be shared, which peers must hear. If windows are shared already, they would take
         * this word for one about another window of the group */
        if (entry->one_sided == CECL_NCCL_ONE_SIDED_SERVED)
            return ceclSystemError;
        one.win = NULL;
    }
    register_one(&one);
    return one.result;
}

/* Registers all windows of a communicator, in order. */
static void *register_all_of(void *argument)
{
    struct registered *first = argument;
    const ncclComm_t comm = first->comm;
    const int left = first->left;
    for (int i = 0; i < left; i++)
        if (first[i].comm == comm)
            register_one(&first[i]);
    return NULL;
}

static bool is_first_of_comm(const struct registered *list, int index)
{
    int i = 0;
    while (list[i].comm != list[index].comm)
        i++;
    return i == index;
}

/* How many windows of the group are registered. If NCCL ends the group in the background, it may not have
 * written the handles yet, so they are not used. */
static int count_registered(ncclResult_t ended)
{
    for (int i = 0; ended == ceclInProgress && i < group.count; i++)
        group.list[i].win = NULL;
    return ended == ceclSuccess || ended == ceclInProgress ? group.count : 0;
}

/* A thread's ranks wait for each other, so each of them except the first gets its own thread. */
ncclResult_t cecl_nccl_windows_end_group(ncclResult_t ended)
{
    ncclResult_t result = ceclSuccess;
    const int count = count_registered(ended);
    for (int i = 0; i < count; i++)
        group.list[i].left = count - i;
    for (int i = 1; i < count; i++)
        if (is_first_of_comm(group.list, i))
            group.list[i].has_thread = cecl_thread_start(&group.list[i].thread, "cecl-window",
                                                         register_all_of, &group.list[i]) == 0;
    if (count > 0)
        register_all_of(&group.list[0]);
    for (int i = 1; i < count; i++)
        if (group.list[i].has_thread)
            pthread_join(group.list[i].thread, NULL);
    for (int i = 0; i < count && result == ceclSuccess; i++)
        result = group.list[i].is_done ? group.list[i].result : (ncclResult_t)ceclSystemError;
    forget();
    return result;
}
