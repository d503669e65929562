/* Finds out whether the driver runs this GPU's local copies on a copy engine, by trying them while
 * a kernel holds every SM.
 *
 *     legacy:  | the copies once, so that everything they need is loaded |
 *     side:    | the kernel that holds all SMs, until the host releases it or HOLD_MS pass ... |
 *     legacy:  | once all of its blocks run: the copies again, each kind with a word behind it |
 *
 * The copies have the priority of callers' streams, the kernel a higher one.
 *
 * If a word is written while all SMs are held, the copies before it needed no SM. A local copy that
 * runs on SMs waits for the kernel's end. With drivers up to CUDA 13.0 every local copy does. */
#include <time.h>

#include "device/cuda.h"
#include "sm/hold.h"
#include "util/clock.h"

#define LAST_WITHOUT 13000 /* the newest driver known to run every local copy on SMs */
#define HOLD_MS 50
#define RESIDENT_MS 15 /* ms for all blocks to start; if they take longer, other work holds SMs */
#define COPY_MS 15     /* ms for the copies to end: 2 MiB at 87 GB/s take 0.03 ms */
#define END_MS 10000   /* ms for the GPU to finish everything that was tried */
_Static_assert(RESIDENT_MS + COPY_MS < HOLD_MS, "held until the copies were waited for");

#define COPY_MOST (2u << 20) /* bytes of the largest copy */
#define SMALL_MOST (8u << 10)
#define ROWS 8

/* Pinned memory. It stays until the device is closed, because freeing it waits
 * for all work of the GPU. */
struct cuda_local {
    struct cecl_hold_words hold;
    uint32_t done[2]; /* written behind the contiguous copies, and behind the rows */
};

/* Only one thread of a process tries copies at a time, because loading kernels waits for running
 * work, also on other GPUs. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static bool has_word(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
}

static void pause_us(long us)
{
    const struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
}

static ceclResult_t tell_done(struct cuda_device *cuda, uint32_t *word)
{
    const struct cecl_memop write = {word, 1, CECL_MEMOP_WRITE};
    return cuda_memops(&cuda->base, cuda->legacy, &write, 1);
}

/* Issues copies as calls do: a batch of one, a batch of several, large and small ones, at odd
 * addresses, and rows. They go from the first half of `room` to the second. */
static ceclResult_t copy_locally(struct cuda_device *cuda, char *room, size_t bytes)
{
    const size_t half = bytes / 2, most = half < COPY_MOST ? half : COPY_MOST,
                 small = half / 4 < SMALL_MOST ? half / 4 : SMALL_MOST;
    void *dst[] = {room + half, room + half, room + half + small + 1};
    void *src[] = {room, room, room + small + 3};
    size_t sizes[] = {most, small, small / 2 - 3};
    const struct cecl_batch alone = {dst, src, sizes, 1},
                            together = {dst + 1, src + 1, sizes + 1, 2};
    const struct cecl_row_copy rows = {.dst = room + half,
                                       .src = room,
                                       .width = small / 4,
                                       .rows = ROWS,
                                       .dst_pitch = small / 4,
                                       .src_pitch = small / 2};
    CECL_TRY(cuda_copies(&cuda->base, cuda->legacy, &alone));
    CECL_TRY(cuda_copies(&cuda->base, cuda->legacy, &together));
    CECL_TRY(tell_done(cuda, &cuda->local->done[0]));
    CECL_TRY(cuda_row_copies(&cuda->base, cuda->legacy, &rows, 1));
    return tell_done(cuda, &cuda->local->done[1]);
}

static ceclResult_t take_words(struct cuda_device *cuda)
{
    uint32_t *words = NULL;
    if (cuda->local)
        return ceclSuccess;
    CECL_TRY(cuda_words_alloc(&cuda->base, sizeof(*cuda->local) / sizeof(*words), &words));
    cuda->local = (struct cuda_local *)(void *)words;
    return ceclSuccess;
}

