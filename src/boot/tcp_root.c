/* The root's side of the TCP bootstrap: a thread in the process that made the unique id. It admits
 * ranks, serves their all-gathers, and ends when they have left. The door (door.h) keeps strangers
 * out: they get a challenge that they cannot answer, and hold up nobody. A rank that receives its
 * replies slowly holds up nobody either. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/door.h"
#include "boot/net.h"
#include "boot/rank_list.h"
#include "boot/tcp.h"
#include "util/clock.h"
#include "util/thread.h"

#define RANKS_MAX 65536 /* more than any job has; the API has its own limit */
#define LINGER_MS 1000  /* ms in which late ranks still hear why the job failed */
#define WORDS_MS 1000   /* ms that sending these messages may take */
#define TICK_MS 50      /* ms after which a rank that leaves early is noticed, at most */
#define MARGIN_MS 1000  /* ms, at most, between telling a rank who is missing and its giving up */

struct seat {
    int fd;
    size_t got;   /* bytes of this request and its part received so far */
    size_t taken; /* bytes of the reply sent so far */
    struct cecl_tcp_request request;
    char *part;
};

struct root {
    struct cecl_door door;
    uint8_t secret[16];
    int64_t timeout_ms;
    /* ms: the shortest time that the root or any rank waits in all, for messages */
    int64_t bound_ms;
    int64_t deadline; /* end of the current wait */
    int64_t patience; /* when the first of the ranks gives up */
    int nranks, joined;
    int expected;       /* the largest nranks that any rank has sent */
    int told;           /* number of ranks that came after the job had failed and were told why */
    struct seat *seats; /* [nranks], from the first rank's coming on */
    char *reply;        /* the last reply: header and all parts */
    size_t reply_bytes;
    ceclResult_t failed; /* the job is over, with `words` as the message */
    char words[CECL_MESSAGE_BYTES];
};

/* The end of a wait that lasts `wait_ms`, or until the first rank gives up. It is a little earlier,
 * so that the message arrives while that rank still listens. */
static int64_t deadline_in(const struct root *root, int64_t wait_ms)
{
    int64_t end = cecl_deadline(wait_ms);
    if (root->patience < end)
        end = root->patience;
    if (end == CECL_NO_DEADLINE)
        return end;
    const int64_t tenth = (end - cecl_now_ms()) / 10;
    return end - (tenth < MARGIN_MS ? tenth : MARGIN_MS);
}

static void send_words(int fd, ceclResult_t status, const char *words, int64_t deadline)
{
    const struct cecl_tcp_reply reply = {.status = (int32_t)status, .bytes = strlen(words)};
    if (cecl_net_send(fd, &reply, sizeof(reply), deadline, "a rank") == ceclSuccess)
        (void)!cecl_net_send(fd, words, (size_t)reply.bytes, deadline, "a rank");
}

/* Ends the job. Every rank that has joined is told, except those in the middle of a reply. Ranks
 * that come later are told for LINGER_MS. */
static void fail_job(struct root *root, ceclResult_t status)
{
    const int64_t deadline = cecl_deadline(WORDS_MS);
    root->failed = status;
    root->deadline = cecl_deadline(LINGER_MS);
    cecl_keep_message(root->words);
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r].fd >= 0 && root->seats[r].taken == root->reply_bytes)
            send_words(root->seats[r].fd, status, root->words, deadline);
}

/* Lists the ranks for which `is_missing` holds. */
static struct cecl_rank_list list_ranks(const struct root *root,
                                        bool (*is_missing)(const struct seat *seat))
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < root->nranks; r++)
        if (is_missing(&root->seats[r]))
            cecl_rank_list_add(&list, r);
    return list;
}

/* ---- joining */

