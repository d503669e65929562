/* The network between nodes of GPUs: the sends and receives of NCCL, which is opened at run time; see net.h.
 *
 * One communicator of NCCL has all ranks. NCCL connects two ranks when they first exchange. So connections
 * exist only within a rail, and between ranks that send each other messages. NCCL's kernels take at most
 * net.sms SMs (the tuning table). NCCL's communicator is non-blocking: its background work is polled, within
 * time limits.
 *
 * A program that uses NCCL itself can lend cecl its NCCL (ceclNcclNet_t). Then cecl's communicator of NCCL is split
 * from the program's one, and exchanges are ordered with the program's calls of NCCL. On the host device NCCL is used
 * only if the program lends it. It is then a stand-in without streams, which the stream's thread calls.
 *
 * Words tell the host which exchange has begun and which has ended. NCCL does not say for which of its
 * ranks a running exchange waits. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/nccl_internal.h"
#include "util/clock.h"

/* ---- calling NCCL. The caller holds the lock, or no other thread knows the transport. */

static ceclResult_t check(const struct nccl *nccl, const char *what, nccl_result result)
{
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        return ceclSuccess;
    return cecl_fail(ceclRemoteError, "%s: %s failed: %s; %s", nccl->net.name, what,
                     nccl->api->GetErrorString(result), nccl->api->GetLastError(nccl->comm));
}

/* *goes_on: NCCL still works in the background. States other than this and success are errors. */
static ceclResult_t poll_once(struct nccl *nccl, const char *what, bool *goes_on)
{
    nccl_result state = NCCL_SUCCESS;
    pthread_mutex_lock(&nccl->lock);
    ceclResult_t result =
        nccl->comm ? check(nccl, what, nccl->api->CommGetAsyncError(nccl->comm, &state))
                   : cecl_fail(ceclRemoteError, "%s: %s was aborted", nccl->net.name, what);
    if (result == ceclSuccess)
        result = check(nccl, what, state);
    pthread_mutex_unlock(&nccl->lock);
    *goes_on = state == NCCL_IN_PROGRESS;
    return result;
}

static ceclResult_t await(struct nccl *nccl, const char *what, int64_t deadline)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    bool goes_on = true;
    CECL_TRY(poll_once(nccl, what, &goes_on));
    while (goes_on) {
        if (atomic_load(&nccl->failed))
            return cecl_fail(ceclRemoteError, "the communicator failed during %s", what);
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout, "%s: %s did not end in time", nccl->net.name, what);
        if (nccl->mesh) /* a rank that has failed or ended does not come */
            CECL_TRY(cecl_mesh_watch(nccl->mesh, 0));
        nanosleep(&pause, NULL);
        CECL_TRY(poll_once(nccl, what, &goes_on));
    }
    return ceclSuccess;
}

/* ---- an exchange */

struct request {
    struct nccl *nccl;
    ceclStream_t work;
    const struct cecl_net_transfer *list;
    uint32_t count;
    const _Atomic uint64_t *peers; /* those of the list, as noted */
};

static nccl_result add(const struct nccl *nccl, const struct cecl_net_transfer *t,
                       ceclStream_t work)
{
    return t->sends ? nccl->api->Send(t->at, t->bytes, NCCL_INT8, t->peer, nccl->comm, work)
                    : nccl->api->Recv(t->at, t->bytes, NCCL_INT8, t->peer, nccl->comm, work);
}

static ceclResult_t enqueue_group(struct nccl *nccl, const struct request *request)
{
    if (!nccl->comm)
        return cecl_fail(ceclRemoteError, "%s was aborted", nccl->net.name);
    CECL_TRY(check(nccl, "ncclGroupStart", nccl->api->GroupStart()));
    ceclResult_t result = ceclSuccess;
    for (uint32_t i = 0; i < request->count && result == ceclSuccess; i++)
        result = check(nccl, request->list[i].sends ? "ncclSend" : "ncclRecv",
                       add(nccl, &request->list[i], request->work));
    const ceclResult_t ended = check(nccl, "ncclGroupEnd", nccl->api->GroupEnd());
    return result == ceclSuccess ? ended : result;
}

