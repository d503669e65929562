/* The root's side of the TCP bootstrap: a thread in the process that made the unique id. It admits
 * ranks, sends the parts of all to all, and serves their lines (lifeline.h) until all ranks have closed theirs. The door (door.h) keeps strangers out: they get a
 * challenge that they cannot answer. Neither a stranger nor a rank that receives its reply slowly holds up
 * other ranks. */
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
#include "util/fds.h"
#include "util/fork.h"
#include "util/thread.h"

#define RANKS_MAX 65536 /* more than any job has; the API has its own limit */
#define LINGER_MS 1000  /* ms in which late ranks are still told why the job failed */
#define WORDS_MS 1000   /* ms that sending such a message may take */
#define TICK_MS 50      /* most ms until a rank that leaves early is noticed */
/* a rank gets the list of missing ranks at most this many ms before it gives up */
#define MARGIN_MS 1000

struct seat {
    int fd;
    bool is_here; /* the rank is in the root's process, see tell() */
    size_t taken; /* bytes of the reply sent so far */
    size_t heard; /* bytes of `said` received so far */
};

/* What is sent to all once all have joined. */
struct reply {
    struct cecl_tcp_reply head;
    char parts[][CECL_OOB_PART_BYTES]; /* [nranks] */
};

struct root {
    struct cecl_door door;
    uint8_t secret[16];
    int64_t timeout_ms;
    /* the shortest time, in ms, that the root or any rank waits in all; for error messages */
    int64_t bound_ms;
    int64_t since;    /* when the first rank came */
    int64_t deadline; /* end of the current wait */
    int64_t patience; /* the time at which the first rank gives up */
    int nranks, joined;
    int expected; /* the largest nranks that any rank has sent */
    int told;     /* how many ranks came after the job had failed, and got the reason */
    /* -- set when the first rank has come -- */
    struct seat *seats; /* [nranks] */
    struct reply *reply;
    struct pollfd *polls; /* [nranks] */
    ceclResult_t failed;  /* why the job has failed; `words` is the message */
    char words[CECL_MESSAGE_BYTES];
    /* -- lines -- */
    struct cecl_lifeline_said *said; /* [nranks] what ranks say */
    bool has_lines;                  /* a rank has said something */
    int nparts;                      /* how many ranks have sent their parts for the next reply */
};

/* The end of a wait that lasts `wait_ms`, or until the first rank gives up. The wait ends a little before
 * that, so that the message arrives while that rank still listens. */
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

/* Tells a rank why the job has failed. Ranks of the root's process are told after all others, because the process,
 * and the root with it, may end as soon as they know. */
static void tell(const struct root *root, const struct seat *seat, bool here, int64_t deadline)
{
    if (seat->fd >= 0 && seat->is_here == here)
        send_words(seat->fd, root->failed, root->words, deadline);
}

/* Ends the job with the message that was recorded last. Tells every rank that has joined, and a rank that was
 * `refused`, unless that is NULL. Ranks that come within LINGER_MS are told as well. */
static void fail_job(struct root *root, ceclResult_t status, const struct seat *refused)
{
    const int64_t deadline = cecl_deadline(WORDS_MS);
    root->failed = status;
    root->deadline = cecl_deadline(LINGER_MS);
    cecl_keep_message(root->words);
    for (int here = 0; here < 2; here++) {
        for (int r = 0; r < root->nranks; r++)
            tell(root, &root->seats[r], here, deadline);
        if (refused)
            tell(root, refused, here, deadline);
    }
}

/* Ends the job, because its time is up. */
static void name_who_is_missing(struct root *root)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r].fd < 0)
            cecl_rank_list_add(&list, r);
    cecl_fail(ceclTimeout,
              "%d of %d ranks joined within %" PRId64 " ms (CECL_INIT_TIMEOUT_MS=%" PRId64
              "); missing: %s",
              root->joined, root->nranks, cecl_now_ms() - root->since, root->bound_ms,
              cecl_rank_list_words(&list));
    fail_job(root, ceclTimeout, NULL);
}

static void close_seat(struct seat *seat)
{
    if (seat->fd >= 0)
        cecl_net_close(seat->fd);
    seat->fd = -1;
}

/* ---- joining */

