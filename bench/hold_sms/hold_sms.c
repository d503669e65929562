/* Holds every SM of a GPU; see hold_sms.h. The kernel has two blocks for each SM, which together take all of its
 * threads. (One block alone would leave room for a block of another kernel.) */
#include "hold_sms.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/driver.h"

#define HOLDS_MAX 16 /* at the same time */
#define BLOCKS_MAX 1022
#define LIMIT_NS 20000000000ull
#define START_MS 10000

/* Pinned memory, zeroed before a launch. Each word has one writer, the host or thread 0 of one block, because not
 * every machine has atomic operations on host memory. Only `gave_up` may have several, which write the same value. */
struct words {
    volatile uint32_t let_go;  /* the host sets it to end the kernel */
    volatile uint32_t gave_up; /* a block sets it when it ends because its time is over */
    volatile uint32_t runs[BLOCKS_MAX];
};

/* The kernel: cecl_hold(words, limit in ns), in PTX, which the driver compiles for the GPU. Thread 0 polls; the other
 * threads wait at the barrier, and so keep their places on the SM. */
static const char kernel_text[] =
    ".version 7.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".visible .entry cecl_hold(.param .u64 words, .param .u64 limit)\n"
    ".maxntid 1024, 1, 1\n"
    ".minnctapersm 2\n"
    "{\n"
    "    .reg .pred is;\n"
    "    .reg .u32 word, one;\n"
    "    .reg .u64 at, mine, most, start, now;\n"
    "    mov.u32 word, %tid.x;\n"
    "    setp.ne.u32 is, word, 0;\n"
    "    @is bra END;\n"
    "    ld.param.u64 at, [words];\n"
    "    ld.param.u64 most, [limit];\n"
    "    mov.u64 start, %globaltimer;\n"
    "    mov.u32 word, %ctaid.x;\n"
    "    mul.wide.u32 mine, word, 4;\n"
    "    add.u64 mine, mine, at;\n"
    "    mov.u32 one, 1;\n"
    "    st.volatile.u32 [mine + 8], one;\n" /* runs[block] */
    "    membar.sys;\n"
    "LOOK:\n"
    "    ld.volatile.u32 word, [at];\n" /* let_go */
    "    setp.ne.u32 is, word, 0;\n"
    "    @is bra END;\n"
    "    mov.u64 now, %globaltimer;\n"
    "    sub.u64 now, now, start;\n"
    "    setp.gt.u64 is, now, most;\n"
    "    @is bra GIVE_UP;\n"
    "    nanosleep.u32 1000;\n"
    "    bra LOOK;\n"
    "GIVE_UP:\n"
    "    st.volatile.u32 [at + 4], one;\n" /* gave_up */
    "    membar.sys;\n"
    "END:\n"
    "    bar.sync 0;\n"
    "    ret;\n"
    "}\n";
_Static_assert(offsetof(struct words, gave_up) == 4 && offsetof(struct words, runs) == 8,
               "as the kernel has it");

struct hold_sms {
    int ordinal;
    int blocks; /* blocks that run at the same time: 2 for each SM; 0 before the launch */
    bool own_stream;
    CUstream stream;
    struct words *words;
};

/* One allocation serves all holds: the first hold makes it, and the last one frees it. Pinning memory while another
 * GPU is held might wait for that GPU. */
static struct words *all_words;
static bool taken[HOLDS_MAX];

static const struct cecl_driver *cu; /* set by the first hold */

static bool works(ceclResult_t result)
{
    if (result != ceclSuccess)
        fprintf(stderr, "hold_sms: %s\n", ceclGetLastError(NULL));
    return result == ceclSuccess;
}
#define WORKS(function, ...) works(cecl_driver_check(cu, cu->function(__VA_ARGS__), #function))

static bool has_driver(void)
{
    const char *why = NULL;
    cu = cecl_driver_get(&why);
    if (!cu)
        fprintf(stderr, "hold_sms: %s\n", why);
    return cu != NULL;
}

/* Whether every block has started. */
static bool all_run(const struct hold_sms *hold)
{
    for (int i = 0; i < hold->blocks; i++)
        if (!hold->words->runs[i])
            return false;
    return true;
}

static struct words *words_take(void)
{
    if (!all_words && !WORKS(cuMemHostAlloc, (void **)&all_words, HOLDS_MAX * sizeof(*all_words),
                             CU_MEMHOSTALLOC_PORTABLE))
        return NULL;
    for (int i = 0; i < HOLDS_MAX; i++)
        if (!taken[i]) {
            taken[i] = true;
            memset((void *)&all_words[i], 0, sizeof(all_words[i]));
            return &all_words[i];
        }
    fprintf(stderr, "hold_sms: %d holds already\n", HOLDS_MAX);
    return NULL;
}

