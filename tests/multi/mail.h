/* Random messages (ceclSend and ceclRecv) on the communicators of teams.h, for tests.
 *
 * A mail is a list of messages on one communicator. All ranks draw the same list. It is an order in
 * which a program could send the messages one by one. So each rank may divide those that concern it
 * into groups as it likes, as long as it keeps the order, and no rank waits for ever. Each rank also
 * draws the memory of its buffers by itself. Every byte that a message may write is checked, and so
 * are the bytes around it. */
#ifndef CECL_TEST_MAIL_H
#define CECL_TEST_MAIL_H

#include "teams.h"

#define MAILS 3          /* at a time */
#define MAIL_MESSAGES 16 /* each with 4 ranks at most all with all */
#define MAIL_BYTES (4 << 20)

struct mail_message {
    int from, to;     /* ranks of the team; they may be the same */
    size_t bytes, at; /* `at`: in the sender's and in the receiver's part of any memory */
    uint64_t seed;
    unsigned char *in, *out; /* NULL: this rank does not send, or does not receive */
};

struct mail {
    const struct team *team;
    struct mail_message messages[MAIL_MESSAGES];
    int count, made;  /* `made`: so many have this rank's calls behind them */
    ceclComm_t owner; /* of `pool` */
    struct memory pool;
};
extern struct mail mails[MAILS];
extern uint64_t mail_sent; /* messages that this rank sent */

/* Takes memory for mails, and gives it back. `all` is a communicator of all ranks, which only serves
 * to allocate memory. */
void mail_open(ceclComm_t all);
void mail_close(void);
/* From here on `all` serves for that. */
void mail_move(ceclComm_t all);

/* Draws a mail on `team`, with its buffers. All ranks draw it. `y`: this rank's own generator. */
void mail_draw(struct mail *m, const struct team *team, uint64_t *x, uint64_t *y);

/* Makes this rank's calls of the messages before `stop` that are not made yet: in the group that is
 * open, on stream `stream` of the team; or in groups that this rank draws, and alone. Members alone
 * call. Return what the first call returned that failed. */
ceclResult_t mail_join(struct mail *m, int stop, int stream, uint64_t *y);
ceclResult_t mail_make(struct mail *m, int stop, uint64_t *y);

/* Waits for the messages. Returns what the library says of them, and checks them if that is
 * ceclSuccess. The communicator may fail meanwhile. */
ceclResult_t mail_finish(struct mail *m);
/* Frees the memory in the pool. It ends with the communicator, too. */
void mail_free(struct mail *m);
/* As mail_free, where the communicator has ended. */
void mail_forget(struct mail *m);

/* Now and then a rank has other memory than before, or none at the same address. */
void mail_renew(uint64_t *y);

#endif
