/* The lasting connections among the ranks of one host: Unix sockets between every pair.
 *
 * They carry the small all-gathers of the rendezvous, descriptors of memory (SCM_RIGHTS), and the
 * news that a peer left, died or
 * aborted. Names are abstract and hold a random secret; a connection is taken only from the
 * expected rank, with its secret and our user id. */
#ifndef CECL_BOOT_MESH_H
#define CECL_BOOT_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/oob.h"

struct cecl_mesh;

/* Collective. Connects all ranks of `oob`, which may be closed afterwards. Every wait ends at
 * `deadline` (cecl_deadline), also those of other calls until cecl_mesh_joined.
 * timeout_ms  bound of the waits after that; 0 or less: none. */
ceclResult_t cecl_mesh_open(struct cecl_oob *oob, int64_t deadline, int64_t timeout_ms,
                            struct cecl_mesh **mesh);

/* Local. Hears of peers' ends from now on even where a child that one forked keeps its sockets. Takes
 * a descriptor a peer: the last step, so that what is needed more has had its own. */
void cecl_mesh_watch_processes(struct cecl_mesh *mesh);

/* Local. The communicator is made. */
void cecl_mesh_joined(struct cecl_mesh *mesh);

/* Local. Names the public call that this rank is in, for messages; kept as a pointer. */
void cecl_mesh_activity(struct cecl_mesh *mesh, const char *call);

/* Local. Whether an exchange was cut: no further one can succeed. */
bool cecl_mesh_broken(const struct cecl_mesh *mesh);

/* Local. Tells the peers goodbye (so that leaving is no death), closes, frees. NULL has no effect.
 * */
void cecl_mesh_close(struct cecl_mesh *mesh);

/* Collective, blocking, bounded; one thread at a time. Messages carry `kind` (at most 7
 * characters), so that ranks inside different calls find out:
 * ceclInvalidUsage naming both. recv: nranks * bytes in rank order, own part included. A peer gone:
 * ceclRemoteError naming it. */
ceclResult_t cecl_mesh_allgather(struct cecl_mesh *mesh, const char *kind, const void *send,
                                 void *recv, size_t bytes);

/* Collective. All ranks return success, or every rank fails: a rank whose own result is not success
 * passes its message
 * (cecl_message()) to all; the first failing rank's result and words, "rank R: ...", become
 * everyone's. */
ceclResult_t cecl_mesh_agree(struct cecl_mesh *mesh, ceclResult_t mine);

/* Collective. Sends `fd` to every peer and receives theirs: fds[r] is rank r's, fds[rank] is -1.
 * The caller closes them.
 * `fd` stays the caller's. On failure none is left open. */
ceclResult_t cecl_mesh_exchange_fd(struct cecl_mesh *mesh, int fd, int *fds);

/* Number of collective exchanges so far (allgather, agree and exchange_fd each count 1). */
uint64_t cecl_mesh_exchanges(const struct cecl_mesh *mesh);

/* -- for the watchdog thread; may run beside the calls above -- */

/* Waits up to wait_ms (or until cecl_mesh_wake) for news. Success: none, or only goodbyes.
 * ceclRemoteError: a peer died or aborted; the words in
 * cecl_message() name it. A goodbye from a peer is remembered (cecl_mesh_left). */
ceclResult_t cecl_mesh_watch(struct cecl_mesh *mesh, int wait_ms);
void cecl_mesh_wake(struct cecl_mesh *mesh);
/* Hears what there is, without waiting; results as cecl_mesh_watch. Any thread. What a peer told
 * before it wrote to our memory is heard by whoever has seen that writing. */
ceclResult_t cecl_mesh_news(struct cecl_mesh *mesh);
/* Whether `peer` has said goodbye. */
int cecl_mesh_left(struct cecl_mesh *mesh, int peer);
/* Tells all peers that this rank gives up, with its cause; best effort, never blocks. */
void cecl_mesh_tell_abort(struct cecl_mesh *mesh, const char *cause);
/* Makes calls that wait in another thread of this rank return ceclRemoteError soon. */
void cecl_mesh_interrupt(struct cecl_mesh *mesh);

#endif
