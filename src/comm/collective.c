/* Public collectives: arguments are checked, then the kept plan is looked up, or a new one lowered
 * and bound, and issued. What a
 * collective does is in src/ce; here is what it may be called with. */
#include <inttypes.h>
#include <stdio.h>

#include "ce/lower.h"
#include "comm/check.h"
#include "comm/comm.h"
#include "util/log.h"

/* A call's arguments, as given. */
struct arguments {
    ceclOp_t op;
    const void *send;
    void *recv;
    size_t count;
    ceclDataType_t type;
};

/* What follows from them. */
struct shape {
    size_t block;      /* bytes that go to or come from one rank */
    size_t send_bytes; /* of sendbuff */
    size_t recv_bytes; /* of recvbuff */
    bool in_place;
};

static size_t type_bytes(ceclDataType_t type)
{
    static const uint8_t bytes[CECL_NUM_TYPES] = {
        [ceclInt8] = 1,    [ceclUint8] = 1,    [ceclInt32] = 4,      [ceclUint32] = 4,
        [ceclInt64] = 8,   [ceclUint64] = 8,   [ceclFloat16] = 2,    [ceclFloat32] = 4,
        [ceclFloat64] = 8, [ceclBfloat16] = 2, [ceclFloat8e4m3] = 1, [ceclFloat8e5m2] = 1,
    };
    return (unsigned)type < CECL_NUM_TYPES ? bytes[type] : 0;
}

/* Sizes, and whether the call is in place. Cheap: runs at every call. */
static ceclResult_t shape_of(ceclComm_t comm, const struct arguments *args, struct shape *shape)
{
    const size_t size = type_bytes(args->type);
    size_t all;

    if (args->op != ceclOpAllGather && args->op != ceclOpAlltoAll)
        return cecl_fail(ceclInvalidArgument, "op %d: a value of ceclOp_t expected", (int)args->op);
    if (size == 0)
        return cecl_fail(ceclInvalidArgument, "datatype %d: 0 to %d expected (ceclDataType_t)",
                         (int)args->type, CECL_NUM_TYPES - 1);
    if (__builtin_mul_overflow(args->count, size, &shape->block) ||
        __builtin_mul_overflow(shape->block, (size_t)comm->nranks, &all) || all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "count %zu of %zu bytes for %d ranks: more bytes than an address space",
                         args->count, size, comm->nranks);
    if (args->count > 0 && !args->send)
        return cecl_fail(ceclInvalidArgument, "sendbuff: NULL");
    if (args->count > 0 && !args->recv)
        return cecl_fail(ceclInvalidArgument, "recvbuff: NULL");
    shape->recv_bytes = all;
    if (args->op == ceclOpAllGather) {
        shape->send_bytes = shape->block;
        shape->in_place =
            (uintptr_t)args->send == (uintptr_t)args->recv + (size_t)comm->rank * shape->block;
    } else {
        shape->send_bytes = all;
        shape->in_place = args->send == args->recv;
    }
    return ceclSuccess;
}

/* Where the buffers are. Done when a plan is made, and again after memory was freed. */
static ceclResult_t check_buffers(ceclComm_t comm, const struct arguments *args,
                                  const struct shape *shape)
{
    const uintptr_t send = (uintptr_t)args->send, recv = (uintptr_t)args->recv;
    uint64_t offset;

    CECL_TRY(cecl_pool_locate(&comm->pool, args->recv, shape->recv_bytes, "recvbuff", &offset));
    if (shape->in_place)
        return ceclSuccess;
    if (send + shape->send_bytes < send)
        return cecl_fail(ceclInvalidArgument, "sendbuff %p: %zu bytes end beyond the last address",
                         args->send, shape->send_bytes);
    if (send < recv + shape->recv_bytes && recv < send + shape->send_bytes)
        return cecl_fail(
            ceclInvalidArgument,
            "sendbuff %p and recvbuff %p overlap (%zu and %zu bytes); in place, sendbuff "
            "is %p",
            args->send, args->recv, shape->send_bytes, shape->recv_bytes,
            (void *)(recv + (args->op == ceclOpAllGather ? (size_t)comm->rank * shape->block : 0)));
    if (cecl_pool_holds(&comm->pool, args->send))
        return cecl_pool_locate(&comm->pool, args->send, shape->send_bytes, "sendbuff", &offset);
    return comm->dev->ops->check_pointer(comm->dev, args->send, shape->send_bytes, "sendbuff");
}

static struct cecl_call call_of(ceclComm_t comm, const struct arguments *args,
                                const struct shape *shape)
{
    struct cecl_call call = {.op = args->op,
                             .nranks = comm->nranks,
                             .rank = comm->rank,
                             .bytes = shape->block,
                             .in_place = shape->in_place,
                             .staging_bytes = (uint64_t)comm->config.staging_bytes};
    cecl_tune(&call, (ceclSmPolicy_t)comm->config.sm_policy, comm->config.direction);
    return call;
}

