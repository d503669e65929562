/* What the tests of the CUDA device share: devices, memory of one device that the other maps, and waits with a time
 * limit. Each test program is one process, and includes this file once. */
#ifndef CECL_TEST_CUDA_FIXTURE_H
#define CECL_TEST_CUDA_FIXTURE_H

#include <time.h>

#include "../with_cmocka.h"
#include <cuda_runtime_api.h>

#include "device/device.h"
#include "util/clock.h"

#define SOON_MS 5000        /* time limit of what must end */
#define A_WHILE_MS 200      /* how long a test watches a wait that must not end */
#define PROGRAM_S 120       /* time limit of the whole program */
#define PATTERN_WORDS 65536 /* 256 KiB: large enough for a copy engine, and more than one packet */

#define must(expr) \
    do { \
        if ((expr) != ceclSuccess) \
            fail_msg("%s: %s", #expr, cecl_message()); \
    } while (0)

#define must_cuda(expr) \
    do { \
        const cudaError_t must_error_ = (expr); \
        if (must_error_ != cudaSuccess) \
            fail_msg("%s: %s", #expr, cudaGetErrorString(must_error_)); \
    } while (0)

/* `expr` must fail with `result` and a message that contains `words`. */
#define refused(result, words, expr) \
    do { \
        assert_int_equal((expr), (result)); \
        if (!strstr(cecl_message(), (words))) \
            fail_msg("\"%s\" is not in \"%s\"", (words), cecl_message()); \
    } while (0)

#define OPS(device) ((device)->ops)

static struct cecl_device *gpu[2]; /* gpu[1] is NULL with only one GPU */

/* Each program's main calls this first. It limits the program's time. Returns 77 without a usable GPU. */
static inline int fixture_start(void)
{
    struct cecl_gpu_id id;
    char why[200] = "";
    alarm(PROGRAM_S);
    if (cecl_cuda_probe(0, 0, &id, why, sizeof(why)) == ceclSuccess && id.usable)
        return 0;
    printf("skipped: no usable GPU: %s\n", why);
    return 77;
}

/* Calls fixture_start. The program's argument is how many GPUs to use (default 2). Returns that, or 0 to skip. */
static inline int gpus_wanted(int argc, char **argv, int most)
{
    int count = 0;
    const int wanted = argc > 1 ? atoi(argv[1]) : 2;
    if (fixture_start() != 0)
        return 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && wanted >= 2 && wanted <= most &&
        count >= wanted)
        return wanted;
    printf("skipped: %d GPUs are needed, %d are here\n", wanted, count);
    return 0;
}

/* Whether a tool that makes kernels slow observes them (CECL_TEST_SHORT=1). */
static inline bool is_short(void)
{
    const char *wish = getenv("CECL_TEST_SHORT");
    return wish && *wish == '1';
}

static inline int gpus_open(void **state)
{
    int count = 0;
    must_cuda(cudaGetDeviceCount(&count));
    must_cuda(cudaSetDevice(0));
    must(cecl_cuda_open(0, &gpu[0]));
    if (count > 1)
        must(cecl_cuda_open(1, &gpu[1]));
    return 0;
}

static inline int gpus_close(void **state)
{
    for (int i = 0; i < 2; i++)
        if (gpu[i])
            OPS(gpu[i])->close(gpu[i]);
    gpu[0] = gpu[1] = NULL;
    return 0;
}

static inline void need_two(void)
{
    if (gpu[1])
        return;
    skip_because("two GPUs are needed");
}

/* Makes `from` the current GPU and lets it access memory of `to`. Skips the test if it cannot. */
static inline void reach(int from, int to)
{
    int reaches = 0;
    must_cuda(cudaSetDevice(from));
    must_cuda(cudaDeviceCanAccessPeer(&reaches, from, to));
    if (!reaches)
        skip_because("a GPU does not reach another one's memory");
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
    assert_true(enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
}

/* A function of the driver that only tests call. */
static inline void *driver_function(const char *name, unsigned version)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    must_cuda(
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &status));
    assert_int_equal(status, cudaDriverEntryPointSuccess);
    return function;
}

