/* A rank's side of its line to the root; see lifeline.h. */
#include "boot/lifeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/tcp.h"
#include "util/thread.h"

#define ROOT CECL_TCP_ROOT
#define SAY_MS 1000 /* how long saying something may take, in ms */
#define TICK_MS 50  /* how long the end of a wait may go unnoticed, in ms */

static ceclResult_t say(int fd, uint64_t kind, const void *part, size_t bytes)
{
    struct cecl_tcp_said said = {.kind = kind};
    memcpy(said.part, part, bytes);
    return cecl_net_send(fd, &said, sizeof(said), cecl_deadline(SAY_MS), ROOT);
}

struct cecl_lifeline *cecl_lifeline_new(int fd, int nranks, int64_t timeout_ms)
{
    static const char why[] = "no host memory to hear the root";
    struct cecl_lifeline *line = calloc(1, sizeof(*line));
    if (!line) {
        (void)!say(fd, CECL_TCP_FAILURE, why, sizeof(why));
        cecl_net_close(fd);
        return NULL;
    }
    cecl_tcp_keep_alive(fd);
    line->fd = fd;
    line->left = -1;
    line->nranks = nranks;
    line->timeout_ms = timeout_ms;
    pthread_mutex_init(&line->lock, NULL);
    return line;
}

static void hang_up(struct cecl_lifeline *line)
{
    if (line->fd >= 0)
        cecl_net_close(line->fd);
    line->fd = -1;
}

void cecl_lifeline_close(struct cecl_lifeline *line)
{
    if (!line)
        return;
    hang_up(line);
    pthread_mutex_destroy(&line->lock);
    free(line);
}

ceclResult_t cecl_tcp_in_time(ceclResult_t result, int64_t timeout_ms)
{
    return result != ceclTimeout
               ? result
               : cecl_fail(ceclTimeout,
                           "no answer from " ROOT " within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS)",
                           timeout_ms);
}

static ceclResult_t take(const struct cecl_lifeline *line, void *data, size_t bytes,
                         int64_t deadline)
{
    return cecl_tcp_in_time(cecl_net_recv(line->fd, data, bytes, deadline, ROOT), line->timeout_ms);
}

/* Receives a reply's head, and notes what an empty one says. If the reply is an error, also receives the root's
 * message. */
static ceclResult_t hear_head(struct cecl_lifeline *line, struct cecl_tcp_reply *reply,
                              int64_t deadline)
{
    char words[CECL_MESSAGE_BYTES] = "";
    const size_t most = sizeof(words) - 1;
    CECL_TRY(take(line, reply, sizeof(*reply), deadline));
    const ceclResult_t status = (ceclResult_t)reply->status;
    if (status == ceclSuccess && reply->bytes == 0) {
        line->root_may_end = line->root_may_end || reply->left == 0;
        if (line->left < 0)
            line->left = (int)reply->left - 1;
    }
    if (status == ceclSuccess ||
        take(line, words, reply->bytes < most ? (size_t)reply->bytes : most, deadline) !=
            ceclSuccess)
        return status;
    return cecl_fail_with(status, words);
}

ceclResult_t cecl_lifeline_hear(struct cecl_lifeline *line, void *recv, size_t bytes,
                                int64_t deadline)
{
    struct cecl_tcp_reply reply = {.bytes = 0};
    char part[CECL_OOB_PART_BYTES];
    while (reply.bytes == 0) /* the parts come next */
        CECL_TRY(hear_head(line, &reply, deadline));
    if (reply.bytes != (uint64_t)line->nranks * sizeof(part))
        return cecl_fail(ceclInternalError, "the root sent %llu bytes, %zu expected",
                         (unsigned long long)reply.bytes, (size_t)line->nranks * sizeof(part));
    for (int r = 0; r < line->nranks; r++) {
        CECL_TRY(take(line, part, sizeof(part), deadline));
        if (recv)
            memcpy((char *)recv + (size_t)r * bytes, part, bytes);
    }
    return ceclSuccess;
}

/* Waits until the root has sent something. */
static ceclResult_t await_root(const struct cecl_lifeline *line, int64_t deadline,
                               const _Atomic bool *ended)
{
    for (;;) {
        const int left = cecl_ms_left(deadline);
        struct pollfd root = {.fd = line->fd, .events = POLLIN};
        if (poll(&root, 1, left < 0 || left > TICK_MS ? TICK_MS : left) > 0)
            return ceclSuccess;
        if (ended && atomic_load(ended))
            return cecl_fail(ceclRemoteError, "the communicator has failed");
        if (left == 0)
            return cecl_fail(ceclTimeout, "other ranks did not take part in time");
    }
}