static bool exchanges_with(const struct request *request, int rank)
{
    for (uint32_t i = 0; i < request->count; i++)
        if (request->list[i].peer == rank)
            return true;
    return false;
}

/* The error for an exchange that could not begin. Names all of its peers, because NCCL does not say which
 * one did not connect. The watchdog's time limit is shorter, and it names the late ranks only; but it does not
 * watch a call that is captured. */
static ceclResult_t name_peers(const struct request *request)
{
    const struct nccl *nccl = request->nccl;
    struct cecl_rank_list peers = {.count = 0};
    for (int r = 0; r < nccl->nranks; r++)
        if (exchanges_with(request, r))
            cecl_rank_list_add(&peers, r);
    return cecl_fail(ceclTimeout,
                     "a call has waited for %s for %d ms (CECL_TIMEOUT_MS=%d): %s could not begin "
                     "the exchange between nodes",
                     cecl_rank_list_words(&peers), nccl->limit_ms, nccl->timeout_ms,
                     nccl->net.name);
}

static ceclResult_t run_group(void *context)
{
    struct request *request = context;
    struct nccl *nccl = request->nccl;
    pthread_mutex_lock(&nccl->lock);
    const ceclResult_t result = enqueue_group(nccl, request);
    pthread_mutex_unlock(&nccl->lock);
    CECL_TRY(result);
    atomic_store(&nccl->beginning, request->peers);
    const ceclResult_t waited =
        await(nccl, "an exchange's ncclGroupEnd",
              nccl->limit_ms > 0 ? cecl_deadline(nccl->limit_ms) : CECL_NO_DEADLINE);
    atomic_store(&nccl->beginning, NULL);
    return waited == ceclTimeout ? name_peers(request) : waited;
}

/* An exchange as work of a stream of the host device. */
struct stream_exchange {
    struct cecl_stream_call call;
    struct nccl *nccl;
    const _Atomic uint64_t *peers;
    uint32_t count;
    struct cecl_net_transfer list[];
};

static void run_in_stream(struct cecl_stream_call *call)
{
    const struct stream_exchange *x = (const struct stream_exchange *)call;
    struct nccl *nccl = x->nccl;
    struct request request = {nccl, NULL, x->list, x->count, x->peers};
    const ceclResult_t result = run_group(&request);
    /* the first error stays, because other threads may read its message */
    if (result == ceclSuccess || atomic_load(&nccl->error) != ceclSuccess ||
        atomic_load(&nccl->failed))
        return;
    cecl_keep_message(nccl->words);
    atomic_store(&nccl->error, result);
}

static ceclResult_t enqueue_in_stream(const struct request *request)
{
    struct stream_exchange *x = calloc(1, sizeof(*x) + request->count * sizeof(x->list[0]));
    if (!x)
        return cecl_fail(ceclOutOfMemory, "no host memory for an exchange of %u transfers",
                         (unsigned)request->count);
    x->call.run = run_in_stream;
    x->nccl = request->nccl;
    x->peers = request->peers;
    x->count = request->count;
    memcpy(x->list, request->list, request->count * sizeof(x->list[0]));
    struct cecl_device *dev = request->nccl->dev;
    return dev->ops->call(dev, request->work, &x->call);
}

/* Orders an exchange with the program's calls of NCCL, because NCCL warns against two communicators that
 * run on one GPU at the same time. */
static ceclResult_t order(const struct nccl *nccl, ceclStream_t work, bool is_before)
{
    const int failed = nccl->lent.order ? nccl->lent.order(nccl->lent.context, work, is_before) : 0;
    return failed ? cecl_fail((ceclResult_t)failed,
                              "an exchange could not be ordered with the program's calls of NCCL")
                  : ceclSuccess;
}

static ceclResult_t enqueue(struct request *request)
{
    struct nccl *nccl = request->nccl;
    struct cecl_device *dev = nccl->dev;
    CECL_TRY(order(nccl, request->work, true));
    const ceclResult_t result = nccl->lent.library && dev->kind == CECL_KIND_HOST
                                    ? enqueue_in_stream(request)
                                    : dev->ops->within(dev, run_group, request);
    char words[CECL_MESSAGE_BYTES];
    if (result == ceclSuccess)
        return order(nccl, request->work, false);
    cecl_keep_message(words);
    (void)!order(nccl, request->work, false);
    return cecl_fail_with(result, words);
}

