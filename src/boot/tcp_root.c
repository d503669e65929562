/* The root's side of the TCP bootstrap: a thread in the process that made the unique id. It admits ranks, sends the
 * parts of all ranks to all, and serves their lines (oob.h), if there are any, until all lines are closed.
 *
 * Callers are connections that have not proved the secret. A caller that is silent, slow or one of very many must not
 * hold up the ranks. So the root reads from all callers at the same time, and each has a deadline. A newer caller may
 * replace an older one only after HEARD_MS. Callers use at most half of the process's descriptors. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "boot/net.h"
#include "boot/rank_list.h"
#include "boot/tcp.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/grow.h"
#include "util/thread.h"

#define RANKS_MAX 65536 /* limits the memory that a message can ask for; the API's limit is lower */
#define LINGER_MS 1000  /* for how many ms the root still tells late ranks why the job failed */
#define WORDS_MS 1000   /* how many ms sending that reason, or another short message, may take */
/* the root sends the list of missing ranks at most this many ms before the first rank gives up */
#define MARGIN_MS 1000

#define CALLERS_MAX 4096 /* the most callers at a time, if there are enough descriptors */
/* ms in which a caller must send all its bytes. A process that is stopped for longer can connect again. */
#define PATIENCE_MS 5000
#define HEARD_MS 100 /* how many ms a caller has before a newer one may replace it */
#define TICK_MS 50   /* ms between two checks of deadlines */
#define REST_MS 20   /* ms to rest if poll() fails */

/* A connection, of a caller or of a rank. */
struct peer {
    int fd;
    bool is_here;  /* the rank is in the root's process: see fail_job */
    uint32_t got;  /* bytes of `said` received so far */
    size_t taken;  /* bytes of the reply sent so far */
    int64_t since; /* when the caller came */
    struct cecl_tcp_said said;
};

/* What the root sends to all ranks once all have joined. */
struct reply {
    struct cecl_tcp_reply head;
    char parts[][CECL_OOB_PART_BYTES]; /* [nranks] */
};

struct root {
    uint8_t secret[16];
    int64_t timeout_ms;
    /* the shortest time, in ms, for which the root or a rank waits in all; for error messages */
    int64_t bound_ms;
    int64_t since;    /* when the first rank came */
    int64_t deadline; /* end of the current wait */
    int64_t patience; /* the time at which the first rank gives up */
    int nranks, joined;
    ceclResult_t failed; /* why the job has failed; `words` is the message */
    char words[CECL_MESSAGE_BYTES];
    /* -- callers -- */
    int listener; /* -1: ranks no longer join */
    int room, count;
    struct peer **callers; /* [room], the oldest first */
    int64_t lack[2];       /* lack of descriptors for connections: see cecl_net_bears */
    struct pollfd *polls;  /* [1 + room + nranks] */
    /* -- set when the first rank has come -- */
    struct peer **seats; /* [nranks]; NULL: the rank has not come, or its connection has ended */
    struct reply *reply;
    /* -- lines -- */
    uint64_t host;  /* the host of the rank that came first */
    bool has_lines; /* ranks are on several hosts */
    int nparts;     /* how many ranks have sent their part for the next reply */
};

static void hang_up(struct peer **peer)
{
    if (*peer)
        cecl_net_close((*peer)->fd);
    free(*peer);
    *peer = NULL;
}

/* ---- failures */

/* The end of a wait: after `wait_ms` or, if that is earlier, when the first rank gives up; in both cases a little
 * before, so that the message about the end arrives while ranks still listen. */
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

/* Tells a rank why the job has failed. */
static void send_words(const struct root *root, const struct peer *peer, int64_t deadline)
{
    const struct cecl_tcp_reply reply = {.status = (int32_t)root->failed,
                                         .bytes = strlen(root->words)};
    if (cecl_net_send(peer->fd, &reply, sizeof(reply), deadline, "a rank") == ceclSuccess)
        (void)!cecl_net_send(peer->fd, root->words, (size_t)reply.bytes, deadline, "a rank");
}

