/* The thread of a leader, which passes messages between the ranks of its host and other hosts; see links.h. */
#include "boot/links.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/packet.h"
#include "boot/rank_list.h"
#include "util/clock.h"
#include "util/thread.h"

#define LINGER_MS                                                                                  \
    1000 /* how long the thread waits for other hosts to close, too, once all ranks here have */
#define IN_BYTES 65536u
#define OUT_BYTES 32768u /* grows if needed, which no exchange does */

/* A line or a link, as the thread has it. */
struct end {
    int fd;      /* -1: closed */
    int process; /* a line: the rank's, watched, or -1 */
    int rank;    /* at the other end; of a link: the leader there */
    enum { FRAMES, LIFE, LINK } kind;
    char *out; /* [room] messages to be sent: those at [sent, end) */
    size_t sent, end, room;
    char *in; /* [IN_BYTES] of a link: a message of which only a part has come */
    size_t got;
};

struct links {
    struct links *next;
    _Atomic bool is_quiet; /* all ranks of this host have said their last words, which are sent */
    int nranks, rank, nends;
    int64_t silence_ms;
    uint16_t *host; /* [nranks] */
    /* [nranks] whether the rank has said its last word, and whether that was a goodbye */
    bool *has_ended, *has_left;
    struct pollfd *polls; /* [2 * nends] */
    struct end ends[];
};

/* All that run in this process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct links *first;

/* ---- sending */

static void close_end(struct end *end)
{
    pthread_mutex_lock(&lock); /* a fork may run: see in_child */
    const int fd = end->fd;
    end->fd = -1;
    pthread_mutex_unlock(&lock);
    if (fd >= 0)
        cecl_net_close(fd);
    cecl_net_drop(&end->process, 1);
    end->sent = end->end = 0;
}

