/* What the mesh's files share: mesh_connect.c connects, mesh.c exchanges, mesh_post.c sends
 * and takes messages, mesh_watch.c watches. mesh_hosts.c connects hosts, and mesh_away.c exchanges
 * messages with ranks of other hosts. */
#ifndef CECL_BOOT_MESH_INTERNAL_H
#define CECL_BOOT_MESH_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "boot/links.h"
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

/* A frame of a rank of another host that arrived before this rank's exchange began. A rank is at most one
 * frame ahead. */
struct mesh_early {
    bool is_last; /* the rank's last word came on the line of frames, so no more frames come */
    size_t bytes; /* 0: none */
    char frame[sizeof(struct mesh_header) + CECL_PACKET_BODY];
};

/* Where a rank takes connections of other hosts: links while ranks join, and later for a meeting. */
struct mesh_door {
    struct cecl_address at;
    uint8_t secret[16];
};

/* What only a mesh over several hosts has. */
struct mesh_hosts {
    int leader;
    uint16_t *host;               /* [nranks] */
    struct mesh_door *doors;      /* [nranks] */
    int line[CECL_LINES_OF_RANK]; /* to the leader's thread, or -1 */
    bool is_sent;                 /* the frame of the current exchange is sent */
    _Atomic bool life_ended;      /* the life line was read to its end */
    struct mesh_early *early;     /* [nranks] */
    _Atomic uint64_t *calls;      /* [nranks] see cecl_mesh_call_of */
    /* -- in a leader, until its thread owns them -- */
    int (*lines)[CECL_LINES_OF_RANK]; /* [nranks] the thread's ends of the lines */
    int *links;                       /* [nranks] by host */
};

struct mesh_peer {
    int data, life, post;    /* the three sockets, which keep packets' boundaries; -1: none */
    _Atomic bool post_ended; /* no further message comes by `post`; set once */
    int process;             /* readable once the peer's process has ended (a pidfd), or -1 */
    _Atomic int state;       /* enum mesh_state */
    bool has_words;          /* set before MESH_LEFT, as `words` is */
    struct cecl_mesh_goodbye words;
    /* for a rank of another host in MESH_ABORTED: it has ended since, or cannot be reached */
    _Atomic int has_gone;
    _Atomic bool is_cut_off;
    /* set with MESH_ABORTED, as in struct mesh_life; guarded by life_lock */
    char why[MESH_TEXT_BYTES];
    struct mesh_transfer transfer;
};

struct cecl_mesh {
    int nranks, rank;
    int64_t timeout_ms;
    /* while `joining`, then NULL; other threads read it under life_lock */
    const struct cecl_oob *oob;
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
    /* [2 * nranks + 3], for the thread that exchanges; start of the allocation */
    struct pollfd *polls;
    struct pollfd *life_polls; /* [2 * nranks + 2], behind `polls`, for the thread that watches */
    /* [nranks + 1], behind `life_polls`, for the thread that takes messages */
    struct pollfd *post_polls;
    bool has_left;  /* the goodbye was said; only the thread that ends the mesh says it */
    bool has_words; /* whether `words` were set */
    struct cecl_mesh_goodbye words;
    int take_turn;          /* the rank that cecl_mesh_take asks first */
    void *verdicts;         /* [nranks], for cecl_mesh_agree */
    struct cecl_address at; /* the address at which other hosts reach this rank */
    int reach_fd; /* listens for other hosts; -1: ranks are on one host, or cannot be reached */
    struct mesh_hosts *hosts; /* NULL: all ranks are on one host */
    /* memory for `hosts`, until it is known whether it is needed; or NULL */
    struct mesh_hosts *room;
    struct mesh_peer peers[];
};

/* mesh_connect.c: listens for the peers. */
ceclResult_t mesh_listen(struct cecl_mesh *mesh, struct cecl_invitation *mine);

#define MESH_FRAME_MAGIC 0x6365636cu
/* mesh_frame.c: whether the peer's frame belongs to the same exchange as ours. */
bool mesh_frame_matches(const struct mesh_header *theirs, const struct mesh_header *ours);
/* Checks a frame of which `got` bytes were received. `is_long`: it had more bytes. */
ceclResult_t mesh_judge_frame(int rank, const struct mesh_exchange *x, struct mesh_transfer *t,
                              size_t got, bool is_long);
/* Takes a peer's frame of `bytes` bytes at `packet`. */
ceclResult_t mesh_take_frame(struct cecl_mesh *mesh, int rank, const struct mesh_exchange *x,
                             const char *packet, size_t bytes);

/* mesh_connect.c: the channels of connections. */
#define MESH_CHANNELS 3 /* connections to each peer: data, life, post */
#define MESH_REASON 3 /* the channel of a connection over which a rank only says why it gives up */
#define MESH_LINES 4  /* the first channel of lines to the leader */
/* mesh_hosts.c: where a leader keeps its end of a line of `rank`. NULL: this rank is not a leader, or
 * `channel` is not a line. */
int *mesh_line_place(struct cecl_mesh *mesh, int rank, int channel);
/* How many connections for lines this rank expects. */
int mesh_lines_awaited(const struct cecl_mesh *mesh);
/* In the leader: connects it to the other leaders, and starts the thread that passes messages on.
 * invited  returns a rank's invitation
 * go_on    called during the wait; an error ends it. is_long: the wait has lasted for MESH_LONG_MS */
struct mesh_calls {
    const void *context;
    const struct cecl_invitation *(*invited)(const void *context, int rank);
    ceclResult_t (*go_on)(struct cecl_mesh *mesh, bool is_long);
};
ceclResult_t mesh_connect_hosts(struct cecl_mesh *mesh, const struct mesh_calls *calls);
/* Tells the other leaders why this host gives up, before this leader's thread runs. Best effort; at most
 * 500 ms for each leader. */
void mesh_hosts_give_up(struct cecl_mesh *mesh, const struct mesh_calls *calls,
                        const struct mesh_life *reason);
void mesh_hosts_close(struct cecl_mesh *mesh);

/* mesh_away.c: frames of ranks of other hosts. These functions do not wait. mesh_away_begin takes the
 * frames that arrived early. */
ceclResult_t mesh_away_begin(struct cecl_mesh *mesh, const struct mesh_exchange *x);
ceclResult_t mesh_away_move(struct cecl_mesh *mesh, const struct mesh_exchange *x);
/* Fills in the polls of both lines: frames, life. If all ranks are on one host, both are empty. */
void mesh_away_polls(const struct cecl_mesh *mesh, struct pollfd *polls);
struct pollfd mesh_away_life_poll(const struct cecl_mesh *mesh);
/* Sends news to ranks of other hosts, and reads theirs. */
void mesh_away_tell(struct cecl_mesh *mesh, const struct mesh_life *message);
void mesh_away_hear(struct cecl_mesh *mesh);

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
/* A door at which peers may call to tell why they give up. */
struct cecl_door;
struct mesh_attended {
    void (*attend)(struct cecl_mesh *mesh, const void *context, struct cecl_door *door,
                   int wait_ms);
    const void *context;
    struct cecl_door *door;
};
/* Attends a door for at most `ms`. If a peer tells a reason, or the oob knows one, returns the error with that
 * reason. Otherwise returns `known`, whose message is the last one. */
ceclResult_t mesh_await_reason(struct cecl_mesh *mesh, ceclResult_t known,
                               const struct mesh_attended *at, int ms);
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
