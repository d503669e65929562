/* Cases of cecl_zerosm on communicators that ceclCommSplit made. If there are at least four GPUs, and an even
 * number of them, GPUs with even numbers get one communicator and GPUs with odd numbers another one. Otherwise all
 * GPUs get one new communicator. Ranks are always in the reverse order of GPUs. */
#ifndef CECL_ZEROSM_SPLIT_H
#define CECL_ZEROSM_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include <cecl/cecl.h>

/* How many ranks each new communicator has, and the rank of GPU g. */
int zerosm_split_ranks(int gpus);
int zerosm_split_rank(int gpus, int g);

/* Splits the communicator of all GPUs; parents[g] is its handle on GPU g. Writes every comms[g]: the new
 * communicator, or NULL. Returns false if one is NULL; `why` ([room]) says why. */
bool zerosm_split(const ceclComm_t *parents, int gpus, ceclComm_t *comms, char *why, size_t room);

#endif
