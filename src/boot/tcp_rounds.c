/* The all-gathers that the root of the TCP bootstrap serves: it receives a part from every rank, and
 * sends all parts to all. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/tcp_root.h"
#include "util/clock.h"

static bool is_complete(const struct seat *seat)
{
    return seat->got >= sizeof(seat->request) &&
           seat->got == sizeof(seat->request) + (size_t)seat->request.bytes;
}

static bool is_awaited(const struct seat *seat)
{
    return seat->fd >= 0 && !is_complete(seat);
}

/* The error of a rank's connection for `error`, an errno. ceclRemoteError, without a message: the
 * rank has closed. */
static ceclResult_t seat_error(int rank, const char *doing, int error)
{
    return cecl_net_is_closed(error) ? ceclRemoteError
                                     : cecl_fail(ceclSystemError, "the root, %s rank %d: %s", doing,
                                                 rank, strerror(error));
}

/* The head of a request is there: makes room for the part that follows. */
static ceclResult_t make_room(struct seat *seat, int rank)
{
    if (seat->request.bytes > CECL_TCP_MAX_PART)
        return cecl_fail(ceclInternalError,
                         "rank %d brought %" PRIu64 " bytes: at most %u expected", rank,
                         seat->request.bytes, CECL_TCP_MAX_PART);
    free(seat->part);
    seat->part = malloc((size_t)seat->request.bytes + 1);
    return seat->part ? ceclSuccess
                      : cecl_fail(ceclOutOfMemory, "the root has no memory for %" PRIu64 " bytes",
                                  seat->request.bytes);
}

/* Receives what has arrived of a rank's request. Results as for attend. */
static ceclResult_t receive_some(struct seat *seat, int rank)
{
    while (!is_complete(seat)) {
        const size_t head = sizeof(seat->request);
        size_t want = head - seat->got;
        char *to = (char *)&seat->request + seat->got;
        if (seat->got >= head) {
            want = head + (size_t)seat->request.bytes - seat->got;
            to = seat->part + (seat->got - head);
        }
        const ssize_t got = recv(seat->fd, to, want, MSG_DONTWAIT);
        if (got < 0 && cecl_net_is_early(errno))
            return ceclSuccess;
        if (got <= 0)
            return seat_error(rank, "receiving from", got == 0 ? EPIPE : errno);
        seat->got += (size_t)got;
        if (seat->got == head)
            CECL_TRY(make_room(seat, rank));
    }
    return ceclSuccess;
}