static inline void pause_ms(int ms)
{
    const struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

static inline bool ends_within(struct cecl_device *dev, ceclStream_t stream, int ms)
{
    const int64_t deadline = cecl_deadline(ms);
    ceclResult_t result = OPS(dev)->stream_query(dev, stream);
    while (result == ceclInProgress && cecl_now_ms() < deadline) {
        const struct timespec pause = {.tv_nsec = 50000};
        nanosleep(&pause, NULL);
        result = OPS(dev)->stream_query(dev, stream);
    }
    if (result != ceclSuccess && result != ceclInProgress)
        fail_msg("stream_query: %s", cecl_message());
    return result == ceclSuccess;
}

/* Ends a capture, which must still be valid. */
static inline void end_capture_and_check_it(ceclStream_t stream)
{
    cudaGraph_t graph = NULL;
    must_cuda(cudaStreamEndCapture(stream, &graph));
    assert_non_null(graph);
    must_cuda(cudaGraphDestroy(graph));
}

struct memory {
    struct cecl_device *dev; /* the device that maps it */
    struct cecl_mem mem;
    uint32_t *at;
    size_t bytes;
};

static inline struct memory memory_map(struct cecl_device *dev, struct cecl_mem mem)
{
    struct memory memory = {.dev = dev, .mem = mem, .bytes = mem.bytes};
    void *at = NULL;
    must(OPS(dev)->reserve(dev, mem.bytes, &at));
    must(OPS(dev)->mem_map(dev, at, &memory.mem));
    memory.at = at;
    return memory;
}

static inline struct memory memory_make(struct cecl_device *dev, size_t bytes)
{
    struct cecl_mem mem = {0};
    must(OPS(dev)->mem_create(dev, (bytes + dev->granularity - 1) & ~(dev->granularity - 1), &mem));
    return memory_map(dev, mem);
}

static inline struct memory memory_view(struct cecl_device *dev, const struct memory *theirs)
{
    struct cecl_mem mem = {0};
    int fd = -1;
    must(OPS(theirs->dev)->mem_export(theirs->dev, &theirs->mem, &fd));
    ceclResult_t result = OPS(dev)->mem_import(dev, fd, theirs->bytes, &mem);
    close(fd);
    must(result);
    return memory_map(dev, mem);
}

static inline void memory_end(struct memory *memory)
{
    OPS(memory->dev)->mem_unmap(memory->dev, memory->at, memory->bytes);
    OPS(memory->dev)->mem_release(memory->dev, &memory->mem);
    OPS(memory->dev)->unreserve(memory->dev, memory->at, memory->bytes);
    *memory = (struct memory){0};
}

/* ---- patterns of PATTERN_WORDS words, copied from and to pinned memory, which uses no SM */

static inline uint32_t pattern_word(uint32_t seed, size_t i)
{
    return (uint32_t)(i * 2654435761u) ^ (seed * 0x9e3779b9u);
}

static inline void pattern_fill(uint32_t *words, uint32_t seed)
{
    for (size_t i = 0; i < PATTERN_WORDS; i++)
        words[i] = pattern_word(seed, i);
}

static inline bool pattern_is(const uint32_t *words, uint32_t seed)
{
    for (size_t i = 0; i < PATTERN_WORDS; i++)
        if (words[i] != pattern_word(seed, i))
            return false;
    return true;
}

/* What a test needs of one device; created before SMs are held. */
struct kit {
    struct cecl_device *dev;
    ceclStream_t stream, other;
    uint32_t *host;       /* [PATTERN_WORDS] pinned */
    uint32_t *flag;       /* one pinned word, with value 0 */
    struct memory memory; /* [2 * PATTERN_WORDS], zeros */
};

static inline struct kit kit_make(struct cecl_device *dev)
{
    struct kit kit = {.dev = dev, .memory = memory_make(dev, PATTERN_WORDS * 8)};
    must(OPS(dev)->stream_create(dev, false, &kit.stream));
    must(OPS(dev)->stream_create(dev, false, &kit.other));
    must(OPS(dev)->words_alloc(dev, PATTERN_WORDS, &kit.host));
    must(OPS(dev)->words_alloc(dev, 1, &kit.flag));
    must(OPS(dev)->mem_set(dev, kit.memory.at, 0, PATTERN_WORDS * 8));
    return kit;
}

static inline void kit_end(struct kit *kit)
{
    must(OPS(kit->dev)->stream_destroy(kit->dev, kit->stream));
    must(OPS(kit->dev)->stream_destroy(kit->dev, kit->other));
    OPS(kit->dev)->words_free(kit->dev, kit->host);
    OPS(kit->dev)->words_free(kit->dev, kit->flag);
    memory_end(&kit->memory);
    *kit = (struct kit){0};
}

static inline void put_pattern(struct kit *kit, uint32_t *at, uint32_t seed)
{
    pattern_fill(kit->host, seed);
    must(OPS(kit->dev)->memcpy_async(kit->dev, at, kit->host, PATTERN_WORDS * 4, kit->other));
    assert_true(ends_within(kit->dev, kit->other, SOON_MS));
}

static inline bool has_pattern(struct kit *kit, const uint32_t *at, uint32_t seed)
{
    memset(kit->host, 0, PATTERN_WORDS * 4);
    must(OPS(kit->dev)->memcpy_async(kit->dev, kit->host, at, PATTERN_WORDS * 4, kit->other));
    assert_true(ends_within(kit->dev, kit->other, SOON_MS));
    return pattern_is(kit->host, seed);
}

/* ---- a crowd: copies from each of at least two GPUs to the next, which keep the links busy */

#define CROWD_MOST 16
#define CROWD_BYTES (32 << 20)

struct crowd {
    int gpus;
    unsigned char *from[CROWD_MOST], *to[CROWD_MOST]; /* index g is memory of GPU g */
    cudaStream_t streams[CROWD_MOST];
};

/* Opens a crowd. Skips the test if a GPU cannot access the next. Changes the current GPU. */
static inline void crowd_open(struct crowd *crowd, int gpus)
{
    crowd->gpus = gpus;
    for (int g = 0; g < gpus; g++)
        reach(g, (g + 1) % gpus);
    for (int g = 0; g < gpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaMalloc((void **)&crowd->from[g], CROWD_BYTES));
        must_cuda(cudaMalloc((void **)&crowd->to[g], CROWD_BYTES));
        must_cuda(cudaStreamCreateWithFlags(&crowd->streams[g], cudaStreamNonBlocking));
        must_cuda(cudaDeviceSynchronize());
    }
}

