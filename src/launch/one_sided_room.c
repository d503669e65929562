/* The program of a one-sided call, and its memory; see one_sided.h. */
#include <stdio.h>
#include <stdlib.h>

#include "launch/launcher.h"
#include "util/grow.h"
#include "util/log.h"

ceclResult_t cecl_one_sided_reserve(struct cecl_one_sided_room *room, uint32_t ngiven,
                                    uint32_t nwaits)
{
    if (ngiven > room->given_room &&
        cecl_list_grow(&room->given, 2 * (size_t)ngiven * sizeof(*room->given)))
        room->given_room = ngiven;
    if (nwaits > room->waits_room && cecl_list_grow(&room->waits, nwaits * sizeof(*room->waits)))
        room->waits_room = nwaits;
    return ngiven <= room->given_room && nwaits <= room->waits_room
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for a wait for %u signals", nwaits);
}

struct cecl_counted cecl_one_sided_give(struct cecl_one_sided_room *room, uint32_t counter,
                                        uint32_t slot, uint32_t value)
{
    const uint32_t at = room->ngiven++;
    room->given[2 * at] = slot;
    room->given[2 * at + 1] = value;
    return (struct cecl_counted){counter, 2 * at + 1};
}

ceclResult_t cecl_one_sided_bind(ceclComm_t comm, const struct cecl_one_sided_args *args,
                                 uint64_t bytes, const struct cecl_one_sided *call)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    const struct cecl_part part = {.call = {.rank = comm->rank, .nranks = comm->nranks}};
    if (room->plan.part.call.nranks == 0)
        cecl_plan_init(&room->plan, &part);
    room->plan.aside = true;
    CECL_TRY(cecl_lower_one_sided(call, &room->plan));
    if (cecl_log_on(CECL_LOG_PLAN))
        cecl_plan_print(&room->plan, stderr);
    CECL_TRY(cecl_bound_reserve(&room->bound, &room->plan));
    room->bound.ends = room->ends;
    room->bound.given = room->given;
    if (args->is_copy && bytes > 0) {
        char *at = args->window->parts[args->peer].address + args->offset;
        room->ends[0] = (struct cecl_ends){.here = args->local, .there = at};
        room->ends[1] = (struct cecl_ends){.here = at};
    }
    return cecl_bind_plan(&comm->engine, &room->plan, &room->bound);
}

void cecl_one_sided_close(ceclComm_t comm)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    cecl_plan_free(&room->plan);
    free(room->bound.memory);
    free(room->given);
    free(room->waits);
    *room = (struct cecl_one_sided_room){0};
}