/* Enqueues or captures an exchange. `begins`: writes by which the watchdog learns that it has begun. */
static ceclResult_t enqueue_marked(struct request *request, const struct cecl_memop *begins,
                                   size_t count, uint32_t number)
{
    struct nccl *nccl = request->nccl;
    const struct cecl_memop ends = {nccl->ended, number, CECL_MEMOP_WRITE};
    CECL_TRY(nccl->dev->ops->memops(nccl->dev, request->work, begins, count));
    const ceclResult_t result = enqueue(request);
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    const ceclResult_t marked = nccl->dev->ops->memops(nccl->dev, request->work, &ends, 1);
    return result == ceclSuccess ? marked : cecl_fail_with(result, words);
}

static ceclResult_t exchange(struct cecl_net *net, ceclStream_t work,
                             const struct cecl_net_transfer *list, uint32_t count)
{
    struct nccl *nccl = (struct nccl *)net;
    const uint32_t number = ++nccl->count;
    const struct cecl_memop begins[] = {{nccl->replays, 0, CECL_MEMOP_WRITE},
                                        {nccl->begun, number, CECL_MEMOP_WRITE}};
    struct request request = {nccl, work, list, count,
                              cecl_net_nccl_note(nccl, number, list, count)};
    /* the word `replays` is 0 unless exchanges were captured */
    return nccl->ncaptured > 0 ? enqueue_marked(&request, begins, 2, number)
                               : enqueue_marked(&request, &begins[1], 1, number);
}

/* A replay writes the same number again, so it first sets `ended` to another one. */
static ceclResult_t capture(struct cecl_net *net, ceclStream_t stream,
                            const struct cecl_net_transfer *list, uint32_t count)
{
    struct nccl *nccl = (struct nccl *)net;
    const uint32_t number = ++nccl->count, set = cecl_net_nccl_note_captured(nccl, list, count);
    struct request request = {nccl, stream, list, count, nccl->captured[set - 1]};
    const struct cecl_memop begins[] = {{nccl->replays, set, CECL_MEMOP_WRITE},
                                        {nccl->ended, number - 1, CECL_MEMOP_WRITE},
                                        {nccl->begun, number, CECL_MEMOP_WRITE}};
    return enqueue_marked(&request, begins, 3, number);
}

/* ---- what the watchdog asks and does */

/* Does not wait for a thread that is calling NCCL. */
static ceclResult_t error_of(struct cecl_net *net)
{
    struct nccl *nccl = (struct nccl *)net;
    nccl_result state = NCCL_SUCCESS;
    const ceclResult_t error = (ceclResult_t)atomic_load(&nccl->error);
    if (error != ceclSuccess)
        return cecl_fail_with(error, nccl->words);
    if (pthread_mutex_trylock(&nccl->lock) != 0)
        return ceclSuccess;
    ceclResult_t result = ceclSuccess;
    if (nccl->comm && nccl->api->CommGetAsyncError(nccl->comm, &state) == NCCL_SUCCESS)
        result = check(nccl, "an exchange", state);
    pthread_mutex_unlock(&nccl->lock);
    return result;
}

/* ---- life */

static const struct cecl_net_ops ops = {.exchange = exchange,
                                        .capture = capture,
                                        .late = cecl_net_nccl_late,
                                        .begins = cecl_net_nccl_begins,
                                        .error = error_of,
                                        .fail = cecl_net_nccl_fail,
                                        .give_up = cecl_net_nccl_give_up,
                                        .finish = cecl_net_nccl_finish,
                                        .close = cecl_net_nccl_close};

/* What a rank tells the others. */
struct offer {
    int32_t version;
    int32_t is_lent;
    struct nccl_id id; /* rank 0's */
};