/* Sends what the socket takes. Returns 0, or an errno. A line takes one message at a time, a link bytes. */
static int flush(struct end *end)
{
    while (end->fd >= 0 && end->sent < end->end) {
        struct cecl_link_head head;
        memcpy(&head, end->out + end->sent, sizeof(head));
        const size_t bytes = end->kind == LINK ? end->end - end->sent : head.bytes;
        const ssize_t sent =
            send(end->fd, end->out + end->sent, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return cecl_net_is_early(errno) ? 0 : errno;
        end->sent += (size_t)sent;
    }
    end->sent = end->end = 0;
    return 0;
}

/* Makes room for `bytes` behind what is to be sent. Ranks send their next frame only after they have all of the
 * one before, so little ever waits here. */
static bool make_room(struct end *end, size_t bytes)
{
    if (end->sent > 0) {
        memmove(end->out, end->out + end->sent, end->end - end->sent);
        end->end -= end->sent;
        end->sent = 0;
    }
    if (end->room - end->end >= bytes)
        return true;
    const size_t room = 2 * (end->end + bytes);
    char *out = realloc(end->out, room);
    if (!out)
        return false;
    end->out = out;
    end->room = room;
    return true;
}

static int put(struct end *end, const void *message, size_t bytes)
{
    if (end->fd < 0)
        return 0;
    if (!make_room(end, bytes))
        return ENOMEM;
    memcpy(end->out + end->end, message, bytes);
    end->end += bytes;
    return flush(end);
}

/* Gives a message to all ranks of this host. A rank whose line fails sees that it has ended. */
static void deliver(struct links *links, const struct cecl_link_head *message)
{
    const bool is_frame = message->kind == CECL_LINK_FRAME;
    for (int i = 0; i < links->nends; i++) {
        struct end *end = &links->ends[i];
        if (end->kind == (is_frame ? FRAMES : LIFE) && put(end, message, message->bytes) != 0)
            shutdown(end->fd, SHUT_RDWR); /* what came by it is still read */
    }
}

/* ---- links that end */

/* "rank 3", or "ranks 2 and 3": those of the host of `rank`. */
static const char *ranks_there(const struct links *links, int rank, struct cecl_rank_list *list)
{
    *list = (struct cecl_rank_list){.count = 0};
    for (int r = 0; r < links->nranks; r++)
        if (links->host[r] == links->host[rank])
            cecl_rank_list_add(list, r);
    return cecl_rank_list_words(list);
}

/* Why the link has ended. `error`: an errno; 0: the other end has closed it. */
static void say_why(const struct links *links, const struct end *link, int error, char *words,
                    size_t room)
{
    struct cecl_rank_list list;
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
        snprintf(words, room,
                 "no answer for %lld ms from the host of %s: the link to it is cut, or it is down "
                 "(%s)",
                 (long long)links->silence_ms, ranks_there(links, link->rank, &list),
                 strerror(error));
    else if (error == 0 || cecl_net_is_closed(error))
        snprintf(words, room, "rank %d ended unexpectedly", link->rank);
    else
        snprintf(words, room, "the link to the host of %s has failed: %s",
                 ranks_there(links, link->rank, &list), strerror(error));
}

static void lose_link(struct links *links, struct end *link, int error)
{
    struct {
        struct cecl_link_head head;
        struct mesh_life life;
    } message = {.head = {.bytes = sizeof(message), .from = (uint16_t)link->rank},
                 .life = {.kind = LIFE_ABORT}};
    const bool left = links->has_left[link->rank];
    message.head.kind = left ? CECL_LINK_LEFT : CECL_LINK_CUT;
    say_why(links, link, error, message.life.why, sizeof(message.life.why));
    close_end(link);
    deliver(links, &message.head);
}

/* Gives a message of a rank of this host to all other hosts. */
static void send_away(struct links *links, const struct cecl_link_head *message)
{
    for (int i = 0; i < links->nends; i++) {
        struct end *end = &links->ends[i];
        const int error = end->kind == LINK ? put(end, message, message->bytes) : 0;
        if (error != 0)
            lose_link(links, end, error);
    }
}

/* ---- receiving */

static void note_last_word(struct links *links, const struct cecl_link_head *message)
{
    struct mesh_life life;
    if (message->kind == CECL_LINK_FRAME)
        return;
    links->has_ended[message->from] = true;
    if (message->kind != CECL_LINK_LIFE || message->bytes != sizeof(*message) + sizeof(life))
        return;
    memcpy(&life, message + 1, sizeof(life));
    links->has_left[message->from] = life.kind == LIFE_GOODBYE;
}

/* The rank has closed the line. On its life line it has said whether it left. */
static void end_line(struct links *links, struct end *line)
{
    const struct cecl_link_head gone = {
        .bytes = sizeof(gone), .kind = CECL_LINK_GONE, .from = (uint16_t)line->rank};
    if (line->kind == LIFE && !links->has_ended[line->rank]) {
        links->has_ended[line->rank] = true;
        send_away(links, &gone);
    }
    close_end(line);
}

static void hear_line(struct links *links, struct end *line)
{
    union {
        struct cecl_link_head head;
        char bytes[CECL_LINK_BYTES];
    } message;
    const int kind = line->kind == FRAMES ? CECL_LINK_FRAME : CECL_LINK_LIFE;
    while (line->fd >= 0) {
        const ssize_t got = recv(line->fd, &message, sizeof(message), MSG_DONTWAIT);
        if (cecl_packet_again(got))
            continue;
        if (got < 0 && !cecl_net_is_closed(errno))
            return;
        if (got < (ssize_t)sizeof(message.head) || message.head.kind != kind) {
            end_line(links, line);
            return;
        }
        message.head.bytes = (uint32_t)got;
        message.head.from = (uint16_t)line->rank;
        note_last_word(links, &message.head);
        send_away(links, &message.head);
    }
}

/* What a rank sent before its last word goes before it: its line of frames is the end before that of its life. */
static void hear_rank(struct links *links, struct end *line)
{
    if (line->kind == LIFE)
        hear_line(links, line - 1);
    hear_line(links, line);
}

/* Takes the messages that have come whole. Returns false if what has come is none. */
static bool take_messages(struct links *links, struct end *link)
{
    _Alignas(8) char message[CECL_LINK_BYTES];
    struct cecl_link_head head;
    size_t at = 0;
    for (; link->got - at >= sizeof(head); at += head.bytes) {
        memcpy(&head, link->in + at, sizeof(head));
        if (head.bytes < sizeof(head) || head.bytes > sizeof(message) ||
            head.from >= links->nranks || links->host[head.from] != links->host[link->rank] ||
            head.kind < CECL_LINK_FRAME || head.kind > CECL_LINK_GONE)
            return false;
        if (link->got - at < head.bytes)
            break;
        memcpy(message, link->in + at, head.bytes);
        note_last_word(links, (const void *)message);
        deliver(links, (const void *)message);
    }
    link->got -= at;
    memmove(link->in, link->in + at, link->got);
    return true;
}

static void hear_link(struct links *links, struct end *link)
{
    while (link->fd >= 0) {
        const ssize_t got =
            recv(link->fd, link->in + link->got, IN_BYTES - link->got, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && cecl_net_is_early(errno))
            return;
        link->got += got > 0 ? (size_t)got : 0;
        if (got <= 0)
            lose_link(links, link, got == 0 ? 0 : errno);
        else if (!take_messages(links, link))
            lose_link(links, link, EPROTO);
    }
}

/* ---- the thread */

static void serve(struct links *links, const struct pollfd *polls, struct end *end)
{
    if (polls[0].revents & POLLOUT) {
        const int error = flush(end);
        if (error != 0 && end->kind == LINK)
            lose_link(links, end, error);
    }
    if (end->fd >= 0 && polls[0].revents & ~POLLOUT) {
        if (end->kind == LINK)
            hear_link(links, end);
        else
            hear_rank(links, end);
    }
    if (end->fd >= 0 && polls[1].revents) { /* a forked child may hold the line open */
        hear_rank(links, end);
        end_line(links, end);
    }
}

static bool is_quiet(const struct links *links)
{
    for (int i = 0; i < links->nends; i++)
        if (links->ends[i].kind == LIFE ? !links->has_ended[links->ends[i].rank]
                                        : links->ends[i].end > 0)
            return false;
    return true;
}

/* Waits for whatever comes. Returns false once nothing is left to wait for, or at the deadline. */
static bool go_round(struct links *links, int64_t deadline)
{
    int open = 0;
    for (int i = 0; i < links->nends; i++) {
        const struct end *end = &links->ends[i];
        const bool waits = end->fd >= 0 && end->end > 0;
        links->polls[2 * i] =
            (struct pollfd){.fd = end->fd, .events = (short)(POLLIN | (waits ? POLLOUT : 0))};
        links->polls[2 * i + 1] = (struct pollfd){.fd = end->process, .events = POLLIN};
        open += end->fd >= 0;
    }
    atomic_store(&links->is_quiet, is_quiet(links));
    if (open == 0 || poll(links->polls, 2 * (nfds_t)links->nends, cecl_ms_left(deadline)) == 0)
        return false;
    for (int i = 0; i < links->nends; i++)
        serve(links, &links->polls[2 * i], &links->ends[i]);
    return true;
}

static bool has_lines(const struct links *links)
{
    for (int i = 0; i < links->nends; i++)
        if (links->ends[i].kind != LINK && links->ends[i].fd >= 0)
            return true;
    return false;
}

static void forget(struct links *links)
{
    pthread_mutex_lock(&lock);
    struct links **at = &first;
    while (*at && *at != links)
        at = &(*at)->next;
    if (*at)
        *at = links->next;
    pthread_mutex_unlock(&lock);
}

static void free_links(struct links *links)
{
    for (int i = 0; i < links->nends; i++) {
        close_end(&links->ends[i]);
        free(links->ends[i].out);
        free(links->ends[i].in);
    }
    free(links->host);
    free(links->has_ended);
    free(links->polls);
    free(links);
}

/* Bytes that nobody has read when a link is closed would reset it, and take this host's last words with them.
 * So each side ends its sending, and reads until the other has. */
static void *run(void *argument)
{
    struct links *links = argument;
    while (has_lines(links))
        (void)go_round(links, CECL_NO_DEADLINE);
    const int64_t deadline = cecl_deadline(LINGER_MS);
    for (int i = 0; i < links->nends; i++)
        if (links->ends[i].fd >= 0 && links->ends[i].end == 0)
            shutdown(links->ends[i].fd, SHUT_WR);
    while (go_round(links, deadline) && cecl_ms_left(deadline) > 0)
        continue;
    forget(links);
    free_links(links);
    return NULL;
}

/* ---- beginning, and the end of the process */

static void prepare_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child has no such thread. If it kept the links, nobody would notice the end of its parent. */
static void in_child(void)
{
    for (struct links *links = first; links; links = links->next)
        for (int i = 0; i < links->nends; i++)
            if (links->ends[i].fd >= 0)
                close(links->ends[i].fd);
    first = NULL;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)!pthread_atfork(prepare_fork, in_parent, in_child);
}