static bool all_run(const struct cuda_device *cuda, struct cecl_hold_size size)
{
    const int64_t deadline = cecl_deadline(RESIDENT_MS);
    while (!cecl_hold_all_run(&cuda->local->hold, size) && cecl_now_ms() < deadline)
        pause_us(20);
    return cecl_hold_all_run(&cuda->local->hold, size);
}

/* Returns the kinds of copies that end while the kernel holds all SMs; 0 if the kernel does not
 * hold all SMs. */
static uint32_t copies_while_held(struct cuda_device *cuda, struct cecl_hold_size size, char *room,
                                  size_t bytes)
{
    const struct cuda_local *local = cuda->local;
    if (!all_run(cuda, size) || copy_locally(cuda, room, bytes) != ceclSuccess)
        return 0;
    const int64_t deadline = cecl_deadline(COPY_MS);
    while (!has_word(&local->done[1]) && cecl_now_ms() < deadline)
        pause_us(20);
    const uint32_t ways = (has_word(&local->done[0]) ? CECL_LOCAL_CONTIGUOUS : 0u) |
                          (has_word(&local->done[1]) ? CECL_LOCAL_ROWS : 0u);
    return cecl_hold_holds(&local->hold, size) ? ways : 0;
}

static ceclResult_t wait_for(struct cuda_device *cuda, CUstream stream)
{
    const int64_t deadline = cecl_deadline(END_MS);
    CUresult state;
    while ((state = cuda->cu->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY &&
           cecl_now_ms() < deadline)
        pause_us(50);
    if (state == CUDA_ERROR_NOT_READY)
        return cecl_fail(ceclTimeout,
                         "GPU %d: a few small copies were not done after %d ms; does something "
                         "hold its SMs? (CECL_LOCAL_COPY=off skips this trial)",
                         cuda->base.ordinal, END_MS);
    return cecl_driver_check(cuda->cu, state, "cuStreamQuery");
}

/* Waits until everything that was tried has ended. If it does not end, the device is stuck. */
static ceclResult_t settle(struct cuda_device *cuda)
{
    ceclResult_t result = wait_for(cuda, cuda->legacy);
    if (result == ceclSuccess)
        result = wait_for(cuda, cuda->side);
    cuda->stuck = result != ceclSuccess;
    return result;
}

static ceclResult_t try_copies(struct cuda_device *cuda, char *room, size_t bytes, uint32_t *ways)
{
    struct cecl_hold_size size;
    if (take_words(cuda) != ceclSuccess)
        return ceclSuccess;
    struct cuda_local *local = cuda->local;
    *local = (struct cuda_local){0};
    const bool loaded =
        cecl_hold_prepare(&size) == ceclSuccess && copy_locally(cuda, room, bytes) == ceclSuccess;
    CECL_TRY(settle(cuda));
    local->done[0] = local->done[1] = 0;
    if (loaded && cecl_hold_launch(cuda->side, size, &local->hold, HOLD_MS * UINT64_C(1000000)) ==
                      ceclSuccess) {
        *ways = copies_while_held(cuda, size, room, bytes);
        local->hold.let_go = 1;
        CECL_TRY(settle(cuda));
    }
    return ceclSuccess;
}

ceclResult_t cuda_local_copies(struct cecl_device *dev, void *room, size_t bytes, bool always,
                               uint32_t *ways)
{
    struct cuda_device *cuda = cuda_of(dev);
    ceclResult_t result;
    *ways = 0;
    if (bytes < CECL_LOCAL_ROOM || (!always && cuda->cu->version <= LAST_WITHOUT))
        return ceclSuccess;
    pthread_mutex_lock(&turn);
    CUDA_BESIDE(cuda, result, try_copies(cuda, room, bytes, ways));
    pthread_mutex_unlock(&turn);
    if (result != ceclSuccess)
        *ways = 0;
    return result;
}
