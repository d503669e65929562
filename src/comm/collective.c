/* Public collectives: arguments are checked, then the kept plan is looked up, or a new one lowered
 * and bound, and issued. What a
 * collective does is in src/ce; here is what it may be called with. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ce/lower.h"
#include "comm/check.h"
#include "comm/collective.h"
#include "comm/trace.h"
#include "comm/variable.h"
#include "util/log.h"

ceclResult_t cecl_root_check(ceclComm_t comm, int root)
{
    if (root < 0 || root >= comm->nranks)
        return cecl_fail(ceclInvalidArgument, "root %d: 0 to %d expected", root, comm->nranks - 1);
    return ceclSuccess;
}

/* Sizes from a layout, whose sums are known to fit. */
static void apply_layout(ceclComm_t comm, struct cecl_item *item)
{
    const uint64_t *sizes = item->layout, *offsets = item->layout + comm->nranks;
    item->send_bytes = sizes[comm->rank];
    item->recv_bytes = 0;
    for (int r = 0; r < comm->nranks; r++)
        if (sizes[r] > 0 && offsets[r] + sizes[r] > item->recv_bytes)
            item->recv_bytes = offsets[r] + sizes[r];
    item->in_place = (uintptr_t)item->send == (uintptr_t)item->recv + offsets[comm->rank];
}

/* Checks what can be told from the arguments alone, and fills in the rest of `item`. Cheap: runs at
 * every call. */
static ceclResult_t check_item(ceclComm_t comm, struct cecl_item *item)
{
    const size_t size = cecl_type_bytes(item->type);
    size_t all;

    CECL_TRY(cecl_comm_check(comm));
    if (size == 0)
        return cecl_fail(ceclInvalidArgument, "datatype %d: 0 to %d expected (ceclDataType_t)",
                         (int)item->type, CECL_NUM_TYPES - 1);
    if (cecl_op_reduces(item->op))
        return ceclSuccess; /* comm/reduce.c has seen to it */
    const size_t blocks = item->layout ? 1 : (size_t)comm->nranks; /* a layout's end was checked */
    if (__builtin_mul_overflow(item->count, size, &item->block) ||
        __builtin_mul_overflow(item->block, blocks, &all) || all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "count %zu of %zu bytes for %d ranks: more bytes than an address space",
                         item->count, size, comm->nranks);
    if (cecl_item_varies(item))
        return cecl_variable_complete(comm, item);
    const bool sends = item->layout ? item->layout[comm->rank] > 0 : item->count > 0;
    if (sends && !item->send)
        return cecl_fail(ceclInvalidArgument, "sendbuff: NULL");
    if (item->count > 0 && !item->recv)
        return cecl_fail(ceclInvalidArgument, "recvbuff: NULL");
    if (item->shape.width > 0)
        return ceclSuccess; /* what follows is known */
    item->recv_bytes = all;
    if (item->layout) {
        apply_layout(comm, item);
    } else if (item->op == ceclOpAllGather) {
        item->send_bytes = item->block;
        item->in_place =
            (uintptr_t)item->send == (uintptr_t)item->recv + (size_t)comm->rank * item->block;
    } else {
        item->send_bytes = all;
        item->in_place = item->send == item->recv;
    }
    return ceclSuccess;
}

/* Where in recvbuff sendbuff is, in place. */
static size_t in_place_offset(ceclComm_t comm, const struct cecl_item *item)
{
    if (item->layout)
        return item->layout[comm->nranks + comm->rank];
    if (item->op == ceclOpReduceScatter) /* before recvbuff: addresses wrap around */
        return 0 - (size_t)comm->rank * item->block;
    if (item->shape.width > 0 && item->op == ceclOpAllGather)
        return (size_t)comm->rank * item->shape.recv_stride;
    return item->op == ceclOpAllGather ? (size_t)comm->rank * item->block : 0;
}

ceclResult_t cecl_buffer_check(ceclComm_t comm, const void *buffer, size_t bytes, const char *name)
{
    uint64_t offset;
    if (cecl_pool_holds(&comm->pool, buffer))
        return cecl_pool_locate(&comm->pool, buffer, bytes, name, &offset);
    return comm->dev->ops->check_pointer(comm->dev, buffer, bytes, name);
}

