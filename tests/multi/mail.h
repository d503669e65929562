/* Random messages (ceclSend and ceclRecv) on the communicators of teams.h.
 *
 * A mail is a list of messages on one communicator; all ranks draw the same list. Sent one by one in this order, the
 * messages do not deadlock. So a rank may divide its own messages into groups in any way that keeps the order. Each rank
 * draws the memory of its own buffers. Tests check every byte that a message may write, and the bytes around it. */
#ifndef CECL_TEST_MAIL_H
#define CECL_TEST_MAIL_H

#include "teams.h"

#define MAILS 3          /* mails at a time */
#define MAIL_MESSAGES 16 /* enough for 4 ranks that all send to each other */
#define MAIL_BYTES (4 << 20)

struct mail_message {
    int from, to;     /* ranks of the team; may be equal */
    size_t bytes, at; /* at: its offset in the mail's memory, at both ends */
    uint64_t seed;
    unsigned char *in, *out; /* what this rank sends, and receives; NULL: nothing */
};

struct mail {
    const struct team *team;
    struct mail_message messages[MAIL_MESSAGES];
    int count, made;  /* the messages before `made` need no more calls of this rank */
    ceclComm_t owner; /* the communicator that owns `pool` */
    struct memory pool;
};
extern struct mail mails[MAILS];
extern uint64_t mail_sent; /* messages that this rank sent */

/* mail_open allocates memory for mails by `all`, a communicator of all ranks; mail_close frees it. */
void mail_open(ceclComm_t all);
void mail_close(void);
/* From now on `all` allocates memory. */
void mail_move(ceclComm_t all);

/* Draws a mail on `team`, with its buffers. All ranks draw it. y: this rank's own generator. */
void mail_draw(struct mail *m, const struct team *team, uint64_t *x, uint64_t *y);

/* Makes this rank's calls for the messages before `stop` that are not made yet: mail_join adds them to the open group,
 * on stream number `stream` of the team; mail_make draws groups and single calls. Only members call. Returns the first
 * error. */
ceclResult_t mail_join(struct mail *m, int stop, int stream, uint64_t *y);
ceclResult_t mail_make(struct mail *m, int stop, uint64_t *y);

/* Waits for the messages. Returns the result; after ceclSuccess, checks the data. The communicator may fail meanwhile. */
ceclResult_t mail_finish(struct mail *m);
/* Frees the mail's memory in the pool, before the communicator ends. */
void mail_free(struct mail *m);
/* Used instead of mail_free once the communicator has ended. */
void mail_forget(struct mail *m);

/* Sometimes replaces this rank's memory by other memory, or frees it. */
void mail_renew(uint64_t *y);

#endif
