/* The door: a listener and its callers. Callers are connections that must send a few bytes to be
 * admitted.
 *
 * The root of the TCP bootstrap has one. A caller that is silent, slow or one of very many must not hold up
 * the others. So all are read at the same time, each has a deadline, and a newer caller may replace one only
 * after it has had some time. Callers use at most half of the process's descriptors. */
#ifndef CECL_BOOT_DOOR_H
#define CECL_BOOT_DOOR_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_DOOR_CALLERS 4096 /* most callers at a time, if there are enough descriptors */

/* One connection. The function that gets it from cecl_door_next owns `fd`. */
struct cecl_caller {
    int fd;
    uint32_t got; /* bytes of `said` received so far */
    int64_t since;
    uint8_t nonce[16];   /* for a `greet` that sends a nonce */
    unsigned char *said; /* [bytes] belongs to the door */
};

struct cecl_door {
    int listener;
    uint32_t bytes; /* number of bytes that a caller must send */
    /* Called for a new connection. May send but must not wait. Returns false to turn the caller away. */
    bool (*greet)(struct cecl_caller *caller);
    /* Called before a caller is dropped for a newer one, or because it was silent for too long: tells the caller
     * to connect again. May send but must not wait. */
    void (*put_off)(const struct cecl_caller *caller);
    /* errno of the last accept, if it failed for lack of descriptors or memory; 0: it succeeded */
    int trouble;
    int64_t trouble_since;
    int64_t rest_until;
    int64_t looked; /* when callers were last heard */
    int room;       /* most callers at a time */
    int count;      /* number of callers; the list begins with the oldest */
    /* [room]; entries from `count` on have only their place in `said` */
    struct cecl_caller *callers;
    unsigned char *said;  /* [room * bytes] */
    struct pollfd *polls; /* [room + 1] */
};

/* The door owns `listener` from here on, also on failure. A zeroed door may be closed. */
ceclResult_t cecl_door_open(struct cecl_door *door, int listener, size_t bytes,
                            bool (*greet)(struct cecl_caller *caller),
                            void (*put_off)(const struct cecl_caller *caller));
/* Closes the listener and every caller that was not taken. */
void cecl_door_close(struct cecl_door *door);

/* Waits up to `wait_ms` for an event. Then reads from callers, drops some, and accepts new ones. */
void cecl_door_attend(struct cecl_door *door, int wait_ms);

/* If no caller could be accepted for a while, returns why, as an errno (descriptors, memory); otherwise 0. */
int cecl_door_trouble(const struct cecl_door *door);

/* Hands over a caller that has sent all its bytes, which stay valid until cecl_door_attend. Returns false
 * if there is no such caller. */
bool cecl_door_next(struct cecl_door *door, struct cecl_caller *caller);

#endif