/* Where the buffers are. Done when a plan is made, and again after memory was freed. */
static ceclResult_t check_buffers(ceclComm_t comm, const struct cecl_item *item)
{
    const uintptr_t send = (uintptr_t)item->send, recv = (uintptr_t)item->recv;
    uint64_t offset;

    if (cecl_item_varies(item))
        return cecl_variable_buffers(comm, item);
    if (item->op == ceclOpReduceScatter)
        CECL_TRY(cecl_buffer_check(comm, item->recv, item->recv_bytes, "recvbuff"));
    else
        CECL_TRY(cecl_pool_locate(&comm->pool, item->recv, item->recv_bytes, "recvbuff", &offset));
    if (item->in_place || item->send_bytes == 0)
        return ceclSuccess;
    if (send + item->send_bytes < send)
        return cecl_fail(ceclInvalidArgument, "sendbuff %p: %zu bytes end beyond the last address",
                         item->send, item->send_bytes);
    if (send < recv + item->recv_bytes && recv < send + item->send_bytes)
        return cecl_fail(
            ceclInvalidArgument,
            "sendbuff %p and recvbuff %p overlap (%zu and %zu bytes); in place, sendbuff "
            "is %p",
            item->send, item->recv, item->send_bytes, item->recv_bytes,
            (void *)(recv + in_place_offset(comm, item)));
    return cecl_buffer_check(comm, item->send, item->send_bytes, "sendbuff");
}

ceclResult_t cecl_item_check(ceclComm_t comm, struct cecl_item *item, ceclStream_t stream)
{
    CECL_TRY(check_item(comm, item));
    if (item->count > 0)
        CECL_TRY(check_buffers(comm, item));
    return comm->dev->ops->stream_check(comm->dev, stream);
}

/* Whether copies as this call would make them within a GPU are run by a copy engine. Of rows some are
 * contiguous. */
static bool engine_copies(ceclComm_t comm, const struct cecl_item *item)
{
    const uint32_t wanted = CECL_LOCAL_CONTIGUOUS | (item->shape.width > 0 ? CECL_LOCAL_ROWS : 0u);
    return (comm->local_copies & wanted) == wanted;
}

static struct cecl_call call_of(ceclComm_t comm, const struct cecl_item *item)
{
    struct cecl_call call = {.op = item->op,
                             .nranks = comm->nranks,
                             .rank = comm->rank,
                             .bytes = item->block,
                             .layout = item->layout,
                             .shape = item->shape,
                             .in_place = item->in_place,
                             .staging_bytes = (uint64_t)comm->config.staging_bytes,
                             .turn = cecl_engine_turn(&comm->engine),
                             .slots_offset = comm->engine.slots_offset,
                             .slot_bytes = comm->engine.slot_bytes,
                             .engine_copies_locally = engine_copies(comm, item)};
    if (cecl_op_reduces(item->op)) {
        call.total = item->send_bytes;
        call.element = (uint32_t)cecl_type_bytes(item->type);
        call.type = (uint8_t)item->type;
        call.red_op = (uint8_t)item->red_op;
        call.root = item->root;
        call.peers_read = cecl_pool_holds(&comm->pool, item->in_place ? item->recv : item->send);
    }
    cecl_tune(&call, item->choice, &comm->tuning);
    return call;
}

static ceclResult_t lower(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                          struct cecl_plan *plan)
{
    struct cecl_call *calls = calloc(count, sizeof(*calls));
    if (!calls)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", count);
    for (uint32_t i = 0; i < count; i++)
        calls[i] = call_of(comm, &items[i]);
    const ceclResult_t result = cecl_lower_group(calls, count, plan);
    free(calls);
    return result;
}

/* A reduction needs SMs on some rank: all ranks refuse it, those too that have nothing to reduce. */
static ceclResult_t check_arithmetic(ceclComm_t comm, const struct cecl_item *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i].choice.sm_policy == CECL_SM_NEVER && cecl_op_reduces(items[i].op) &&
            (comm->nranks > 1 || !items[i].in_place))
            return cecl_fail(ceclInvalidUsage,
                             "CECL_SM_NEVER: this call needs an SM: arithmetic does");
    return ceclSuccess;
}