/* The kernel looks at an idle link each second. */
static void bound_silence(int fd, int64_t silence_ms)
{
    const int on = 1, second = 1, most = (int)(silence_ms / 1000) + 1;
    const unsigned silence = (unsigned)silence_ms;
    cecl_tcp_send_at_once(fd);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof(second));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof(second));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof(most));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
}

static int *fd_of(const struct cecl_links_plan *plan, int rank, int kind)
{
    return kind == LINK ? &plan->links[plan->host[rank]] : &plan->lines[rank][kind];
}

static bool is_leader(const struct cecl_links_plan *plan, int rank)
{
    for (int r = 0; r < rank; r++)
        if (plan->host[r] == plan->host[rank])
            return false;
    return true;
}

/* Adds an end, whose descriptors are still the plan's. */
static bool add_end(struct links *links, const struct cecl_links_plan *plan, int rank, int kind)
{
    struct end *end = &links->ends[links->nends];
    const int fd = *fd_of(plan, rank, kind);
    if (fd < 0 || (kind == LINK && !is_leader(plan, rank)))
        return true;
    links->nends++;
    *end = (struct end){.fd = fd,
                        .process = kind == LIFE ? plan->processes[rank] : -1,
                        .rank = rank,
                        .out = malloc(OUT_BYTES),
                        .room = OUT_BYTES};
    end->kind = kind == LINK ? LINK : kind == FRAMES ? FRAMES : LIFE;
    if (kind != LINK)
        return end->out != NULL;
    bound_silence(fd, plan->silence_ms);
    end->in = malloc(IN_BYTES);
    return end->out && end->in;
}

