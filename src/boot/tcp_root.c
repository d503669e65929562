/* The root's side of the TCP bootstrap: a thread in the process that made the unique id. It lets
 * ranks in, serves their rounds, and
 * ends when they have left. Strangers get a challenge they cannot answer and a deadline; they never
 * hold up the job. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/tcp.h"
#include "util/clock.h"

#define RANKS_MAX 65536 /* beyond any job; the API has its own bound */
#define PENDING_MAX 64  /* connections that have not proved the secret */
#define PENDING_MS 5000 /* how long they may take */
#define LINGER_MS 1000  /* how long a failed job tells late-comers why */
#define REPLY_MS 10000  /* how long one rank may take to take its reply */

struct pending {
    int fd;
    size_t got;
    int64_t deadline;
    uint64_t arrival; /* counts connections: the clock is too coarse to tell the oldest */
    uint8_t nonce[16];
    struct cecl_tcp_answer answer;
};

struct seat {
    int fd;
    size_t got; /* of this round's request and part */
    struct cecl_tcp_request request;
    char *part;
};

struct root {
    int listener;
    uint8_t secret[16];
    int64_t timeout_ms, deadline;
    int nranks, joined;
    int expected;       /* the most ranks that any rank has spoken of */
    struct seat *seats; /* [nranks], once the first rank has come */
    struct pending pending[PENDING_MAX];
    int npending;
    uint64_t arrivals;
    int told;            /* ranks that came after the job had failed, and know why */
    ceclResult_t failed; /* the job is over; `words` say why */
    char words[CECL_MESSAGE_BYTES];
};

static void send_reply(int fd, ceclResult_t status, const void *data, size_t bytes)
{
    const struct cecl_tcp_reply reply = {.status = (int32_t)status, .bytes = bytes};
    const int64_t deadline = cecl_deadline(REPLY_MS);
    if (cecl_net_send(fd, &reply, sizeof(reply), deadline, "a rank") == ceclSuccess)
        (void)!cecl_net_send(fd, data, bytes, deadline, "a rank");
}

/* The job cannot go on: everyone who has joined is told. */
static void fail_job(struct root *root, ceclResult_t status)
{
    root->failed = status;
    root->deadline =
        cecl_deadline(LINGER_MS); /* for those that are still to come, and to be told */
    snprintf(root->words, sizeof(root->words), "%s", cecl_message());
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r].fd >= 0)
            send_reply(root->seats[r].fd, status, root->words, strlen(root->words));
}

/* ---- joining */

static bool make_seats(struct root *root, int nranks)
{
    root->seats = calloc((size_t)nranks, sizeof(*root->seats));
    if (!root->seats)
        return false;
    root->nranks = nranks;
    for (int r = 0; r < nranks; r++)
        root->seats[r].fd = -1;
    /* Those who came are told who is missing a little before their own patience ends. */
    root->deadline = cecl_deadline(root->timeout_ms - root->timeout_ms / 10);
    return true;
}

/* A rank has proved the secret. It gets a seat, or the job fails for a reason that all get to know.
 * */
static void admit(struct root *root, const struct pending *one)
{
    const int rank = one->answer.rank, nranks = one->answer.nranks;
    const struct cecl_tcp_proof proof = {
        cecl_tcp_tag(root->secret, "root", one->nonce, one->answer.nonce, 0, 0)};
    ceclResult_t status = ceclSuccess;

    if (cecl_net_send(one->fd, &proof, sizeof(proof), cecl_deadline(REPLY_MS), "a rank") !=
        ceclSuccess) {
        close(one->fd);
        return;
    }
    if (nranks > root->expected && nranks <= RANKS_MAX)
        root->expected = nranks;
    if (root->failed != ceclSuccess)
        status = root->failed;
    else if (nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
        status = cecl_fail(ceclInvalidArgument, "rank %d of %d: out of range", rank, nranks);
    else if (!root->seats && !make_seats(root, nranks))
        status = cecl_fail(ceclOutOfMemory, "the root has no memory for %d ranks", nranks);
    else if (nranks != root->nranks)
        status = cecl_fail(ceclInvalidArgument, "nranks: rank %d says %d, others say %d", rank,
                           nranks, root->nranks);
    else if (root->seats[rank].fd >= 0)
        status = cecl_fail(ceclInvalidArgument, "rank %d was taken twice (of %d)", rank, nranks);
    if (status != ceclSuccess) {
        if (root->failed == ceclSuccess)
            fail_job(root, status);
        root->told++;
        send_reply(one->fd, status, root->words, strlen(root->words));
        close(one->fd);
        return;
    }
    root->seats[rank].fd = one->fd;
    root->joined++;
}

/* True when the connection is settled. */
static bool advance_pending(struct root *root, struct pending *one)
{
    const ssize_t got = recv(one->fd, (char *)&one->answer + one->got,
                             sizeof(one->answer) - one->got, MSG_DONTWAIT);
    if (got > 0) {
        one->got += (size_t)got;
        if (one->got < sizeof(one->answer))
            return false;
        const struct cecl_tcp_answer *a = &one->answer;
        const uint64_t expected =
            cecl_tcp_tag(root->secret, "rank", one->nonce, a->nonce, a->rank, a->nranks);
        if (a->magic == CECL_TCP_MAGIC && cecl_net_equal(&a->tag, &expected, sizeof(expected)))
            admit(root, one);
        else
            close(one->fd);
        return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR) && cecl_now_ms() < one->deadline)
        return false;
    close(one->fd);
    return true;
}

