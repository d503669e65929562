/* See gpu.h. The driver's functions are looked up by name, so that this library also loads on machines without CUDA. */
#include "nccl/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#define NOT_READY 600 /* CUDA_ERROR_NOT_READY */
#define NO_TIMING 2   /* CU_EVENT_DISABLE_TIMING */
#define TIMING 0      /* CU_EVENT_DEFAULT */
#define RELAXED 2     /* CU_STREAM_CAPTURE_MODE_RELAXED */
#define ACTIVE 1      /* CU_STREAM_CAPTURE_STATUS_ACTIVE */

/* X(the driver's symbol, field, parameters) */
#define DRIVER(X) \
    X("cuCtxPopCurrent_v2", pop, (void **)) \
    X("cuCtxPushCurrent_v2", push, (void *)) \
    X("cuDevicePrimaryCtxGetState", state, (int, unsigned *, int *)) \
    X("cuDevicePrimaryCtxRelease_v2", release, (int)) \
    X("cuDevicePrimaryCtxRetain", retain, (void **, int)) \
    X("cuEventCreate", event_create, (void **, unsigned)) \
    X("cuEventDestroy_v2", event_destroy, (void *)) \
    X("cuEventElapsedTime", event_elapsed, (float *, void *, void *)) \
    X("cuEventQuery", event_query, (void *)) \
    X("cuEventRecord", event_record, (void *, cudaStream_t)) \
    X("cuStreamIsCapturing", is_capturing, (cudaStream_t, int *)) \
    X("cuStreamWaitEvent", event_wait, (cudaStream_t, void *, unsigned)) \
    X("cuThreadExchangeStreamCaptureMode", capture_mode, (int *))

static struct {
    bool is_loaded;
#define FIELD(symbol, field, parameters) int(*field) parameters;
    DRIVER(FIELD)
#undef FIELD
} driver;

/* Loads no driver: a process that uses a GPU has loaded it before it makes a communicator. */
static void find_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    driver.is_loaded = handle;
#define FIND(symbol, field, parameters) \
    if (handle) \
        *(void **)&driver.field = dlsym(handle, symbol); \
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

static ceclResult_t cuda_result(int error, const char *what)
{
    return error == 0 ? ceclSuccess
                      : cecl_fail(ceclUnhandledCudaError, "%s: CUDA error %d", what, error);
}
#define TRY(field, ...) CECL_TRY(cuda_result(driver.field(__VA_ARGS__), #field))

/* True if the GPU's primary context is active: NCCL uses CUDA's runtime, and the runtime uses that context. */
bool cecl_nccl_gpu_is_used(int ordinal)
{
    unsigned flags;
    int is_active = 0;
    return has_driver() && driver.state(ordinal, &flags, &is_active) == 0 && is_active;
}

bool cecl_nccl_gpu_captures(cudaStream_t stream, bool *is_sound)
{
    int status = 0;
    const int error = has_driver() ? driver.is_capturing(stream, &status) : 0;
    *is_sound = error == 0 && status == ACTIVE;
    return error != 0 || status != 0;
}

/* Makes the GPU's primary context current in the calling thread, until leave_context(). */
static ceclResult_t enter_context(int ordinal)
{
    void *context;
    if (!has_driver())
        return cecl_fail(ceclUnhandledCudaError, "GPU %d: this process has not loaded libcuda.so.1",
                         ordinal);
    TRY(retain, &context, ordinal);
    const ceclResult_t result = cuda_result(driver.push(context), "push");
    if (result != ceclSuccess)
        driver.release(ordinal);
    return result;
}

static void leave_context(int ordinal)
{
    void *context;
    driver.pop(&context);
    driver.release(ordinal);
}

static ceclResult_t order(cudaStream_t first, cudaStream_t then)
{
    void *event;
    TRY(event_create, &event, NO_TIMING);
    ceclResult_t result = cuda_result(driver.event_record(event, first), "event_record");
    if (result == ceclSuccess)
        result = cuda_result(driver.event_wait(then, event, 0), "event_wait");
    driver.event_destroy(event); /* the driver frees the event once it has happened */
    return result;
}

ceclResult_t cecl_nccl_gpu_order(int ordinal, cudaStream_t first, cudaStream_t then)
{
    CECL_TRY(enter_context(ordinal));
    const ceclResult_t result = order(first, then);
    leave_context(ordinal);
    return result;
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
    if (enter_context(ordinal) != ceclSuccess)
        return;
    free_events(events, count);
    leave_context(ordinal);
}

static ceclResult_t make_events(void **events, int count)
{
    for (int i = 0; i < count; i++)
        TRY(event_create, &events[i], TIMING);
    return ceclSuccess;
}

ceclResult_t cecl_nccl_gpu_make_events(int ordinal, void **events, int count)
{
    CECL_TRY(enter_context(ordinal));
    const ceclResult_t result = make_events(events, count);
    if (result != ceclSuccess)
        free_events(events, count);
    leave_context(ordinal);
    return result;
}

/* Uses the relaxed capture mode: by default this call would break a capture that another thread began in the global
 * mode. */
bool cecl_nccl_gpu_note(void *event, cudaStream_t stream)
{
    int mode = RELAXED;
    driver.capture_mode(&mode);
    const int error = driver.event_record(event, stream);
    driver.capture_mode(&mode);
    return error == 0;
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