static void words_give_back(struct words *words)
{
    if (words)
        taken[words - all_words] = false;
    for (int i = 0; i < HOLDS_MAX; i++)
        if (taken[i])
            return;
    if (all_words)
        WORKS(cuMemFreeHost, all_words);
    all_words = NULL;
}

/* Loads the kernel onto the current GPU. Loading it at the launch might wait for work that runs on the GPU. */
static bool load(CUkernel *kernel)
{
    static CUlibrary library; /* belongs to no context, and is never unloaded */
    CUfunction here = NULL;
    return (library ||
            WORKS(cuLibraryLoadData, &library, kernel_text, NULL, NULL, 0, NULL, NULL, 0)) &&
           WORKS(cuLibraryGetKernel, kernel, library, "cecl_hold") &&
           WORKS(cuKernelGetFunction, &here, *kernel) && WORKS(cuFuncLoad, here);
}

static bool await_blocks(const struct hold_sms *hold)
{
    for (int ms = 0; ms < START_MS; ms++) {
        if (all_run(hold))
            return true;
        const struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "hold_sms: GPU %d: not all of %d blocks run after %d ms; is it busy?\n",
            hold->ordinal, hold->blocks, START_MS);
    return false;
}

/* Launches the kernel on the current device, and waits until every block runs. */
static bool launch(struct hold_sms *hold)
{
    int least = 0, most = 0, sms = 0, threads = 0;
    uint64_t limit_ns = LIMIT_NS;
    void *arguments[] = {&hold->words, &limit_ns};
    CUkernel kernel;
    if (!load(&kernel) || !WORKS(cuCtxGetStreamPriorityRange, &least, &most) ||
        !WORKS(cuDeviceGetAttribute, &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
               hold->ordinal) ||
        !WORKS(cuDeviceGetAttribute, &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
               hold->ordinal))
        return false;
    if (2 * sms > BLOCKS_MAX) {
        fprintf(stderr, "hold_sms: GPU %d has %d SMs; at most %d are expected\n", hold->ordinal,
                sms, BLOCKS_MAX / 2);
        return false;
    }
    if (!hold->stream) {
        if (!WORKS(cuStreamCreateWithPriority, &hold->stream, CU_STREAM_NON_BLOCKING, least))
            return false;
        hold->own_stream = true;
    }
    if (!WORKS(cuLaunchKernel, (CUfunction)kernel, (unsigned)(2 * sms), 1, 1, (unsigned)threads / 2,
               1, 1, 0, hold->stream, arguments, NULL))
        return false;
    hold->blocks = 2 * sms;
    return await_blocks(hold);
}

struct hold_sms *hold_sms_start_on(int ordinal, struct CUstream_st *stream)
{
    CUcontext before = NULL;
    struct hold_sms *hold = calloc(1, sizeof(*hold));
    if (!hold)
        return NULL;
    hold->ordinal = ordinal;
    hold->stream = stream;
    bool held = has_driver() && WORKS(cuCtxGetCurrent, &before) &&
                works(cecl_driver_set_device(cu, ordinal)) && (hold->words = words_take()) &&
                launch(hold);
    if (cu)
        WORKS(cuCtxSetCurrent, before);
    if (held)
        return hold;
    hold_sms_stop(hold);
    return NULL;
}

struct hold_sms *hold_sms_start(void)
{
    CUdevice current = 0;
    return has_driver() && WORKS(cuCtxGetDevice, &current) ? hold_sms_start_on(current, NULL)
                                                           : NULL;
}

/* A block that gives up writes `gave_up` before it leaves its SM. So if this function returns 1, all SMs were held
 * until now, and any work that the caller has seen finish ran while they were held. */
int hold_sms_held(const struct hold_sms *hold)
{
    /* orders the caller's earlier loads before those below */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return hold->blocks > 0 && all_run(hold) && !hold->words->gave_up && !hold->words->let_go;
}

int hold_sms_stop(struct hold_sms *hold)
{
    if (!hold)
        return 0;
    const int held = hold_sms_held(hold);
    if (hold->words)
        hold->words->let_go = 1;
    if (hold->blocks > 0)
        WORKS(cuStreamSynchronize, hold->stream);
    if (hold->own_stream)
        WORKS(cuStreamDestroy, hold->stream);
    words_give_back(hold->words);
    free(hold);
    return held;
}
