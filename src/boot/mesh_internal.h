/* What the mesh's files share. mesh.c makes the mesh, and sends and takes messages; mesh_rows.c exchanges; mesh_news.c
 * watches. */
#ifndef CECL_BOOT_MESH_INTERNAL_H
#define CECL_BOOT_MESH_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "boot/mesh.h"
#include "boot/rank_list.h"

#define MESH_TEXT_BYTES 256
#define MESH_PIECE_BYTES 1024 /* the most bytes that a rank brings to one exchange */

/* A rank's sockets: two inboxes (one for descriptors of exchanges, one for messages) and the bell. */
#define MESH_EXCHANGE 'x'
#define MESH_POST 'p'
#define MESH_BELL 'b'

/* Whether and how a peer has ended. No row says MESH_DEAD: a peer's death shows by the descriptor of its process. */
enum mesh_state { MESH_ALIVE, MESH_LEFT, MESH_ABORTED, MESH_DEAD };

/* What a rank brings to an exchange: all of its bytes, or a piece of them. */
struct mesh_slot {
    uint64_t bytes; /* of all pieces together */
    char kind[8];
    char piece[MESH_PIECE_BYTES];
};

/* A rank's row in the memory that all ranks map. Only that rank writes the row: first plain fields, then the atomic
 * word that publishes them. Exchanges alternate between the two slots. Two slots are enough: each exchange waits for
 * all ranks, so a rank is at most one exchange ahead of others. */
struct mesh_row {
    _Alignas(64) _Atomic uint32_t came; /* a futex: to how many exchanges the rank has come */
    _Atomic uint32_t state;             /* enum mesh_state; it changes once, from MESH_ALIVE */
    _Atomic uint32_t gone;              /* the rank has said goodbye, perhaps after it gave up */
    uint32_t has_epoch, epoch;          /* valid once `state` is MESH_LEFT */
    _Atomic int fd; /* an exchange's descriptor, for peers in this process; -1: closed again */
    /* valid once `state` is MESH_ABORTED: the rank that gave up first, and why: "rank 2 gave up: ..." */
    char why[MESH_TEXT_BYTES];
    struct mesh_slot slots[2];
};

/* An exchange of descriptors with the peers in other processes. */
struct mesh_fds {
    uint32_t number;
    int count, *of; /* how many descriptors have not come; of: [nranks] those that have, or -1 */
    struct cecl_vote failed; /* the first error while this rank took descriptors */
};

struct mesh_peer {
    struct cecl_invitation invitation;
    _Atomic bool has_died;
};

struct cecl_mesh {
    int nranks, rank;
    int64_t timeout_ms;
    int64_t init_deadline, init_timeout_ms; /* the limit of all waits while `joining` */
    _Atomic bool joining;                   /* true until cecl_mesh_joined */
    const char *activity;                   /* the public call that this rank is in, for messages */
    uint32_t sequence;                      /* exchanges so far */
    int last_looked;                        /* the rank at which look_for_leaver looked last */
    struct mesh_row *rows;                  /* [nranks], shared; NULL: not mapped yet */
    size_t memory_bytes;                    /* the size of the shared memory when it is made */
    int memory, self; /* descriptors of the shared memory, and of this process until sent; or -1 */
    struct cecl_inbox exchange; /* used by the thread that exchanges */
    struct mesh_fds *fds;       /* of an exchange of descriptors; NULL: none is in progress */
    struct cecl_inbox post;     /* used by the thread that takes messages */
    int bell;                   /* datagrams make cecl_mesh_watch return */
    int rouse_fd;               /* eventfd: makes cecl_mesh_await return */
    int life; /* if pidfd_open is refused: a pipe's end that closes with this process; or -1 */
    _Atomic bool interrupted; /* waits of exchanges and posts must end */
    struct cecl_vote
        broken; /* why an exchange failed midway, if one did; then no more exchanges are possible */
    pthread_mutex_t lock;    /* held while this rank writes into its row why it gives up */
    struct pollfd *polls;    /* [nranks + 1], for the thread that watches */
    struct cecl_vote *votes; /* [nranks], for cecl_mesh_agree */
    /* [nranks] descriptors that become readable once the peer's process has ended; -1: the peer is in this process, or
     * has not sent its descriptor yet */
    int *processes;
    struct mesh_peer peers[];
};

/* mesh_rows.c: the size of all rows, in bytes, rounded up to whole pages. */
size_t mesh_rows_bytes(int nranks);
/* mesh_rows.c: begin and end an exchange of descriptors. Between the two calls a rank takes what others send.
 * mesh_end_fds sends `fd` if `before` is ceclSuccess; otherwise it returns `before`. */
void mesh_begin_fds(struct cecl_mesh *mesh, struct mesh_fds *fds, int *of);
ceclResult_t mesh_end_fds(struct cecl_mesh *mesh, int fd, ceclResult_t before);
/* mesh_rows.c: takes the descriptors that have come. */
void mesh_take_fds(struct cecl_mesh *mesh);

/* mesh.c: sends a message to an inbox of a peer. Waits while the inbox is full. */
ceclResult_t mesh_send(struct cecl_mesh *mesh, int peer, char kind, const void *message,
                       size_t bytes, const int *fds, int nfds, int64_t deadline);
/* mesh.c: whether a peer is in another process than this rank. */
bool mesh_is_elsewhere(const struct cecl_mesh *mesh, int peer);
/* mesh.c: fails if a peer's socket is gone: the peer has ended, or left before it could say so in its row. */
ceclResult_t mesh_check_joining(struct cecl_mesh *mesh, int peer);
/* mesh.c: the deadline of a wait that begins now. */
int64_t mesh_deadline(struct cecl_mesh *mesh);

/* mesh_news.c: looks whether a peer has ended. */
enum mesh_state mesh_look(struct cecl_mesh *mesh, int peer);
/* The error for a peer that is not alive. */
ceclResult_t mesh_peer_error(struct cecl_mesh *mesh, int peer);
/* The error for a wait that cecl_mesh_interrupt has ended. */
ceclResult_t mesh_interrupted(struct cecl_mesh *mesh);

#endif
