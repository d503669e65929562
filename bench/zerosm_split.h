/* Cases of cecl_zerosm on communicators that ceclCommSplit has made. With an even number of GPUs, at least
 * four, GPUs with even numbers get one communicator and GPUs with odd numbers another. Otherwise all GPUs get
 * one new communicator. In each, ranks are in the reverse order of GPUs. */
#ifndef CECL_ZEROSM_SPLIT_H
#define CECL_ZEROSM_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include <cecl/cecl.h>

/* How many ranks each new communicator has, and the rank of GPU g. */
int zerosm_split_ranks(int gpus);
int zerosm_split_rank(int gpus, int g);

/* Splits the communicator of all GPUs; parents[g] is its handle on GPU g. Every comms[g] is
 * written: the new communicator, or NULL. Returns false if one is NULL; `why`, of `room` bytes,
 * says why. */
bool zerosm_split(const ceclComm_t *parents, int gpus, ceclComm_t *comms, char *why, size_t room);

#endif
