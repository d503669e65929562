/* Random calls of a communicator: their buffers in memory of all kinds, and the comparison with world/model.h. */
#ifndef CECL_TEST_RANDOM_CALL_H
#define CECL_TEST_RANDOM_CALL_H

#include "../world/model.h"
#include "memory.h"

/* Guard bytes on each side of a recvbuff. */
#define RANDOM_GUARD 16

/* Sets random_largest to the largest limit of small calls on comm's device: larger limits would only take time. */
void random_take_limits_of(ceclComm_t comm);
/* Bytes, with guards, that suffice for any buffer of a call among all ranks. */
size_t random_room(void);

/* Draws a call. Leaves ranks, buffers, stream and seed unchanged. */
void random_draw(struct random_call *c, uint64_t *x);

ceclResult_t random_make(ceclComm_t comm, const struct random_call *c, bool grouped);

/* A call with the expected contents of its buffers. */
struct random_slot {
    struct random_call call;
    size_t bytes;        /* bytes from call.recv on that are compared */
    unsigned char *want; /* [bytes] the expected contents */
    enum memory_kind send_kind, recv_kind;
};

/* Writes a call's input, poison into the rest of [recv, recv + bytes), and the result to `want`. host: room for input. */
void random_put(ceclComm_t comm, struct random_slot *s, unsigned char *host);
/* Writes the expected contents of [recv, recv + bytes) to `want`. Only the input may have changed since random_put. */
void random_expect(const struct random_slot *s, unsigned char *want);
/* From now on unchanged recvsplits are expected: a call by splits does not write them if it is made in a group. */
void random_expect_no_words(struct random_slot *s);
/* How many bytes random_prepare needs: in `send` on rank `r`, and in `recv` on any rank. */
size_t random_bytes_sent(const struct random_call *c, int r);
size_t random_bytes_received(const struct random_call *c);
/* Draws the places of a call's buffers within `send` and `recv` from `y`, and calls random_put. */
void random_prepare(ceclComm_t comm, struct random_slot *s, const struct memory *send,
                    const struct memory *recv, uint64_t *y, unsigned char *host);
/* random_compare reads [recv, recv + bytes) into `host`, which has room, and compares every byte with `want`.
 * random_check compares bytes that are in `host` already. */
void random_check(const struct random_slot *s, const unsigned char *host);
void random_compare(ceclComm_t comm, const struct random_slot *s, unsigned char *host);

/* Set in tests of calls over several hosts: whether a call may be drawn (together: one that a group or a graph will hold).
 * Then, on GPUs, a graph captures every fourth group. NULL: any call may be drawn; random_make captures some. */
extern bool (*random_carries)(const struct random_call *c, bool together);

/* Makes `rounds` groups of `size` random calls of the kinds `first` to `last` (size 1: single calls), one after the
 * other, on pool memory of a communicator of all ranks, and checks every byte. Buffers lie at other places on each
 * rank. Half of the groups are made again with other bytes, so they run kept plans. */
#define RANDOM_GROUP 6
#define RANDOM_MOST 24 /* calls of a group */
void random_groups(ceclComm_t comm, enum kind first, enum kind last, int size, int rounds,
                   uint64_t seed);

#endif
