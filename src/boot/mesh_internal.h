/* What the mesh's files share: mesh_connect.c connects, mesh.c exchanges, mesh_post.c sends
 * and takes messages, mesh_watch.c watches. */
#ifndef CECL_BOOT_MESH_INTERNAL_H
#define CECL_BOOT_MESH_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "boot/mesh.h"

/* ms in which the reason is awaited of a peer that gives up while ranks connect */
#define MESH_REASON_MS 50

#define MESH_TEXT_BYTES 256

/* What is known of a peer's end. */
enum mesh_state { MESH_ALIVE, MESH_LEFT, MESH_ABORTED, MESH_DEAD };

/* A message on a life connection. It is always sent and received whole, because it is far smaller
 * than any socket buffer. */
enum mesh_life_kind { LIFE_GOODBYE = 1, LIFE_ABORT = 2 };
struct mesh_life {
    uint32_t kind;
    uint32_t has_word, word;   /* LIFE_GOODBYE: see cecl_mesh_last_word */
    char why[MESH_TEXT_BYTES]; /* LIFE_ABORT: who gave up first, and why: "rank 2 gave up: ..." */
};

/* A frame on a data connection, a packet: this header, and the payload or a piece of it. */
struct mesh_header {
    uint32_t magic;
    uint32_t sequence;
    uint64_t bytes; /* of the payload */
    char kind[8];
};

/* One peer's part of the current exchange. */
struct mesh_transfer {
    bool sent, received;
    struct mesh_header header; /* the peer's */
    int fd;                    /* the descriptor that came along, or -1 */
    bool fd_lost;              /* one came, and this process could have no more descriptors */
};

struct mesh_peer {
    int data, life, post;    /* connections, which keep packets' boundaries; -1: none */
    _Atomic bool post_ended; /* no further message comes by `post`; set once */
    int process;       /* a descriptor that is readable once the peer's process has ended, or -1 */
    _Atomic int state; /* enum mesh_state */
    bool has_word;     /* set before MESH_LEFT, as is `word` */
    uint32_t word;
    char why[MESH_TEXT_BYTES]; /* set with MESH_ABORTED: as in mesh_life; guarded by life_lock */
    struct mesh_transfer transfer;
};

struct cecl_mesh {
    int nranks, rank;
    int64_t timeout_ms;
    const struct cecl_oob
        *oob; /* while `joining`, then NULL; other threads read it under life_lock */
    int64_t init_deadline, init_timeout_ms; /* for all waits while `joining` */
    _Atomic bool joining; /* until cecl_mesh_joined; the thread that watches reads it, too */
    const char *activity; /* the public call that this rank is in, for messages */
    uint32_t sequence;
    int listener;        /* until the mesh is connected, or -1 */
    int interrupt_fd;    /* eventfd: ends waits for data */
    int wake_fd;         /* eventfd: makes cecl_mesh_watch return */
    int rouse_fd;        /* eventfd: makes cecl_mesh_await return */
    ceclResult_t broken; /* a frame was cut for this reason; no more exchanges are possible */
    char broken_text[CECL_MESSAGE_BYTES];
    pthread_mutex_t life_lock;
    struct pollfd *polls;      /* [2 * nranks + 1], for the thread that exchanges; allocated */
    struct pollfd *life_polls; /* [2 * nranks + 1], behind them, for the thread that watches */
    struct pollfd *post_polls; /* [nranks + 1], behind them, for the thread that takes messages */
    bool has_word;             /* `word` is the last word */
    uint32_t word;
    int take_turn;  /* the rank that cecl_mesh_take asks first */
    void *verdicts; /* [nranks], for cecl_mesh_agree */
    struct mesh_peer peers[];
};

/* mesh_connect.c: listens for the peers. */
ceclResult_t mesh_listen(struct cecl_mesh *mesh, struct cecl_invitation *mine);

/* mesh_watch.c: reads what has arrived on a peer's life connection, without waiting. Returns the
 * state after that. */
enum mesh_state mesh_read_life(struct cecl_mesh *mesh, int peer);
/* What this rank tells its peers when it gives up because of `cause`: the message of the rank that
 * gave up first, if that was another one. */
struct mesh_life mesh_abort_message(const struct cecl_mesh *mesh, const char *cause);
/* Reads from another connection of a peer why it gives up, without waiting. */
void mesh_hear_reason(struct cecl_mesh *mesh, int peer, int fd);
/* The error for the first peer that has told why it gives up; ceclSuccess when there is none. */
ceclResult_t mesh_first_reason(struct cecl_mesh *mesh);
/* The same while ranks join, and somebody has gone without a word: or else what the oob knows. */
ceclResult_t mesh_find_reason(struct cecl_mesh *mesh);
/* Notes that the peer's process has ended, even if a forked child still holds its sockets. */
void mesh_note_end(struct cecl_mesh *mesh, int peer);
/* The error for a wait that cecl_mesh_interrupt has ended. */
ceclResult_t mesh_interrupted(struct cecl_mesh *mesh);
/* The event that cecl_mesh_wake or cecl_mesh_rouse has made is heard. */
void mesh_hear_event(const struct pollfd *event);
/* The error for a peer that is not alive. */
ceclResult_t mesh_peer_error(struct cecl_mesh *mesh, int peer);
/* The error for a socket's call that failed with `error`, an errno. Only one that says that the
 * other end has closed is the peer's. `doing`: "sending to", "receiving from". */
ceclResult_t mesh_io_error(struct cecl_mesh *mesh, int peer, const char *doing, int error);

#endif
