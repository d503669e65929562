/* See gpu.h. The driver's functions are looked up by name, so that this library also loads on machines
 * without CUDA. */
#include "nccl/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#define NOT_READY 600  /* CUDA_ERROR_NOT_READY */
#define NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */
#define NO_TIMING 2    /* CU_EVENT_DISABLE_TIMING */
#define TIMING 0       /* CU_EVENT_DEFAULT */
#define RELAXED 2      /* CU_STREAM_CAPTURE_MODE_RELAXED */
#define ACTIVE 1       /* CU_STREAM_CAPTURE_STATUS_ACTIVE */

/* At least this many bytes are allocated. Only communicators of many ranks need more. Then the old memory is
 * freed, which waits for all work on the GPU. */
#define LEAST_BYTES ((size_t)1 << 20)

typedef unsigned long long address; /* CUdeviceptr */

/* X(the driver's symbol, field, parameters) */
#define DRIVER(X)                                                                                  \
    X("cuCtxPopCurrent_v2", pop, (void **))                                                        \
    X("cuCtxPushCurrent_v2", push, (void *))                                                       \
    X("cuDeviceGetName", name, (char *, int, int))                                                 \
    X("cuDevicePrimaryCtxGetState", state, (int, unsigned *, int *))                               \
    X("cuDevicePrimaryCtxRelease_v2", release, (int))                                              \
    X("cuDevicePrimaryCtxRetain", retain, (void **, int))                                          \
    X("cuEventCreate", event_create, (void **, unsigned))                                          \
    X("cuEventDestroy_v2", event_destroy, (void *))                                                \
    X("cuEventElapsedTime", event_elapsed, (float *, void *, void *))                              \
    X("cuEventQuery", event_query, (void *))                                                       \
    X("cuEventRecord", event_record, (void *, cudaStream_t))                                       \
    X("cuMemAlloc_v2", alloc, (address *, size_t))                                                 \
    X("cuMemFree_v2", free, (address))                                                             \
    X("cuMemcpyDtoHAsync_v2", get, (void *, address, size_t, cudaStream_t))                        \
    X("cuMemcpyHtoDAsync_v2", put, (address, const void *, size_t, cudaStream_t))                  \
    X("cuStreamCreate", stream_create, (cudaStream_t *, unsigned))                                 \
    X("cuStreamDestroy_v2", stream_destroy, (cudaStream_t))                                        \
    X("cuStreamIsCapturing", is_capturing, (cudaStream_t, int *))                                  \
    X("cuStreamQuery", query, (cudaStream_t))                                                      \
    X("cuStreamSynchronize", synchronize, (cudaStream_t))                                          \
    X("cuStreamWaitEvent", event_wait, (cudaStream_t, void *, unsigned))                           \
    X("cuThreadExchangeStreamCaptureMode", capture_mode, (int *))

static struct {
    bool is_loaded;
#define FIELD(symbol, field, parameters) int(*field) parameters;
    DRIVER(FIELD)
#undef FIELD
} driver;

/* Only looks for a driver that is loaded: a process that uses a GPU has loaded it before it makes a
 * communicator. */
static void find_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    driver.is_loaded = handle;
#define FIND(symbol, field, parameters)                                                            \
    if (handle)                                                                                    \
        *(void **)&driver.field = dlsym(handle, symbol);                                           \
    driver.is_loaded = driver.is_loaded && driver.field;
    DRIVER(FIND)
#undef FIND
}

static bool has_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_driver);
    return driver.is_loaded;
}

static ceclResult_t check(int error, const char *what)
{
    return error == 0 ? ceclSuccess
                      : cecl_fail(ceclUnhandledCudaError, "%s: CUDA error %d", what, error);
}
#define TRY(field, ...) CECL_TRY(check(driver.field(__VA_ARGS__), #field))

/* The GPU is used if its primary context is active, because CUDA's runtime, and so NCCL, uses that
 * context. */
bool cecl_nccl_gpu_is_used(int ordinal)
{
    unsigned flags;
    int is_active = 0;
    return has_driver() && driver.state(ordinal, &flags, &is_active) == 0 && is_active;
}

void cecl_nccl_gpu_name(int ordinal, char *name, size_t bytes)
{
    if (has_driver())
        driver.name(name, (int)bytes, ordinal);
}

bool cecl_nccl_gpu_captures(cudaStream_t stream, bool *is_sound)
{
    int status = 0;
    const int error = has_driver() ? driver.is_capturing(stream, &status) : 0;
    *is_sound = error == 0 && status == ACTIVE;
    return error != 0 || status != 0;
}

ceclResult_t cecl_nccl_gpu_enter(struct cecl_nccl_gpu *gpu, int ordinal)
{
    void *context;
    if (!has_driver())
        return cecl_fail(ceclUnhandledCudaError, "GPU %d: this process has not loaded libcuda.so.1",
                         ordinal);
    TRY(retain, &context, ordinal);
    const ceclResult_t result = check(driver.push(context), "push");
    if (result != ceclSuccess)
        driver.release(ordinal);
    else
        *gpu =
            (struct cecl_nccl_gpu){.ordinal = ordinal, .context = context, .capture_mode = RELAXED};
    return result;
}