static bool needs_forbidden_sm(const struct cecl_item *items, const struct cecl_plan *plan)
{
    for (uint32_t i = 0; i < plan->ncopies; i++) {
        const struct cecl_copy *copy = &plan->copies[i];
        if (cecl_copy_needs_sm(plan, copy) &&
            items[cecl_copy_part(copy)].choice.sm_policy == CECL_SM_NEVER)
            return true;
    }
    return false;
}

static ceclResult_t make_plan(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                              const struct cecl_request *requests, struct cecl_bound **bound)
{
    struct cecl_plan plan;

    CECL_TRY(check_arithmetic(comm, items, count));
    CECL_TRY(lower(comm, items, count, &plan));
    ceclResult_t result = ceclSuccess;
    if (needs_forbidden_sm(items, &plan))
        result =
            cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: this call needs an SM: %s", plan.reason);
    if (result == ceclSuccess)
        result = cecl_engine_bind(&comm->engine, requests, count, &plan, bound);
    if (result == ceclSuccess && cecl_log_on(CECL_LOG_PLAN))
        cecl_plan_print(&plan, stderr);
    cecl_plan_free(&plan);
    return result;
}

static ceclResult_t check_all(ceclComm_t comm, const struct cecl_item *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        CECL_TRY(check_buffers(comm, &items[i]));
    return count > 1 ? cecl_items_check_apart(items, count, comm->nranks) : ceclSuccess;
}

/* The kept plan, or a new one. No item is empty. */
static ceclResult_t find_plan(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                              const struct cecl_request *requests, struct cecl_bound **bound)
{
    bool stale = false;
    struct cecl_bound *found = cecl_engine_lookup(&comm->engine, requests, count, &stale);
    if (!found || stale)
        CECL_TRY(check_all(comm, items, count));
    if (!found)
        return make_plan(comm, items, count, requests, bound);
    if (stale)
        cecl_engine_refresh(&comm->engine, found);
    *bound = found;
    return ceclSuccess;
}

static struct cecl_request request_of(const struct cecl_item *item)
{
    /* A rank without a block of its own may pass any sendbuff: only what it tells counts. */
    const void *send = item->send_bytes > 0 || item->in_place ? item->send : NULL;
    return (struct cecl_request){.op = item->op,
                                 .send = send,
                                 .recv = item->recv,
                                 .bytes =
                                     cecl_op_reduces(item->op) ? item->send_bytes : item->block,
                                 .layout = item->layout,
                                 .shape = item->shape,
                                 .choice = item->choice,
                                 .type = cecl_op_reduces(item->op) ? (uint8_t)item->type : 0,
                                 .red_op = (uint8_t)item->red_op,
                                 .root = item->root};
}

/* As in a request. Its plan is another one for each turn. */
static uint8_t turn_of(ceclComm_t comm, const struct cecl_item *item)
{
    if (item->block > comm->engine.slot_bytes) /* what is small has small blocks */
        return 0;
    const struct cecl_call call = call_of(comm, item);
    return call.small ? (uint8_t)(1 + call.turn) : 0;
}

/* Room for the requests of a group, which stays: a repeated group allocates nothing. */
static struct cecl_request *request_room(ceclComm_t comm, uint32_t count)
{
    if (count > comm->requests_room) {
        struct cecl_request *room = realloc(comm->requests, count * sizeof(*room));
        if (!room)
            return NULL;
        comm->requests = room;
        comm->requests_room = count;
    }
    return comm->requests;
}

static ceclResult_t prepare(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                            struct cecl_bound **bound)
{
    *bound = NULL;
    if (count == 0)
        return ceclSuccess;
    if (count == 1) {
        struct cecl_request request = request_of(&items[0]);
        request.turn = turn_of(comm, &items[0]);
        return find_plan(comm, items, 1, &request, bound);
    }
    struct cecl_request *requests = request_room(comm, count);
    if (!requests)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls", count);
    for (uint32_t i = 0; i < count; i++)
        requests[i] = request_of(&items[i]);
    return find_plan(comm, items, count, requests, bound);
}

