/* What the files of links share: links.c is the thread, links_ends.c sends, links_start.c starts the thread. */
#ifndef CECL_BOOT_LINKS_INTERNAL_H
#define CECL_BOOT_LINKS_INTERNAL_H

#include <poll.h>
#include <stdatomic.h>

#include "boot/links.h"

#define LINKS_IN_BYTES 65536u
#define LINKS_OUT_BYTES 32768u /* grows if needed, which no exchange does */

/* A line or a link, as the thread has it. */
struct links_end {
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
    struct links_end ends[];
};

/* links.c: the thread. It frees the links. */
void *links_run(void *links);

/* links_ends.c. Sends what the socket takes. Returns 0, or an errno. */
int links_flush(struct links_end *end);
/* Puts a message behind those that wait, and sends what the socket takes. Returns as links_flush. */
int links_put(struct links_end *end, const void *message, size_t bytes);
void links_close_end(struct links_end *end);
void links_free(struct links *links);

/* links_start.c: for all changes of descriptors that a forked child closes. */
void links_lock(void);
void links_unlock(void);
/* Takes links off the list of those that run. */
void links_forget(struct links *links);

#endif