/* Sends the challenge to a caller that has just connected. */
static bool greet(struct cecl_caller *caller)
{
    struct cecl_tcp_challenge challenge = {.magic = CECL_TCP_MAGIC};
    if (cecl_net_random(caller->nonce, sizeof(caller->nonce)) != ceclSuccess)
        return false;
    memcpy(challenge.nonce, caller->nonce, sizeof(challenge.nonce));
    cecl_tcp_send_at_once(caller->fd);
    /* A new socket's buffer has room for this. If not, the connection is dropped. */
    return send(caller->fd, &challenge, sizeof(challenge), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof(challenge);
}

static void put_off(const struct cecl_caller *caller)
{
    const struct cecl_tcp_proof again = {CECL_TCP_AGAIN};
    (void)!send(caller->fd, &again, sizeof(again), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool make_seats(struct root *root, int nranks)
{
    root->seats = calloc((size_t)nranks, sizeof(*root->seats));
    root->reply = malloc(sizeof(*root->reply) + (size_t)nranks * sizeof(root->reply->parts[0]));
    root->said = calloc((size_t)nranks, sizeof(*root->said));
    root->polls = calloc((size_t)nranks, sizeof(*root->polls));
    if (!root->seats || !root->reply || !root->said || !root->polls)
        return false;
    root->reply->head = (struct cecl_tcp_reply){
        .status = ceclSuccess, .bytes = (uint64_t)nranks * sizeof(root->reply->parts[0])};
    root->nranks = nranks;
    for (int r = 0; r < nranks; r++)
        root->seats[r].fd = -1;
    return true;
}

/* Checks whether a rank that has proved the secret may have the number that it asks for. */
static ceclResult_t judge(struct root *root, const struct cecl_tcp_answer *answer)
{
    const int rank = answer->rank, nranks = answer->nranks;
    if (root->failed != ceclSuccess)
        return root->failed;
    if (nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
        return cecl_fail(ceclInvalidArgument, "rank %d of %d: out of range", rank, nranks);
    if (root->nranks == 0 && !make_seats(root, nranks))
        return cecl_fail(ceclOutOfMemory, "the root has no memory for %d ranks", nranks);
    if (nranks != root->nranks)
        return cecl_fail(ceclInvalidArgument, "nranks: rank %d says %d, others say %d", rank,
                         nranks, root->nranks);
    if (root->seats[rank].fd >= 0)
        return cecl_fail(ceclInvalidArgument, "two ranks joined as rank %d of %d", rank, nranks);
    return ceclSuccess;
}

/* Gives a seat to a rank that has proved the secret, or fails the job and tells all ranks the
 * reason. */
static void admit(struct root *root, int fd, const struct cecl_tcp_answer *answer)
{
    if (answer->nranks > root->expected && answer->nranks <= RANKS_MAX)
        root->expected = answer->nranks;
    const ceclResult_t status = judge(root, answer);
    struct seat seat = {.fd = fd, .is_here = answer->process == cecl_fork_process()};
    if (status != ceclSuccess) {
        if (root->failed == ceclSuccess)
            fail_job(root, status, &seat);
        else
            send_words(fd, status, root->words, cecl_deadline(WORDS_MS));
        root->told++;
        cecl_net_close(fd);
        return;
    }
    root->seats[answer->rank] = seat;
    memcpy(root->reply->parts[answer->rank], answer->part, sizeof(answer->part));
    if (answer->patience_ms > 0 && cecl_deadline(answer->patience_ms) < root->patience)
        root->patience = cecl_deadline(answer->patience_ms);
    if (answer->timeout_ms > 0 && answer->timeout_ms < root->bound_ms)
        root->bound_ms = answer->timeout_ms;
    const int64_t end = deadline_in(root, root->timeout_ms);
    if (root->joined == 0)
        root->since = cecl_now_ms();
    /* a rank that comes does not make the others wait longer */
    if (root->joined++ == 0 || end < root->deadline)
        root->deadline = end;
}

/* Whether a caller that has sent all its bytes knows the secret. If so, sends the proof that this side knows it,
 * too. */
static bool verify(const uint8_t secret[16], const struct cecl_caller *caller,
                   struct cecl_tcp_answer *answer)
{
    memcpy(answer, caller->said, sizeof(*answer));
    const uint64_t expected = cecl_tcp_rank_tag(secret, caller->nonce, answer);
    const struct cecl_tcp_proof proof = {cecl_tcp_root_tag(secret, caller->nonce, answer->nonce)};
    return answer->magic == CECL_TCP_MAGIC &&
           cecl_net_equal(&answer->tag, &expected, sizeof(expected)) &&
           cecl_net_send(caller->fd, &proof, sizeof(proof), cecl_deadline(WORDS_MS), "a rank") ==
               ceclSuccess;
}

/* Looks at a caller that has sent all its bytes. If it knows the secret, it is a rank. */
static void consider(struct root *root, const struct cecl_caller *caller)
{
    struct cecl_tcp_answer answer;
    if (verify(root->secret, caller, &answer))
        admit(root, caller->fd, &answer);
    else
        cecl_net_close(caller->fd);
}

/* Fails the job if a rank that has joined closes or ends while others are still awaited. */
static void notice_leavers(struct root *root)
{
    for (int r = 0; r < root->nranks && root->failed == ceclSuccess; r++) {
        if (root->seats[r].fd < 0 || cecl_net_look(root->seats[r].fd) != 0)
            continue;
        cecl_fail(ceclRemoteError, "rank %d left while ranks were joining", r);
        fail_job(root, ceclRemoteError, NULL);
    }
}

/* Fails the job if no connection can be accepted. */
static void notice_trouble(struct root *root)
{
    const int trouble = cecl_door_trouble(&root->door);
    if (trouble && root->nranks > 0 && root->failed == ceclSuccess) {
        cecl_fail(ceclSystemError,
                  "the process that made the unique id cannot take connections: %s",
                  strerror(trouble));
        fail_job(root, ceclSystemError, NULL);
    }
}

/* Whether all expected ranks have come: each has a seat, or was told that the job has failed. */
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
            name_who_is_missing(root);
        root->failed = ceclTimeout; /* also if no rank has ever joined */
        return;
    }
}

/* ---- the reply */

/* Sends as much of the reply as a rank's socket takes. Returns whether more is left to send; false if the rank has
 * gone. */
static bool send_some(const struct root *root, struct seat *seat, size_t bytes)
{
    while (seat->taken < bytes) {
        const ssize_t sent = send(seat->fd, (const char *)root->reply + seat->taken,
                                  bytes - seat->taken, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            seat->taken += (size_t)sent;
        else
            return sent < 0 && cecl_net_is_early(errno);
    }
    return false;
}

/* Sends more of the reply to all ranks, each time to other processes first, see tell(). Returns how many of them need
 * more, and lists these. */
static nfds_t send_more(struct root *root)
{
    const size_t bytes = sizeof(root->reply->head) + (size_t)root->reply->head.bytes;
    nfds_t left = 0;
    for (int i = 0; i < 2 * root->nranks; i++) {
        struct seat *seat = &root->seats[i % root->nranks];
        if (seat->is_here == (i >= root->nranks) && seat->fd >= 0 && send_some(root, seat, bytes))
            root->polls[left++] = (struct pollfd){.fd = seat->fd, .events = POLLOUT};
    }
    return left;
}

/* Sends the reply to all ranks at the same time. A rank of this process does not wait until slow ranks have the whole
 * reply. Ranks then have each other's addresses, so from here on they notice by themselves if a peer ends. Closes the
 * connections of ranks that do not take the whole reply in time, because whatever came next they would find in its
 * middle. Returns the first of these ranks, or -1. */
static int reply_to_all(struct root *root)
{
    const size_t bytes = sizeof(root->reply->head) + (size_t)root->reply->head.bytes;
    int slow = -1, ready;
    nfds_t left;
    root->deadline = deadline_in(root, root->timeout_ms);
    for (int r = 0; r < root->nranks; r++)
        root->seats[r].taken = 0;
    do {
        left = send_more(root);
        ready = left > 0 ? poll(root->polls, left, cecl_ms_left(root->deadline)) : 0;
    } while (ready > 0 || (ready < 0 && errno == EINTR));
    for (int r = root->nranks - 1; r >= 0; r--)
        if (root->seats[r].fd >= 0 && root->seats[r].taken < bytes) {
            close_seat(&root->seats[r]);
            slow = r;
        }
    return slow;
}

/* ---- lines */

static void lose_rank(struct root *root, int rank, const char *how)
{
    close_seat(&root->seats[rank]);
    if (root->failed != ceclSuccess)
        return;
    cecl_fail(ceclRemoteError, "rank %d %s", rank, how);
    fail_job(root, ceclRemoteError, NULL);
}

/* Whether ranks that still have a line are in the root's process. */
static bool has_ranks_here(const struct root *root)
{
    bool has = false;
    for (int r = 0; r < root->nranks; r++)
        has = has || (root->seats[r].is_here && root->seats[r].fd >= 0);
    return has;
}

static void tell_left(const struct root *root, uint32_t left)
{
    const struct cecl_tcp_reply empty = {.status = ceclSuccess, .left = left};
    for (int r = 0; r < root->nranks; r++)
        if (root->seats[r].fd >= 0)
            (void)!cecl_net_send(root->seats[r].fd, &empty, sizeof(empty), cecl_deadline(WORDS_MS),
                                 "a rank");
}

/* The other ranks learn that this one has left, and whether the root's process may end now. */
static void let_go(struct root *root, int rank)
{
    struct seat *seat = &root->seats[rank];
    const int fd = seat->fd;
    seat->fd = -1;
    tell_left(root, (uint32_t)rank + 1);
    if (seat->is_here && !has_ranks_here(root))
        tell_left(root, 0);
    seat->fd = fd;
    close_seat(seat);
}

static void consider_said(struct root *root, int rank)
{
    struct cecl_lifeline_said *said = &root->said[rank];
    root->seats[rank].heard = 0;
    if (said->kind == CECL_LIFELINE_PART) {
        memcpy(root->reply->parts[rank], said->part, sizeof(said->part));
        root->nparts++;
    } else if (said->kind == CECL_LIFELINE_GOODBYE) {
        let_go(root, rank);
    } else if (root->failed == ceclSuccess) {
        said->part[CECL_MESSAGE_BYTES - 1] = '\0';
        cecl_fail(ceclRemoteError, "rank %d gave up: %.440s", rank, said->part);
        fail_job(root, ceclRemoteError, NULL);
    }
}

/* Reads what a rank has said so far. A rank that closes its line without a word is on the same host as all others, or
 * its communicator was not made. Once any rank has said something, the end of a line is the loss of that rank. */
static void hear_rank(struct root *root, int rank)
{
    struct seat *seat = &root->seats[rank];
    char *at = root->has_lines ? (char *)&root->said[rank] : NULL;
    const ssize_t got =
        at ? recv(seat->fd, at + seat->heard, sizeof(*root->said) - seat->heard, MSG_DONTWAIT)
           : cecl_net_look(seat->fd);
    if (!at && got > 0) {
        root->has_lines = true;
        for (int r = 0; r < root->nranks; r++)
            cecl_lifeline_keep(root->seats[r].fd);
        return;
    }
    if (at && got > 0) {
        seat->heard += (size_t)got;
        if (seat->heard == sizeof(*root->said))
            consider_said(root, rank);
    } else if (got == 0) {
        if (at)
            lose_rank(root, rank, "has ended");
        else
            close_seat(seat);
    } else if (at && !cecl_net_is_early(errno)) {
        lose_rank(root, rank, "can no longer be reached");
    }
}

/* A rank without a line sends no part, so the others would wait in vain. */
static void check_parts(struct root *root)
{
    for (int r = 0; r < root->nranks && root->nparts > 0 && root->failed == ceclSuccess; r++)
        if (root->seats[r].fd < 0)
            lose_rank(root, r, "has left, and takes no part");
}

/* Sends the parts of all to all. */
static void answer(struct root *root)
{
    root->nparts = 0;
    const int slow = reply_to_all(root);
    if (slow >= 0)
        lose_rank(root, slow, "did not take what other ranks sent it");
}

static void serve_lines(struct root *root)
{
    /* for the first word on any line: a stopped rank never closes its line */
    const int64_t end = cecl_deadline(root->timeout_ms);
    int open = 1;
    root->patience = CECL_NO_DEADLINE; /* it was that of the join */
    while (open > 0 && (root->has_lines || cecl_ms_left(end) != 0)) {
        open = 0;
        for (int r = 0; r < root->nranks; r++) {
            root->polls[r] = (struct pollfd){.fd = root->seats[r].fd, .events = POLLIN};
            open += root->polls[r].fd >= 0;
        }
        if (open > 0)
            (void)poll(root->polls, (nfds_t)root->nranks, root->has_lines ? -1 : cecl_ms_left(end));
        for (int r = 0; r < root->nranks; r++)
            if (root->seats[r].fd >= 0)
                hear_rank(root, r);
        check_parts(root);
        if (root->nparts == root->nranks && root->failed == ceclSuccess)
            answer(root);
    }
}

/* ---- the whole */

static void free_root(struct root *root)
{
    cecl_door_close(&root->door);
    for (int r = 0; r < root->nranks; r++)
        close_seat(&root->seats[r]);
    free(root->seats);
    free(root->reply);
    free(root->said);
    free(root->polls);
    free(root);
}

static void *serve(void *argument)
{
    struct root *root = argument;
    let_ranks_in(root);
    cecl_door_close(&root->door); /* the id is used up: ranks that come later are refused */
    if (root->failed == ceclSuccess) {
        (void)reply_to_all(root);
        serve_lines(root);
    }
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
    root->timeout_ms = root->bound_ms = timeout_ms;
    root->deadline = cecl_deadline(timeout_ms); /* for the first rank */
    root->patience = CECL_NO_DEADLINE;
    ceclResult_t result =
        cecl_door_open(&root->door, listener, sizeof(struct cecl_tcp_answer), greet, put_off);
    if (result == ceclSuccess) {
        const int error = cecl_thread_start(&thread, "cecl-root", serve, root);
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
