/* The mesh: as long as a communicator lives, its ranks on one host use the mesh to exchange a few bytes and
 * descriptors, and to learn of each other's ends.
 *
 * All ranks map one memory, in which each rank has a row. The row holds what the rank brings to the present exchange,
 * and whether the rank has left or given up. Descriptors, and messages about memory, come by inboxes (inbox.h). A rank
 * notices a peer's death by a descriptor of the peer's process, which the peer sends; ranks of one process need none. A
 * datagram, the bell, makes a rank's watchdog look at the rows. */
#ifndef CECL_BOOT_MESH_H
#define CECL_BOOT_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/inbox.h"
#include "boot/oob.h"

struct cecl_mesh;

/* What a rank tells the others before they connect: where it listens, and its process (util/fds.h). */
struct cecl_invitation {
    struct cecl_inbox_address at;
    uint64_t process;
};

/* If several ranks are late at a timeout, a rank does not know which is to blame. So it waits this many ms more: a late
 * rank that itself waits for a third rank soon times out too, and names the third rank (comm.h). */
#define CECL_MESH_WORD_MS 2000

/* Fails if this process may not open as many descriptors as `nranks` ranks in it need. Local. */
ceclResult_t cecl_mesh_check_limit(int nranks);

/* A memory that all ranks share, and that ranks can use even if the mesh is broken or closed. The memory has numbered
 * parts. To add a part, give it a number and a size where cecl_shared_lay_out is called. */
#define CECL_SHARED_PARTS_MAX 12
struct cecl_shared {
    char *base; /* this rank's mapping; NULL: none yet */
    size_t bytes;
    size_t offsets[CECL_SHARED_PARTS_MAX]; /* where the parts begin, each at a cache line */
};

/* Sets where parts begin. `sizes` [count <= CECL_SHARED_PARTS_MAX] has their bytes, equal on all ranks. Local. */
void cecl_shared_lay_out(const size_t *sizes, int count, struct cecl_shared *shared);
/* Where part `part` is mapped on this rank. Local. */
static inline void *cecl_shared_at(const struct cecl_shared *shared, int part)
{
    return shared->base + shared->offsets[part];
}
/* Removes this rank's mapping; the peers keep theirs. A zeroed struct may be closed. Local. */
void cecl_shared_close(struct cecl_shared *shared);

#define CECL_MEMORY_UNIT 4096u /* the size of a memory file is a multiple of this */
/* Makes a file in memory, to which processes may append. The file is sealed, so no rank can remove pages that another
 * one has mapped. Rounds *bytes up. Local. */
ceclResult_t cecl_memory_make(size_t *bytes, int *fd);

/* Makes this rank's mesh, and listens for its peers from here on. Rank 0 makes the memory. Local.
 *
 * oob           until cecl_mesh_joined, oob's deadline ends the waits of all calls
 * timeout_ms    limit of each wait after that, in ms; 0 or less: no limit
 * shared_bytes  bytes of the memory besides what the mesh needs
 * invitation    [out] what this rank must tell the peers. Its `process` is set even on failure */
ceclResult_t cecl_mesh_new(const struct cecl_oob *oob, int64_t timeout_ms, size_t shared_bytes,
                           struct cecl_invitation *invitation, struct cecl_mesh **mesh);

/* Connects all ranks, which have told each other their invitations. Collective.
 *
 * invitations  rank r's invitation begins `apart` * r bytes after `invitations`
 * shared       [in, out] its memory is mapped here, zeroed; no rank can make it smaller. NULL: not needed
 *
 * After a failure cecl_mesh_tell_abort tells the peers why. A rank that has not received the memory yet can tell
 * nothing; its peers only notice that it has left. */
ceclResult_t cecl_mesh_connect(struct cecl_mesh *mesh, const void *invitations, size_t apart,
                               struct cecl_shared *shared);

/* The file of the shared memory, once ranks are connected. What ranks append to the file begins at *start. Local. */
int cecl_mesh_memory(const struct cecl_mesh *mesh, size_t *start);
/* Ends the joining; called when the communicator is made, or given up. Local. */
void cecl_mesh_joined(struct cecl_mesh *mesh);
/* Names the public call that this rank is in, for messages. The pointer is kept. Local. */
void cecl_mesh_activity(struct cecl_mesh *mesh, const char *call);
/* Whether an exchange has failed midway, so that no further one can succeed. Local. */
bool cecl_mesh_broken(const struct cecl_mesh *mesh);

/* Says goodbye to the peers, so that they do not take this rank for dead when its process ends. Local. `epoch` is the
 * main lane's last epoch, or NULL. */
void cecl_mesh_say_goodbye(struct cecl_mesh *mesh, const uint32_t *epoch);
/* Says goodbye, closes and frees. NULL has no effect. Local. */
void cecl_mesh_close(struct cecl_mesh *mesh);

