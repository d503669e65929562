/* Private memory in calls. Peers cannot reach it, so they use a bounce buffer instead (bounce.h). Before
 * and after a launch this rank copies the bytes between private memory and bounce buffer
 * (ce/lower_carry.c). Other ranks take no part in these copies; for them it is a call on registered memory.
 *
 *     recvbuff is private   the call writes to a bounce buffer. In place, the input is carried there
 *                           before the call. The output is carried to recvbuff after the call.
 *     sendbuff is private   this rank pushes out of it. If another rank comes later and has to
 *                           fetch the blocks, they are carried to a bounce buffer before the
 *                           call. */
#ifndef CECL_LAUNCH_CARRY_H
#define CECL_LAUNCH_CARRY_H

#include "launch/launch.h"

/* If call `index` has a private recvbuff and peers write to it, replaces the call by one that uses a bounce
 * buffer, and notes which blocks this rank must carry. */
ceclResult_t cecl_carry_replace(struct cecl_launch *launch, uint32_t index);
/* Chooses the buffer from which peers may have to fetch: a bounce buffer if sendbuff is private, otherwise
 * call->send. */
ceclResult_t cecl_carry_lend(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer *lent);
/* Notes that this rank must copy sendbuff to the bounce buffer before the call, because peers have to fetch
 * the blocks from there. */
ceclResult_t cecl_carry_sent(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer lent);
/* Notes that this rank copies bytes between two of its buffers, with the options of `call`. */
ceclResult_t cecl_carry_note(struct cecl_carried *carried, const struct cecl_call *call,
                             struct cecl_buffer src, struct cecl_buffer dst);

#endif
