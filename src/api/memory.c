/* The public functions for symmetric memory. */
#include "api/life.h"

#include "device/nvtx.h"
#include "launch/exchange.h"
#include "launch/group.h"
#include "launch/launch.h"

ceclResult_t cecl_memory_allocate(ceclComm_t comm, void **ptr, size_t bytes)
{
    const struct cecl_call call = {.op = &cecl_ops[CECL_OP_MEM_ALLOC], .count = bytes};
    uint64_t offset;
    CECL_TRY(cecl_comm_check(comm));
    CECL_NVTX_RANGE(comm->has_ranges, call.op->name);
    CECL_TRY(cecl_check_call(comm, &call, cecl_check_given("ptr", ptr)));
    if (bytes == 0) {
        *ptr = NULL;
        return ceclSuccess;
    }
    cecl_mesh_activity(comm->mesh, "ceclMemAlloc");
    const ceclResult_t result =
        cecl_comm_exchanged(comm, cecl_pool_alloc(&comm->pool, bytes, &offset));
    if (comm->pool.apart)
        return cecl_comm_break(comm, result);
    CECL_TRY(result);
    *ptr = cecl_pool_at(&comm->pool, comm->pool.rank, offset);
    return ceclSuccess;
}

CECL_API ceclResult_t ceclMemAlloc(ceclComm_t comm, void **ptr, size_t bytes)
{
    CECL_PUBLIC;
    if (cecl_group_is_open())
        return cecl_group_allocate(comm, ptr, bytes);
    CECL_TRY(cecl_comm_check(comm));
    CECL_INSIDE(comm, "ceclMemAlloc");
    return cecl_comm_add_cure(comm, cecl_memory_allocate(comm, ptr, bytes),
                              "if one thread has several ranks, it must allocate for all of them "
                              "between ceclGroupStart and ceclGroupEnd");
}

ceclResult_t cecl_memory_free(ceclComm_t comm, void *ptr)
{
    struct cecl_call call = {.op = &cecl_ops[CECL_OP_MEM_FREE]};
    uint64_t offset = UINT64_MAX; /* stands for NULL when ranks compare calls */
    CECL_TRY(cecl_comm_check(comm));
    ceclResult_t local = ptr ? cecl_pool_allocation(&comm->pool, ptr, &offset) : ceclSuccess;
    if (ptr && local == ceclSuccess)
        local = cecl_captured_check_free(comm, offset);
    if (ptr && local == ceclSuccess)
        local = cecl_windows_check_free(comm, offset);
    call.count = offset;
    CECL_TRY(cecl_check_call(comm, &call, local));
    if (ptr)
        cecl_pool_free(&comm->pool, offset);
    return ceclSuccess;
}

CECL_API ceclResult_t ceclMemFree(ceclComm_t comm, void *ptr)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_INSIDE(comm, "ceclMemFree");
    const ceclResult_t result = cecl_memory_free(comm, ptr);
    cecl_registry_close_dropped(&comm->registry);
    return result;
}

CECL_API ceclResult_t ceclGetPeerPointer(ceclComm_t comm, const void *ptr, int peer, void **peerPtr)
{
    CECL_PUBLIC;
    uint64_t offset;
    CECL_TRY(cecl_comm_check(comm));
    CECL_INSIDE(comm, "ceclGetPeerPointer");
    CECL_TRY(cecl_comm_check_own(comm, "pointers to memory of peers",
                                 "send messages (ceclSend, ceclRecv)"));
    CECL_TRY(cecl_check_given("peerPtr", peerPtr));
    CECL_TRY(cecl_peer_check(comm, peer));
    if (cecl_pool_locate(&comm->pool, ptr, 1, "ptr", &offset) != ceclSuccess)
        return ceclInvalidArgument; /* cecl_pool_locate recorded the message */
    if (peer != comm->rank)
        atomic_store(&comm->gave_pointers, true);
    *peerPtr = cecl_pool_at(&comm->pool, peer, offset);
    return ceclSuccess;
}

CECL_API ceclResult_t ceclPoolStats(ceclComm_t comm, ceclPoolStats_t *stats)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("stats", stats));
    CECL_INSIDE(comm, "ceclPoolStats");
    cecl_pool_stats(&comm->pool, stats);
    return ceclSuccess;
}