/* All-gathers `bytes` bytes of each rank. Collective, blocking; one thread at a time.
 *
 * kind  at most 7 characters, sent along. If ranks are in different exchanges, they get ceclInvalidUsage with a
 *       message that names both kinds
 * recv  [nranks * bytes] in rank order, including this rank's bytes
 *
 * ceclTimeout at the deadline. ceclRemoteError if a peer has gone; the message names the peer. */
ceclResult_t cecl_mesh_allgather(struct cecl_mesh *mesh, const char *kind, const void *send,
                                 void *recv, size_t bytes);

/* Succeeds on all ranks if `mine` is ceclSuccess on all. Otherwise all fail with the result and the message, "rank R:
 * ...", of the first rank whose `mine` is an error. Collective. */
ceclResult_t cecl_mesh_agree(struct cecl_mesh *mesh, ceclResult_t mine);

/* Sends `fd` to the peers in other processes and receives theirs. fds[r] is a copy of rank r's descriptor, or, for a
 * rank of this process, that descriptor itself. So a rank keeps its own descriptor open until all have agreed that they
 * are done (cecl_mesh_agree). But a rank that fails may close it earlier, and the number may then be another file's: so
 * after each use ask cecl_mesh_fd_is_gone. On failure no copy is left open. Collective. */
ceclResult_t cecl_mesh_exchange_fd(struct cecl_mesh *mesh, int fd, int *fds);
bool cecl_mesh_fd_is_gone(const struct cecl_mesh *mesh, int peer);
/* cecl_mesh_close_fd closes this rank's own descriptor (-1: none), cecl_mesh_drop_fds the copies. Local. */
void cecl_mesh_close_fd(struct cecl_mesh *mesh, int fd);
void cecl_mesh_drop_fds(const struct cecl_mesh *mesh, int *fds);

/* How many exchanges there were. An all-gather is one exchange for each KiB; agreements and exchanges of descriptors
 * use all-gathers. */
uint64_t cecl_mesh_exchanges(const struct cecl_mesh *mesh);

/* -- messages to one peer, also while an exchange runs -- */

/* Sends a message to `peer`, whole or not at all. Messages to a peer arrive in order. One thread at a time posts.
 * Local.
 *
 * bytes     at most CECL_INBOX_BYTES; a message may have 0 bytes
 * fds       [nfds] descriptors to send along, at most CECL_INBOX_FDS; the caller keeps them
 * deadline  limits the wait while the peer's queue is full
 *
 * ceclTimeout at the deadline. ceclRemoteError when the peer has gone, or after cecl_mesh_interrupt. */
ceclResult_t cecl_mesh_post(struct cecl_mesh *mesh, int peer, const void *message, size_t bytes,
                            const int *fds, int nfds, int64_t deadline);

/* Takes the first message that has arrived, from any peer, without waiting. One thread at a time takes. Local. `room`
 * bytes fit at `message`; a longer message is lost. Returns ceclInProgress if there is no message, and ceclSystemError
 * as cecl_inbox_take does. */
ceclResult_t cecl_mesh_take(struct cecl_mesh *mesh, void *message, size_t room,
                            struct cecl_letter *letter);

/* Waits until wait_ms have passed, cecl_mesh_rouse is called or, if for_messages, a message comes. Returns whether
 * cecl_mesh_take may find a message. Only the thread that takes messages calls this. Local. */
bool cecl_mesh_await(struct cecl_mesh *mesh, bool for_messages, int wait_ms);
void cecl_mesh_rouse(struct cecl_mesh *mesh);

/* -- news of peers. Any thread may call these functions while another thread is in a call above. -- */

/* Waits up to wait_ms (or until cecl_mesh_wake) for news. ceclSuccess: no news, or only goodbyes.
 * ceclRemoteError: a peer died or aborted; cecl_message() names it. One thread at a time. */
ceclResult_t cecl_mesh_watch(struct cecl_mesh *mesh, int wait_ms);
void cecl_mesh_wake(struct cecl_mesh *mesh);
/* Looks for news without waiting; results as for cecl_mesh_watch. If a peer gives up and then writes to this rank's
 * memory, a thread that has seen the write also finds the news. */
ceclResult_t cecl_mesh_news(struct cecl_mesh *mesh);
/* Fails with ceclRemoteError if `peer` has died or has left. Succeeds if `peer` gave up but has not left, or is this
 * rank. */
ceclResult_t cecl_mesh_check_peer(struct cecl_mesh *mesh, int peer);
/* Whether `peer` has said goodbye. cecl_mesh_left_with: only if the goodbye has an epoch, to which it sets *epoch. */
bool cecl_mesh_left(struct cecl_mesh *mesh, int peer);
bool cecl_mesh_left_with(struct cecl_mesh *mesh, int peer, uint32_t *epoch);
/* Tells all peers that this rank gives up, and why. Never blocks, and may not reach all peers. */
void cecl_mesh_tell_abort(struct cecl_mesh *mesh, const char *cause);
/* Ends the waits of this rank's other threads in exchanges and posts, with ceclRemoteError. */
void cecl_mesh_interrupt(struct cecl_mesh *mesh);

#endif
