/* The door: a listener and its callers. Callers are connections that must send a few bytes to be
 * admitted.
 *
 * Both listeners of the bootstrap (the root's on TCP and each rank's on a Unix socket) use one. A
 * caller that is silent, slow or one of very many must not hold up the others. So all are read side
 * by side, each has a deadline, and each is heard for a while before a newer one may take its
 * place. Callers use at most half of the process's descriptors. */
#ifndef CECL_BOOT_DOOR_H
#define CECL_BOOT_DOOR_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_DOOR_CALLERS 4096 /* at a time, where descriptors suffice */

/* One connection. The function that takes it with cecl_door_next owns `fd`. */
struct cecl_caller {
    int fd;
    uint32_t got; /* bytes of `said` received so far */
    int64_t since;
    uint8_t nonce[16];   /* for whoever greets callers with a nonce */
    unsigned char *said; /* [bytes] the door's */
};

struct cecl_door {
    int listener;
    uint32_t bytes; /* number of bytes that a caller must send */
    /* Called for a new connection; false turns it away. It may send but must not wait. NULL:
     * none. */
    bool (*greet)(struct cecl_caller *caller);
    /* Called before a caller is dropped for a newer one: tells the caller to come again. It may
     * send but must not wait. NULL (as cecl_door_open leaves it): callers cannot come again, so
     * each is heard for longer. */
    void (*put_off)(const struct cecl_caller *caller);
    /* errno of an accept that failed for lack of resources; 0 once one has succeeded */
    int trouble;
    int64_t trouble_since;
    int64_t rest_until;
    int room;  /* most callers at a time */
    int count; /* number of callers; they stand oldest first */
    /* [room]; entries from `count` on only hold a place in `said` */
    struct cecl_caller *callers;
    unsigned char *said;  /* [room * bytes] */
    struct pollfd *polls; /* [room + 1] */
};

/* Takes `listener` over, also on failure. A zeroed door may be closed. */
ceclResult_t cecl_door_open(struct cecl_door *door, int listener, size_t bytes,
                            bool (*greet)(struct cecl_caller *caller));
/* Closes the listener and every caller that was not taken. */
void cecl_door_close(struct cecl_door *door);
/* The same, but the listener stays open, and is returned. Callers may wait in its queue. */
int cecl_door_leave(struct cecl_door *door);

/* Waits up to `wait_ms` for an event. Then reads from callers, drops some, and accepts new ones. */
void cecl_door_attend(struct cecl_door *door, int wait_ms);

/* Why no caller could be accepted for a while, as an errno (descriptors, memory); 0: no trouble. */
int cecl_door_trouble(const struct cecl_door *door);

/* Hands over a caller that has sent all its bytes, which stay until cecl_door_attend. Returns false when
 * there is none now. */
bool cecl_door_next(struct cecl_door *door, struct cecl_caller *caller);

#endif
