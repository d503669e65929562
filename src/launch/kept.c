/* Keeps launches; see kept.h. */
#include "launch/kept.h"

#include <string.h>

#include "launch/launcher.h"

static struct cecl_launch **set_of(const struct cecl_launch *launch)
{
    return launch->comm->launcher->kept[(launch->hash >> 40) % CECL_KEPT_SETS];
}

void cecl_kept_hash(struct cecl_launch *launch)
{
    launch->hash = launch->nfull;
    for (uint32_t i = 0; i < launch->nfull; i++)
        launch->hash = cecl_call_hash(launch->hash, &launch->calls[i]);
}

static bool has_calls_of(const struct cecl_launch *kept, const struct cecl_launch *launch)
{
    if (!kept || kept->hash != launch->hash || kept->nfull != launch->nfull)
        return false;
    for (uint32_t i = 0; i < launch->nfull; i++)
        if (!cecl_call_equal(&kept->calls[i], &launch->calls[i]))
            return false;
    return true;
}

static bool are_equal(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static bool was_told_as(const struct cecl_told *a, const struct cecl_told *b)
{
    return a->late == b->late && a->inputs_readable == b->inputs_readable &&
           a->earlier == b->earlier && a->nbuffers == b->nbuffers && a->nsend_at == b->nsend_at &&
           a->noutside == b->noutside &&
           are_equal(a->buffers, b->buffers, b->nbuffers * sizeof(*b->buffers)) &&
           are_equal(a->send_at, b->send_at, b->nsend_at * sizeof(*b->send_at)) &&
           are_equal(a->outside, b->outside, b->noutside * sizeof(*b->outside));
}

struct cecl_launch *cecl_kept_find(const struct cecl_launch *launch)
{
    struct cecl_launch *const *set = set_of(launch);
    for (int w = 0; w < CECL_KEPT_WAYS; w++)
        if (has_calls_of(set[w], launch) && was_told_as(&set[w]->told, &launch->told) &&
            cecl_imports_name(&launch->comm->registry, &set[w]->imports))
            return set[w];
    return NULL;
}

void cecl_kept_add(struct cecl_launch *launch)
{
    struct cecl_launch **set = set_of(launch), **place = NULL;
    unsigned *victim = &launch->comm->launcher->victim[(launch->hash >> 40) % CECL_KEPT_SETS];
    for (int w = 0; w < CECL_KEPT_WAYS && !place; w++)
        if (!set[w])
            place = &set[w];
    /* does not replace a launch whose program is about to run */
    for (int w = 0; w < CECL_KEPT_WAYS && !place; w++) {
        struct cecl_launch **next = &set[(*victim)++ % CECL_KEPT_WAYS];
        if ((*next)->users == 0)
            place = next;
    }
    if (!place)
        return;
    if (*place)
        cecl_launch_unkeep(*place);
    /* the store gets a new launch, so that the next lone call finds one there */
    else if (!cecl_launch_spare(launch->comm))
        return;
    *place = launch;
    launch->is_kept = true;
}

/* A number that grows whenever checked memory may have been freed. */
static uint64_t generation_of(ceclComm_t comm)
{
    return comm->pool.generation + comm->registry.changes;
}

/* Whether the program gave the same buffers, where calls have bounce buffers instead. The calls of a group may
 * have equal bounce buffers, and yet overlap in the program's buffers. */
static bool carries_to_same(const struct cecl_launch *kept, const struct cecl_launch *launch)
{
    for (uint32_t i = 0; i < launch->nfull; i++)
        if (kept->origins[i].recv != launch->origins[i].recv)
            return false;
    return true;
}

bool cecl_kept_has_checked(const struct cecl_launch *launch)
{
    struct cecl_launch *const *set = set_of(launch);
    for (int w = 0; w < CECL_KEPT_WAYS; w++)
        if (has_calls_of(set[w], launch))
            return set[w]->checked == generation_of(launch->comm) &&
                   carries_to_same(set[w], launch);
    return false;
}

void cecl_kept_checked(struct cecl_launch *launch)
{
    struct cecl_launch *const *set = set_of(launch);
    launch->checked = generation_of(launch->comm);
    for (int w = 0; w < CECL_KEPT_WAYS; w++)
        if (has_calls_of(set[w], launch)) {
            set[w]->checked = launch->checked;
            for (uint32_t i = 0; i < launch->nfull; i++)
                set[w]->origins[i].recv = launch->origins[i].recv;
        }
}