/* Enqueues `times` copies of about 90 us on each GPU, and returns at once. */
static inline void crowd_come(const struct crowd *crowd, int times)
{
    for (int i = 0; i < times; i++)
        for (int g = 0; g < crowd->gpus; g++) {
            must_cuda(cudaSetDevice(g));
            must_cuda(cudaMemcpyAsync(crowd->to[(g + 1) % crowd->gpus], crowd->from[g], CROWD_BYTES,
                                      cudaMemcpyDefault, crowd->streams[g]));
        }
}

static inline void crowd_close(struct crowd *crowd)
{
    for (int g = 0; g < crowd->gpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamSynchronize(crowd->streams[g]));
        must_cuda(cudaStreamDestroy(crowd->streams[g]));
    }
    for (int g = 0; g < crowd->gpus; g++) {
        must_cuda(cudaFree(crowd->from[g]));
        must_cuda(cudaFree(crowd->to[g]));
    }
    memset(crowd, 0, sizeof(*crowd));
}

static inline ceclResult_t copy_one(struct cecl_device *dev, ceclStream_t stream, void *dst,
                                    void *src, size_t bytes)
{
    const struct cecl_batch batch = {&dst, &src, &bytes, 1, false};
    return OPS(dev)->copies(dev, stream, &batch);
}

static inline ceclResult_t write_word(struct cecl_device *dev, ceclStream_t stream, uint32_t *word,
                                      uint32_t value)
{
    const struct cecl_memop op = {word, value, CECL_MEMOP_WRITE};
    return OPS(dev)->memops(dev, stream, &op, 1);
}

static inline ceclResult_t wait_word(struct cecl_device *dev, ceclStream_t stream, uint32_t *word,
                                     uint32_t value)
{
    const struct cecl_memop op = {word, value, CECL_MEMOP_WAIT};
    return OPS(dev)->memops(dev, stream, &op, 1);
}

static inline void host_writes(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static struct kit kit;

static inline int kit_open(void **state)
{
    kit = kit_make(gpu[0]);
    return 0;
}

static inline int kit_close(void **state)
{
    kit_end(&kit);
    return 0;
}

#define TEST_WITH_KIT(name) TEST_BETWEEN(name, kit_open, kit_close)

#define GPU_TESTS(set_up, tear_down) \
    int main(void) \
    { \
        const int skipped = fixture_start(); \
        return skipped ? skipped : tests_run(set_up, tear_down); \
    }

#endif
