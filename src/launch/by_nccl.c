/* Launches of communicators over several hosts; see steps.h. */
#include "launch/steps.h"

#include <stdio.h>

#include "launch/messages.h"
#include "net/net.h"
#include "util/clock.h"

#define STREAM_PER_THREAD ((ceclStream_t)(uintptr_t)2) /* CU_STREAM_PER_THREAD */

ceclResult_t cecl_by_nccl_check_call(const struct cecl_launch *launch, const struct cecl_call *call)
{
    return cecl_net_check(call, launch->comm->net->nccl->version);
}

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
    /* NCCL would find out only when it makes the calls */
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

/* One group of NCCL, with the calls of all launches. */
static ceclResult_t add_all(void *context)
{
    struct cecl_launch *first = context;
    char words[CECL_MESSAGE_BYTES];
    CECL_TRY(cecl_net_group_begin(first->comm->net));
    ceclResult_t result = ceclSuccess;
    for (struct cecl_launch *l = first; l && result == ceclSuccess; l = next_by_nccl(l->next))
        result = add_calls(l);
    cecl_keep_message(words);
    const ceclResult_t closed = cecl_net_group_end(first->comm->net);
    return result == ceclSuccess ? closed : cecl_fail_with(result, words);
}

/* Notes the first failure, with its message. */
static void note(ceclResult_t *first, ceclResult_t result, char words[CECL_MESSAGE_BYTES])
{
    if (*first != ceclSuccess || result == ceclSuccess)
        return;
    *first = result;
    cecl_keep_message(words);
}

ceclResult_t cecl_by_nccl_run(struct cecl_launch *list)
{
    struct cecl_launch *first = next_by_nccl(list), *behind = first;
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = ceclSuccess;
    const int64_t start = cecl_now_ms();
    if (!first)
        return ceclSuccess;
    struct cecl_device *dev = first->comm->dev;
    for (struct cecl_launch *l = first; l; l = next_by_nccl(l->next))
        note(&result, cecl_net_await_room(l->comm->net, start), words);
    while (behind && result == ceclSuccess) {
        note(&result, begin(behind), words);
        behind = result == ceclSuccess ? next_by_nccl(behind->next) : behind;
    }
    if (result == ceclSuccess)
        note(&result, dev->ops->within(dev, add_all, first), words);
    for (struct cecl_launch *l = first; l != behind; l = next_by_nccl(l->next))
        cecl_net_unlock(l->comm->net);
    for (struct cecl_launch *l = first; l != behind; l = next_by_nccl(l->next))
        note(&result, cecl_net_end(l->comm->net, start), words);
    const int64_t since = cecl_now_ms();
    for (struct cecl_launch *l = first; l; l = next_by_nccl(l->next)) {
        if (result == ceclSuccess) {
            l->state = CECL_LAUNCH_ENQUEUED;
        } else {
            cecl_net_await_news(l->comm->net, since);
            l->is_owed = true;
        }
    }
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
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