/* Ends the job with the message that was recorded last. Tells every rank that has joined, and the rank that is refused
 * (NULL: none). Tells ranks of the root's process last, because that process, and the root with it, may end as soon as
 * they know. If the job fails while ranks join and before its time is up, the root also tells ranks that come within
 * LINGER_MS, even a rank that tries again. A closed port would not tell them the reason. */
static void fail_job(struct root *root, ceclResult_t status, const struct peer *refused)
{
    const int64_t deadline = cecl_deadline(WORDS_MS);
    root->failed = status;
    root->deadline = cecl_deadline(LINGER_MS);
    cecl_keep_message(root->words);
    for (int here = 0; here < 2; here++)
        for (int r = 0; r <= root->nranks; r++) {
            const struct peer *peer = r < root->nranks ? root->seats[r] : refused;
            if (peer && peer->is_here == here)
                send_words(root, peer, deadline);
        }
}

/* Ends the job because its time is up. */
static void name_who_is_missing(struct root *root)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < root->nranks; r++)
        if (!root->seats[r])
            cecl_rank_list_add(&list, r);
    cecl_fail(ceclTimeout,
              "%d of %d ranks joined within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS=%" PRId64
              "); missing: %s",
              root->joined, root->nranks, cecl_now_ms() - root->since, root->bound_ms,
              cecl_rank_list_words(&list));
    fail_job(root, ceclTimeout, NULL);
}

static void lose_rank(struct root *root, int rank, const char *how)
{
    hang_up(&root->seats[rank]);
    if (root->failed != ceclSuccess)
        return;
    cecl_fail(ceclRemoteError, "rank %d %s", rank, how);
    fail_job(root, ceclRemoteError, NULL);
}

/* ---- joining */

static bool make_seats(struct root *root, int nranks)
{
    const size_t n = (size_t)nranks;
    root->seats = calloc(n, sizeof(struct peer *));
    root->reply = malloc(sizeof(*root->reply) + n * sizeof(root->reply->parts[0]));
    if (!root->seats || !root->reply ||
        !cecl_list_grow(&root->polls, (1 + (size_t)root->room + n) * sizeof(*root->polls)))
        return false;
    root->reply->head =
        (struct cecl_tcp_reply){.status = ceclSuccess, .bytes = n * sizeof(root->reply->parts[0])};
    root->nranks = nranks;
    return true;
}

