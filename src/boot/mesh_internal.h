/* What the mesh's files share: connecting (mesh_connect.c), exchanging (mesh.c), and watching
 * (mesh_watch.c). */
#ifndef CECL_BOOT_MESH_INTERNAL_H
#define CECL_BOOT_MESH_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "boot/mesh.h"

#define MESH_TEXT_BYTES 256

/* How a peer's end is known. */
enum mesh_state { MESH_ALIVE, MESH_LEFT, MESH_ABORTED, MESH_DEAD };

/* A frame on a data connection is this and then `bytes` bytes. */
struct mesh_header {
    uint32_t magic;
    uint32_t sequence;
    uint64_t bytes;
    char kind[8];
};

/* One peer's part of an exchange under way. */
struct mesh_transfer {
    size_t sent, received;     /* bytes of header and payload together */
    struct mesh_header header; /* the peer's */
    int fd;                    /* that came along, or -1 */
};

struct mesh_peer {
    int data, life;              /* sockets, or -1 (own rank) */
    int process;                 /* readable once the peer's process has ended, or -1 */
    _Atomic int state;           /* enum mesh_state */
    int origin;                  /* MESH_ABORTED: the rank that gave up first, */
    char cause[MESH_TEXT_BYTES]; /* and why; both under life_lock */
    struct mesh_transfer transfer;
};

struct cecl_mesh {
    int nranks, rank;
    int64_t timeout_ms;
    int64_t init_deadline, init_timeout_ms; /* of all waits while `joining` */
    bool joining;
    const char *activity; /* the public call that this rank is in, for messages */
    uint32_t sequence;
    _Atomic uint64_t exchanges;
    int interrupt_fd;    /* event: data waits end */
    int wake_fd;         /* event: watch returns */
    ceclResult_t broken; /* a frame was cut: nothing more can be exchanged, for this reason */
    char broken_text[CECL_MESSAGE_BYTES];
    pthread_mutex_t life_lock;
    struct pollfd *polls;      /* [nranks + 1], of the exchanging thread */
    struct pollfd *life_polls; /* [2 * nranks + 1], of the watching thread */
    int *poll_rank;            /* [nranks + 1] */
    void *verdicts;            /* [nranks], for cecl_mesh_agree */
    struct mesh_peer peers[];
};

/* mesh_connect.c: fills data and life of every peer. `local`: what this rank already failed with; it
 * takes part in the exchange all the same, for its peers wait for it. */
ceclResult_t mesh_connect(struct cecl_mesh *mesh, struct cecl_oob *oob, int64_t deadline,
                          ceclResult_t local);

/* mesh_watch.c: takes what is there on a peer's life connection; never waits. Returns the state
 * after it. */
enum mesh_state mesh_read_life(struct cecl_mesh *mesh, int peer);
void mesh_say_goodbye(struct cecl_mesh *mesh);
/* The words for a peer that is not alive, as an error. */
ceclResult_t mesh_peer_error(struct cecl_mesh *mesh, int peer);
/* The words for the first peer that aborted or died; success where there is none. */
ceclResult_t mesh_first_error(struct cecl_mesh *mesh);

#endif
