/* What this rank does before and after NCCL's calls; see net.h. */
#include "net/net.h"
#include "util/clock.h"

#define PENDING_MOST 128 /* most pending calls: each takes about 7 of a GPU queue's 1,000 entries */
#define SLACK_MS 1000    /* callers wait this much longer than the thread, which may name a cause */

static int64_t deadline_of(const struct cecl_net *net, int64_t start)
{
    return net->timeout_ms > 0 ? start + net->timeout_ms + SLACK_MS : CECL_NO_DEADLINE;
}

ceclResult_t cecl_net_await_room(const struct cecl_net *net, int64_t start)
{
    while (net->number - __atomic_load_n(net->ended, __ATOMIC_ACQUIRE) >= PENDING_MOST) {
        if (atomic_load(&net->failed))
            return cecl_fail(ceclRemoteError, "the communicator has failed");
        if (cecl_ms_left(deadline_of(net, start)) == 0)
            return cecl_net_late(net, cecl_now_ms() - start);
        cecl_pause_us(20);
    }
    return ceclSuccess;
}

/* Makes the stream write the call's number to *begun. If the last call was on another stream, first makes this stream
 * wait for that call's end: a communicator's calls run in the order in which they are made. */
static ceclResult_t mark_begin(struct cecl_net *net)
{
    const struct cecl_device_ops *ops = net->dev->ops;
    const uint64_t id = ops->stream_id(net->dev, net->work);
    const bool follows = id != 0 && id == net->stream_id;
    const struct cecl_memop marks[] = {{net->ended, net->number, CECL_MEMOP_WAIT},
                                       {net->begun, net->number + 1, CECL_MEMOP_WRITE}};
    CECL_TRY(ops->memops(net->dev, net->work, &marks[follows], follows ? 1 : 2));
    net->stream_id = id;
    net->number++;
    return ceclSuccess;
}

ceclResult_t cecl_net_begin(struct cecl_net *net, ceclStream_t stream, bool is_captured)
{
    const struct cecl_device_ops *ops = net->dev->ops;
    net->stream = stream;
    net->work = net->nccl->on_host ? NULL : stream;
    net->is_captured = is_captured;
    if (net->nccl->on_host) {
        /* the stand-in for NCCL has no streams, so the host first waits for the stream */
        CECL_TRY(ops->stream_synchronize(net->dev, stream));
    } else if (!is_captured) {
        CECL_TRY(ops->stream_fork(net->dev, stream, &net->work));
        const ceclResult_t result = mark_begin(net);
        if (result != ceclSuccess) {
            (void)!ops->stream_join(net->dev, stream, net->work);
            return result;
        }
    }
    pthread_mutex_lock(&net->lock);
    return ceclSuccess;
}

/* NCCL may enqueue the calls in the background. Waits until it has, so that no later work overtakes them. */
ceclResult_t cecl_net_end(struct cecl_net *net, int64_t start)
{
    const struct cecl_device_ops *ops = net->dev->ops;
    const struct cecl_memop mark = {net->ended, net->number, CECL_MEMOP_WRITE};
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = cecl_net_await(net, "a call", deadline_of(net, start));
    if (result == ceclTimeout)
        result = cecl_net_late(net, cecl_now_ms() - start);
    if (net->nccl->on_host || net->is_captured)
        return result;
    cecl_keep_message(words);
    const ceclResult_t marked = ops->memops(net->dev, net->work, &mark, 1),
                       joined = ops->stream_join(net->dev, net->stream, net->work);
    return result != ceclSuccess   ? cecl_fail_with(result, words)
           : marked != ceclSuccess ? marked
                                   : joined;
}

bool cecl_net_is_idle(const struct cecl_net *net)
{
    return net->nccl->on_host || __atomic_load_n(net->ended, __ATOMIC_ACQUIRE) == net->number;
}
