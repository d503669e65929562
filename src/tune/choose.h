/* How a call goes: the choices that measurements decide, one function for each family of calls. A
 * choice depends on the call, on the number of ranks and on what the communicator has. It uses only
 * what is equal on all ranks. */
#ifndef CECL_TUNE_CHOOSE_H
#define CECL_TUNE_CHOOSE_H

#include "call/call.h"
#include "call/way.h"

/* Chooses by the function of the call's family. First decides whether the call is small, by a rule
 * that all families share. */
void cecl_choose(const struct cecl_call *call, const struct cecl_means *means,
                 struct cecl_way *way);

/* Whether the call is small, goes through memory of the host, or moves rows by splits on the device. Then
 * no copy touches a buffer of a peer, and hosts need not know where these lie. It runs at every call. */
bool cecl_chooses_own_buffers(const struct cecl_call *call, const struct cecl_means *means);

/* cecl_lowerings names these. */
typedef void cecl_choose_fn(const struct cecl_call *call, const struct cecl_means *means,
                            struct cecl_way *way);
cecl_choose_fn cecl_choose_gathered;
cecl_choose_fn cecl_choose_exchanged;
cecl_choose_fn cecl_choose_per_rank;
cecl_choose_fn cecl_choose_reduction;
cecl_choose_fn cecl_choose_carry;
cecl_choose_fn cecl_choose_splits;

#endif