/* Depends on what is equal on all ranks: the version, and whether the program lends NCCL. */
static const char *why_not_captured(const struct nccl *nccl)
{
    if (nccl->lent.order)
        return "its exchanges are put in order with the program's calls when they are enqueued, "
               "which a graph cannot do";
    return nccl->api->version < NCCL_CAPTURE_VERSION
               ? "graphs need NCCL 2.26, which keeps what they use until they are gone"
               : NULL;
}

static ceclResult_t prepare(struct nccl *nccl, struct offer *mine)
{
    const bool is_lent = nccl->lent.library;
    nccl->api = &nccl->lent_api;
    CECL_TRY(is_lent ? cecl_net_nccl_find(nccl->lent.library, &nccl->lent_api)
                     : cecl_net_nccl_load(&nccl->api));
    mine->version = nccl->api->version;
    mine->is_lent = is_lent;
    snprintf(nccl->net.name, sizeof(nccl->net.name), "%sNCCL %d.%d.%d",
             is_lent ? "the program's " : "", mine->version / 10000, mine->version / 100 % 100,
             mine->version % 100);
    CECL_TRY(nccl->dev->ops->words_alloc(nccl->dev, 5, &nccl->begun));
    nccl->ended = nccl->begun + 1;
    nccl->replays = nccl->begun + 2;
    nccl->own = nccl->begun + 3;
    nccl->net.why_not_captured = why_not_captured(nccl);
    return nccl->rank == 0 && !is_lent
               ? check(nccl, "ncclGetUniqueId", nccl->api->GetUniqueId(&mine->id))
               : ceclSuccess;
}

static bool are_one_version(const void *one, const void *other)
{
    const struct offer *a = one, *b = other;
    return a->version == b->version;
}

/* Names the ranks that differ from most others. */
static ceclResult_t compare_versions(const struct offer *all, int nranks)
{
    struct cecl_rank_list odd;
    const int common = cecl_ranks_compare(all, sizeof(*all), nranks, are_one_version, &odd);
    return odd.count == 0
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage,
                           "ranks have different versions of NCCL: %d on %s, %d on most others",
                           (int)all[odd.ranks[0]].version, cecl_rank_list_words(&odd),
                           (int)all[common].version);
}

static ceclResult_t compare_lenders(const struct offer *all, int nranks)
{
    for (int r = 1; r < nranks; r++)
        if (all[r].is_lent != all[0].is_lent)
            return cecl_fail(ceclInvalidUsage,
                             "ranks 0 and %d differ in whether they lend NCCL (ceclNcclNet_t)", r);
    return ceclSuccess;
}

/* CUDA may launch a kernel for the first time only once all other work of the process has ended, and other calls
 * of its driver wait until then. If that work waits for flags, and a rank does not come, not even a failed
 * communicator could release it. So NCCL's kernel is launched here: this rank sends itself a word. */
static ceclResult_t launch_kernel(struct nccl *nccl, int64_t deadline)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const struct cecl_device_ops *device = nccl->dev->ops;
    const struct cecl_net_transfer list[] = {
        {nccl->own, sizeof(*nccl->own), nccl->rank, true},
        {nccl->own + 1, sizeof(*nccl->own), nccl->rank, false}};
    struct request request = {.nccl = nccl, .list = list, .count = 2};
    /* if what follows fails, the stream ends with the device */
    CECL_TRY(device->stream_create(nccl->dev, &request.work));
    CECL_TRY(enqueue_group(nccl, &request));
    CECL_TRY(await(nccl, "the first exchange", deadline));
    ceclResult_t result = device->stream_query(nccl->dev, request.work);
    while (result == ceclInProgress) {
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout, "%s: the first exchange did not end in time",
                             nccl->net.name);
        nanosleep(&pause, NULL);
        result = device->stream_query(nccl->dev, request.work);
    }
    return result == ceclSuccess ? device->stream_destroy(nccl->dev, request.work) : result;
}

struct joining {
    struct nccl *nccl;
    const struct nccl_id *id;
    int64_t deadline;
};