/* ---- CECL_CHECK */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

static ceclResult_t compare_item(ceclComm_t comm, const struct cecl_item *item, ceclResult_t local)
{
    struct cecl_signature mine = {.call = item->called,
                                  .count = item->count,
                                  .type = (uint64_t)item->type,
                                  .root = (uint64_t)item->root,
                                  .red_op = (uint64_t)item->red_op,
                                  .choice = 10u * item->choice.sm_policy + item->choice.direction,
                                  .max_sms = item->choice.max_sms};
    const bool varies = cecl_item_varies(item); /* then ranks have layouts of their own */
    for (int w = 0; item->layout && !varies && w < 2 * comm->nranks; w++)
        mine.layout = mix(mine.layout, item->layout[w]);
    for (size_t w = 0; item->shape.width > 0 && w < sizeof(item->shape) / sizeof(uint64_t); w++)
        mine.shape = mix(mine.shape, ((const uint64_t *)&item->shape)[w]);
    if (local == ceclSuccess && item->count > 0) {
        const char *base = cecl_pool_at(&comm->pool, comm->rank, 0);
        mine.in_place = !varies && item->in_place;
        const struct cecl_call call = call_of(comm, item);
        if (item->op != ceclOpReduceScatter)
            mine.offset = (uint64_t)((const char *)item->recv - base);
        mine.is_read =
            call.peers_read || (item->op == ceclOpAlltoAll && call.direction == CECL_PULL);
        if (mine.is_read)
            mine.send_offset =
                (uint64_t)((const char *)(item->in_place ? item->recv : item->send) - base);
    }
    CECL_TRY(cecl_check_call(comm, &mine, local));
    return item->called == CECL_CALLED_ALL_TO_ALLV_AT ? cecl_places_compare(comm, item)
                                                      : ceclSuccess;
}

static ceclResult_t compare_items(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                                  ceclResult_t local)
{
    if (count == 1)
        return compare_item(comm, &items[0], local);
    struct cecl_signature group = {.call = CECL_CALLED_GROUP, .count = count};
    ceclResult_t result = cecl_check_call(comm, &group, local);
    for (uint32_t i = 0; i < count && result == ceclSuccess; i++)
        result = compare_item(comm, &items[i], ceclSuccess);
    return result;
}

/* A call without elements moves nothing, alone or in a group: items are sorted so. */
static uint32_t count_full(const struct cecl_item *items, uint32_t count)
{
    uint32_t full = 0;
    while (full < count && items[full].count > 0)
        full++;
    return full;
}

ceclResult_t cecl_items_prepare(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                                ceclStream_t stream, struct cecl_bound **bound)
{
    ceclResult_t result = prepare(comm, items, count_full(items, count), bound);
    if (!comm->config.check)
        return result;
    if (result == ceclSuccess) /* nobody enqueues unless everybody can */
        result = comm->dev->ops->stream_check(comm->dev, stream);
    return compare_items(comm, items, count, result);
}

ceclResult_t cecl_items_explain(ceclComm_t comm, const struct cecl_item *items, uint32_t count,
                                ceclExplanation_t *explanation)
{
    struct cecl_bound *bound;
    CECL_TRY(prepare(comm, items, count_full(items, count), &bound));
    if (bound)
        *explanation = *cecl_bound_explanation(bound);
    else
        *explanation =
            (ceclExplanation_t){.zeroSm = 1, .path = "nothing to do", .reason = "count is 0"};
    return ceclSuccess;
}

const char *cecl_bound_path(const struct cecl_bound *bound)
{
    return bound ? cecl_bound_explanation(bound)->path : "nothing to do";
}

ceclResult_t cecl_items_issue(ceclComm_t comm, const struct cecl_bound *bound, ceclStream_t stream)
{
    bool started;
    const ceclResult_t result = cecl_engine_run(&comm->engine, bound, stream, &started);
    if (result != ceclSuccess && started) /* peers wait for what will not come */
        cecl_comm_set_async(comm, result, cecl_message());
    return result;
}