static ceclResult_t make_plan(ceclComm_t comm, const struct arguments *args,
                              const struct shape *shape, const struct cecl_request *request,
                              struct cecl_bound **bound)
{
    const struct cecl_call call = call_of(comm, args, shape);
    struct cecl_plan plan;

    CECL_TRY(cecl_lower(&call, &plan));
    ceclResult_t result = ceclSuccess;
    if (comm->config.sm_policy == CECL_SM_NEVER && cecl_plan_local_copies(&plan) > 0)
        result =
            cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: this call needs an SM: %s", plan.reason);
    if (result == ceclSuccess)
        result = cecl_engine_bind(&comm->engine, request, &plan, bound);
    if (result == ceclSuccess && cecl_log_on(CECL_LOG_PLAN))
        cecl_plan_print(&plan, stderr);
    cecl_plan_free(&plan);
    return result;
}

/* Everything that can refuse a call. On success *bound is the plan to issue; NULL when there is
 * nothing to do. */
static ceclResult_t prepare(ceclComm_t comm, const struct arguments *args, struct shape *shape,
                            struct cecl_bound **bound)
{
    bool stale = false;

    *bound = NULL;
    CECL_TRY(shape_of(comm, args, shape));
    if (args->count == 0)
        return ceclSuccess;
    const struct cecl_request request = {args->op, args->send, args->recv, shape->block};
    struct cecl_bound *found = cecl_engine_lookup(&comm->engine, &request, &stale);
    if (!found || stale)
        CECL_TRY(check_buffers(comm, args, shape));
    if (!found)
        return make_plan(comm, args, shape, &request, bound);
    if (stale)
        cecl_engine_refresh(&comm->engine, found);
    *bound = found;
    return ceclSuccess;
}

static ceclResult_t compare_ranks(ceclComm_t comm, const struct arguments *args,
                                  const struct shape *shape, ceclResult_t local)
{
    struct cecl_signature mine = {.call = args->op == ceclOpAllGather ? CECL_CALLED_ALL_GATHER
                                                                      : CECL_CALLED_ALL_TO_ALL,
                                  .count = args->count,
                                  .type = (uint64_t)args->type};
    if (local == ceclSuccess && args->count > 0) {
        const char *base = cecl_pool_at(&comm->pool, comm->rank, 0);
        mine.in_place = shape->in_place;
        mine.offset = (uint64_t)((const char *)args->recv - base);
        if (args->op == ceclOpAlltoAll && call_of(comm, args, shape).direction == CECL_PULL)
            mine.send_offset = (uint64_t)((const char *)args->send - base);
    }
    return cecl_check_call(comm, &mine, local);
}

static ceclResult_t collective(const struct arguments *args, ceclComm_t comm, ceclStream_t stream)
{
    struct shape shape;
    struct cecl_bound *bound;
    bool started;

    CECL_TRY(cecl_comm_check(comm));
    ceclResult_t result = prepare(comm, args, &shape, &bound);
    if (comm->config.check) {
        if (result == ceclSuccess) /* nobody enqueues unless everybody can */
            result = comm->dev->ops->stream_check(comm->dev, stream);
        result = compare_ranks(comm, args, &shape, result);
    }
    if (result != ceclSuccess || !bound)
        return result;

    result = cecl_engine_run(&comm->engine, bound, stream, &started);
    if (result != ceclSuccess && started) /* peers wait for what will not come */
        cecl_comm_set_async(comm, result, cecl_message());
    return result;
}

CECL_API ceclResult_t ceclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                    ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    const struct arguments args = {ceclOpAllGather, sendbuff, recvbuff, sendcount, datatype};
    return collective(&args, comm, stream);
}

CECL_API ceclResult_t ceclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                   ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    const struct arguments args = {ceclOpAlltoAll, sendbuff, recvbuff, count, datatype};
    return collective(&args, comm, stream);
}

CECL_API ceclResult_t ceclExplain(ceclOp_t op, const void *sendbuff, const void *recvbuff,
                                  size_t count, ceclDataType_t datatype, ceclComm_t comm,
                                  ceclExplanation_t *explanation)
{
    const struct arguments args = {op, sendbuff, (void *)(uintptr_t)recvbuff, count, datatype};
    struct shape shape;
    struct cecl_bound *bound;

    CECL_TRY(cecl_comm_check(comm));
    if (!explanation)
        return cecl_fail(ceclInvalidArgument, "explanation: NULL");
    CECL_TRY(prepare(comm, &args, &shape, &bound));
    if (bound)
        *explanation = *cecl_bound_explanation(bound);
    else
        *explanation =
            (ceclExplanation_t){.zeroSm = 1, .path = "nothing to do", .reason = "count is 0"};
    return ceclSuccess;
}