/* Frees what has not begun. The descriptors stay the plan's. */
static void discard(struct links *links)
{
    for (int i = 0; i < links->nends; i++)
        links->ends[i].fd = links->ends[i].process = -1;
    free_links(links);
}

static void forget_descriptors(struct cecl_links_plan *plan)
{
    for (int r = 0; r < plan->nranks; r++) {
        plan->lines[r][CECL_LINE_FRAMES] = plan->lines[r][CECL_LINE_LIFE] = -1;
        plan->processes[r] = *fd_of(plan, r, LINK) = -1;
    }
}

static struct links *make(const struct cecl_links_plan *plan)
{
    const size_t n = (size_t)plan->nranks, most = n * (LINK + 1);
    struct links *links = calloc(1, sizeof(*links) + most * sizeof(links->ends[0]));
    if (!links)
        return NULL;
    links->nranks = plan->nranks;
    links->rank = plan->rank;
    links->silence_ms = plan->silence_ms;
    links->host = calloc(n, sizeof(*links->host));
    links->has_ended = calloc(2 * n, sizeof(*links->has_ended));
    links->has_left = links->has_ended + n;
    links->polls = calloc(2 * most, sizeof(*links->polls));
    bool made = links->host && links->has_ended && links->polls;
    for (int r = 0; r < plan->nranks && made; r++) {
        links->host[r] = plan->host[r];
        for (int kind = FRAMES; kind <= LINK && made; kind++)
            made = add_end(links, plan, r, kind);
    }
    if (made)
        return links;
    discard(links);
    return NULL;
}

ceclResult_t cecl_links_start(struct cecl_links_plan *plan)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_t thread;
    struct links *links = make(plan);
    if (!links)
        return cecl_fail(ceclOutOfMemory, "no host memory for links to other hosts");
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    links->next = first;
    first = links;
    pthread_mutex_unlock(&lock);
    const int error = cecl_thread_start(&thread, "cecl-links", run, links);
    if (error) {
        forget(links);
        discard(links);
        return cecl_fail(ceclSystemError, "no thread for links to other hosts: %s",
                         strerror(error));
    }
    pthread_detach(thread);
    forget_descriptors(plan);
    return ceclSuccess;
}

static bool all_quiet(void)
{
    bool quiet = true;
    if (pthread_mutex_trylock(&lock) != 0)
        return false;
    for (const struct links *links = first; links; links = links->next)
        quiet = quiet && atomic_load(&links->is_quiet);
    pthread_mutex_unlock(&lock);
    return quiet;
}

void cecl_links_end(int wait_ms)
{
    const int64_t deadline = cecl_deadline(wait_ms);
    const struct timespec pause = {.tv_nsec = 200000};
    while (!all_quiet() && cecl_ms_left(deadline) > 0)
        nanosleep(&pause, NULL);
}