/* Sends as much of the reply as the socket takes. Results as for attend. */
static ceclResult_t send_some(const struct root *root, struct seat *seat, int rank)
{
    while (seat->taken < root->reply_bytes) {
        const ssize_t sent = send(seat->fd, root->reply + seat->taken,
                                  root->reply_bytes - seat->taken, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            seat->taken += (size_t)sent;
        else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return ceclSuccess;
        else if (errno != EINTR)
            return seat_error(rank, "sending to", errno);
    }
    return ceclSuccess;
}

/* Begins the reply to an all-gather in which every rank has brought `bytes` bytes. */
static ceclResult_t begin_reply(struct root *root, size_t bytes)
{
    const struct cecl_tcp_reply head = {.status = ceclSuccess,
                                        .bytes = (uint64_t)root->nranks * bytes};
    free(root->reply);
    root->reply_bytes = sizeof(head) + (size_t)head.bytes;
    root->reply = malloc(root->reply_bytes);
    if (!root->reply) {
        root->reply_bytes = 0;
        for (int r = 0; r < root->nranks; r++)
            root->seats[r].taken = 0;
        return cecl_fail(ceclOutOfMemory, "the root has no memory for %d parts of %zu bytes",
                         root->nranks, bytes);
    }
    memcpy(root->reply, &head, sizeof(head));
    for (int r = 0; r < root->nranks; r++) {
        struct seat *seat = &root->seats[r];
        if (bytes > 0)
            memcpy(root->reply + sizeof(head) + (size_t)r * bytes, seat->part, bytes);
        seat->got = seat->taken = 0;
    }
    return ceclSuccess;
}

/* Replies once all ranks have brought their parts. The parts' sizes should be equal. */
static void answer_round(struct root *root)
{
    const size_t bytes = (size_t)root->seats[0].request.bytes;
    ceclResult_t status = ceclSuccess;
    for (int r = 1; r < root->nranks && status == ceclSuccess; r++)
        if (root->seats[r].request.bytes != bytes)
            status = cecl_fail(ceclInternalError, "rank 0 brought %zu bytes, rank %d %llu", bytes,
                               r, (unsigned long long)root->seats[r].request.bytes);
    if (status == ceclSuccess)
        status = begin_reply(root, bytes);
    if (status != ceclSuccess)
        root_fail_job(root, status);
}

/* How far the current all-gather is. */
struct standing {
    int open, begun, complete;
    int gone; /* a rank that has left, or -1 */
};

/* Fills in what is polled: the ranks' processes, and behind them their sockets. poll() looks at the
 * processes first. If one has ended, all that it sent is there when poll() looks at its socket. */
static struct standing look(const struct root *root, struct pollfd *polls)
{
    struct standing s = {.gone = -1};
    for (int r = 0; r < root->nranks; r++) {
        const struct seat *seat = &root->seats[r];
        const bool takes = seat->taken < root->reply_bytes;
        struct pollfd *poller = &polls[root->nranks + r];
        polls[r] = (struct pollfd){.fd = seat->process, .events = POLLIN};
        *poller = (struct pollfd){.fd = seat->fd, .events = takes ? POLLOUT : POLLIN};
        if (seat->fd < 0) {
            s.gone = r;
        } else {
            s.open++;
            s.begun += seat->got > 0;
            s.complete += is_complete(seat);
            if (is_complete(seat))
                poller->events = POLLRDHUP; /* it waits for the others; only its end matters */
        }
    }
    return s;
}

static void name_who_is_late(struct root *root, int complete)
{
    struct cecl_rank_list list = root_list_ranks(root, is_awaited);
    cecl_fail(ceclTimeout,
              "%d of %d ranks came to an exchange of joining within %" PRId64
              " ms (CECL_INIT_TIMEOUT_MS); missing: %s",
              complete, root->nranks, root->bound_ms, cecl_rank_list_words(&list));
    root_fail_job(root, ceclTimeout);
}

/* Receives from or sends to a rank whose socket is ready. ceclRemoteError: the rank has gone. Another
 * error fails the job, and its message says why. */
static ceclResult_t attend(const struct root *root, struct seat *seat, int rank)
{
    if (seat->taken < root->reply_bytes)
        return send_some(root, seat, rank);
    return is_complete(seat) ? ceclRemoteError : receive_some(seat, rank);
}

static void attend_all(struct root *root, const struct pollfd *polls)
{
    for (int r = 0; r < root->nranks && root->failed == ceclSuccess; r++) {
        const bool ended = polls[r].revents, ready = polls[root->nranks + r].revents;
        if (!ended && !ready)
            continue;
        const ceclResult_t result = ready ? attend(root, &root->seats[r], r) : ceclRemoteError;
        if (result == ceclRemoteError) {
            root_vacate(&root->seats[r]);
        } else if (result != ceclSuccess) {
            root_fail_job(root, result);
        }
    }
}

/* Serves all-gathers until every rank has closed. A rank that closes while another one is in an
 * all-gather fails the job. */
static void serve(struct root *root, struct pollfd *polls)
{
    while (root->failed == ceclSuccess) {
        const struct standing s = look(root, polls);
        if (s.open == 0)
            break;
        if (s.complete == root->nranks) {
            answer_round(root);
            continue;
        }
        if (s.gone >= 0 && s.begun > 0) {
            cecl_fail(ceclRemoteError, "rank %d left while the communicator was made", s.gone);
            root_fail_job(root, ceclRemoteError);
            break;
        }
        const int ready = poll(polls, 2 * (nfds_t)root->nranks, cecl_ms_left(root->deadline));
        if (ready == 0)
            name_who_is_late(root, s.complete);
        if (ready > 0)
            attend_all(root, polls);
    }
}

void root_serve_rounds(struct root *root)
{
    struct pollfd *polls = calloc(2 * (size_t)root->nranks, sizeof(*polls));
    const ceclResult_t result =
        polls ? begin_reply(root, 0)
              : cecl_fail(ceclOutOfMemory, "the root has no memory for %d ranks", root->nranks);
    if (result == ceclSuccess)
        serve(root, polls);
    else
        root_fail_job(root, result);
    free(polls);
}
