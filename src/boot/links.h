/* Links between hosts. The first rank of each host, its leader, has a TCP connection to every other leader, and
 * a thread that passes messages on: from the ranks of its host to all other hosts, and from other hosts to
 * all ranks of this host. A rank and its leader's thread are connected by two lines, which are Unix sockets:
 *
 *     rank --frames--> leader's thread ==link==> leader's thread there --frames--> each rank there
 *          --life---->                                                 --life---->
 *
 * A message goes to all ranks of other hosts, whole and in order. The last word of a rank or a host reaches
 * ranks on both lines: at once on the life line, and on the line of frames behind the last frame. The kernel
 * probes each link (TCP keepalive, TCP_USER_TIMEOUT), so a link that is cut, or a host that is down, is noticed
 * without traffic. A stopped process does not count as lost, because its kernel still answers.
 *
 * The thread belongs to no communicator: it ends once all ranks of its host have closed their lines. So if a
 * leader ends its communicator first, the other ranks are not cut off. If the leader's process ends first, the
 * other ranks are cut off. */
#ifndef CECL_BOOT_LINKS_H
#define CECL_BOOT_LINKS_H

#include <stdint.h>

#include "boot/tcp.h"
#include "util/error.h"

/* The head of a message. On a line each message is one packet; on a link messages follow each other
 * without boundaries. */
struct cecl_link_head {
    uint32_t bytes; /* of the message, this head included */
    uint16_t kind, from;
};
enum cecl_link_kind {
    CECL_LINK_FRAME = 1, /* a part of an exchange (mesh.c) */
    CECL_LINK_LIFE,      /* the rank's goodbye or abort (mesh_watch.c) */
    CECL_LINK_CALL,      /* the rank's last call, on life lines (cecl_mesh_tell_call) */
    /* -- from the threads: */
    CECL_LINK_GONE, /* the rank has ended without a goodbye or an abort */
    CECL_LINK_CUT,  /* no rank of that rank's host can be reached any more; the text says why */
    CECL_LINK_LEFT  /* the same, because that host's leader has left with a goodbye */
};
#define CECL_LINK_BYTES 4608 /* most bytes of a message: a frame, and heads */

enum cecl_link_line { CECL_LINE_FRAMES, CECL_LINE_LIFE, CECL_LINES_OF_RANK };

/* What the thread needs. Everything is copied. */
struct cecl_links_plan {
    int nranks;
    /* [nranks] the number of each rank's host; numbers begin at 0, without a gap */
    const uint16_t *host;
    /* [nranks] the thread's ends of the lines; -1 for ranks of other hosts */
    int (*lines)[CECL_LINES_OF_RANK];
    int *processes;     /* [nranks] descriptors that watch this host's ranks (process.h), or -1 */
    int *links;         /* [hosts] connections to the other leaders; -1 for this host */
    int64_t silence_ms; /* ms that a host may be silent */
};

/* Starts the thread, which takes over all descriptors of the plan: they become -1 there. On failure the
 * caller keeps them. */
ceclResult_t cecl_links_start(struct cecl_links_plan *plan);

/* Called when a process that has leaders ends. Waits at most `wait_ms` until all ranks of each leader's host have
 * said goodbye, aborted or ended, and until the other hosts were told. */
void cecl_links_end(int wait_ms);

#endif