/* Checks whether a rank that has proved the secret may have the number that it asks for. */
static ceclResult_t judge(struct root *root, const struct cecl_tcp_said *said)
{
    const int rank = said->rank, nranks = said->nranks;
    if (nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
        return cecl_fail(ceclInvalidArgument, "rank %d of %d: out of range", rank, nranks);
    if (root->nranks == 0 && !make_seats(root, nranks))
        return cecl_fail(ceclOutOfMemory, "the root has no memory for %d ranks", nranks);
    if (nranks != root->nranks)
        return cecl_fail(ceclInvalidArgument, "nranks: rank %d says %d, others say %d", rank,
                         nranks, root->nranks);
    if (root->seats[rank])
        return cecl_fail(ceclInvalidArgument, "two ranks joined as rank %d of %d", rank, nranks);
    return ceclSuccess;
}

static void seat(struct root *root, struct peer *peer)
{
    const struct cecl_tcp_said *said = &peer->said;
    root->seats[said->rank] = peer;
    peer->got = 0;
    memcpy(root->reply->parts[said->rank], said->part, sizeof(said->part));
    if (said->patience_ms > 0 && cecl_deadline(said->patience_ms) < root->patience)
        root->patience = cecl_deadline(said->patience_ms);
    if (said->timeout_ms > 0 && said->timeout_ms < root->bound_ms)
        root->bound_ms = said->timeout_ms;
    const int64_t end = deadline_in(root, root->timeout_ms);
    if (root->joined == 0) {
        root->since = cecl_now_ms();
        root->host = said->host;
    }
    root->has_lines = root->has_lines || said->host != root->host;
    /* the deadline only gets earlier: a rank that comes does not make the others wait longer */
    if (root->joined++ == 0 || end < root->deadline)
        root->deadline = end;
}

/* Admits a rank that has proved the secret, or fails the job and tells all ranks the reason. */
static void admit(struct root *root, struct peer *peer)
{
    peer->is_here = peer->said.process == cecl_fork_process();
    const bool is_late = root->failed != ceclSuccess;
    const ceclResult_t status = is_late ? root->failed : judge(root, &peer->said);
    if (status == ceclSuccess) {
        seat(root, peer);
        return;
    }
    if (is_late)
        send_words(root, peer, cecl_deadline(WORDS_MS));
    else
        fail_job(root, status, peer);
    hang_up(&peer);
}

/* Whether a rank has joined by exactly this message. */
static bool is_repeated(const struct root *root, const struct cecl_tcp_said *said)
{
    return said->rank >= 0 && said->rank < root->nranks && root->seats[said->rank] &&
           root->seats[said->rank]->said.tag == said->tag;
}

/* Looks at a caller that has sent all its bytes. A caller that knows the secret is a rank, and gets the proof that the
 * root knows the secret. */
static void consider(struct root *root, struct peer *peer)
{
    const struct cecl_tcp_said *said = &peer->said;
    const uint64_t expected = cecl_tcp_rank_tag(root->secret, said);
    const struct cecl_tcp_proof proof = {cecl_tcp_root_tag(root->secret, said)};
    if (said->kind == CECL_TCP_MAGIC && cecl_net_equal(&said->tag, &expected, sizeof(expected)) &&
        !is_repeated(root, said) &&
        cecl_net_send(peer->fd, &proof, sizeof(proof), cecl_deadline(WORDS_MS), "a rank") ==
            ceclSuccess)
        admit(root, peer);
    else
        hang_up(&peer);
}

static bool all_came(const struct root *root)
{
    return root->nranks > 0 && root->joined == root->nranks && root->failed == ceclSuccess;
}

/* ---- callers */

/* Reads what has come of `said` from a peer. Returns false if its connection has ended. */
static bool hear(struct peer *peer)
{
    while (peer->got < sizeof(peer->said)) {
        const ssize_t got = recv(peer->fd, (char *)&peer->said + peer->got,
                                 sizeof(peer->said) - peer->got, MSG_DONTWAIT);
        if (got > 0)
            peer->got += (uint32_t)got;
        else
            return got < 0 && (cecl_net_is_early(errno) || cecl_net_is_scarce(errno));
    }
    return true;
}

/* How many callers there may be; half of the descriptors are left to the program. */
static int room_for_callers(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 2 >= CALLERS_MAX)
        return CALLERS_MAX;
    return limit.rlim_cur >= 4 ? (int)(limit.rlim_cur / 2) : 1;
}

static struct peer *take_off(struct root *root, int which)
{
    struct peer **at = &root->callers[which], *peer = *at;
    root->count--;
    memmove(at, at + 1, (size_t)(root->count - which) * sizeof(*at));
    return peer;
}

/* Drops a caller, but asks it first to connect again, because it may be a rank whose process was only slow. */
static void put_off(struct root *root, int which)
{
    static const struct cecl_tcp_proof again = {CECL_TCP_AGAIN};
    struct peer *peer = take_off(root, which);
    (void)hear(peer); /* reads first, because closing with unread bytes would discard the answer */
    (void)!send(peer->fd, &again, sizeof(again), MSG_NOSIGNAL | MSG_DONTWAIT);
    hang_up(&peer);
}

