/* What the files of links share: links.c runs the thread, links_ends.c sends, links_start.c starts the
 * thread. */
#ifndef CECL_BOOT_LINKS_INTERNAL_H
#define CECL_BOOT_LINKS_INTERNAL_H

#include <poll.h>
#include <stdatomic.h>

#include "boot/links.h"

#define LINKS_IN_BYTES 65536u
#define LINKS_OUT_BYTES 32768u /* grows if needed; no exchange needs that */

/* A line or a link, as the thread has it. */
struct links_end {
    int fd;      /* -1: closed */
    int process; /* life line: watches the rank's process, or -1 */
    int rank;    /* at the other end; on a link, the leader of the other host */
    enum { FRAMES, LIFE, LINK } kind;
    char *out; /* [room] bytes [sent, end) are messages that are still to be sent */
    size_t sent, end, room;
    char *in; /* [LINKS_IN_BYTES] only links: `got` bytes of messages that have arrived in part */
    size_t got;
};

struct links {
    struct links *next;
    /* all ranks of this host have said goodbye, aborted or ended, and this is sent */
    _Atomic bool is_quiet;
    int nranks, nends;
    int64_t silence_ms;
    uint16_t *host; /* [nranks] */
    /* [nranks] whether the rank has said goodbye, aborted or ended; and whether it said goodbye */
    bool *has_ended, *has_left;
    struct pollfd *polls; /* [2 * nends] */
    struct links_end ends[];
};

/* links.c: the thread. It frees the links. */
void *links_run(void *links);

/* links_ends.c. Sends as much as the socket takes. A line takes one message at a time, a link any number
 * of bytes. Returns 0, or an errno. */
int links_flush(struct links_end *end);
/* Puts a message behind those that wait, and sends as much as the socket takes. Returns what links_flush
 * returns. */
int links_put(struct links_end *end, const void *message, size_t bytes);
void links_close_end(struct links_end *end);
void links_free(struct links *links);

/* links_start.c: takes links off the list of running ones. */
void links_forget(struct links *links);

#endif
