/* What the root's files share: tcp_root.c lets ranks in and ends the job, tcp_rounds.c serves their
 * all-gathers. Internal to src/boot. */
#ifndef CECL_BOOT_TCP_ROOT_H
#define CECL_BOOT_TCP_ROOT_H

#include "boot/door.h"
#include "boot/rank_list.h"
#include "boot/tcp.h"

struct seat {
    int fd;
    int process;  /* watches the rank's process, or -1 */
    size_t got;   /* how many bytes of the current request, header and part, have been received */
    size_t taken; /* bytes of the reply sent so far */
    struct cecl_tcp_request request;
};

struct root {
    struct cecl_door door;
    uint8_t secret[16];
    int64_t timeout_ms;
    /* ms: the shortest time that the root or any rank waits in all, for messages */
    int64_t bound_ms;
    int64_t deadline; /* end of the current wait */
    int64_t patience; /* the time at which the first rank gives up */
    int nranks, joined;
    int expected;       /* the largest nranks that any rank has sent */
    int told;           /* number of ranks that came after the job had failed and were told why */
    struct seat *seats; /* [nranks], allocated when the first rank comes */
    char *reply;        /* the last reply: header and all parts */
    size_t reply_bytes;
    char *next; /* the reply that is being made, from the first request of a round on */
    size_t part_bytes;
    int beginner;        /* the rank whose request was the first */
    ceclResult_t failed; /* not ceclSuccess: the job is over, with `words` as the message */
    char words[CECL_MESSAGE_BYTES];
};

/* tcp_root.c: fails the job with the message that was recorded last. Every rank that has joined is
 * told, except those in the middle of a reply. Ranks that come later are told for a while. */
void root_fail_job(struct root *root, ceclResult_t status);
/* Closes a rank's connection. */
void root_vacate(struct seat *seat);
/* Fails the job because its time is up. The message has the number of ranks that are in time
 * (`count`), and names those for which `is_late` holds. */
void root_name_late(struct root *root, int count, const char *did,
                    bool (*is_late)(const struct seat *seat));

/* tcp_rounds.c: serves all-gathers until every rank has closed, or the job has failed. First it
 * tells the ranks that all have joined. */
void root_serve_rounds(struct root *root);

#endif
