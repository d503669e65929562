/* Launches on communicators over several hosts, whose calls NCCL makes; see steps.h. */
#include "launch/steps.h"

#include <stdio.h>

#include "launch/make.h"
#include "launch/messages.h"
#include "net/net.h"
#include "util/clock.h"

#define STREAM_PER_THREAD ((ceclStream_t)(uintptr_t)2) /* CU_STREAM_PER_THREAD */

ceclResult_t cecl_by_nccl_check(const struct cecl_launch *launch)
{
    if (launch->is_captured && launch->comm->net->nccl->on_host)
        return cecl_fail(ceclInvalidUsage,
                         "stream %p captures: the host device captures no calls "
                         "over several hosts",
                         (void *)launch->stream);
    if (launch->stream == STREAM_PER_THREAD && !launch->comm->net->nccl->on_host)
        return cecl_fail(ceclInvalidArgument,
                         "stream: cudaStreamPerThread, which NCCL's thread would take for its own "
                         "stream; over several hosts another stream expected");
    /* checked before peers learn of the messages: NCCL would refuse them only afterwards */
    return launch->kind == CECL_LAUNCH_MESSAGES ? cecl_check_own(launch) : ceclSuccess;
}

/* ---- making */

static struct cecl_launch *next_by_nccl(struct cecl_launch *launch)
{
    while (launch && (!launch->comm->net || launch->kind == CECL_LAUNCH_ALLOCATIONS))
        launch = launch->next;
    return launch;
}

static ceclResult_t begin(struct cecl_launch *launch)
{
    cecl_comm_called(launch->comm, launch->ncalls > 0 ? launch->calls[0].op->name : "");
    if (launch->is_captured)
        CECL_TRY(cecl_captured_hold(launch));
    return cecl_net_begin(launch->comm->net, launch->stream, launch->is_captured);
}

static ceclResult_t add_calls(const struct cecl_launch *launch)
{
    ceclResult_t result = ceclSuccess;
    for (uint32_t i = 0; i < launch->nfull && result == ceclSuccess; i++)
        result = cecl_net_add(launch->comm->net, &launch->calls[i]);
    return result;
}

/* Makes the calls of all launches from `context` on in one group of NCCL. */
static ceclResult_t add_all(void *context)
{
    struct cecl_launch *first = context;
    const struct cecl_net *net = first->comm->net;
    char words[CECL_MESSAGE_BYTES];
    CECL_TRY(cecl_net_result(net, "ncclGroupStart", net->nccl->GroupStart()));
    ceclResult_t result = ceclSuccess;
    for (struct cecl_launch *l = first; l && result == ceclSuccess; l = next_by_nccl(l->next))
        result = add_calls(l);
    cecl_keep_message(words);
    const ceclResult_t closed = cecl_net_result(net, "ncclGroupEnd", net->nccl->GroupEnd());
    return result == ceclSuccess ? closed : cecl_fail_with(result, words);
}

static void run(struct cecl_launches *all, struct cecl_launch *first)
{
    struct cecl_launch *behind = first;
    struct cecl_device *dev = first->comm->dev;
    const int64_t start = cecl_now_ms();
    for (struct cecl_launch *l = first; l; l = next_by_nccl(l->next))
        (void)!cecl_launches_note(all, NULL, cecl_net_await_room(l->comm->net, start));
    while (behind && all->failed == ceclSuccess &&
           cecl_launches_note(all, NULL, begin(behind)) == ceclSuccess)
        behind = next_by_nccl(behind->next);
    if (all->failed == ceclSuccess)
        (void)!cecl_launches_note(all, NULL, dev->ops->within(dev, add_all, first));
    /* from here on each communicator's thread can end NCCL's communicator after a failure */
    for (struct cecl_launch *l = first; l != behind; l = next_by_nccl(l->next))
        pthread_mutex_unlock(&l->comm->net->lock);
    for (struct cecl_launch *l = first; l != behind; l = next_by_nccl(l->next))
        (void)!cecl_launches_note(all, NULL, cecl_net_end(l->comm->net, start));
    const int64_t since = cecl_now_ms();
    for (struct cecl_launch *l = first; l && all->failed != ceclSuccess; l = next_by_nccl(l->next))
        cecl_net_await_news(l->comm->net, since);
}

void cecl_by_nccl_run(struct cecl_launches *all)
{
    struct cecl_launch *first = next_by_nccl(all->first);
    if (first && all->failed == ceclSuccess)
        run(all, first);
    for (struct cecl_launch *l = first; l; l = next_by_nccl(l->next))
        if (all->failed == ceclSuccess)
            l->state = CECL_LAUNCH_ENQUEUED;
        else
            l->is_owed = true;
}

void cecl_by_nccl_explain(const struct cecl_launch *launch, ceclExplanation_t *explanation)
{
    struct cecl_net *net = launch->comm->net;
    if (launch->nfull == 0)
        return;
    explanation->zeroSm = 0;
    explanation->kernels++;
    snprintf(explanation->path, sizeof(explanation->path), "carried by %s", net->name);
    snprintf(explanation->reason, sizeof(explanation->reason),
             "the ranks are on %d hosts, where NCCL carries calls, on its SMs; communicators of "
             "one host (ceclCommSplit) are cecl's own",
             net->nhosts);
}
