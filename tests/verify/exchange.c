/* Exchanges with other nodes in the verifier.
 *
 * An exchange is two events of the network's lane, or in a captured call of the main lane. Between the first event and the second, the bytes that
 * it sends must not change, and the bytes that it receives may be written at any time. The exchange ends
 * when all its peers have begun the matching exchanges, because a network may have no buffers. A sender
 * still does not know that its receiver has begun, because a network may also buffer bytes. So a receiver's
 * end is ordered after everything that the sender did before it began; a sender's end is ordered after no
 * peer's event. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "verify/internal.h"

bool verify_exchange_allocate(struct verifier *v)
{
    const size_t n = (size_t)v->nranks;
    bool fine = true;
    v->channels = calloc(n * n, sizeof(*v->channels));
    for (int r = 0; r < v->nranks && v->ranks; r++) {
        uint32_t transfers = 0, exchanges = 0;
        for (int i = 0; i < verify_nlaunches(v, r); i++) {
            const struct cecl_plan *plan = verify_launch(v, r, i).plan;
            if (plan->nexchanges > exchanges)
                exchanges = plan->nexchanges;
            if (plan->ntransfers > transfers)
                transfers = plan->ntransfers;
        }
        v->ranks[r].turns = calloc((size_t)verify_nlaunches(v, r) + 1, sizeof(uint32_t));
        v->ranks[r].queued = calloc(transfers + 1u, sizeof(uint32_t));
        v->ranks[r].ended = calloc(exchanges + 1u, sizeof(uint32_t));
        fine = fine && v->ranks[r].turns && v->ranks[r].queued && v->ranks[r].ended;
    }
    return fine && v->channels;
}

void verify_exchange_release(struct verifier *v)
{
    for (int c = 0; v->channels && c < v->nranks * v->nranks; c++) {
        for (uint32_t i = 0; i < v->channels[c].nsent; i++)
            free(v->channels[c].sent[i].tags);
        free(v->channels[c].sent);
    }
    for (int r = 0; v->ranks && r < v->nranks; r++) {
        free(v->ranks[r].turns);
        free(v->ranks[r].queued);
        free(v->ranks[r].ended);
    }
    free(v->channels);
}

static ceclResult_t check_transfer(const struct verifier *v, const struct cecl_plan *plan, int rank,
                                   const struct cecl_transfer *t)
{
    const bool is_rank = t->peer < v->nranks;
    if (!is_rank || verify_reaches(plan, rank, t->peer) || t->at.rank != rank)
        return VERIFY_FAULT("a transfer of memory of rank %u with rank %u, which is %s", t->at.rank,
                            t->peer, is_rank ? "on the same node" : "none");
    return plan->part.call.op ? verify_range_form(v, plan, &t->at, t->bytes, !t->sends)
                              : ceclSuccess;
}

ceclResult_t verify_exchange_form(const struct verifier *v, const struct cecl_plan *plan, int rank,
                                  const struct cecl_step *step)
{
    uint32_t number = 0;
    const int lane = plan->part.call.captured ? CECL_LANE_MAIN : CECL_LANE_NET;
    if (!plan->part.means.nodes || step->lane != lane || step->peer != rank || step->count < 1 ||
        step->count > plan->ntransfers || step->first > plan->ntransfers - step->count)
        return VERIFY_FAULT("an exchange is out of the plan: lane %u, transfers %" PRIu32
                            " from %" PRIu32 " of %" PRIu32,
                            step->lane, step->count, step->first, plan->ntransfers);
    for (const struct cecl_step *s = plan->steps; s <= step; s++)
        number += s->kind == CECL_STEP_EXCHANGE;
    if (step->phase != number || number > plan->nexchanges)
        return VERIFY_FAULT("exchange %" PRIu32 " is number %" PRIu32 " of the plan", step->phase,
                            number);
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(check_transfer(v, plan, rank, &plan->transfers[step->first + i]));
    return ceclSuccess;
}

static struct verify_channel *channel(const struct verifier *v, int from, int to)
{
    return &v->channels[from * v->nranks + to];
}

static struct verify_channel *channel_of(const struct verifier *v, int rank,
                                         const struct cecl_transfer *t)
{
    return t->sends ? channel(v, rank, t->peer) : channel(v, t->peer, rank);
}

static struct cecl_place place_of(const struct verifier *v, const struct cecl_verify_launch *launch,
                                  const struct cecl_transfer *t)
{
    return launch->call < 0 ? verify_message_place(v, launch, &t->at) : t->at;
}

static ceclResult_t send(struct verifier *v, struct verify_channel *c,
                         const struct cecl_place *place, uint64_t bytes, int actor)
{
    if (c->nsent == c->capacity) {
        const uint32_t capacity = c->capacity ? c->capacity * 2 : 8;
        struct verify_sent *sent = realloc(c->sent, capacity * sizeof(*sent));
        if (!sent)
            return cecl_fail(ceclOutOfMemory, "no host memory for the verifier");
        c->sent = sent;
        c->capacity = capacity;
    }
    uint32_t *tags = malloc((size_t)bytes * sizeof(*tags));
    if (!tags)
        return cecl_fail(ceclOutOfMemory, "no host memory for the verifier");
    memcpy(tags, verify_tags(v, place->area, place->rank) + place->offset,
           (size_t)bytes * sizeof(*tags));
    c->sent[c->nsent++] = (struct verify_sent){
        .tags = tags, .bytes = bytes, .by = {(uint32_t)actor, v->actors[actor].nevents}};
    return ceclSuccess;
}

static ceclResult_t begin(struct verifier *v, int rank, const struct cecl_verify_launch *launch,
                          uint32_t at)
{
    const struct cecl_step *step = &launch->plan->steps[at];
    const int actor = verify_actor(v, rank, step->lane);
    verify_event(v, actor, at);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_transfer *t = &launch->plan->transfers[step->first + i];
        struct verify_channel *c = channel_of(v, rank, t);
        const struct cecl_place place = place_of(v, launch, t);
        v->ranks[rank].queued[i] = t->sends ? c->nsent : c->nreceives++;
        CECL_TRY(verify_note(v, &place, place.offset, t->bytes, actor, !t->sends, 1));
        if (t->sends)
            CECL_TRY(send(v, c, &place, t->bytes, actor));
    }
    v->ranks[rank].in_exchange = v->moved = true;
    return ceclSuccess;
}

static bool is_matched(const struct verifier *v, int rank, const struct cecl_transfer *t,
                       uint32_t queued)
{
    const struct verify_channel *c = channel_of(v, rank, t);
    return queued < (t->sends ? c->nreceives : c->nsent);
}

static ceclResult_t receive(struct verifier *v, uint32_t *clock, int rank, uint32_t at,
                            const struct cecl_transfer *t, const struct cecl_place *place,
                            const struct verify_sent *sent)
{
    if (sent->bytes != t->bytes)
        return VERIFY_FAULT("launch %d, rank %d, step %" PRIu32 ": receives %" PRIu64
                            " bytes of rank %u, which sends %" PRIu64,
                            v->ranks[rank].launch, rank, at, t->bytes, t->peer, sent->bytes);
    verify_join(v, clock, (int)sent->by.actor, sent->by.event);
    memcpy(verify_tags(v, place->area, place->rank) + place->offset, sent->tags,
           (size_t)t->bytes * sizeof(*sent->tags));
    uint32_t *writes = verify_writes(v, place->area, place->rank) + place->offset;
    for (uint64_t b = 0; b < t->bytes; b++)
        writes[b]++;
    return ceclSuccess;
}

ceclResult_t verify_exchange(struct verifier *v, int rank, uint32_t at, bool *stuck)
{
    struct verify_rank *me = &v->ranks[rank];
    const struct cecl_verify_launch launch = verify_launch(v, rank, me->launch);
    const struct cecl_step *step = &launch.plan->steps[at];
    const struct cecl_transfer *transfers = &launch.plan->transfers[step->first];
    if (!me->in_exchange)
        CECL_TRY(begin(v, rank, &launch, at));
    *stuck = false;
    for (uint32_t i = 0; i < step->count && !*stuck; i++)
        *stuck = !is_matched(v, rank, &transfers[i], me->queued[i]);
    if (*stuck)
        return ceclSuccess;
    const int actor = verify_actor(v, rank, step->lane);
    uint32_t *clock = verify_event(v, actor, at);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_place place = place_of(v, &launch, &transfers[i]);
        if (!transfers[i].sends)
            CECL_TRY(receive(v, clock, rank, at, &transfers[i], &place,
                             &channel_of(v, rank, &transfers[i])->sent[me->queued[i]]));
    }
    me->ended[me->nended++] = v->actors[actor].nevents;
    me->in_exchange = false;
    return ceclSuccess;
}