/* Drops the oldest caller if its time is over. Returns whether it has dropped one. */
static bool push_out(struct root *root)
{
    if (root->count == 0 || cecl_now_ms() - root->callers[0]->since < HEARD_MS)
        return false;
    put_off(root, 0);
    return true;
}

static bool somebody_waits(const struct root *root)
{
    struct pollfd listener = {.fd = root->listener, .events = POLLIN};
    return poll(&listener, 1, 0) > 0;
}

/* Accepts a caller. Returns 0 or an errno. */
static int let_one_in(struct root *root)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    if (!peer)
        return ENOMEM;
    peer->fd = CECL_FD(accept4(root->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = peer->fd < 0 ? errno : 0;
    if (error) {
        free(peer);
        return error;
    }
    cecl_tcp_set_up(peer->fd);
    peer->since = cecl_now_ms();
    root->callers[root->count++] = peer;
    return 0;
}

/* Fails the job because no connection can be accepted. */
static void give_up(struct root *root, int error)
{
    if (root->nranks == 0 || root->failed != ceclSuccess)
        return;
    cecl_fail(ceclSystemError, "the process that made the unique id cannot take connections: %s",
              strerror(error));
    fail_job(root, ceclSystemError, NULL);
}

/* Accepts a bounded number of callers, so that between two calls of this function the root reads from the callers that
 * it has. */
static void let_in(struct root *root)
{
    for (int tries = 0; tries < root->room; tries++) {
        if (root->count == root->room && !(somebody_waits(root) && push_out(root)))
            return;
        const int error = let_one_in(root);
        const bool is_scarce = cecl_net_is_scarce(error);
        if (is_scarce && push_out(root))
            continue;
        if (!cecl_net_bears(error, root->lack) && is_scarce)
            give_up(root, error);
        if (error != 0 && error != EINTR && error != ECONNABORTED)
            return; /* no connection is waiting, or none can be accepted */
    }
}

/* Reads from a caller, if it is ready. Returns whether it stays a caller. */
static bool hear_caller(struct root *root, int which, bool is_ready)
{
    struct peer *peer = root->callers[which];
    const bool is_open = !is_ready || hear(peer);
    if (peer->got == sizeof(peer->said)) {
        if (all_came(root))
            return true;
        consider(root, take_off(root, which));
    } else if (!is_open) {
        peer = take_off(root, which);
        hang_up(&peer);
    } else if (cecl_now_ms() - peer->since >= PATIENCE_MS) {
        put_off(root, which);
    } else {
        return true;
    }
    return false;
}

static void hear_rank(struct root *root, int rank);

static bool may_accept(const struct root *root)
{
    return root->listener >= 0 &&
           (root->count < root->room || cecl_now_ms() - root->callers[0]->since >= HEARD_MS);
}

/* Waits up to `wait_ms` for something to happen; -1: without a limit. Then reads from ranks and callers, drops some
 * callers, and accepts new ones. */
static void attend(struct root *root, int wait_ms)
{
    const int count = root->count;
    const bool is_open = may_accept(root);
    nfds_t asked = 0, at = 0;
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r])
            root->polls[asked++] = (struct pollfd){.fd = root->seats[r]->fd, .events = POLLIN};
    for (int i = 0; i < count; i++)
        root->polls[asked++] = (struct pollfd){.fd = root->callers[i]->fd, .events = POLLIN};
    if (is_open)
        root->polls[asked++] = (struct pollfd){.fd = root->listener, .events = POLLIN};
    if (poll(root->polls, asked, wait_ms) < 0) { /* tries to read from all connections */
        if (errno != EINTR) /* the limit of descriptors was lowered, or there is no memory */
            cecl_pause_us(REST_MS * 1000);
        while (at < asked)
            root->polls[at++].revents = POLLIN;
        at = 0;
    }
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r] && root->polls[at++].revents)
            hear_rank(root, r);
    for (int i = 0, which = 0; i < count; i++)
        which += hear_caller(root, which, root->polls[at++].revents);
    if (is_open && root->polls[at].revents)
        let_in(root);
}

