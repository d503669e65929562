/* The thread of a leader, which passes messages between the ranks of its host and other hosts; see links.h. */
#include "boot/links_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "boot/mesh_internal.h"
#include "boot/net.h"
#include "boot/packet.h"
#include "boot/rank_list.h"
#include "util/clock.h"

/* ms that the thread waits for other hosts to close, once all ranks of this host have */
#define LINGER_MS 1000

/* Gives a message to all ranks of this host: frames on one line, calls on the other, and a rank's last word on both.
 * A rank whose line fails sees that the line has ended. */
static void deliver(struct links *links, const struct cecl_link_head *message)
{
    for (int i = 0; i < links->nends; i++) {
        struct links_end *end = &links->ends[i];
        const int not_for = end->kind == FRAMES ? CECL_LINK_CALL : CECL_LINK_FRAME;
        if (end->kind != LINK && message->kind != not_for &&
            links_put(end, message, message->bytes) != 0)
            shutdown(end->fd, SHUT_RDWR); /* what came on the line is still read */
    }
}

/* ---- links that end */

/* All ranks that are on the same host as `rank`: "rank 3", or "ranks 2 and 3". */
static const char *ranks_there(const struct links *links, int rank, struct cecl_rank_list *list)
{
    *list = (struct cecl_rank_list){.count = 0};
    for (int r = 0; r < links->nranks; r++)
        if (links->host[r] == links->host[rank])
            cecl_rank_list_add(list, r);
    return cecl_rank_list_words(list);
}

/* Whether the leader at the other end has ended. If not, only the connection has failed. */
static bool is_closed_there(int error)
{
    return error == 0 || (cecl_net_is_closed(error) && error != ETIMEDOUT);
}

/* Writes why the link has ended. `error`: an errno; 0: the other end has closed it. */
static void say_why(const struct links *links, const struct links_end *link, int error, char *words,
                    size_t room)
{
    struct cecl_rank_list list;
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
        snprintf(words, room,
                 "no answer for %lld ms from the host of %s: the link is cut, or the host is down "
                 "(%s)",
                 (long long)links->silence_ms, ranks_there(links, link->rank, &list),
                 strerror(error));
    else if (is_closed_there(error))
        snprintf(words, room, "rank %d ended unexpectedly", link->rank);
    else
        snprintf(words, room, "the link to the host of %s has failed: %s",
                 ranks_there(links, link->rank, &list), strerror(error));
}

static void lose_link(struct links *links, struct links_end *link, int error)
{
    struct {
        struct cecl_link_head head;
        struct mesh_life life;
    } message = {.head = {.bytes = sizeof(message), .from = (uint16_t)link->rank},
                 .life = {.kind = LIFE_ABORT}};
    const struct cecl_link_head gone = {
        .bytes = sizeof(gone), .kind = CECL_LINK_GONE, .from = (uint16_t)link->rank};
    const bool left = links->has_left[link->rank];
    message.head.kind = left ? CECL_LINK_LEFT : CECL_LINK_CUT;
    say_why(links, link, error, message.life.why, sizeof(message.life.why));
    links_close_end(link);
    if (!left && is_closed_there(error))
        deliver(links, &gone);
    deliver(links, &message.head);
}

/* Passes a message from a rank of this host to all other hosts. */
static void send_away(struct links *links, const struct cecl_link_head *message)
{
    for (int i = 0; i < links->nends; i++) {
        struct links_end *end = &links->ends[i];
        const int error = end->kind == LINK ? links_put(end, message, message->bytes) : 0;
        if (error != 0)
            lose_link(links, end, error);
    }
}

/* ---- receiving */

static void note_last_word(struct links *links, const struct cecl_link_head *message)
{
    struct mesh_life life;
    if (message->kind == CECL_LINK_FRAME || message->kind == CECL_LINK_CALL)
        return;
    links->has_ended[message->from] = true;
    if (message->kind != CECL_LINK_LIFE || message->bytes != sizeof(*message) + sizeof(life))
        return;
    memcpy(&life, message + 1, sizeof(life));
    links->has_left[message->from] = life.kind == LIFE_GOODBYE;
}

