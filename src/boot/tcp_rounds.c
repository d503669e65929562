/* The all-gathers that the root of the TCP bootstrap serves: it receives a part from every rank,
 * and sends all parts to all. */
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

/* The error of a rank's connection that failed with `error`, an errno. ceclRemoteError means that
 * the rank has closed; no message is recorded then. */
static ceclResult_t seat_error(int rank, const char *doing, int error)
{
    return cecl_net_is_closed(error) ? ceclRemoteError
                                     : cecl_fail(ceclSystemError, "the root, %s rank %d: %s", doing,
                                                 rank, strerror(error));
}

/* Makes room for the reply of a round: its header, and `bytes` of each rank. */
static ceclResult_t begin_round(struct root *root, int rank, size_t bytes)
{
    const struct cecl_tcp_reply head = {.status = ceclSuccess,
                                        .bytes = (uint64_t)root->nranks * bytes};
    root->next = malloc(sizeof(head) + (size_t)head.bytes);
    if (!root->next)
        return cecl_fail(ceclOutOfMemory, "the root has no memory for %d parts of %zu bytes",
                         root->nranks, bytes);
    memcpy(root->next, &head, sizeof(head));
    root->part_bytes = bytes;
    root->beginner = rank;
    return ceclSuccess;
}

/* Checks a request's header. All parts of a round have one size. */
static ceclResult_t judge_request(struct root *root, int rank)
{
    const uint64_t bytes = root->seats[rank].request.bytes;
    if (bytes > CECL_TCP_MAX_PART)
        return cecl_fail(ceclInternalError,
                         "rank %d brought %" PRIu64 " bytes: at most %u expected", rank, bytes,
                         CECL_TCP_MAX_PART);
    if (!root->next)
        return begin_round(root, rank, (size_t)bytes);
    return bytes == root->part_bytes
               ? ceclSuccess
               : cecl_fail(ceclInternalError, "rank %d brought %zu bytes, rank %d %" PRIu64,
                           root->beginner, root->part_bytes, rank, bytes);
}

/* Receives what has arrived of a rank's request. ceclRemoteError: the rank has gone. */
static ceclResult_t receive_some(struct root *root, int rank)
{
    struct seat *seat = &root->seats[rank];
    const size_t head = sizeof(seat->request);
    while (!is_complete(seat)) {
        size_t want = head - seat->got;
        char *to = (char *)&seat->request + seat->got;
        if (seat->got >= head) {
            want = head + root->part_bytes - seat->got;
            to = root->next + sizeof(struct cecl_tcp_reply) + (size_t)rank * root->part_bytes +
                 (seat->got - head);
        }
        const ssize_t got = recv(seat->fd, to, want, MSG_DONTWAIT);
        if (got < 0 && cecl_net_is_early(errno))
            return ceclSuccess;
        if (got <= 0)
            return seat_error(rank, "receiving from", got == 0 ? EPIPE : errno);
        seat->got += (size_t)got;
        if (seat->got == head)
            CECL_TRY(judge_request(root, rank));
    }
    return ceclSuccess;
}

/* Sends as much of the reply as the socket takes. ceclRemoteError: the rank has gone. */
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

/* Called when all parts have come, so that every rank has received the reply before: sends the new
 * one. */
static void answer_round(struct root *root)
{
    free(root->reply);
    root->reply = root->next;
    root->reply_bytes = sizeof(struct cecl_tcp_reply) + (size_t)root->nranks * root->part_bytes;
    root->next = NULL;
    for (int r = 0; r < root->nranks; r++)
        root->seats[r].got = root->seats[r].taken = 0;
}

/* How far the current all-gather is. */
struct standing {
    int open, begun, complete;
    int gone; /* a rank that has left, or -1 */
};

/* Fills in the poll list: the ranks' processes, and behind them their sockets. poll() looks at the
 * processes first, so if a process has ended, its last data is there when poll() looks at its
 * socket. */
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
                /* this rank waits for the others; only its end matters */
                poller->events = POLLRDHUP;
        }
    }
    return s;
}

/* Receives from or sends to the ranks whose sockets are ready. A rank that has gone loses its seat.
 * Other errors fail the job. */
static void attend_all(struct root *root, const struct pollfd *polls)
{
    for (int r = 0; r < root->nranks && root->failed == ceclSuccess; r++) {
        struct seat *seat = &root->seats[r];
        const bool ended = polls[r].revents, ready = polls[root->nranks + r].revents;
        ceclResult_t result = ended ? ceclRemoteError : ceclSuccess;
        if (ready && seat->taken < root->reply_bytes)
            result = send_some(root, seat, r);
        else if (ready)
            result = is_complete(seat) ? ceclRemoteError : receive_some(root, r);
        if (result == ceclRemoteError)
            root_vacate(seat);
        else if (result != ceclSuccess)
            root_fail_job(root, result);
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
        if (ready < 0 && errno != EINTR) {
            root_fail_job(root, cecl_fail(ceclSystemError, "poll of %d connections: %s",
                                          root->nranks, strerror(errno)));
            return;
        }
        if (ready == 0)
            root_name_late(root, s.complete, "came to an exchange of joining", is_awaited);
        if (ready > 0)
            attend_all(root, polls);
    }
}

void root_serve_rounds(struct root *root)
{
    struct pollfd *polls = calloc(2 * (size_t)root->nranks, sizeof(*polls));
    const ceclResult_t result =
        polls ? begin_round(root, 0, 0)
              : cecl_fail(ceclOutOfMemory, "the root has no memory for %d ranks", root->nranks);
    if (result == ceclSuccess) {
        answer_round(root); /* tells all that all have joined */
        serve(root, polls);
    } else {
        root_fail_job(root, result);
    }
    free(polls);
}
