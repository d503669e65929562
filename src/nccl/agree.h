/* Agreements of ranks, by words in shared memory of cecl's communicator. Ranks wait for each other on the host,
 * without calling the driver.
 *
 * All ranks agree: at a call that all ranks make, each rank tells bits that only this rank knows, and gets the bits
 * that every rank has told. Two ranks agree: each tells whether it can capture its end of a message. */
#ifndef CECL_NCCL_AGREE_H
#define CECL_NCCL_AGREE_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* How many messages between two ranks, in one direction, a rank captures at a time. A captured group of cecl
 * has at most as many (ceclGroupStart). */
#define CECL_NCCL_CAPTURED_AT_ONCE 32
#define CECL_NCCL_AGREE_SPINS 1000 /* looks of a wait before it sleeps between looks */

/* Finds the words of a communicator whose `ours` is set; they follow those of learn.h. A communicator over several
 * nodes has no such words, and neither has one without room for them. All ranks alike have words, or have none. */
ceclResult_t cecl_nccl_agree_open(struct cecl_nccl_comm *entry);
/* Tells the peers that this rank has left. */
void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry);

/* Notes `count` served collectives. If a rank waits for this rank in an agreement, it sees that this rank
 * makes other calls, and stops waiting. */
void cecl_nccl_agree_note_calls(struct cecl_nccl_comm *comm, int count);
/* Notes a served call that is not captured: a collective or a message. */
void cecl_nccl_agree_note(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call);

/* Tells this rank's bits. The caller is inside the communicator, and must then call cecl_nccl_agree_await. */
void cecl_nccl_agree_tell(struct cecl_nccl_comm *comm, uint32_t bits);
/* Waits for all ranks. *bits: those that all ranks have told; 0 if there are no words.
 * what  for error messages: what all ranks do
 * Fails if the communicator has failed or was aborted, if a rank has left or makes other calls instead,
 * and after CECL_TIMEOUT_MS, if that is set. */
ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, const char *what, uint32_t *bits);

/* -- captured messages: a send or a receive, whose peer is another rank. Only if comm->has_pairs -- */

/* Tells the peer whether this rank can capture its end. Returns which message it is between the two ranks in
 * this direction; 0: there are no words, or this rank tells no more. After CECL_NCCL_CAPTURED_AT_ONCE messages
 * the caller must wait until the peer has told of them, too. */
uint32_t cecl_nccl_agree_tell_message(struct cecl_nccl_comm *comm,
                                      const struct cecl_nccl_call *call, bool can);
/* Tells the peer that this rank passes all later messages between them in this direction. The caller need not wait
 * for the peer, also in later calls. */
void cecl_nccl_agree_tell_no_more(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call);
/* Whether the peer has told of its end. *can: it can capture it. */
bool cecl_nccl_agree_has_told(const struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                              uint32_t number, bool *can);
/* Fails if the peer will not tell, as cecl_nccl_agree_await does. deadline: cecl_nccl_agree_deadline() when the
 * wait began. */
ceclResult_t cecl_nccl_agree_goes_on(const struct cecl_nccl_comm *comm,
                                     const struct cecl_nccl_call *call, uint32_t number,
                                     int64_t deadline);
int64_t cecl_nccl_agree_deadline(void);
/* Yields or sleeps between two looks of a wait. looks: how many there were */
void cecl_nccl_agree_pause(unsigned looks);

#endif