static bool greet(struct cecl_caller *caller)
{
    struct cecl_tcp_challenge challenge = {.magic = CECL_TCP_MAGIC};
    if (cecl_net_random(caller->nonce, sizeof(caller->nonce)) != ceclSuccess)
        return false;
    memcpy(challenge.nonce, caller->nonce, sizeof(challenge.nonce));
    /* A new socket's buffer takes this at once; if not, the connection is dropped. */
    return send(caller->fd, &challenge, sizeof(challenge), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof(challenge);
}

static bool make_seats(struct root *root, int nranks)
{
    root->seats = calloc((size_t)nranks, sizeof(*root->seats));
    if (!root->seats)
        return false;
    root->nranks = nranks;
    for (int r = 0; r < nranks; r++)
        root->seats[r].fd = -1;
    return true;
}

/* Whether a rank that has proved the secret may have the seat that it asks for. */
static ceclResult_t judge(struct root *root, const struct cecl_tcp_answer *answer)
{
    const int rank = answer->rank, nranks = answer->nranks;
    if (root->failed != ceclSuccess)
        return root->failed;
    if (nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
        return cecl_fail(ceclInvalidArgument, "rank %d of %d: out of range", rank, nranks);
    if (!root->seats && !make_seats(root, nranks))
        return cecl_fail(ceclOutOfMemory, "the root has no memory for %d ranks", nranks);
    if (nranks != root->nranks)
        return cecl_fail(ceclInvalidArgument, "nranks: rank %d says %d, others say %d", rank,
                         nranks, root->nranks);
    if (root->seats[rank].fd >= 0)
        return cecl_fail(ceclInvalidArgument, "rank %d was taken twice (of %d)", rank, nranks);
    return ceclSuccess;
}

/* Gives a seat to a rank that has proved the secret, or fails the job for a reason
 * that all ranks are told. */
static void admit(struct root *root, int fd, const struct cecl_tcp_answer *answer)
{
    if (answer->nranks > root->expected && answer->nranks <= RANKS_MAX)
        root->expected = answer->nranks;
    const ceclResult_t status = judge(root, answer);
    if (status != ceclSuccess) {
        if (root->failed == ceclSuccess)
            fail_job(root, status);
        root->told++;
        send_words(fd, status, root->words, cecl_deadline(WORDS_MS));
        close(fd);
        return;
    }
    root->seats[answer->rank].fd = fd;
    if (answer->patience_ms > 0 && cecl_deadline(answer->patience_ms) < root->patience)
        root->patience = cecl_deadline(answer->patience_ms);
    if (answer->timeout_ms > 0 && answer->timeout_ms < root->bound_ms)
        root->bound_ms = answer->timeout_ms;
    const int64_t end = deadline_in(root, root->timeout_ms);
    /* a rank that comes does not prolong the wait of another */
    if (root->joined++ == 0 || end < root->deadline)
        root->deadline = end;
}

/* Looks at a caller that has sent all its bytes. It is a rank if it knows the secret; then it gets
 * the proof that the root knows it too. */
static void consider(struct root *root, const struct cecl_caller *caller)
{
    struct cecl_tcp_answer answer;
    memcpy(&answer, caller->said, sizeof(answer));
    const uint64_t expected = cecl_tcp_rank_tag(root->secret, caller->nonce, &answer);
    const struct cecl_tcp_proof proof = {
        cecl_tcp_root_tag(root->secret, caller->nonce, answer.nonce)};
    if (answer.magic == CECL_TCP_MAGIC &&
        cecl_net_equal(&answer.tag, &expected, sizeof(expected)) &&
        cecl_net_send(caller->fd, &proof, sizeof(proof), cecl_deadline(WORDS_MS), "a rank") ==
            ceclSuccess)
        admit(root, caller->fd, &answer);
    else
        close(caller->fd);
}

/* Fails the job if a rank that had joined closes while others are still awaited. */
static void notice_leavers(struct root *root)
{
    for (int r = 0; r < root->nranks && root->failed == ceclSuccess; r++) {
        char byte;
        if (root->seats[r].fd < 0)
            continue;
        const ssize_t got = recv(root->seats[r].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            cecl_fail(ceclRemoteError, "rank %d left while ranks were joining", r);
            fail_job(root, ceclRemoteError);
        }
    }
}

/* Fails the job if ranks are waiting outside and cannot be accepted. */
static void notice_trouble(struct root *root)
{
    const int trouble = cecl_door_trouble(&root->door);
    if (trouble && root->nranks > 0 && root->failed == ceclSuccess) {
        cecl_fail(ceclSystemError,
                  "the process that made the unique id cannot take connections: %s",
                  strerror(trouble));
        fail_job(root, ceclSystemError);
    }
}

static bool is_empty(const struct seat *seat)
{
    return seat->fd < 0;
}

static void tell_who_is_missing(struct root *root)
{
    struct cecl_rank_list list = list_ranks(root, is_empty);
    cecl_fail(ceclTimeout,
              "%d of %d ranks joined within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS); missing: %s",
              root->joined, root->nranks, root->bound_ms, cecl_rank_list_words(&list));
    fail_job(root, ceclTimeout);
}

/* Whether all expected ranks have come: to a seat, or to be told that the job has failed. */
static bool all_came(const struct root *root)
{
    return root->expected > 0 && root->joined + root->told >= root->expected;
}

static void let_ranks_in(struct root *root)
{
    struct cecl_caller caller;
    while (!all_came(root)) {
        const int left = cecl_ms_left(root->deadline);
        cecl_door_attend(&root->door, left < 0 || left > TICK_MS ? TICK_MS : left);
        while (!all_came(root) && cecl_door_next(&root->door, &caller))
            consider(root, &caller);
        notice_leavers(root);
        notice_trouble(root);
        if (cecl_ms_left(root->deadline) != 0 || all_came(root))
            continue;
        if (root->failed != ceclSuccess)
            return;
        if (root->nranks > 0)
            tell_who_is_missing(root);
        root->failed = ceclTimeout; /* also when no rank ever came */
        return;
    }
}

/* ---- all-gathers */

static bool is_complete(const struct seat *seat)
{
    return seat->got >= sizeof(seat->request) &&
           seat->got == sizeof(seat->request) + (size_t)seat->request.bytes;
}

static bool is_awaited(const struct seat *seat)
{
    return seat->fd >= 0 && !is_complete(seat);
}

/* Receives what has arrived of a rank's request. Returns false when the rank has closed or sent a
 * bad request, or when there is no memory. */
static bool receive_some(struct seat *seat)
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
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (got < 0)
            return true;
        seat->got += (size_t)got;
        if (seat->got == head) {
            if (seat->request.bytes > CECL_TCP_MAX_PART)
                return false;
            free(seat->part);
            seat->part = malloc((size_t)seat->request.bytes + 1);
            if (!seat->part)
                return false;
        }
    }
    return true;
}