static void let_ranks_in(struct root *root)
{
    while (!all_came(root)) {
        const int left = cecl_ms_left(root->deadline);
        attend(root, left < 0 || left > TICK_MS ? TICK_MS : left);
        if (cecl_ms_left(root->deadline) != 0 || all_came(root))
            continue;
        if (root->failed == ceclSuccess && root->nranks > 0)
            name_who_is_missing(root);
        return;
    }
}

/* Stops listening: the id is used up, so the system refuses ranks that come later. */
static void close_door(struct root *root)
{
    if (root->listener >= 0)
        cecl_net_close(root->listener);
    root->listener = -1;
    while (root->count > 0)
        put_off(root, 0);
}

/* ---- the reply */

/* Sends as much of the reply as a rank's socket takes. Returns whether more is left to send; false if the rank has
 * gone. */
static bool send_some(const struct root *root, struct peer *peer, size_t bytes)
{
    while (peer->taken < bytes) {
        const ssize_t sent = send(peer->fd, (const char *)root->reply + peer->taken,
                                  bytes - peer->taken, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            peer->taken += (size_t)sent;
        else
            return sent < 0 && cecl_net_is_early(errno);
    }
    return false;
}

/* Sends more of the reply to all ranks, to those in other processes first (see fail_job). Returns how many ranks need
 * more, and puts their sockets into `polls`. */
static nfds_t send_more(struct root *root, size_t bytes)
{
    nfds_t left = 0;
    for (int i = 0; i < 2 * root->nranks; i++) {
        struct peer *peer = root->seats[i % root->nranks];
        if (peer && peer->is_here == (i >= root->nranks) && send_some(root, peer, bytes))
            root->polls[left++] = (struct pollfd){.fd = peer->fd, .events = POLLOUT};
    }
    return left;
}

/* Sends the reply to all ranks at the same time. Closes the connections of ranks that do not take the whole reply in
 * time, because a later message would land in the middle of this one. Returns the first of these ranks, or -1. */
static int reply_to_all(struct root *root)
{
    const size_t bytes = sizeof(root->reply->head) + (size_t)root->reply->head.bytes;
    int slow = -1, ready;
    root->deadline = deadline_in(root, root->timeout_ms);
    do {
        const nfds_t left = send_more(root, bytes);
        ready = left > 0 ? poll(root->polls, left, cecl_ms_left(root->deadline)) : 0;
    } while (ready > 0 || (ready < 0 && errno == EINTR));
    for (int r = root->nranks - 1; r >= 0; r--) {
        if (root->seats[r] && root->seats[r]->taken < bytes) {
            hang_up(&root->seats[r]);
            slow = r;
        }
        if (root->seats[r])
            root->seats[r]->taken = 0;
    }
    return slow;
}

/* ---- lines */

static void tell_left(const struct root *root, uint32_t left, int except)
{
    const struct cecl_tcp_reply empty = {.status = ceclSuccess, .left = left};
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r] && r != except)
            (void)!cecl_net_send(root->seats[r]->fd, &empty, sizeof(empty), cecl_deadline(WORDS_MS),
                                 "a rank");
}

/* Tells the other ranks that a rank has left. If it was the last rank in the root's process that had a line, also tells
 * them that this process may end now. */
static void let_go(struct root *root, int rank)
{
    bool may_end = root->seats[rank]->is_here;
    for (int r = 0; r < root->nranks; r++)
        may_end = may_end && (r == rank || !root->seats[r] || !root->seats[r]->is_here);
    tell_left(root, (uint32_t)rank + 1, rank);
    if (may_end)
        tell_left(root, 0, rank);
    hang_up(&root->seats[rank]);
}

