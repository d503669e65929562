/* Makes NCCL's communicator: ranks compare their versions of NCCL, rank 0 sends NCCL's id, and all join. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "boot/rank_list.h"
#include "net/net.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/grow.h"

ceclResult_t cecl_net_result(const struct cecl_net *net, const char *what, nccl_result result)
{
    if (!nccl_failed(result))
        return ceclSuccess;
    return cecl_fail(ceclRemoteError, "%s: %s failed: %s; %s", net->name, what,
                     net->nccl->GetErrorString(result),
                     net->nccl->GetLastError(cecl_net_comm(net)));
}

static ceclResult_t poll_once(struct cecl_net *net, const char *what, bool *goes_on)
{
    nccl_result state = NCCL_SUCCESS;
    pthread_mutex_lock(&net->lock);
    nccl_comm comm = cecl_net_comm(net);
    const nccl_result asked = comm ? net->nccl->CommGetAsyncError(comm, &state) : NCCL_SUCCESS;
    const ceclResult_t result =
        comm ? cecl_net_result(net, what, asked == NCCL_SUCCESS ? state : asked)
             : cecl_fail(ceclRemoteError, "%s: %s was aborted", net->name, what);
    pthread_mutex_unlock(&net->lock);
    *goes_on = state == NCCL_IN_PROGRESS;
    return result;
}

ceclResult_t cecl_net_await(struct cecl_net *net, const char *what, int64_t deadline)
{
    bool goes_on = true;
    CECL_TRY(poll_once(net, what, &goes_on));
    while (goes_on) {
        if (atomic_load(&net->failed))
            return cecl_fail(ceclRemoteError, "the communicator failed during %s", what);
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout, "%s: %s did not end in time", net->name, what);
        if (!net->has_thread) /* the thread that would hear of ranks' ends has not started yet */
            CECL_TRY(cecl_lifeline_news(&net->line));
        cecl_pause_us(20);
        CECL_TRY(poll_once(net, what, &goes_on));
    }
    return ceclSuccess;
}

struct cecl_net *cecl_net_new(int nranks)
{
    struct cecl_net *net = calloc(1, sizeof(*net));
    if (!net)
        return NULL;
    net->nranks = nranks;
    net->wake = CECL_FD(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    net->host = calloc((size_t)nranks, sizeof(*net->host));
    net->lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    if (net->wake >= 0 && net->host)
        return net;
    cecl_net_free(net);
    return NULL;
}

void cecl_net_free(struct cecl_net *net)
{
    if (!net)
        return;
    if (net->begun)
        net->dev->ops->words_free(net->dev, net->begun);
    if (net->wake >= 0)
        cecl_fds_close(net->wake);
    pthread_mutex_destroy(&net->lock);
    free(net->host);
    free(net);
}

/* What a rank sends to its peers. */
struct offer {
    struct cecl_vote vote; /* first, because a rank that failed earlier sends only its vote */
    int32_t version;
    struct nccl_id id; /* rank 0's */
};
_Static_assert(sizeof(struct offer) <= CECL_OOB_PART_BYTES, "an offer fits into a part");

ceclResult_t cecl_net_refuse_hosts(int nhosts)
{
    return cecl_fail(ceclInvalidUsage,
                     "ranks are on %d hosts: all ranks on one host, in one network namespace, "
                     "expected (is CECL_NODE_SIZE set?); over several hosts NCCL carries calls, on "
                     "GPUs only",
                     nhosts);
}

static ceclResult_t prepare(struct cecl_net *net, struct offer *mine)
{
    CECL_TRY(cecl_net_load(&net->nccl));
    mine->version = net->nccl->version;
    snprintf(net->name, sizeof(net->name), "NCCL %d.%d.%d", mine->version / 10000,
             mine->version / 100 % 100, mine->version % 100);
    if (net->nccl->on_host != (net->dev->kind == CECL_KIND_HOST))
        return cecl_net_refuse_hosts(net->nhosts);
    CECL_TRY(net->dev->ops->words_alloc(net->dev, 3, &net->begun));
    net->ended = net->begun + 1;
    net->word = net->begun + 2;
    return net->rank == 0
               ? cecl_net_result(net, "ncclGetUniqueId", net->nccl->GetUniqueId(&mine->id))
               : ceclSuccess;
}

static ceclResult_t compare(const struct offer *all, int nranks)
{
    for (int r = 1; r < nranks; r++)
        if (all[r].version != all[0].version)
            return cecl_fail(ceclInvalidUsage,
                             "ranks have different versions of NCCL: %d on rank %d, %d on rank 0",
                             (int)all[r].version, r, (int)all[0].version);
    return ceclSuccess;
}

/* Called with the device current in this thread, because NCCL uses the current device. */
static ceclResult_t make(void *context)
{
    struct cecl_net *net = context;
    struct nccl_config config = {.size = sizeof(config),
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_LEAST_VERSION,
                                 .blocking = 0,
                                 .cga_cluster_size = NCCL_UNDEF,
                                 .min_ctas = NCCL_UNDEF,
                                 .max_ctas = net->max_sms > 0 ? net->max_sms : NCCL_UNDEF};
    CECL_TRY(cecl_net_result(
        net, "ncclCommInitRankConfig",
        net->nccl->CommInitRankConfig(&net->comm, net->nranks, net->id, net->rank, &config)));
    return cecl_net_await(net, "ncclCommInitRankConfig", net->deadline);
}

ceclResult_t cecl_net_join(struct cecl_net *net, int64_t deadline)
{
    struct offer mine = {0};
    CECL_OWNED struct offer *all = calloc((size_t)net->nranks, sizeof(*all));
    ceclResult_t result =
        all ? prepare(net, &mine)
            : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", net->nranks);
    mine.vote = cecl_vote_of(result);
    result = cecl_lifeline_gather(&net->line, &mine, all, sizeof(mine), deadline, NULL);
    CECL_TRY(cecl_vote_again(&mine.vote)); /* this rank's own error says more than a peer's */
    CECL_TRY(result);
    CECL_TRY(cecl_votes_count(all, sizeof(mine), net->nranks));
    CECL_TRY(compare(all, net->nranks));
    net->id = all[0].id;
    net->deadline = deadline;
    CECL_TRY(cecl_lifeline_agree(&net->line, net->dev->ops->within(net->dev, make, net), deadline,
                                 NULL));
    return cecl_lifeline_agree(&net->line, cecl_net_watch(net), deadline, NULL);
}
