/* Small collectives by one kernel on each rank: an all-reduce, a reduce-scatter, an all-gather or an
 * all-to-all of so few bytes that the exchange of flags around copies would take longer than the bytes.
 *
 * A leaf, as reductions are: it knows pointers, ranks as numbers, and no communicator.
 *
 * Every rank has slots, which all ranks write: [2 halves][nranks senders] of `slot_bytes` data. Data
 * goes with its flag in one store: a line is 12 bytes of data and the call's epoch, 16 bytes that are
 * written and read as one. A reader polls the line itself, so there is no flag beside the data, and no
 * fence between. A thread moves 48 bytes in 4 lines:
 *
 *     rank r, thread t:   lines of t of my block -> slot r at every peer
 *                         lines of t of every slot here, in rank order -> op -> recvbuff
 *
 * Halves take turns, by the epoch's lowest bit. That suffices: who writes for call k + 2 has had a
 * line of every peer for call k + 1, and a peer sends that once its kernel of call k has read the half:
 * when that has ended, or has said on another stream that it is done. So every call waits for
 * something of every peer, and calls are in order.
 *
 * A call is done on its rank while its own last lines may still be on their way to peers: for as long
 * as a store takes, a microsecond or two. Before a communicator's end unmaps what peers lent, it has
 * ended a thread and freed its words and streams by the driver, which takes far longer.
 *
 * A line that no call used for 2^32 calls would hold an epoch that comes again: each call renews some
 * lines that it does not use.
 *
 * The bits of an all-reduce are those of cecl_reduce_host with the ranks' inputs in rank order. */
#ifndef CECL_SM_SMALL_H
#define CECL_SM_SMALL_H

#include "sm/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_SMALL_RANKS_MAX 16

enum cecl_small_kind {
    CECL_SMALL_ALL_REDUCE,
    CECL_SMALL_REDUCE_SCATTER,
    CECL_SMALL_ALL_GATHER,
    CECL_SMALL_ALL_TO_ALL
};

struct cecl_small {
    enum cecl_small_kind kind;
    int rank, nranks; /* 2 .. CECL_SMALL_RANKS_MAX */
    /* As in ceclAllReduce, ceclReduceScatter, ceclAllGather, ceclAlltoAll: in place or apart; any
     * alignment, but a reduction's to its elements. */
    const void *send;
    void *recv;
    uint64_t bytes; /* of an all-reduce all, else of one block; 1 .. slot_bytes */
    ceclDataType_t type;
    ceclRedOp_t op;
    unsigned char *slots[CECL_SMALL_RANKS_MAX]; /* each rank's, cecl_small_slots_bytes, by 256 */
    uint64_t slot_bytes; /* a multiple of 512, at most 1 GiB, equal on all ranks */
    /* Of this call: one more than that of the call before on these slots, equal on all ranks; it may
     * wrap around. Slots are zeroed before the first, whose epoch is 1. */
    uint32_t epoch;
    const uint32_t *end; /* a word here: once it is not 0, the kernel waits for nobody, and one that
                          * begins then sends nothing */
    uint32_t *late;      /* a word here: becomes 1 where a wait ended, and recv is undefined */
    uint64_t timeout_ns; /* of a wait, by the GPU's timer; 0: none but `end` */
    uint32_t max_sms;    /* 0: as many as kernels that wait may take of a GPU */
    /* Of this the kernel does CECL_MEET_SIGNAL_FIRST, beside sending its data, and without order: to
     * be seen by who looks on; and CECL_MEET_DONE. NULL: neither. */
    const struct cecl_meeting *meeting;
};

/* Memory that each rank has for its slots. Lines take 4/3 of their data; a slot that is short, twice. */
static inline uint64_t cecl_small_slots_bytes(int nranks, uint64_t slot_bytes)
{
    return 2 * (uint64_t)nranks * 2 * slot_bytes;
}

/* Loads all kernels onto the calling thread's current GPU: see cecl_reduce_cuda_prepare. Local. */
ceclResult_t cecl_small_cuda_prepare(void);

/* Enqueues it on `stream`, of the calling thread's current GPU. Collective: every rank's kernel waits
 * for those of all others. Refuses, enqueuing nothing: what cecl_reduction_check refuses, and sizes
 * and ranks out of range. */
ceclResult_t cecl_small_cuda(ceclStream_t stream, const struct cecl_small *small);

#ifdef __cplusplus
}
#endif
#endif
