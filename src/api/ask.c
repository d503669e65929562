/* The public functions that return a communicator's limits, how many of its calls were late, a part of its shared
 * memory, and the struct that users' kernels need. */
#include "comm/comm.h"
#include "flags/flags.h"
#include "launch/launcher.h"

_Static_assert(CECL_NUM_TYPES <= 32, "ceclLimits_t has a bit for each type");

/* A set of bits, one for each type that the operation takes. */
static uint32_t types_of(ceclRedOp_t op)
{
    uint32_t types = 0;
    for (int type = 0; type < CECL_NUM_TYPES; type++)
        if (cecl_reduction_check((ceclDataType_t)type, op) == ceclSuccess)
            types |= UINT32_C(1) << type;
    return types;
}

static int calls_in_a_group(ceclComm_t comm)
{
    if (comm->net)
        return CECL_GROUP_MAX;
    const uint32_t told = cecl_places_entries(&comm->launcher->places);
    return (int)(comm->nranks > 1 && told < CECL_GROUP_MAX ? told : CECL_GROUP_MAX);
}

CECL_API ceclResult_t ceclCommLimits(ceclComm_t comm, ceclLimits_t *limits)
{
    CECL_PUBLIC;
    char words[CECL_MESSAGE_BYTES];
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("limits", limits));
    CECL_INSIDE(comm, "ceclCommLimits");
    *limits = (ceclLimits_t){
        .groupCalls = calls_in_a_group(comm),
        .groupMessages = comm->net ? CECL_GROUP_MAX : (int)comm->launcher->messenger.posts.nslots,
        .blockBytes = PTRDIFF_MAX / (uint64_t)comm->nranks,
        .types = (UINT32_C(1) << CECL_NUM_TYPES) - 1,
        .smPolicy = comm->options.sm_policy,
        .hostFlags = comm->engine.flags.on_host};
    /* types_of() records a message for each type that an operation does not take; the thread's last message stays */
    cecl_keep_message(words);
    for (int op = 0; op < CECL_NUM_RED_OPS; op++)
        limits->reductions[op] = types_of((ceclRedOp_t)op);
    return cecl_fail_with(ceclSuccess, words);
}

CECL_API ceclResult_t ceclCallStats(ceclComm_t comm, ceclCallStats_t *stats)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    CECL_TRY(cecl_check_given("stats", stats));
    CECL_INSIDE(comm, "ceclCallStats");
    const struct cecl_places *places = &comm->launcher->places;
    *stats = (ceclCallStats_t){.told = places->nmet, .late = places->nlate};
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommGetSharedMemory(ceclComm_t comm, void **memory, size_t *bytes)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("memory", memory));
    CECL_TRY(cecl_check_given("bytes", bytes));
    CECL_TRY(cecl_comm_check_own(comm, "memory that all ranks share",
                                 "make a communicator of one host (ceclCommSplit)"));
    *memory = cecl_shared_at(&comm->shared, CECL_SHARED_LENT);
    *bytes = CECL_LENT_BYTES;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommGetDeviceComm(ceclComm_t comm, ceclDeviceComm_t *dc)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("dc", dc));
    CECL_TRY(cecl_comm_check_own(comm, "ceclCommGetDeviceComm",
                                 "make a communicator of one host (ceclCommSplit)"));
    atomic_store(&comm->gave_pointers, true);
    cecl_pads_describe(&comm->engine.flags, dc);
    dc->timeoutNs = (uint64_t)comm->config.timeout_ms * 1000000u;
    return ceclSuccess;
}
