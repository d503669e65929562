/* See exchange.h. */
#include "nccl/exchange.h"

#include "util/clock.h"
#include "util/settings.h"

#define IDLE_MS 2000 /* ms that a stream may take to finish after NCCL's communicator has ended */

static ceclResult_t check(ncclResult_t result, const char *what)
{
    return result == ceclSuccess
               ? ceclSuccess
               : cecl_fail((ceclResult_t)result, "%s of NCCL returned %d", what, (int)result);
}

bool cecl_nccl_exchange_is_ended(const struct cecl_nccl_exchange *exchange)
{
    return exchange->entry && !cecl_nccl_life_is(&exchange->entry->life, CECL_NCCL_SET(MAKING));
}

/* ---- single uses of the communicator, which another thread may end */

static ceclResult_t enter(const struct cecl_nccl_exchange *exchange)
{
    return !exchange->entry ||
                   cecl_nccl_comm_enter(exchange->entry, exchange->comm, CECL_NCCL_SET(MAKING))
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage, "the communicator was ended while it was being made");
}

static void leave(const struct cecl_nccl_exchange *exchange)
{
    if (exchange->entry)
        cecl_nccl_comm_leave(exchange->entry);
}

static ceclResult_t ask(struct cecl_nccl_exchange *exchange, int *device)
{
    const ncclComm_t comm = exchange->comm;
    CECL_TRY(check(cecl_nccl_pass_ncclCommCount(comm, &exchange->nranks), "ncclCommCount"));
    CECL_TRY(check(cecl_nccl_pass_ncclCommUserRank(comm, &exchange->rank), "ncclCommUserRank"));
    return check(cecl_nccl_pass_ncclCommCuDevice(comm, device), "ncclCommCuDevice");
}

/* *is_done: NCCL's background work is done: it has made the communicator, or has enqueued the call. */
static ceclResult_t look(struct cecl_nccl_exchange *exchange, bool *is_done)
{
    ncclResult_t error = ceclSuccess;
    CECL_TRY(enter(exchange));
    const ncclResult_t asked = cecl_nccl_pass_ncclCommGetAsyncError(exchange->comm, &error);
    leave(exchange);
    CECL_TRY(check(asked, "ncclCommGetAsyncError"));
    *is_done = error != ceclInProgress;
    return *is_done ? check(error, "a call") : ceclSuccess;
}

static ceclResult_t gather(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                           size_t bytes, cudaStream_t stream, bool *is_enqueued)
{
    CECL_TRY(enter(exchange));
    const ncclResult_t result =
        cecl_nccl_pass_ncclAllGather(mine, all, bytes, CECL_NCCL_INT8, exchange->comm, stream);
    leave(exchange);
    *is_enqueued = result != ceclInProgress;
    return *is_enqueued ? check(result, "ncclAllGather") : ceclSuccess;
}

static int64_t limit_ms(void)
{
    const enum cecl_setting_id id = CECL_SET_INIT_TIMEOUT_MS;
    int64_t limit = 0;
    bool is_set;
    /* a bad value counts as the default here; ceclCommInitOobNccl refuses it, on all ranks */
    if (cecl_setting_read(id, &limit, &is_set) != ceclSuccess)
        (void)!cecl_setting_parse(id, cecl_setting_default(id), &limit);
    return limit;
}

/* Waits for at most `limit` ms until NCCL's background work and the stream are done; 0: without a limit.
 * Polls, because a stream whose peers have died is never done. */
static ceclResult_t await(struct cecl_nccl_exchange *exchange, int64_t limit)
{
    const int64_t deadline = cecl_deadline(limit);
    bool is_done = false;
    while (!is_done) {
        CECL_TRY(look(exchange, &is_done));
        if (is_done && exchange->on_gpu)
            CECL_TRY(cecl_nccl_gpu_is_done(&exchange->gpu, &is_done));
        if (!is_done && cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclRemoteError,
                             "a rank did not come within %lld ms (CECL_INIT_TIMEOUT_MS); do all "
                             "ranks run with cecl's libnccl.so.2?",
                             (long long)limit);
        if (!is_done)
            cecl_nccl_pause_us(50);
    }
    return ceclSuccess;
}

