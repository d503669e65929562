/* Messages in the verifier: the form of their plans, their memory, and the expected bytes. */
#include <inttypes.h>
#include <string.h>

#include "verify/internal.h"

static const struct cecl_verify_message *
message_of(const struct verifier *v, const struct cecl_verify_launch *launch, uint32_t part)
{
    return &v->program->messages[launch->messages[part]];
}

/* A copy must go from the sender's end of a message to the receiver's end. One of the ends is this rank. */
static ceclResult_t check_copy(const struct verifier *v, const struct cecl_verify_launch *launch,
                               const struct cecl_copy *copy, int rank)
{
    const uint32_t part = copy->src.area / CECL_AREA_COUNT;
    if (part >= launch->nmessages || copy->src.area != cecl_area_of(CECL_AREA_SEND, part) ||
        copy->dst.area != cecl_area_of(CECL_AREA_RECV, part))
        return VERIFY_FAULT("a copy is not from the sender's to the receiver's end of one message");
    const struct cecl_verify_message *m = message_of(v, launch, part);
    if (copy->src.rank != m->from || copy->dst.rank != m->to || (m->from != rank && m->to != rank))
        return VERIFY_FAULT("a copy from rank %u to rank %u is not of its message", copy->src.rank,
                            copy->dst.rank);
    if (copy->rows != 1 || copy->bytes < 1 || copy->bytes > m->bytes ||
        copy->src.offset > m->bytes - copy->bytes || copy->dst.offset > m->bytes - copy->bytes)
        return VERIFY_FAULT("a copy of %" PRIu64 " bytes is out of its message", copy->bytes);
    return ceclSuccess;
}

static bool is_flag(const struct verifier *v, const struct cecl_step *step, int rank)
{
    if (verify_is_own(step->counter))
        return step->kind == CECL_STEP_SIGNAL && step->peer == rank && step->phase == 1;
    return step->counter >= CECL_PHASED && step->counter != CECL_COUNTER_DONE &&
           step->counter < v->ncounters && step->peer < v->nranks && step->peer != rank &&
           step->phase >= 1;
}

static ceclResult_t check_step(const struct verifier *v, const struct cecl_verify_launch *launch,
                               const struct cecl_step *step, int rank)
{
    const struct cecl_plan *plan = launch->plan;
    bool fine = false;
    if (step->kind <= CECL_STEP_WAIT)
        fine = is_flag(v, step, rank);
    else if (step->kind == CECL_STEP_AFTER)
        fine = step->first < (uint32_t)v->nlanes && step->first != step->lane;
    else if (step->kind == CECL_STEP_COPY)
        fine = step->count >= 1 && step->count <= plan->ncopies &&
               step->first <= plan->ncopies - step->count;
    if (!fine || step->lane >= v->nlanes)
        return VERIFY_FAULT(
            "a step that plans of messages do not have: kind %u, lane %u, counter %" PRIu32,
            step->kind, step->lane, step->counter);
    for (uint32_t i = 0; step->kind == CECL_STEP_COPY && i < step->count; i++)
        CECL_TRY(check_copy(v, launch, &plan->copies[step->first + i], rank));
    return ceclSuccess;
}

ceclResult_t verify_messages_form(const struct verifier *v)
{
    for (int r = 0; r < v->nranks; r++)
        for (int i = 0; i < v->program->nlaunches[r]; i++) {
            const struct cecl_verify_launch launch = verify_launch(v, r, i);
            for (uint32_t s = 0; launch.call < 0 && s < launch.plan->nsteps; s++)
                CECL_TRY(check_step(v, &launch, &launch.plan->steps[s], r));
        }
    return ceclSuccess;
}

struct cecl_copy verify_message_copy(const struct verifier *v,
                                     const struct cecl_verify_launch *launch,
                                     const struct cecl_copy *copy)
{
    const uint32_t part = copy->src.area / CECL_AREA_COUNT;
    struct cecl_copy moved = *copy;
    moved.src.area = moved.dst.area = (uint16_t)(v->nareas + (int)launch->messages[part]);
    return moved;
}

/* The tag of a byte of a message. A call's byte may have an equal tag, but never comes to message memory. */
static uint32_t tag_of(uint32_t message, uint32_t byte)
{
    return verify_combine(message + 1, byte + 1);
}

ceclResult_t verify_messages_output(const struct verifier *v,
                                    const struct cecl_verify_launch *launch, int rank)
{
    for (uint32_t i = 0; i < launch->nmessages; i++) {
        const uint32_t id = launch->messages[i];
        const struct cecl_verify_message *m = &v->program->messages[id];
        const int memory = v->nareas + (int)id;
        for (uint32_t b = 0; m->to == rank && b < m->bytes; b++) {
            const uint32_t writes = verify_writes(v, memory, rank)[b];
            if (writes != 1)
                return VERIFY_FAULT("message %" PRIu32 ": byte %" PRIu32 " was written %" PRIu32
                                    " times at rank %d",
                                    id, b, writes, rank);
            if (verify_tags(v, memory, rank)[b] != tag_of(id, b))
                return VERIFY_FAULT("message %" PRIu32 ": byte %" PRIu32
                                    " at rank %d is not the one that was sent",
                                    id, b, rank);
        }
    }
    return ceclSuccess;
}

void verify_messages_renew(const struct verifier *v, const struct cecl_verify_launch *launch,
                           int rank)
{
    for (uint32_t i = 0; i < launch->nmessages; i++) {
        const uint32_t id = launch->messages[i];
        const struct cecl_verify_message *m = &v->program->messages[id];
        const int memory = v->nareas + (int)id;
        memset(verify_writes(v, memory, rank), 0, m->bytes * sizeof(uint32_t));
        for (uint32_t b = 0; b < m->bytes; b++)
            verify_tags(v, memory, rank)[b] = m->from == rank ? tag_of(id, b) : 0;
    }
}
