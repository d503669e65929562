/* Variable all-to-all: its arguments. A rank pushes its blocks, so it must know where they belong at
 * its peers: they tell, or the caller does. */
#include <string.h>

#include "comm/trace.h"
#include "comm/variable.h"

struct arguments {
    struct cecl_given sends, receives;
    const size_t *targets; /* where blocks belong at peers; NULL: they tell */
};

/* The layout from the arguments; without `targets` these are left 0. */
static ceclResult_t fill(ceclComm_t comm, const struct arguments *a, size_t size)
{
    const int n = comm->nranks;
    uint64_t *layout = comm->layout;
    bool any_order, in_order;

    if (!a->sends.counts || !a->receives.counts)
        return cecl_fail(ceclInvalidArgument, "%s: NULL",
                         a->sends.counts ? "recvcounts" : "sendcounts");
    CECL_TRY(cecl_given_bytes(&a->sends, n, size, layout, layout + n, &any_order));
    CECL_TRY(cecl_given_bytes(&a->receives, n, size, layout + 3 * n, layout + 4 * n, &in_order));
    memset(layout + 2 * n, 0, (size_t)n * sizeof(*layout));
    if (in_order)
        return ceclSuccess;
    return cecl_given_apart(&a->receives, n, layout + 3 * n, layout + 4 * n);
}

/* Where the caller says that blocks belong; *reach: how far into any recvbuff. */
static ceclResult_t fill_targets(ceclComm_t comm, const struct arguments *a, size_t size,
                                 size_t *reach)
{
    const int n = comm->nranks, me = comm->rank;
    const struct cecl_given given = {a->sends.counts, a->targets, "sendcounts", "peerdispls", true};
    uint64_t *layout = comm->layout;
    bool any_order;

    CECL_TRY(cecl_given_bytes(&given, n, size, layout, layout + 2 * n, &any_order));
    if (layout[me] != layout[3 * n + me])
        return cecl_fail(ceclInvalidArgument,
                         "sendcounts[%d] %zu, of this rank to itself: "
                         "recvcounts[%d] is %zu",
                         me, a->sends.counts[me], me, a->receives.counts[me]);
    if (layout[me] > 0 && layout[2 * n + me] != layout[4 * n + me])
        return cecl_fail(ceclInvalidArgument,
                         "peerdispls[%d] %zu, of this rank to itself: rdispls[%d] is %zu", me,
                         a->targets[me], me, (size_t)(layout[4 * n + me] / size));
    for (int r = 0; r < n; r++)
        if (layout[r] > 0 && layout[2 * n + r] + layout[r] > *reach)
            *reach = (size_t)(layout[2 * n + r] + layout[r]);
    return ceclSuccess;
}

/* All that this rank may refuse comes before the exchange, so that all hear of it. */
static ceclResult_t exchange(ceclComm_t comm, struct cecl_item *item, ceclStream_t stream,
                             ceclResult_t result)
{
    if (result == ceclSuccess)
        result = cecl_item_check(comm, item, stream);
    if (comm->config.check) { /* ranks in other calls are found first */
        struct cecl_signature mine = {.call = item->called, .type = (uint64_t)item->type};
        CECL_TRY(cecl_check_call(comm, &mine, result));
    }
    return cecl_places_exchange(comm, item, comm->layout + 2 * comm->nranks, result);
}

static ceclResult_t all_to_all(const struct arguments *a, struct cecl_item *item, ceclComm_t comm,
                               ceclStream_t stream)
{
    const size_t size = cecl_type_bytes(item->type);
    ceclResult_t result = ceclSuccess;

    item->layout = comm->layout;
    if (size > 0) /* an unknown type is refused with all others */
        result = fill(comm, a, size);
    else
        memset(comm->layout, 0, cecl_layout_words(item->op, comm->nranks) * sizeof(*comm->layout));
    if (a->targets && size > 0 && result == ceclSuccess)
        result = fill_targets(comm, a, size, &item->reach);
    if (!a->targets) {
        const struct cecl_traced call = cecl_trace_begin(comm, "ceclAlltoAllv: places");
        result = exchange(comm, item, stream, result);
        cecl_trace_end(&call, 0, 0, "exchange among the hosts", result);
        if (result != ceclSuccess) /* every rank knows */
            return result;
    }
    return cecl_collective(item, comm, stream, result);
}

CECL_API ceclResult_t ceclAlltoAllv(const void *sendbuff, const size_t sendcounts[],
                                    const size_t sdispls[], void *recvbuff,
                                    const size_t recvcounts[], const size_t rdispls[],
                                    ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    const struct arguments a = {.sends = {sendcounts, sdispls, "sendcounts", "sdispls", false},
                                .receives = {recvcounts, rdispls, "recvcounts", "rdispls", false}};
    struct cecl_item item = {.op = ceclOpAlltoAll,
                             .called = CECL_CALLED_ALL_TO_ALLV,
                             .send = sendbuff,
                             .recv = recvbuff,
                             .count = 1, /* this rank takes part, whatever its blocks are */
                             .type = datatype};
    CECL_TRY(cecl_comm_check(comm));
    if (cecl_group_is_open())
        return cecl_collective(&item, comm, stream,
                               cecl_fail(ceclInvalidUsage,
                                         "ceclAlltoAllv waits for the peers' hosts, which a group "
                                         "cannot: ceclAlltoAllvAt may be grouped"));
    return all_to_all(&a, &item, comm, stream);
}

CECL_API ceclResult_t ceclAlltoAllvAt(const void *sendbuff, const size_t sendcounts[],
                                      const size_t sdispls[], void *recvbuff,
                                      const size_t recvcounts[], const size_t rdispls[],
                                      const size_t peerdispls[], ceclDataType_t datatype,
                                      ceclComm_t comm, ceclStream_t stream)
{
    const struct arguments a = {.sends = {sendcounts, sdispls, "sendcounts", "sdispls", false},
                                .receives = {recvcounts, rdispls, "recvcounts", "rdispls", false},
                                .targets = peerdispls};
    struct cecl_item item = {.op = ceclOpAlltoAll,
                             .called = CECL_CALLED_ALL_TO_ALLV_AT,
                             .send = sendbuff,
                             .recv = recvbuff,
                             .count = 1,
                             .type = datatype};
    CECL_TRY(cecl_comm_check(comm));
    if (!peerdispls)
        return cecl_collective(&item, comm, stream,
                               cecl_fail(ceclInvalidArgument, "peerdispls: NULL"));
    return all_to_all(&a, &item, comm, stream);
}
