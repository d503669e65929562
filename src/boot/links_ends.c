/* The ends of lines and links: sending to them, and closing them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "boot/links_internal.h"
#include "boot/net.h"

void links_close_end(struct links_end *end)
{
    if (end->fd >= 0)
        cecl_net_close(end->fd);
    end->fd = -1;
    cecl_net_drop(&end->process, 1);
    end->sent = end->end = 0;
}

int links_flush(struct links_end *end)
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

/* Makes room for `bytes` more behind the bytes that wait. A rank sends its next frame only when it has the
 * previous frames of all ranks, so few bytes ever wait here. */
static bool make_room(struct links_end *end, size_t bytes)
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

int links_put(struct links_end *end, const void *message, size_t bytes)
{
    if (end->fd < 0)
        return 0;
    if (!make_room(end, bytes))
        return ENOMEM;
    memcpy(end->out + end->end, message, bytes);
    end->end += bytes;
    return links_flush(end);
}

void links_free(struct links *links)
{
    for (int i = 0; i < links->nends; i++) {
        links_close_end(&links->ends[i]);
        free(links->ends[i].out);
        free(links->ends[i].in);
    }
    free(links->host);
    free(links->has_ended);
    free(links->polls);
    free(links);
}
