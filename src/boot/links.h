/* Links between hosts. The first rank of each host, its leader, has a TCP connection to every other leader, and
 * a thread that passes messages on: from the ranks of its host to all other hosts, and from other hosts to all
 * ranks of its own. A rank and its leader's thread are connected by two lines, which are Unix sockets:
 *
 *     rank --frames--> leader's thread ==link==> leader's thread there --frames--> each rank there
 *          --life---->                                                 --life---->
 *
 * A message goes to all ranks of other hosts, whole and in order. The kernel probes each link (TCP_KEEPALIVE,
 * TCP_USER_TIMEOUT), so a link that is cut, or a host that is down, is noticed without traffic. A process that is
 * stopped is not taken for one: its kernel answers.
 *
 * The thread belongs to no communicator: it ends once all ranks of its host have closed their lines. So a leader
 * that ends its communicator first does not cut off the other ranks. If its process ends first, it does. */
#ifndef CECL_BOOT_LINKS_H
#define CECL_BOOT_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/tcp.h"
#include "util/error.h"

/* What a message begins with. On a line it is one packet; on a link messages follow each other. */
struct cecl_link_head {
    uint32_t bytes; /* of the message, this head included */
    uint16_t kind, from;
};
enum cecl_link_kind {
    CECL_LINK_FRAME = 1, /* a part of an exchange (mesh.c) */
    CECL_LINK_LIFE,      /* what the rank says of its end (mesh_watch.c) */
    /* -- from the threads, on life lines: */
    CECL_LINK_GONE, /* the rank has ended without a word */
    CECL_LINK_CUT,  /* no rank of its host can be reached any more; the text says why */
    CECL_LINK_LEFT  /* the same, because its host's leader has left with a goodbye */
};
#define CECL_LINK_BYTES 4608 /* most bytes of a message: a frame, and heads */

enum cecl_link_line { CECL_LINE_FRAMES, CECL_LINE_LIFE, CECL_LINES_OF_RANK };

/* What a leader needs. Everything is copied. */
struct cecl_links_plan {
    int nranks, rank;
    const uint16_t
        *host; /* [nranks] the number of each rank's host; numbers go from 0 on, without a gap */
    int (*lines)
        [CECL_LINES_OF_RANK]; /* [nranks] the thread's ends of lines; -1 for ranks of other hosts */
    int *processes;           /* [nranks] watch ranks of this host (process.h), or -1 */
    int *links;               /* [hosts] connections to the other leaders; -1 for this host */
    int64_t silence_ms;       /* how long a host may be silent, ms */
};

/* Starts the thread, which takes over all descriptors: they become -1. On failure they stay the caller's. */
ceclResult_t cecl_links_start(struct cecl_links_plan *plan);

/* For the end of a process that has leaders: waits until the ranks of its hosts, and it, have said their last
 * words, and these are on their way; no longer than `wait_ms`. */
void cecl_links_end(int wait_ms);

#endif
