/* Small collectives by one kernel on each rank: an all-reduce, a reduce-scatter, an all-gather or an all-to-all of
 * so few bytes that the exchange of flags around copies would take longer than moving the bytes. On the host device
 * a function follows the same protocol, but writes and reads a line in two steps (small_host.c).
 *
 * This file knows pointers and rank numbers, but no communicator.
 *
 * Every rank has slots, which all ranks write: [2 halves][nranks senders], each for `slot_bytes` bytes of data. A slot
 * consists of lines of 16 bytes, which are written and read whole: 12 bytes of data and the call's epoch, which is
 * their flag. The reader polls the line itself, so no fence is needed between data and flag. A thread moves 48 bytes in
 * 4 lines:
 *
 *     rank r, thread t:   lines of t of my block -> slot r at every peer
 *                         lines of t of every slot here, in rank order -> op -> recvbuff
 *
 * The lowest bit of the epoch chooses the half. Two halves suffice, as the verifier shows. A rank that writes for
 * call n + 2 has received lines of every peer's call n + 1. A peer that sends these lines has finished call n,
 * because calls on a rank are in order: the next kernel starts when the previous one has ended or, on another
 * stream, has set `done`.
 *
 * A call may be done on its rank while its last stores still travel to peers, for 1 to 2 us. The end of a communicator
 * cannot overtake these stores: before peers' memory is unmapped, a thread is joined, and words and streams are freed
 * through the driver, which takes far longer.
 *
 * A graph repeats a captured call with the same arguments. Captured calls have slots of their own, and their kernels
 * count the runs (struct cecl_counting). Their lines hold the epoch and, in upper bits, the call's number among the
 * captured calls, so no call takes lines of another captured call for its own (cecl_small_mark).
 *
 * Epochs repeat after 2^32 calls. A line that was written 2^32 calls ago, and not since, would look as if it held
 * data of the current call. So each call renews some lines that it does not use.
 *
 * An all-reduce gives the same bits as cecl_reduce_host with the ranks' inputs in rank order. */
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
    int rank, nranks; /* nranks is 2 .. CECL_SMALL_RANKS_MAX */
    /* The buffers of ceclAllReduce, ceclReduceScatter, ceclAllGather or ceclAlltoAll, in place or
     * not. Any alignment for calls that only move data; a reduction's buffers are aligned to their
     * elements. */
    const void *send;
    void *recv;
    /* an all-reduce: bytes of the whole buffer; other calls: bytes of one block; 1 .. slot_bytes */
    uint64_t bytes;
    ceclDataType_t type;
    ceclRedOp_t op;
    bool widens; /* as in struct cecl_reduction; a call that widens is not in place */
    /* the slots of each rank: cecl_small_slots_bytes bytes, 256-byte aligned */
    unsigned char *slots[CECL_SMALL_RANKS_MAX];
    uint64_t slot_bytes; /* a multiple of 512, at most 1 GiB, equal on all ranks */
    /* The call's epoch: one more than the epoch of the previous call on these slots, equal on all ranks. It may
     * wrap around. The slots are zeroed before the first call, whose epoch is 1. A captured call ignores this
     * field: `counting` gives it the epoch. */
    uint32_t epoch;
    /* a word on this rank's device. Once it is not 0, a kernel that runs ends its waits, and a kernel that begins sends
     * nothing */
    const uint32_t *end;
    /* a word on this rank's device, which the call sets if recv is undefined. If a wait ended
     * early, the value is 1 + a rank whose data had not come. If `end` was set before the call
     * began, the value is 1 + this rank */
    uint32_t *late;
    /* time limit of a wait in ns, by the GPU's timer or the host's clock; 0: only `end` ends waits early */
    uint64_t timeout_ns;
    uint32_t max_sms; /* CUDA: the most SMs to use; 0: as many as a kernel that waits may take */
    /* NULL, or a meeting, of which the kernel carries out two parts. With CECL_MEET_SIGNAL_FIRST it signals peers while
     * it sends data. These signals have no order with the data: they only show watchdogs that the kernel has begun.
     * With CECL_MEET_DONE it sets `done`. */
    const struct cecl_meeting *meeting;
    /* not NULL: a captured call, which takes its epoch from here. It must have a meeting with CECL_MEET_DONE */
    const struct cecl_counting *counting;
};

/* Bytes of memory that each rank needs for its slots. A slot is twice as large as the data that it is for, because its
 * lines take 4/3 times the bytes of the data, and for the shortest data twice the bytes. */
static inline uint64_t cecl_small_slots_bytes(int nranks, uint64_t slot_bytes)
{
    return 2 * (uint64_t)nranks * 2 * slot_bytes;
}

/* Refuses what cecl_reduction_check refuses, and sizes and ranks out of range, with
 * ceclInvalidArgument. */
ceclResult_t cecl_small_check(const struct cecl_small *small);

/* Does this rank's part of the call on the host. Returns when the call is done or a wait has ended
 * early. The call must have passed cecl_small_check. Collective: waits for data of every peer, as a
 * kernel does. */
void cecl_small_host(const struct cecl_small *small);

/* Loads all kernels onto the calling thread's current GPU, for the reason given at
 * cecl_reduce_cuda_prepare. Local. */
ceclResult_t cecl_small_cuda_prepare(void);

/* Enqueues the call on `stream` of the calling thread's current GPU. Collective: every rank's
 * kernel waits for the kernels of all others. Refuses what cecl_small_check refuses; a refused call
 * has enqueued nothing. */
ceclResult_t cecl_small_cuda(ceclStream_t stream, const struct cecl_small *small);

#ifdef __cplusplus
}
#endif
#endif
