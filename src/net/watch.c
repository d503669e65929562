/* The thread that notices failures of a communicator over several hosts, and ends NCCL's communicator; see net.h.
 * NCCL's abort may wait for the GPU. So this thread aborts, if it was started; others wait for it, with a time limit. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/net.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define TICK_MS 200
#define NEWS_MS 500 /* the line's news of a rank's end may come this much later than NCCL's error */
#define LOCK_MS 2000  /* most ms to wait for the lock */
#define SHUT_MS 10000 /* most ms to wait for the end of NCCL's communicator */

/* Returns NCCL's asynchronous error, but only NEWS_MS after it came: most errors follow from the end of a rank, and by
 * then the line's news names that rank. */
static ceclResult_t look_at_nccl(struct cecl_net *net, int64_t now)
{
    nccl_result state = NCCL_SUCCESS;
    if (pthread_mutex_trylock(&net->lock) != 0)
        return ceclSuccess;
    ceclResult_t result = ceclSuccess;
    nccl_comm comm = cecl_net_comm(net);
    if (comm && net->nccl->CommGetAsyncError(comm, &state) == NCCL_SUCCESS)
        result = cecl_net_result(net, "a call", state);
    pthread_mutex_unlock(&net->lock);
    if (result == ceclSuccess || net->error_since == 0)
        net->error_since = result == ceclSuccess ? 0 : now;
    return now - net->error_since < NEWS_MS ? ceclSuccess : result;
}

ceclResult_t cecl_net_late(const struct cecl_net *net, int64_t waited_ms)
{
    char who[48] = "";
    const int left = atomic_load(&net->line.left);
    if (left >= 0)
        snprintf(who, sizeof(who), "; rank %d has left", left);
    return cecl_fail(ceclTimeout,
                     "a call on rank %d has waited for other ranks for %d ms (CECL_TIMEOUT_MS=%d), "
                     "and %s does not say for which%s; did every rank make the same call, and did "
                     "its stream reach it?",
                     net->rank, (int)waited_ms, net->timeout_ms, net->name, who);
}

static ceclResult_t look_at_words(struct cecl_net *net, int64_t now)
{
    const uint32_t begun = __atomic_load_n(net->begun, __ATOMIC_ACQUIRE),
                   ended = __atomic_load_n(net->ended, __ATOMIC_ACQUIRE);
    const int64_t since = cecl_clock_since(&net->seen, (uint64_t)begun << 32 | ended, now);
    return net->timeout_ms <= 0 || begun == ended || now - since < net->timeout_ms
               ? ceclSuccess
               : cecl_net_late(net, now - since);
}

static void look(struct cecl_net *net)
{
    const int64_t now = cecl_now_ms();
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = cecl_lifeline_news(&net->line);
    if (result == ceclSuccess)
        result = look_at_nccl(net, now);
    if (result == ceclSuccess)
        result = look_at_words(net, now);
    cecl_keep_message(words);
    if (result != ceclSuccess)
        net->fails(net->context, result, words);
}

/* Ends NCCL's communicator. Goes on without the lock after LOCK_MS: a thread that holds it so long waits inside NCCL,
 * and only an abort ends that wait. */
static ceclResult_t end_nccl(void *context)
{
    struct cecl_net *net = context;
    const bool has_lock = cecl_lock_until(&net->lock, cecl_deadline(LOCK_MS));
    nccl_comm comm = __atomic_exchange_n(&net->comm, NULL, __ATOMIC_ACQ_REL);
    if (has_lock)
        pthread_mutex_unlock(&net->lock);
    if (comm)
        (void)(atomic_load(&net->failed) ? net->nccl->CommAbort(comm)
                                         : net->nccl->CommDestroy(comm));
    return ceclSuccess;
}

static void *watch(void *argument)
{
    struct cecl_net *net = argument;
    cecl_thread_name("cecl-net");
    while (!atomic_load(&net->stop) && !atomic_load(&net->failed)) {
        look(net);
        if (!atomic_load(&net->failed))
            cecl_lifeline_rest(&net->line, net->wake, TICK_MS);
    }
    if (atomic_load(&net->failed))
        cecl_lifeline_fail(&net->line, net->words);
    if (!atomic_load(&net->is_held))
        (void)!net->dev->ops->within(net->dev, end_nccl, net);
    if (!atomic_load(&net->failed))
        cecl_lifeline_leave(&net->line);
    atomic_store(&net->has_ended, true);
    return NULL;
}

ceclResult_t cecl_net_watch(struct cecl_net *net)
{
    const int error = cecl_thread_start(&net->thread, watch, net);
    net->has_thread = error == 0;
    return error == 0 ? ceclSuccess
                      : cecl_fail(ceclSystemError, "no thread for a communicator over hosts: %s",
                                  strerror(error));
}

static void wake(const struct cecl_net *net)
{
    const uint64_t one = 1;
    (void)!write(net->wake, &one, sizeof(one));
}

void cecl_net_fail(struct cecl_net *net, const char *words)
{
    snprintf(net->words, sizeof(net->words), "%s", words);
    atomic_store(&net->failed, true);
    wake(net);
}

/* Waits until the thread has set the flag, or until the deadline. Returns whether it is set. */
static bool await_flag(const _Atomic bool *flag, int64_t deadline)
{
    while (!atomic_load(flag) && cecl_ms_left(deadline) != 0)
        cecl_pause_us(200);
    return atomic_load(flag);
}

void cecl_net_await_news(const struct cecl_net *net, int64_t since)
{
    (void)await_flag(&net->failed, since + NEWS_MS);
}

bool cecl_net_shut(struct cecl_net *net, bool is_held)
{
    if (is_held && atomic_load(&net->failed)) /* NCCL's abort would wait for the graphs */
        return false;
    atomic_store(&net->is_held, is_held);
    if (!net->has_thread) { /* the thread was never started, because the join failed */
        atomic_store(&net->failed, true);
        if (cecl_net_comm(net))
            (void)!net->dev->ops->within(net->dev, end_nccl, net);
    } else {
        atomic_store(&net->stop, true);
        wake(net);
        if (!await_flag(&net->has_ended, cecl_deadline(SHUT_MS))) {
            cecl_log(CECL_LOG_WARN, net->rank, "%s did not end within %d ms: its memory stays",
                     net->name, SHUT_MS);
            return false;
        }
        pthread_join(net->thread, NULL);
    }
    cecl_lifeline_close(&net->line);
    return true;
}