void cecl_nccl_gpu_pause(struct cecl_nccl_gpu *gpu)
{
    void *context;
    driver.pop(&context);
    if (gpu->capture_mode != RELAXED)
        driver.capture_mode(&gpu->capture_mode);
    gpu->capture_mode = RELAXED;
}

void cecl_nccl_gpu_leave(struct cecl_nccl_gpu *gpu)
{
    if (gpu->memory)
        driver.free(gpu->memory);
    if (gpu->stream)
        driver.stream_destroy(gpu->stream);
    cecl_nccl_gpu_pause(gpu);
    driver.release(gpu->ordinal);
    *gpu = (struct cecl_nccl_gpu){0};
}

bool cecl_nccl_gpu_return(struct cecl_nccl_gpu *gpu)
{
    gpu->capture_mode = RELAXED;
    driver.capture_mode(&gpu->capture_mode);
    if (driver.push(gpu->context) == 0)
        return true;
    driver.capture_mode(&gpu->capture_mode);
    return false;
}

static ceclResult_t order(cudaStream_t first, cudaStream_t then)
{
    void *event;
    TRY(event_create, &event, NO_TIMING);
    ceclResult_t result = check(driver.event_record(event, first), "event_record");
    if (result == ceclSuccess)
        result = check(driver.event_wait(then, event, 0), "event_wait");
    driver.event_destroy(event); /* the driver frees it once the event has happened */
    return result;
}

ceclResult_t cecl_nccl_gpu_order(int ordinal, cudaStream_t first, cudaStream_t then)
{
    struct cecl_nccl_gpu gpu;
    CECL_TRY(cecl_nccl_gpu_enter(&gpu, ordinal));
    const ceclResult_t result = order(first, then);
    cecl_nccl_gpu_leave(&gpu);
    return result;
}

ceclResult_t cecl_nccl_gpu_reserve(struct cecl_nccl_gpu *gpu, size_t bytes)
{
    if (!gpu->stream)
        TRY(stream_create, &gpu->stream, NON_BLOCKING);
    if (bytes <= gpu->bytes)
        return ceclSuccess;
    if (gpu->memory)
        TRY(free, gpu->memory);
    gpu->memory = 0;
    gpu->bytes = 0;
    bytes = bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
    TRY(alloc, &gpu->memory, bytes);
    gpu->bytes = bytes;
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_put(struct cecl_nccl_gpu *gpu, size_t at, const void *from, size_t bytes)
{
    TRY(put, gpu->memory + at, from, bytes, gpu->stream);
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_get(struct cecl_nccl_gpu *gpu, size_t at, void *to, size_t bytes)
{
    TRY(get, to, gpu->memory + at, bytes, gpu->stream);
    TRY(synchronize, gpu->stream);
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_is_done(struct cecl_nccl_gpu *gpu, bool *is_done)
{
    const int error = driver.query(gpu->stream);
    *is_done = error == 0;
    return error == NOT_READY ? ceclSuccess : check(error, "query");
}

/* ---- times */

static void free_events(void **events, int count)
{
    for (int i = 0; i < count; i++)
        if (events[i])
            driver.event_destroy(events[i]);
}

void cecl_nccl_gpu_free_events(int ordinal, void **events, int count)
{
    struct cecl_nccl_gpu gpu;
    if (cecl_nccl_gpu_enter(&gpu, ordinal) != ceclSuccess)
        return;
    free_events(events, count);
    cecl_nccl_gpu_leave(&gpu);
}

static ceclResult_t make_events(void **events, int count)
{
    for (int i = 0; i < count; i++)
        TRY(event_create, &events[i], TIMING);
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_make_events(int ordinal, void **events, int count)
{
    struct cecl_nccl_gpu gpu;
    CECL_TRY(cecl_nccl_gpu_enter(&gpu, ordinal));
    const ceclResult_t result = make_events(events, count);
    if (result != ceclSuccess)
        free_events(events, count);
    cecl_nccl_gpu_leave(&gpu);
    return result;
}

/* Uses the relaxed mode, because another thread may be capturing a stream in a mode that forbids such
 * calls in all threads, and its capture would break. */
bool cecl_nccl_gpu_note(void *event, cudaStream_t stream)
{
    int mode = RELAXED;
    driver.capture_mode(&mode);
    const int error = driver.event_record(event, stream);
    driver.capture_mode(&mode);
    return error == 0;
}

ceclResult_t cecl_nccl_gpu_await(void *event, cudaStream_t stream)
{
    int mode = RELAXED;
    driver.capture_mode(&mode);
    const int error = driver.event_wait(stream, event, 0);
    driver.capture_mode(&mode);
    return check(error, "event_wait");
}

bool cecl_nccl_gpu_elapsed(void *from, void *to, uint64_t *ns)
{
    float ms = 0;
    int mode = RELAXED;
    driver.capture_mode(&mode);
    int error = driver.event_query(to);
    if (error == 0)
        error = driver.event_elapsed(&ms, from, to);
    driver.capture_mode(&mode);
    *ns = error == 0 && ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return error != NOT_READY;
}
