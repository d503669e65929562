/* CECL_CHECK: before a collective is enqueued, ranks compare its arguments. Slow, and meant to be.
 * */
#include "comm/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void *cecl_check_room(int nranks)
{
    return calloc((size_t)nranks, sizeof(struct cecl_signature));
}

static const char *const called[CECL_CALLED_COUNT] = {
    "ceclAllGather",        "ceclAlltoAll",        "ceclAllGatherv",    "ceclBroadcast",
    "ceclAlltoAllv",        "ceclAlltoAllvAt",     "ceclGather",        "ceclScatter",
    "ceclAllGatherStrided", "ceclAlltoAllStrided", "ceclReduceScatter", "ceclAllReduce",
    "ceclReduce",           "ceclMemAlloc",        "ceclMemFree",       "ceclGroupEnd"};
static const char *const types[CECL_NUM_TYPES] = {
    [ceclInt8] = "int8",         [ceclUint8] = "uint8",         [ceclInt32] = "int32",
    [ceclUint32] = "uint32",     [ceclInt64] = "int64",         [ceclUint64] = "uint64",
    [ceclFloat16] = "float16",   [ceclFloat32] = "float32",     [ceclFloat64] = "float64",
    [ceclBfloat16] = "bfloat16", [ceclFloat8e4m3] = "fp8 e4m3", [ceclFloat8e5m2] = "fp8 e5m2",
};

const char *cecl_called_name(enum cecl_called which)
{
    return called[which];
}

/* The name of a value, from `names`. */
static const char *name_of(uint64_t value, const char *const *names, uint64_t count)
{
    return value < count ? names[value] : "?";
}

static ceclResult_t differ(const char *what, const char *a, const char *b, int rank)
{
    return cecl_fail(ceclInvalidUsage, "ranks differ in %s: %s on rank 0, %s on rank %d", what, a,
                     b, rank);
}

static ceclResult_t compare(const struct cecl_signature *a, const struct cecl_signature *b,
                            int rank)
{
    if (a->call != b->call)
        return differ("the call", name_of(a->call, called, CECL_CALLED_COUNT),
                      name_of(b->call, called, CECL_CALLED_COUNT), rank);
    const struct {
        const char *name;
        uint64_t a, b;
    } fields[] = {
        {a->call == CECL_CALLED_MEM_ALLOC ? "bytes" : "count", a->count, b->count},
        {"in place (1) or not (0)", a->in_place, b->in_place},
        {a->call == CECL_CALLED_MEM_FREE ? "ptr's offset in the pool"
                                         : "recvbuff's offset in the pool",
         a->offset, b->offset},
        {"sendbuff in the pool (1) or not (0)", a->is_read, b->is_read},
        {"sendbuff's offset in the pool", a->send_offset, b->send_offset},
        {"root", a->root, b->root},
        {"op", a->red_op, b->red_op},
        {"options (10 * smPolicy + direction)", a->choice, b->choice},
        {"options.maxSms", a->max_sms, b->max_sms},
        {"recvcounts or displs (a hash of them)", a->layout, b->layout},
        {"strided (a hash of it)", a->shape, b->shape},
    };
    if (a->type != b->type)
        return differ("datatype", name_of(a->type, types, CECL_NUM_TYPES),
                      name_of(b->type, types, CECL_NUM_TYPES), rank);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].a != fields[i].b)
            return cecl_fail(ceclInvalidUsage,
                             "ranks differ in %s: %" PRIu64 " on rank 0, %" PRIu64 " on rank %d",
                             fields[i].name, fields[i].a, fields[i].b, rank);
    return ceclSuccess;
}

/* A wrong argument there is a wrong use here; a want is a want. */
ceclResult_t cecl_check_refused(int rank, int32_t status, const char *words)
{
    const bool is_misuse = status == ceclInvalidArgument || status == ceclInvalidUsage;
    return cecl_fail(is_misuse ? ceclInvalidUsage : (ceclResult_t)status,
                     "rank %d refused its call: %s", rank, words);
}

ceclResult_t cecl_check_call(ceclComm_t comm, struct cecl_signature *mine, ceclResult_t local)
{
    struct cecl_signature *all = comm->check_room;

    if (!comm->config.check)
        return local;
    mine->status = (int32_t)local;
    if (local != ceclSuccess)
        snprintf(mine->text, sizeof(mine->text), "%s", cecl_message());
    comm->pool.exchanges++;
    cecl_mesh_activity(comm->mesh, name_of(mine->call, called, CECL_CALLED_COUNT));
    ceclResult_t result = cecl_comm_exchanged(
        comm, cecl_mesh_allgather(comm->mesh, "call", mine, all, sizeof(*mine)));
    if (local != ceclSuccess) /* its own words are the best it has */
        return cecl_fail_with(local, mine->text);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++)
        if (all[r].status != ceclSuccess)
            result = cecl_check_refused(r, all[r].status, all[r].text);
    for (int r = 1; r < comm->nranks && result == ceclSuccess; r++)
        result = compare(&all[0], &all[r], r);
    return result;
}