/* Called when a rank has closed a line. If the rank has said nothing on its life line, the rank has died. */
static void end_line(struct links *links, struct links_end *line)
{
    const struct cecl_link_head gone = {
        .bytes = sizeof(gone), .kind = CECL_LINK_GONE, .from = (uint16_t)line->rank};
    if (line->kind == LIFE && line->fd >= 0 && !links->has_left[line->rank]) {
        links->has_ended[line->rank] = true; /* the rank may have said before that it gives up */
        send_away(links, &gone);
    }
    links_close_end(line);
}

/* Whether a rank may send a message of this kind on a line. */
static bool is_from_line(const struct links_end *line, int kind)
{
    return line->kind == FRAMES ? kind == CECL_LINK_FRAME
                                : kind == CECL_LINK_LIFE || kind == CECL_LINK_CALL;
}

static void hear_line(struct links *links, struct links_end *line)
{
    union {
        struct cecl_link_head head;
        char bytes[CECL_LINK_BYTES];
    } message;
    while (line->fd >= 0) {
        const ssize_t got = cecl_packet_read(line->fd, &message, sizeof(message), 0);
        if (got < 0 && !cecl_net_is_closed(errno))
            return;
        if (got < (ssize_t)sizeof(message.head) || !is_from_line(line, message.head.kind)) {
            end_line(links, line);
            return;
        }
        message.head.bytes = (uint32_t)got;
        message.head.from = (uint16_t)line->rank;
        note_last_word(links, &message.head);
        send_away(links, &message.head);
    }
}

/* A rank's frames must be passed on before that rank's goodbye or abort. So the rank's line of frames is read
 * first, and then its life line. In `ends` the line of frames comes right before the life line. */
static void hear_rank(struct links *links, struct links_end *line)
{
    if (line->kind == LIFE)
        hear_line(links, line - 1);
    hear_line(links, line);
}

/* Takes the messages that have arrived completely. Returns false if the bytes are not a valid message. */
static bool take_messages(struct links *links, struct links_end *link)
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

static void hear_link(struct links *links, struct links_end *link)
{
    while (link->fd >= 0) {
        const ssize_t got =
            recv(link->fd, link->in + link->got, LINKS_IN_BYTES - link->got, MSG_DONTWAIT);
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

static void serve(struct links *links, const struct pollfd *polls, struct links_end *end)
{
    if (polls[0].revents & POLLOUT) {
        const int error = links_flush(end);
        if (error != 0 && end->kind == LINK)
            lose_link(links, end, error);
    }
    if (end->fd >= 0 && polls[0].revents & ~POLLOUT) {
        if (end->kind == LINK)
            hear_link(links, end);
        else
            hear_rank(links, end);
    }
    /* the process has ended, but a child may hold the line open */
    if (end->fd >= 0 && polls[1].revents) {
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

/* Waits for events, and serves them. Returns false if nothing is left to wait for, or at the deadline. */
static bool go_round(struct links *links, int64_t deadline)
{
    int open = 0;
    for (int i = 0; i < links->nends; i++) {
        const struct links_end *end = &links->ends[i];
        const bool waits = end->fd >= 0 && end->end > 0;
        links->polls[2 * i] =
            (struct pollfd){.fd = end->fd, .events = (short)(POLLIN | (waits ? POLLOUT : 0))};
        links->polls[2 * i + 1] = (struct pollfd){.fd = end->process, .events = POLLIN};
        open += end->fd >= 0;
    }
    atomic_store(&links->is_quiet, is_quiet(links));
    if (open == 0 || cecl_net_poll(links->polls, 2 * links->nends, cecl_ms_left(deadline)) == 0)
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

/* Shuts down the sending direction of each link that has nothing left to send. */
static void shut_down_sent(struct links *links)
{
    for (int i = 0; i < links->nends; i++)
        if (links->ends[i].fd >= 0 && links->ends[i].end == 0)
            shutdown(links->ends[i].fd, SHUT_WR);
}

/* If a link is closed while received bytes are unread, the kernel resets it, and this host's last messages
 * are lost. So each side shuts down its sending direction, and reads until the other side has done so,
 * too. */
void *links_run(void *argument)
{
    struct links *links = argument;
    while (has_lines(links))
        (void)go_round(links, CECL_NO_DEADLINE);
    const int64_t deadline = cecl_deadline(LINGER_MS);
    do
        shut_down_sent(links);
    while (go_round(links, deadline) && cecl_ms_left(deadline) > 0);
    links_forget(links);
    links_free(links);
    return NULL;
}