static void drop_pending(struct root *root, int index)
{
    close(root->pending[index].fd);
    root->pending[index] = root->pending[--root->npending];
}

/* Takes new connections. Many strangers push each other out, oldest first; a rank answers at once
 * and is not there for long. */
static void take_new(struct root *root)
{
    for (;;) {
        struct pending one = {.deadline = cecl_now_ms() + PENDING_MS, .arrival = root->arrivals++};
        one.fd = accept4(root->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (one.fd < 0)
            return;
        struct cecl_tcp_challenge challenge = {.magic = CECL_TCP_MAGIC};
        if (cecl_net_random(one.nonce, sizeof(one.nonce)) != ceclSuccess) {
            close(one.fd);
            return;
        }
        memcpy(challenge.nonce, one.nonce, sizeof(challenge.nonce));
        /* A fresh socket's buffer takes this at once, or the connection is worth nothing. */
        if (send(one.fd, &challenge, sizeof(challenge), MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)sizeof(challenge)) {
            close(one.fd);
            continue;
        }
        if (root->npending == PENDING_MAX) {
            int oldest = 0;
            for (int i = 1; i < root->npending; i++)
                if (root->pending[i].arrival < root->pending[oldest].arrival)
                    oldest = i;
            drop_pending(root, oldest);
        }
        root->pending[root->npending++] = one;
    }
}

/* Ranks that came but closed again while others are awaited. */
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

static void tell_who_is_missing(struct root *root)
{
    char list[200] = "";
    size_t used = 0;
    for (int r = 0; r < root->nranks && used < sizeof(list) - 16; r++)
        if (root->seats[r].fd < 0)
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", used ? ", " : "", r);
    cecl_fail(ceclTimeout, "%d of %d ranks joined in time (CECL_INIT_TIMEOUT_MS=%lld); missing: %s",
              root->joined, root->nranks, (long long)root->timeout_ms, list);
    fail_job(root, ceclTimeout);
}

/* Whether everyone who is to come has come: to a seat, or to hear that the job has failed. */
static bool all_came(const struct root *root)
{
    return root->expected > 0 && root->joined + root->told >= root->expected;
}

static void let_ranks_in(struct root *root)
{
    while (!all_came(root)) {
        struct pollfd polls[PENDING_MAX + 1] = {{.fd = root->listener, .events = POLLIN}};
        for (int i = 0; i < root->npending; i++)
            polls[i + 1] = (struct pollfd){.fd = root->pending[i].fd, .events = POLLIN};
        int wait = cecl_ms_left(root->deadline);
        poll(polls, (nfds_t)root->npending + 1, wait < 0 || wait > 50 ? 50 : wait);

        for (int i = 0; i < root->npending;)
            if (advance_pending(root, &root->pending[i]))
                root->pending[i] = root->pending[--root->npending];
            else
                i++;
        take_new(root);
        notice_leavers(root);
        if (cecl_ms_left(root->deadline) != 0 || all_came(root))
            continue;
        if (root->failed != ceclSuccess)
            return;
        if (root->nranks > 0)
            tell_who_is_missing(root);
        root->failed = ceclTimeout; /* also when nobody ever came */
        return;
    }
}

/* ---- rounds */

/* Takes what there is of a rank's request. Returns false when the rank has closed or misbehaved. */
static bool advance_seat(struct seat *seat)
{
    for (;;) {
        const size_t head = sizeof(seat->request);
        size_t want = head - seat->got;
        char *to = (char *)&seat->request + seat->got;
        if (seat->got >= head) {
            want = head + (size_t)seat->request.bytes - seat->got;
            to = seat->part + (seat->got - head);
            if (want == 0)
                return true;
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
}

static bool is_complete(const struct seat *seat)
{
    return seat->got >= sizeof(seat->request) &&
           seat->got == sizeof(seat->request) + (size_t)seat->request.bytes;
}

static void answer_round(struct root *root)
{
    const size_t bytes = (size_t)root->seats[0].request.bytes;
    char *all = malloc((size_t)root->nranks * bytes + 1);
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r].request.bytes != bytes || !all) {
            cecl_fail(ceclInternalError, "ranks exchange %zu and %llu bytes", bytes,
                      (unsigned long long)root->seats[r].request.bytes);
            fail_job(root, ceclInternalError);
            free(all);
            return;
        }
    for (int r = 0; r < root->nranks; r++) {
        memcpy(all + (size_t)r * bytes, root->seats[r].part, bytes);
        root->seats[r].got = 0;
    }
    for (int r = 0; r < root->nranks; r++)
        send_reply(root->seats[r].fd, ceclSuccess, all, (size_t)root->nranks * bytes);
    free(all);
}

/* Serves rounds until every rank has closed. One that closes while another is in a round fails the
 * job. */
static void serve_rounds(struct root *root)
{
    struct pollfd *polls = calloc((size_t)root->nranks, sizeof(*polls));
    while (polls && root->failed == ceclSuccess) {
        int open = 0, complete = 0, begun = 0, gone = -1;
        for (int r = 0; r < root->nranks; r++) {
            const struct seat *seat = &root->seats[r];
            open += seat->fd >= 0;
            begun += seat->fd >= 0 && seat->got > 0;
            complete += seat->fd >= 0 && is_complete(seat);
            gone = seat->fd < 0 ? r : gone;
            polls[r] = (struct pollfd){.fd = seat->fd >= 0 && !is_complete(seat) ? seat->fd : -1,
                                       .events = POLLIN};
        }
        if (open == 0)
            break;
        if (complete == root->nranks) {
            answer_round(root);
            continue;
        }
        if (gone >= 0 && begun > 0) {
            cecl_fail(ceclRemoteError, "rank %d left while the communicator was made", gone);
            fail_job(root, ceclRemoteError);
            break;
        }
        const int ready = poll(polls, (nfds_t)root->nranks, cecl_ms_left(root->deadline));
        if (ready == 0) {
            cecl_fail(ceclTimeout, "%d of %d ranks came to a bootstrap exchange in time", complete,
                      root->nranks);
            fail_job(root, ceclTimeout);
        }
        for (int r = 0; r < root->nranks && ready > 0; r++)
            if (polls[r].revents && !advance_seat(&root->seats[r])) {
                close(root->seats[r].fd);
                root->seats[r].fd = -1;
            }
    }
    free(polls);
}

static void *serve(void *argument)
{
    struct root *root = argument;
    let_ranks_in(root);
    close(root->listener); /* the id is used up: whoever comes later is refused */
    while (root->npending > 0)
        drop_pending(root, 0);
    if (root->failed == ceclSuccess) {
        root->deadline = cecl_deadline(root->timeout_ms);
        for (int r = 0; r < root->nranks; r++)
            send_reply(root->seats[r].fd, ceclSuccess, "", 0);
        serve_rounds(root);
    }
    for (int r = 0; r < root->nranks; r++) {
        if (root->seats[r].fd >= 0)
            close(root->seats[r].fd);
        free(root->seats[r].part);
    }
    free(root->seats);
    free(root);
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
    root->listener = listener;
    memcpy(root->secret, secret, sizeof(root->secret));
    root->timeout_ms = timeout_ms;
    root->deadline = cecl_deadline(timeout_ms); /* for the first rank to come */
    const int error = pthread_create(&thread, NULL, serve, root);
    if (error) {
        close(listener);
        free(root);
        return cecl_fail(ceclSystemError, "no thread to meet ranks: %s", strerror(error));
    }
    pthread_detach(thread);
    return ceclSuccess;
}
