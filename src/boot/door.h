/* A listener's strangers: connections that have yet to say the few bytes by which they are judged.
 *
 * Both listeners of the bootstrap (the root's on TCP, each rank's on a Unix socket) stand behind
 * one. Nobody who is silent, slow or one of many holds up another: all are read side by side, each
 * has a deadline, and everyone is heard for a while before newer ones may take his place. */
#ifndef CECL_BOOT_DOOR_H
#define CECL_BOOT_DOOR_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_DOOR_SAID_MAX 64
#define CECL_DOOR_CALLERS 512 /* at once */

/* One connection. Whoever takes it with cecl_door_next owns `fd`. */
struct cecl_caller {
    int fd;
    uint32_t got; /* bytes of `said` so far */
    int64_t since;
    uint8_t nonce[16]; /* of whoever greets */
    _Alignas(8) unsigned char said[CECL_DOOR_SAID_MAX];
};

struct cecl_door {
    int listener;
    uint32_t bytes; /* that a caller has to say */
    /* Called for a new connection; false turns it away. May send; must not wait. */
    bool (*greet)(struct cecl_caller *caller);
    int trouble; /* errno of an accept that failed for want of something; 0 since one succeeded */
    int64_t trouble_since;
    int64_t rest_until;
    int count;                   /* callers, oldest first */
    struct cecl_caller *callers; /* [CECL_DOOR_CALLERS] */
    struct pollfd *polls;        /* [CECL_DOOR_CALLERS + 1] */
};

/* Takes `listener` over, also when it fails. A zeroed door may be closed. */
ceclResult_t cecl_door_open(struct cecl_door *door, int listener, size_t bytes,
                            bool (*greet)(struct cecl_caller *caller));
/* Closes the listener and every caller that was not taken. */
void cecl_door_close(struct cecl_door *door);

/* Waits up to `wait_ms` for something to happen, then reads, drops and lets in what there is. */
void cecl_door_attend(struct cecl_door *door, int wait_ms);

/* Why nobody could be let in for a while, as an errno (descriptors, memory); 0 when all is well. */
int cecl_door_trouble(const struct cecl_door *door);

/* A caller that has said all its bytes; false when there is none (now). */
bool cecl_door_next(struct cecl_door *door, struct cecl_caller *caller);

#endif
