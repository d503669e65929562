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

static ceclResult_t compare(const struct cecl_signature *a, const struct cecl_signature *b,
                            int rank)
{
    const struct {
        const char *name;
        uint64_t a, b;
    } fields[] = {
        {"the collective", a->op, b->op},
        {"count", a->count, b->count},
        {"datatype", a->type, b->type},
        {"in place (1) or not (0)", a->in_place, b->in_place},
        {"recvbuff's offset in the pool", a->offset, b->offset},
        {"sendbuff's offset in the pool", a->send_offset, b->send_offset},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].a != fields[i].b)
            return cecl_fail(ceclInvalidUsage,
                             "ranks differ in %s: %" PRIu64 " on rank 0, %" PRIu64 " on rank %d",
                             fields[i].name, fields[i].a, fields[i].b, rank);
    return ceclSuccess;
}

ceclResult_t cecl_check_call(ceclComm_t comm, struct cecl_signature *mine, ceclResult_t local)
{
    struct cecl_signature *all = comm->check_room;

    mine->status = (int32_t)local;
    if (local != ceclSuccess)
        snprintf(mine->text, sizeof(mine->text), "%s", cecl_message());
    comm->pool.exchanges++;
    ceclResult_t result = cecl_mesh_allgather(comm->mesh, "call", mine, all, sizeof(*mine));
    if (local != ceclSuccess) /* its own words are the best it has */
        return cecl_fail_with(local, mine->text);
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++)
        if (all[r].status != ceclSuccess)
            result = cecl_fail(ceclInvalidUsage, "rank %d refused its call: %.*s", r,
                               (int)sizeof(all[r].text), all[r].text);
    for (int r = 1; r < comm->nranks && result == ceclSuccess; r++)
        result = compare(&all[0], &all[r], r);
    return result;
}
