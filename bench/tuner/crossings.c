/* What cecl_tune measures: each threshold between two ways of a call, and a call that can go both ways. The thresholds
 * that are missing here are counts of SMs or chunks, shares of memory, and values that only help beside a kernel of
 * the user's. */
#include <string.h>

#include "tuner.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)

#define END CECL_TUNE_COUNT
#define NEVER CECL_TUNING_NEVER
#define NO_SMALL(op) \
    { \
        CECL_TUNE_SMALL_##op##_MAX_BYTES, 0 \
    }

static ceclResult_t broadcast(const void *send, void *recv, size_t count, ceclDataType_t type,
                              ceclComm_t comm, ceclStream_t stream)
{
    return ceclBroadcast(send, recv, count, type, 0, comm, stream);
}

static const struct op broadcast_from_0 = {.name = "broadcast", .call = broadcast};

const struct crossing crossings[] = {
    {.which = CECL_TUNE_SMALL_ALL_REDUCE_MAX_BYTES,
     .op = &collectives[OP_ALL_REDUCE],
     .in_place = true,
     .sizes = {{4 * KIB, 2 * MIB}, {256, 256 * KIB}},
     .policy = CECL_SM_REDUCE_ONLY,
     .also = {{END, 0}}},
    {.which = CECL_TUNE_SMALL_REDUCE_SCATTER_MAX_BYTES,
     .op = &collectives[OP_REDUCE_SCATTER],
     .sizes = {{4 * KIB, 2 * MIB}, {256, 256 * KIB}},
     .policy = CECL_SM_REDUCE_ONLY,
     .also = {{END, 0}}},
    /* Timed in place, where the second way, copies, is fastest. */
    {.which = CECL_TUNE_SMALL_ALL_GATHER_MAX_BYTES,
     .op = &collectives[OP_ALL_GATHER],
     .in_place = true,
     .sizes = {{4 * KIB, 2 * MIB}, {256, 256 * KIB}},
     .policy = CECL_SM_ALLOW,
     .also = {{END, 0}}},
    {.which = CECL_TUNE_SMALL_ALL_TO_ALL_MAX_BYTES,
     .op = &collectives[OP_ALL_TO_ALL],
     .sizes = {{4 * KIB, 2 * MIB}, {256, 256 * KIB}},
     .policy = CECL_SM_ALLOW,
     .also = {{END, 0}}},
    {.which = CECL_TUNE_ALL_GATHER_RETURNED_MAX_BYTES,
     .op = &collectives[OP_ALL_GATHER],
     .sizes = {{64 * KIB, 64 * MIB}, {1 * KIB, 2 * MIB}},
     .policy = CECL_SM_ALLOW,
     .also = {NO_SMALL(ALL_GATHER), {END, 0}}},
    {.which = CECL_TUNE_ALL_TO_ALL_RETURNED_MAX_BYTES,
     .op = &collectives[OP_ALL_TO_ALL],
     .sizes = {{16 * KIB, 16 * MIB}, {1 * KIB, 1 * MIB}},
     .policy = CECL_SM_ALLOW,
     .also = {NO_SMALL(ALL_TO_ALL), {END, 0}}},
    {.which = CECL_TUNE_BROADCAST_SPREAD_MIN_BYTES,
     .op = &broadcast_from_0,
     .is_min = true,
     .in_place = true,
     .least_ranks = 3,
     .sizes = {{64 * KIB, 64 * MIB}, {1 * KIB, 2 * MIB}},
     .policy = CECL_SM_NEVER,
     .also = {{END, 0}}},
    {.which = CECL_TUNE_ALL_REDUCE_SMS_WRITE_MAX_BYTES,
     .op = &collectives[OP_ALL_REDUCE],
     .in_place = true,
     .sizes = {{512 * KIB, 128 * MIB}, {1 * KIB, 1 * MIB}},
     .policy = CECL_SM_REDUCE_ONLY,
     .also = {NO_SMALL(ALL_REDUCE), {CECL_TUNE_ALL_REDUCE_STAGED_MIN_BYTES, NEVER}}},
    {.which = CECL_TUNE_ALL_REDUCE_STAGED_MIN_BYTES,
     .op = &collectives[OP_ALL_REDUCE],
     .is_min = true,
     .in_place = true,
     .of_block = true,
     .sizes = {{8 * MIB, 128 * MIB}, {16 * KIB, 1 * MIB}},
     .policy = CECL_SM_REDUCE_ONLY,
     .also = {NO_SMALL(ALL_REDUCE), {END, 0}}},
    {.which = CECL_TUNE_REDUCE_SCATTER_STAGED_MIN_BYTES,
     .op = &collectives[OP_REDUCE_SCATTER],
     .is_min = true,
     .sizes = {{32 * MIB, 512 * MIB}, {16 * KIB, 1 * MIB}},
     .policy = CECL_SM_REDUCE_ONLY,
     .also = {NO_SMALL(REDUCE_SCATTER), {END, 0}}},
};
const int ncrossings = sizeof(crossings) / sizeof(crossings[0]);

const char *crossing_op_named(const char *name)
{
    for (int i = 0; i < ncrossings; i++)
        if (strcmp(crossings[i].op->name, name) == 0)
            return crossings[i].op->name;
    return NULL;
}