ceclResult_t cecl_nccl_exchange_open(struct cecl_nccl_exchange *exchange, ncclComm_t comm,
                                     struct cecl_nccl_comm *entry)
{
    int device;
    *exchange = (struct cecl_nccl_exchange){.comm = comm, .entry = entry};
    if (entry) /* without a limit, because NCCL has its own */
        CECL_TRY(await(exchange, 0));
    CECL_TRY(enter(exchange));
    const ceclResult_t result = ask(exchange, &device);
    leave(exchange);
    CECL_TRY(result);
    exchange->on_gpu = cecl_nccl_gpu_is_used(device);
    return exchange->on_gpu ? cecl_nccl_gpu_enter(&exchange->gpu, device) : ceclSuccess;
}

/* Waits until the stream is done, because NCCL's abort ends its kernels. Returns false if that takes too
 * long. */
static bool is_idle_soon(struct cecl_nccl_exchange *exchange)
{
    const int64_t deadline = cecl_deadline(IDLE_MS);
    bool is_done = false;
    while (!is_done && cecl_nccl_gpu_is_done(&exchange->gpu, &is_done) == ceclSuccess && !is_done &&
           cecl_ms_left(deadline) != 0)
        cecl_nccl_pause_us(1000);
    return is_done;
}

void cecl_nccl_exchange_close(struct cecl_nccl_exchange *exchange)
{
    struct cecl_nccl_gpu *gpu = &exchange->gpu;
    if (!exchange->on_gpu)
        return;
    /* not freed, because freeing would wait for work that may never end */
    if (exchange->result != ceclSuccess && !(exchange->entry && is_idle_soon(exchange))) {
        gpu->memory = 0;
        gpu->stream = NULL;
    }
    cecl_nccl_gpu_leave(gpu);
}

/* In the GPU's memory this rank's part comes first, then the parts of all ranks. */
static ceclResult_t gather_by_gpu(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                                  size_t bytes)
{
    struct cecl_nccl_gpu *gpu = &exchange->gpu;
    bool is_enqueued;
    const size_t total = (size_t)exchange->nranks * bytes;
    CECL_TRY(cecl_nccl_gpu_reserve(gpu, bytes + total));
    CECL_TRY(cecl_nccl_gpu_put(gpu, 0, mine, bytes));
    CECL_TRY(gather(exchange, (const void *)(uintptr_t)gpu->memory,
                    (void *)(uintptr_t)(gpu->memory + bytes), bytes, gpu->stream, &is_enqueued));
    CECL_TRY(await(exchange, limit_ms()));
    return cecl_nccl_gpu_get(gpu, bytes, all, total);
}

/* Without a GPU a call is complete when NCCL's background work is done. */
static ceclResult_t gather_by_host(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                                   size_t bytes)
{
    bool is_done;
    CECL_TRY(gather(exchange, mine, all, bytes, NULL, &is_done));
    return is_done ? ceclSuccess : await(exchange, limit_ms());
}

ceclResult_t cecl_nccl_exchange(struct cecl_nccl_exchange *exchange, const void *mine, void *all,
                                size_t bytes)
{
    if (exchange->result != ceclSuccess)
        return exchange->result;
    exchange->result = exchange->on_gpu ? gather_by_gpu(exchange, mine, all, bytes)
                                        : gather_by_host(exchange, mine, all, bytes);
    return exchange->result;
}

/* If the communicator is non-blocking, NCCL splits in the background, although it may return ncclSuccess. A
 * communicator without `entry` may be non-blocking, too: the child of a blocking one. */
ceclResult_t cecl_nccl_exchange_split(struct cecl_nccl_exchange *exchange, void *config,
                                      ncclComm_t *split)
{
    CECL_TRY(enter(exchange));
    const ncclResult_t result =
        cecl_nccl_pass_ncclCommSplit(exchange->comm, 0, exchange->rank, split, config);
    leave(exchange);
    if (result != ceclInProgress)
        CECL_TRY(check(result, "ncclCommSplit"));
    return await(exchange, limit_ms());
}