static ceclResult_t join(void *context)
{
    const struct joining *joining = context;
    struct nccl *nccl = joining->nccl;
    struct nccl_config config = {.size = sizeof(config),
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .blocking = 0,
                                 .cga_cluster_size = INT_MIN, /* NCCL's "undefined" */
                                 .min_ctas = 1,
                                 .max_ctas = nccl->net.sms};
    const bool is_lent = nccl->lent.library;
    const char *const what = is_lent ? "ncclCommSplit" : "ncclCommInitRankConfig";
    CECL_TRY(check(nccl, what,
                   is_lent ? nccl->lent.split(nccl->lent.context, &config, (void **)&nccl->comm)
                           : nccl->api->CommInitRankConfig(&nccl->comm, nccl->nranks, *joining->id,
                                                           nccl->rank, &config)));
    CECL_TRY(await(nccl, what, joining->deadline));
    return nccl->dev->kind == CECL_KIND_CUDA ? launch_kernel(nccl, joining->deadline) : ceclSuccess;
}

/* Makes NCCL's communicator, on all ranks or on none. A rank that fails does not come to the comparison, because the
 * others may wait in NCCL until their time is up, and then nobody would hear the reason. It says the reason at once,
 * and they look for it. If it has failed because of another rank, the reason is that rank's. */
static ceclResult_t join_all(struct nccl *nccl, struct cecl_mesh *mesh, struct joining *joining)
{
    char words[CECL_MESSAGE_BYTES];
    nccl->mesh = mesh;
    ceclResult_t result = nccl->dev->ops->within(nccl->dev, join, joining);
    nccl->mesh = NULL;
    if (result == ceclSuccess)
        return cecl_mesh_agree(mesh, ceclSuccess);
    cecl_keep_message(words);
    const ceclResult_t news = cecl_mesh_news(mesh);
    if (news != ceclSuccess) {
        result = news;
        cecl_keep_message(words);
    }
    cecl_mesh_tell_abort(mesh, words);
    return cecl_fail_with(result, words);
}

static ceclResult_t meet(struct nccl *nccl, struct cecl_mesh *mesh, struct offer *all,
                         int64_t deadline)
{
    struct offer mine = {0};
    CECL_TRY(cecl_mesh_agree(mesh, prepare(nccl, &mine)));
    CECL_TRY(cecl_mesh_allgather(mesh, "network", &mine, all, sizeof(mine)));
    CECL_TRY(compare_versions(all, nccl->nranks));
    CECL_TRY(compare_lenders(all, nccl->nranks));
    struct joining joining = {nccl, &all[0].id, deadline};
    return join_all(nccl, mesh, &joining);
}

ceclResult_t cecl_net_nccl_open(struct cecl_device *dev, struct cecl_mesh *mesh, int rank,
                                int nranks, int sms, int timeout_ms, int slack_ms, int64_t deadline,
                                struct cecl_net **net)
{
    const struct cecl_net_lender *lender = cecl_net_lent();
    struct nccl *nccl = calloc(1, sizeof(*nccl));
    struct offer *all = calloc((size_t)nranks, sizeof(*all));
    ceclResult_t result = cecl_mesh_agree(
        mesh, nccl && all
                  ? ceclSuccess
                  : cecl_fail(ceclOutOfMemory, "no host memory for a network of %d ranks", nranks));
    if (result == ceclSuccess) {
        nccl->net = (struct cecl_net){.ops = &ops, .sms = sms, .connects = true};
        nccl->dev = dev;
        nccl->rank = rank;
        nccl->nranks = nranks;
        nccl->timeout_ms = timeout_ms;
        nccl->limit_ms = timeout_ms > 0 ? timeout_ms + slack_ms : 0;
        if (lender && lender->nccl)
            nccl->lent = *lender->nccl;
        pthread_mutex_init(&nccl->lock, NULL);
        result = meet(nccl, mesh, all, deadline);
        if (result == ceclSuccess) {
            *net = &nccl->net;
        } else {
            char words[CECL_MESSAGE_BYTES];
            cecl_keep_message(words);
            cecl_net_nccl_fail(&nccl->net); /* abort instead of finalizing */
            cecl_net_nccl_close(&nccl->net);
            (void)!cecl_fail_with(result, words);
        }
    } else {
        free(nccl);
    }
    free(all);
    return result;
}