static ceclResult_t gather(struct cecl_lifeline *line, const void *send, void *recv, size_t bytes,
                           int64_t deadline, const _Atomic bool *ended)
{
    if (line->fd < 0)
        return cecl_fail(ceclRemoteError, ROOT " has ended");
    const ceclResult_t said = say(line->fd, CECL_TCP_PART, send, bytes);
    if (said != ceclSuccess && said != ceclRemoteError) /* the root may have told why it closes */
        return said;
    CECL_TRY(await_root(line, deadline, ended));
    return cecl_lifeline_hear(line, recv, bytes, deadline);
}

ceclResult_t cecl_lifeline_gather(struct cecl_lifeline *line, const void *send, void *recv,
                                  size_t bytes, int64_t deadline, const _Atomic bool *ended)
{
    pthread_mutex_lock(&line->lock);
    const ceclResult_t result = gather(line, send, recv, bytes, deadline, ended);
    line->is_broken = line->is_broken || result != ceclSuccess;
    pthread_mutex_unlock(&line->lock);
    return result;
}

struct verdict {
    int32_t result;
    char words[CECL_MESSAGE_BYTES];
};
_Static_assert(sizeof(struct verdict) <= CECL_OOB_PART_BYTES, "a verdict fits into a part");

ceclResult_t cecl_lifeline_agree(struct cecl_lifeline *line, ceclResult_t mine, int64_t deadline,
                                 const _Atomic bool *ended)
{
    struct verdict verdict = {.words = ""}, *all = calloc((size_t)line->nranks, sizeof(*all));
    if (!all && mine == ceclSuccess) /* the others learn of it */
        mine =
            cecl_fail(ceclOutOfMemory, "no host memory for an exchange of %d ranks", line->nranks);
    verdict.result = (int32_t)mine;
    cecl_keep_message(verdict.words);
    ceclResult_t result =
        cecl_lifeline_gather(line, &verdict, all, sizeof(verdict), deadline, ended);
    for (int r = 0; r < line->nranks && all && result == ceclSuccess; r++)
        if (all[r].result != ceclSuccess)
            result = cecl_fail((ceclResult_t)all[r].result, "rank %d: %.450s", r, all[r].words);
    free(all);
    return mine == ceclSuccess ? result : cecl_fail_with(mine, verdict.words);
}

void cecl_lifeline_rest(struct cecl_lifeline *line, int wake, int ms)
{
    uint64_t count;
    struct pollfd polls[] = {{.fd = wake, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    if (pthread_mutex_trylock(&line->lock) == 0) {
        polls[1].fd = line->fd;
        pthread_mutex_unlock(&line->lock);
    }
    (void)poll(polls, 2, ms);
    (void)!read(wake, &count, sizeof(count));
}

static ceclResult_t news(struct cecl_lifeline *line)
{
    struct cecl_tcp_reply reply = {.bytes = 0};
    const int look = line->fd < 0 ? -1 : cecl_net_look(line->fd);
    if (look > 0)
        return hear_head(line, &reply, cecl_deadline(SAY_MS));
    if (look < 0)
        return ceclSuccess;
    hang_up(line);
    return line->root_may_end
               ? ceclSuccess
               : cecl_fail(ceclRemoteError, ROOT " has ended, so ranks no longer learn if one of "
                                                 "them ends");
}

/* A thread that exchanges hears the news itself. */
ceclResult_t cecl_lifeline_news(struct cecl_lifeline *line)
{
    if (pthread_mutex_trylock(&line->lock) != 0)
        return ceclSuccess;
    const ceclResult_t result = news(line);
    line->has_told = line->has_told || result != ceclSuccess;
    pthread_mutex_unlock(&line->lock);
    return result;
}

void cecl_lifeline_fail(struct cecl_lifeline *line, const char *words)
{
    if (!cecl_lock_until(&line->lock, cecl_deadline(SAY_MS)))
        return;
    if (line->fd >= 0 && !line->has_told)
        (void)!say(line->fd, CECL_TCP_FAILURE, words, strnlen(words, CECL_MESSAGE_BYTES - 1));
    line->has_told = true;
    pthread_mutex_unlock(&line->lock);
}

void cecl_lifeline_leave(struct cecl_lifeline *line)
{
    const int64_t deadline = cecl_deadline(SAY_MS);
    char rest;
    if (!cecl_lock_until(&line->lock, deadline))
        return;
    if (line->fd >= 0 && say(line->fd, CECL_TCP_GOODBYE, "", 0) == ceclSuccess)
        while (cecl_net_recv(line->fd, &rest, 1, deadline, ROOT) == ceclSuccess)
            ;
    hang_up(line);
    pthread_mutex_unlock(&line->lock);
}
