/* What the mesh's files share: mesh_connect.c connects, mesh.c exchanges, mesh_post.c sends
 * and takes messages, mesh_watch.c watches. */
#ifndef CECL_BOOT_MESH_INTERNAL_H
#define CECL_BOOT_MESH_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "boot/mesh.h"

/* ms to wait for the reason of a peer that gives up while ranks connect */
#define MESH_REASON_MS 50

/* ms after which ranks that do not come may have failed elsewhere */
#define MESH_LONG_MS 1000

#define MESH_TEXT_BYTES 256

/* Whether and how a peer has ended. */
enum mesh_state { MESH_ALIVE, MESH_LEFT, MESH_ABORTED, MESH_DEAD };

/* A message on a life connection. It is always sent and received whole, because it is far smaller
 * than any socket buffer. */
enum mesh_life_kind { LIFE_GOODBYE = 1, LIFE_ABORT = 2 };
struct mesh_life {
    uint32_t kind;
    uint32_t has_words; /* LIFE_GOODBYE: whether `words` were set */
    struct cecl_mesh_goodbye words;
    /* LIFE_ABORT: the rank that gave up first, and why: "rank 2 gave up: ..." */
    char why[MESH_TEXT_BYTES];
};

/* The header of a frame. A frame is one packet on a data connection: the header, then the payload
 * or a piece of it. */
struct mesh_header {
    uint32_t magic;
    uint32_t sequence;
    uint64_t bytes; /* of the payload */
    char kind[8];
};

/* One peer's part of the current exchange. */
struct mesh_transfer {
    bool sent, received;
    struct mesh_header header; /* the header of the peer's frame */
    int fd;                    /* the descriptor that came along, or -1 */
    bool fd_lost; /* a descriptor came, but this process had reached its limit of descriptors */
};

/* This rank's frame of an exchange, and where the peers' payloads go. */
struct mesh_exchange {
    struct mesh_header header; /* the header of this rank's frame */
    const char *send;          /* the payload of this rank's frame */
    char *recv;                /* the payload of rank r goes to recv + header.bytes * r */
    /* bytes of the payload that this frame has: all of header.bytes, or a piece */
    size_t bytes;
    int fd; /* a descriptor to send along, or -1 */
};

struct mesh_peer {
    int data, life, post;    /* the three sockets, which keep packets' boundaries; -1: none */
    _Atomic bool post_ended; /* no further message comes by `post`; set once */
    int process;             /* readable once the peer's process has ended (a pidfd), or -1 */
    _Atomic int state;       /* enum mesh_state */
    bool has_words;          /* set before MESH_LEFT, as `words` is */
    struct cecl_mesh_goodbye words;
    /* set with MESH_ABORTED, as in struct mesh_life; guarded by life_lock */
    char why[MESH_TEXT_BYTES];
    struct mesh_transfer transfer;
};

struct cecl_mesh {
    int nranks, rank;
    int64_t timeout_ms;
    int64_t init_deadline, init_timeout_ms; /* for all waits while `joining` */
    _Atomic bool joining;                   /* until cecl_mesh_joined; the watchdog reads it, too */
    const char *activity;                   /* the public call that this rank is in, for messages */
    uint32_t sequence;
    int listener;        /* listens until the mesh is connected; or -1 */
    int interrupt_fd;    /* eventfd: ends waits for data */
    int wake_fd;         /* eventfd: makes cecl_mesh_watch return */
    int rouse_fd;        /* eventfd: makes cecl_mesh_await return */
    ceclResult_t broken; /* why an exchange failed midway; no more exchanges are possible then */
    char broken_text[CECL_MESSAGE_BYTES];
    pthread_mutex_t life_lock;
    /* [2 * nranks + 1], for the thread that exchanges; start of the allocation */
    struct pollfd *polls;
    struct pollfd *life_polls; /* [2 * nranks + 1], behind `polls`, for the thread that watches */
    /* [nranks + 1], behind `life_polls`, for the thread that takes messages */
    struct pollfd *post_polls;
    bool has_left;  /* the goodbye was said; only the thread that ends the mesh says it */
    int take_turn;  /* the rank that cecl_mesh_take asks first */
    void *verdicts; /* [nranks], for cecl_mesh_agree */
    struct mesh_peer peers[];
};

/* mesh_connect.c: listens for the peers. */
ceclResult_t mesh_listen(struct cecl_mesh *mesh, struct cecl_invitation *mine);

/* mesh_connect.c: the channels of connections. */
#define MESH_CHANNELS 3 /* connections to each peer: data, life, post */
#define MESH_REASON 3 /* the channel of a connection over which a rank only says why it gives up */

/* mesh_watch.c: notes what a message of `got` bytes says about a peer that was alive. Returns false if the
 * message is invalid. The caller holds life_lock. */
bool mesh_note(struct mesh_peer *peer, const struct mesh_life *message, ssize_t got);
/* mesh_watch.c: reads what has arrived on a peer's life connection, without waiting. Returns the
 * peer's state. */
enum mesh_state mesh_read_life(struct cecl_mesh *mesh, int peer);
/* The message to peers when this rank gives up because of `cause`: its own message, or that of the
 * rank that gave up first. */
struct mesh_life mesh_abort_message(const struct cecl_mesh *mesh, const char *cause);
/* Reads why a peer gives up, from the connection `fd` that the peer made to say so. Waits at most
 * MESH_REASON_MS. */
void mesh_hear_reason(struct cecl_mesh *mesh, int peer, int fd);
/* The error for the first peer that has told why it gives up; ceclSuccess if there is none. */
ceclResult_t mesh_first_reason(struct cecl_mesh *mesh);
/* Notes that the peer's process has ended, even if a child still holds its sockets. */
void mesh_note_end(struct cecl_mesh *mesh, int peer);
/* The error for a wait that cecl_mesh_interrupt has ended. */
ceclResult_t mesh_interrupted(struct cecl_mesh *mesh);
/* Clears the event of cecl_mesh_wake or cecl_mesh_rouse. */
void mesh_hear_event(const struct pollfd *event);
/* The error for a peer that is not alive. */
ceclResult_t mesh_peer_error(struct cecl_mesh *mesh, int peer);
/* The error for a socket call that failed with `error`, an errno. It is a remote error only if
 * `error` says that the other end has closed. `doing`: "sending to", "receiving from". */
ceclResult_t mesh_io_error(struct cecl_mesh *mesh, int peer, const char *doing, int error);

#endif