/* Kept for the end of the group, or carried out; *path tells the timeline. */
static ceclResult_t make_call(struct cecl_item *item, ceclComm_t comm, ceclStream_t stream,
                              ceclResult_t result, const char **path)
{
    struct cecl_bound *bound = NULL;
    *path = "refused";
    if (result == ceclSuccess)
        result = check_item(comm, item);
    if (result == ceclSuccess)
        item->choice = comm->choice;
    if (cecl_group_is_open()) {
        *path = result == ceclSuccess ? "kept for the group's end" : *path;
        return cecl_group_add(comm, item, stream, result);
    }
    if (result != ceclSuccess)
        return cecl_comm_is_checked(comm) ? compare_item(comm, item, result) /* the peers compare */
                                          : result;
    result = cecl_items_prepare(comm, item, 1, stream, &bound);
    if (result == ceclSuccess)
        *path = cecl_bound_path(bound);
    if (result != ceclSuccess || !bound)
        return result;
    return cecl_items_issue(comm, bound, stream);
}

ceclResult_t cecl_collective(struct cecl_item *item, ceclComm_t comm, ceclStream_t stream,
                             ceclResult_t result)
{
    const char *path;
    const struct cecl_traced call = cecl_trace_begin(comm, cecl_called_name(item->called));
    result = make_call(item, comm, stream, result, &path);
    cecl_trace_end(&call, item->send_bytes, item->recv_bytes, path, result);
    return result;
}

CECL_API ceclResult_t ceclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                    ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    struct cecl_item item = {.op = ceclOpAllGather,
                             .called = CECL_CALLED_ALL_GATHER,
                             .send = sendbuff,
                             .recv = recvbuff,
                             .count = sendcount,
                             .type = datatype};
    return cecl_collective(&item, comm, stream, ceclSuccess);
}

CECL_API ceclResult_t ceclShard(ceclComm_t comm, void *recvbuff, size_t count,
                                ceclDataType_t datatype, void **shard)
{
    struct cecl_item item = {.op = ceclOpAllGather,
                             .send = recvbuff,
                             .recv = recvbuff,
                             .count = count,
                             .type = datatype};
    uint64_t offset;
    CECL_TRY(cecl_comm_check(comm));
    if (!recvbuff || !shard)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", recvbuff ? "shard" : "recvbuff");
    CECL_TRY(check_item(comm, &item));
    CECL_TRY(cecl_pool_locate(&comm->pool, recvbuff, item.recv_bytes, "recvbuff", &offset));
    *shard = (char *)recvbuff + (size_t)comm->rank * item.block;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                   ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    struct cecl_item item = {.op = ceclOpAlltoAll,
                             .called = CECL_CALLED_ALL_TO_ALL,
                             .send = sendbuff,
                             .recv = recvbuff,
                             .count = count,
                             .type = datatype};
    return cecl_collective(&item, comm, stream, ceclSuccess);
}

CECL_API ceclResult_t ceclExplain(ceclOp_t op, const void *sendbuff, const void *recvbuff,
                                  size_t count, ceclDataType_t datatype, ceclComm_t comm,
                                  ceclExplanation_t *explanation)
{
    struct cecl_item item = {.op = op,
                             .send = sendbuff,
                             .recv = (void *)(uintptr_t)recvbuff,
                             .count = count,
                             .type = datatype};

    CECL_TRY(cecl_comm_check(comm));
    if (!explanation)
        return cecl_fail(ceclInvalidArgument, "explanation: NULL");
    if (op != ceclOpAllGather && op != ceclOpAlltoAll) /* these arguments do not say all of it */
        return cecl_fail(
            ceclInvalidArgument,
            "op %d: ceclOpAllGather or ceclOpAlltoAll expected; ceclGroupExplain tells "
            "of all other calls",
            (int)op);
    CECL_TRY(check_item(comm, &item));
    item.choice = comm->choice;
    return cecl_items_explain(comm, &item, 1, explanation);
}