/* Sends as much of the reply as the socket takes. Returns false when the rank has closed. */
static bool send_some(const struct root *root, struct seat *seat)
{
    while (seat->taken < root->reply_bytes) {
        const ssize_t sent = send(seat->fd, root->reply + seat->taken,
                                  root->reply_bytes - seat->taken, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            seat->taken += (size_t)sent;
        else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        else if (errno != EINTR)
            return false;
    }
    return true;
}

/* Begins the reply to an all-gather in which every rank has brought `bytes` bytes. */
static bool begin_reply(struct root *root, size_t bytes)
{
    const struct cecl_tcp_reply head = {.status = ceclSuccess,
                                        .bytes = (uint64_t)root->nranks * bytes};
    free(root->reply);
    root->reply_bytes = sizeof(head) + (size_t)head.bytes;
    root->reply = malloc(root->reply_bytes);
    if (!root->reply) {
        root->reply_bytes = 0;
        return false;
    }
    memcpy(root->reply, &head, sizeof(head));
    for (int r = 0; r < root->nranks; r++) {
        struct seat *seat = &root->seats[r];
        if (bytes > 0)
            memcpy(root->reply + sizeof(head) + (size_t)r * bytes, seat->part, bytes);
        seat->got = seat->taken = 0;
    }
    return true;
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
    if (status == ceclSuccess && !begin_reply(root, bytes)) {
        for (int r = 0; r < root->nranks; r++)
            root->seats[r].taken = 0;
        status = cecl_fail(ceclOutOfMemory, "the root has no memory for %d parts of %zu bytes",
                           root->nranks, bytes);
    }
    if (status != ceclSuccess)
        fail_job(root, status);
}

/* How far the current all-gather is. */
struct standing {
    int open, begun, complete;
    int gone; /* a rank that has left, or -1 */
};

static struct standing look(const struct root *root, struct pollfd *polls)
{
    struct standing s = {.gone = -1};
    for (int r = 0; r < root->nranks; r++) {
        const struct seat *seat = &root->seats[r];
        const bool takes = seat->taken < root->reply_bytes;
        polls[r] = (struct pollfd){.fd = seat->fd, .events = takes ? POLLOUT : POLLIN};
        if (seat->fd < 0) {
            s.gone = r;
        } else {
            s.open++;
            s.begun += seat->got > 0;
            s.complete += is_complete(seat);
            if (is_complete(seat))
                polls[r].events = POLLRDHUP; /* it waits for the others; only its end matters */
        }
    }
    return s;
}

static void name_who_is_late(struct root *root, int complete)
{
    struct cecl_rank_list list = list_ranks(root, is_awaited);
    cecl_fail(ceclTimeout,
              "%d of %d ranks came to an exchange of joining within %" PRId64
              " ms (CECL_INIT_TIMEOUT_MS); missing: %s",
              complete, root->nranks, root->bound_ms, cecl_rank_list_words(&list));
    fail_job(root, ceclTimeout);
}

/* Receives from or sends to a rank whose socket is ready. Returns false when the rank has gone. */
static bool attend(const struct root *root, struct seat *seat)
{
    if (seat->taken < root->reply_bytes)
        return send_some(root, seat);
    return !is_complete(seat) && receive_some(seat);
}

/* Serves all-gathers until every rank has closed. A rank that closes while another one is in an
 * all-gather fails the job. */
static void serve_rounds(struct root *root)
{
    struct pollfd *polls = calloc((size_t)root->nranks, sizeof(*polls));
    while (polls && root->failed == ceclSuccess) {
        const struct standing s = look(root, polls);
        if (s.open == 0)
            break;
        if (s.complete == root->nranks) {
            answer_round(root);
            continue;
        }
        if (s.gone >= 0 && s.begun > 0) {
            cecl_fail(ceclRemoteError, "rank %d left while the communicator was made", s.gone);
            fail_job(root, ceclRemoteError);
            break;
        }
        const int ready = poll(polls, (nfds_t)root->nranks, cecl_ms_left(root->deadline));
        if (ready == 0)
            name_who_is_late(root, s.complete);
        for (int r = 0; r < root->nranks && ready > 0; r++) {
            if (polls[r].revents && !attend(root, &root->seats[r])) {
                close(root->seats[r].fd);
                root->seats[r].fd = -1;
            }
        }
    }
    free(polls);
}

/* Waits before closing. Closing a socket with unread requests would reset the connection, and the
 * message sent on it would be lost. So the ranks close first, or LINGER_MS pass. */
static void take_leave(struct root *root)
{
    const int64_t deadline = cecl_deadline(LINGER_MS);
    char unread[4096];
    for (int r = 0; r < root->nranks; r++) {
        const int fd = root->seats[r].fd;
        if (fd >= 0 && shutdown(fd, SHUT_WR) == 0)
            while (cecl_net_wait(fd, POLLIN, deadline, "a rank") == ceclSuccess &&
                   recv(fd, unread, sizeof(unread), MSG_DONTWAIT) > 0)
                continue;
    }
}

static void free_root(struct root *root)
{
    cecl_door_close(&root->door);
    for (int r = 0; r < root->nranks; r++) {
        if (root->seats[r].fd >= 0)
            close(root->seats[r].fd);
        free(root->seats[r].part);
    }
    free(root->seats);
    free(root->reply);
    free(root);
}

static void *serve(void *argument)
{
    struct root *root = argument;
    let_ranks_in(root);
    cecl_door_close(&root->door); /* the id is used up: ranks that come later are refused */
    if (root->failed == ceclSuccess) {
        root->deadline = deadline_in(root, root->timeout_ms);
        if (begin_reply(root, 0)) /* an empty reply tells them that all have joined */
            serve_rounds(root);
    }
    if (root->failed != ceclSuccess)
        take_leave(root);
    free_root(root);
    return NULL;
}

ceclResult_t cecl_tcp_serve(int listener, const uint8_t secret[16], int64_t timeout_ms)
{
    struct root *root = calloc(1, sizeof(*root));
    pthread_t thread;
    if (!root) {
        close(listener);
        return cecl_fail(ceclOutOfMemory, "no host memory to meet ranks");
    }
    memcpy(root->secret, secret, sizeof(root->secret));
    root->timeout_ms = root->bound_ms = timeout_ms;
    root->deadline = cecl_deadline(timeout_ms); /* for the first rank */
    root->patience = CECL_NO_DEADLINE;
    ceclResult_t result =
        cecl_door_open(&root->door, listener, sizeof(struct cecl_tcp_answer), greet);
    if (result == ceclSuccess) {
        const int error = cecl_thread_start(&thread, serve, root);
        if (error)
            result = cecl_fail(ceclSystemError, "no thread to meet ranks: %s", strerror(error));
    }
    if (result != ceclSuccess) {
        free_root(root);
        return result;
    }
    pthread_detach(thread);
    return ceclSuccess;
}
