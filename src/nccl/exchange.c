/* See exchange.h. */
#include "nccl/exchange.h"

#include <time.h>

#include "util/clock.h"
#include "util/settings.h"

__typeof__(ncclAllGather) cecl_nccl_pass_ncclAllGather;
__typeof__(ncclCommCount) cecl_nccl_pass_ncclCommCount;
__typeof__(ncclCommCuDevice) cecl_nccl_pass_ncclCommCuDevice;
__typeof__(ncclCommGetAsyncError) cecl_nccl_pass_ncclCommGetAsyncError;
__typeof__(ncclCommUserRank) cecl_nccl_pass_ncclCommUserRank;

static ceclResult_t check(ncclResult_t result, const char *what)
{
    return result == (ncclResult_t)ceclSuccess
               ? ceclSuccess
               : cecl_fail((ceclResult_t)result, "%s of NCCL returned %d", what, (int)result);
}

ceclResult_t cecl_nccl_exchange_open(struct cecl_nccl_exchange *exchange, ncclComm_t comm)
{
    int device;
    *exchange = (struct cecl_nccl_exchange){.comm = comm};
    CECL_TRY(check(cecl_nccl_pass_ncclCommCount(comm, &exchange->nranks), "ncclCommCount"));
    CECL_TRY(check(cecl_nccl_pass_ncclCommUserRank(comm, &exchange->rank), "ncclCommUserRank"));
    CECL_TRY(check(cecl_nccl_pass_ncclCommCuDevice(comm, &device), "ncclCommCuDevice"));
    exchange->on_gpu = cecl_nccl_gpu_is_used(device);
    return exchange->on_gpu ? cecl_nccl_gpu_enter(&exchange->gpu, device) : ceclSuccess;
}

void cecl_nccl_exchange_close(struct cecl_nccl_exchange *exchange)
{
    if (!exchange->on_gpu)
        return;
    if (exchange->result != ceclSuccess) { /* freeing would wait for work that may never end */
        exchange->gpu.memory = 0;
        exchange->gpu.stream = NULL;
    }
    cecl_nccl_gpu_leave(&exchange->gpu);
}

static ceclResult_t gather(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                           size_t bytes, cudaStream_t stream)
{
    return check(
        cecl_nccl_pass_ncclAllGather(mine, all, bytes, CECL_NCCL_INT8, exchange->comm, stream),
        "ncclAllGather");
}

/* Waits by asking, because a stream whose peers have died would never be done. */
static ceclResult_t await(struct cecl_nccl_exchange *exchange)
{
    const struct timespec pause = {.tv_nsec = 50000};
    int64_t limit_ms = 60000;
    bool is_set, is_done = false;
    /* A bad value is refused later, by ceclCommInitOob, on all ranks. */
    (void)!cecl_setting_read(CECL_SET_INIT_TIMEOUT_MS, &limit_ms, &is_set);
    const int64_t deadline = cecl_deadline(limit_ms);
    while (!is_done) {
        ncclResult_t error = ceclSuccess;
        CECL_TRY(cecl_nccl_gpu_is_done(&exchange->gpu, &is_done));
        CECL_TRY(check(cecl_nccl_pass_ncclCommGetAsyncError(exchange->comm, &error),
                       "ncclCommGetAsyncError"));
        CECL_TRY(check(error, "ncclAllGather"));
        if (!is_done && cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclRemoteError,
                             "a rank did not come within %lld ms (CECL_INIT_TIMEOUT_MS); do all "
                             "ranks run with cecl's libnccl.so.2?",
                             (long long)limit_ms);
        nanosleep(&pause, NULL);
    }
    return ceclSuccess;
}

/* This rank's part lies in front of the parts of all. */
static ceclResult_t gather_by_gpu(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                                  size_t bytes)
{
    struct cecl_nccl_gpu *gpu = &exchange->gpu;
    const size_t total = (size_t)exchange->nranks * bytes;
    CECL_TRY(cecl_nccl_gpu_reserve(gpu, bytes + total));
    CECL_TRY(cecl_nccl_gpu_put(gpu, 0, mine, bytes));
    CECL_TRY(gather(exchange, (const void *)(uintptr_t)gpu->memory,
                    (void *)(uintptr_t)(gpu->memory + bytes), bytes, gpu->stream));
    CECL_TRY(await(exchange));
    return cecl_nccl_gpu_get(gpu, bytes, all, total);
}

ceclResult_t cecl_nccl_exchange(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                                size_t bytes)
{
    if (exchange->result != ceclSuccess)
        return exchange->result;
    exchange->result = exchange->on_gpu ? gather_by_gpu(exchange, mine, all, bytes)
                                        : gather(exchange, mine, all, bytes, NULL);
    return exchange->result;
}