/* Handles a message that a rank has sent whole. */
static void consider_said(struct root *root, int rank)
{
    struct cecl_tcp_said *said = &root->seats[rank]->said;
    root->seats[rank]->got = 0;
    if (said->kind == CECL_TCP_PART && root->listener < 0) {
        memcpy(root->reply->parts[rank], said->part, sizeof(said->part));
        root->nparts++;
    } else if (said->kind == CECL_TCP_GOODBYE && root->listener < 0) {
        let_go(root, rank);
    } else if (root->failed == ceclSuccess) {
        said->part[CECL_MESSAGE_BYTES - 1] = '\0';
        cecl_fail(ceclRemoteError, "rank %d gave up: %.440s", rank, said->part);
        fail_job(root, ceclRemoteError, NULL);
    }
}

/* Reads what has come from a rank, and handles a message that is complete. A rank whose connection ends without a
 * goodbye is lost. */
static void hear_rank(struct root *root, int rank)
{
    struct peer *peer = root->seats[rank];
    const bool is_open = hear(peer);
    if (peer->got == sizeof(peer->said))
        consider_said(root, rank);
    else if (!is_open)
        lose_rank(root, rank, root->listener >= 0 ? "left while ranks were joining" : "has ended");
}

/* Fails an exchange if a rank has no line: it sends no part, so the other ranks would wait in vain. */
static void check_parts(struct root *root)
{
    for (int r = 0; r < root->nranks && root->nparts > 0 && root->failed == ceclSuccess; r++)
        if (!root->seats[r])
            lose_rank(root, r, "has left, and takes no part");
}

static bool has_open_lines(const struct root *root)
{
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r])
            return true;
    return false;
}

/* Sends the parts of all ranks to all: first the parts of the join, then the parts that come over lines. */
static void serve_parts(struct root *root)
{
    root->nparts = root->nranks;
    while (has_open_lines(root)) {
        if (root->nparts >= root->nranks && root->failed == ceclSuccess) {
            const int slow = reply_to_all(root);
            root->nparts = 0;
            root->patience = CECL_NO_DEADLINE; /* ranks' patience was for the join only */
            if (slow >= 0)
                lose_rank(root, slow, "did not take what other ranks sent it");
        }
        if (!root->has_lines)
            return;
        attend(root, -1);
        check_parts(root);
    }
}

/* ---- the whole */

static void free_root(struct root *root)
{
    close_door(root);
    for (int r = 0; r < root->nranks; r++)
        hang_up(&root->seats[r]);
    free(root->callers);
    free(root->polls);
    free(root->seats);
    free(root->reply);
    free(root);
}

static void *serve(void *argument)
{
    struct root *root = argument;
    cecl_thread_name("cecl-root");
    let_ranks_in(root);
    close_door(root);
    if (root->failed == ceclSuccess)
        serve_parts(root);
    free_root(root);
    return NULL;
}

ceclResult_t cecl_tcp_serve(int listener, const uint8_t secret[16], int64_t timeout_ms)
{
    struct root *root = calloc(1, sizeof(*root));
    pthread_t thread;
    if (!root) {
        cecl_fds_close(listener);
        return cecl_fail(ceclOutOfMemory, "no host memory to meet ranks");
    }
    memcpy(root->secret, secret, sizeof(root->secret));
    root->listener = listener;
    root->timeout_ms = root->bound_ms = timeout_ms;
    root->deadline = cecl_deadline(timeout_ms); /* for the first rank to come */
    root->patience = CECL_NO_DEADLINE;
    root->room = room_for_callers();
    root->callers = calloc((size_t)root->room, sizeof(struct peer *));
    root->polls = calloc((size_t)root->room + 1, sizeof(*root->polls));
    const int error =
        !root->callers || !root->polls ? ENOMEM : cecl_thread_start(&thread, serve, root);
    if (error) {
        free_root(root);
        return cecl_fail(error == ENOMEM ? ceclOutOfMemory : ceclSystemError,
                         "no thread to meet ranks: %s", strerror(error));
    }
    pthread_detach(thread);
    return ceclSuccess;
}
