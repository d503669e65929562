/* Walks the plans of all ranks in an order that the flags allow. On the way every event gets its
 * vector clock, every use of memory is noted,
 * and tags that stand for source bytes are moved as the copies would move bytes.
 *
 * A wait is over, in every possible run, once the first signal of at least its value has come:
 * flags only grow and each has one writer. So
 * what a wait guarantees does not depend on the order of the walk, and neither do the clocks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan/verify_internal.h"

/* The tag of byte `offset` of rank's input to a part of a call; 0 is no byte. */
static uint32_t tag_of(const struct verifier *v, int call, uint32_t part, int rank, uint64_t offset)
{
    const uint64_t input =
        ((uint64_t)call * v->nparts + part) * (uint64_t)v->nranks + (uint64_t)rank;
    return (uint32_t)(input * v->input_bytes + offset + 1);
}

static ceclResult_t note(struct verifier *v, int window, int rank, uint64_t low, uint64_t bytes,
                         int actor, bool write)
{
    struct verify_accesses *a = &v->accesses[window * v->nranks + rank];
    if (a->count == a->capacity) {
        const size_t capacity = a->capacity ? a->capacity * 2 : 64;
        struct verify_access *list = realloc(a->list, capacity * sizeof(*list));
        if (!list)
            return cecl_fail(ceclOutOfMemory, "no host memory for the verifier");
        a->list = list;
        a->capacity = capacity;
    }
    a->list[a->count++] = (struct verify_access){.low = low,
                                                 .high = low + bytes,
                                                 .actor = (uint32_t)actor,
                                                 .event = v->ranks[actor].nevents,
                                                 .write = write};
    return ceclSuccess;
}

/* A new event of `rank`: after its last one. */
static uint32_t *new_event(struct verifier *v, int rank)
{
    struct verify_rank *me = &v->ranks[rank];
    uint32_t *clock = verify_clock(v, rank, me->nevents + 1);
    memcpy(clock, verify_clock(v, rank, me->nevents), (size_t)v->nranks * sizeof(*clock));
    clock[rank] = ++me->nevents;
    return clock;
}

/* ---- the user's turns: before the first call, between calls, after the last */

/* The bytes of the output that come from rank `from`; counts them off `writes`. */
static ceclResult_t check_block(const struct verifier *v, int call, uint32_t part, int rank,
                                int from)
{
    const struct cecl_call *c = cecl_plan_part(verify_plan(v, call, rank), part);
    const int window = cecl_window_of(CECL_WINDOW_RECV, part);
    const uint32_t *tags = verify_tags(v, window, rank);
    uint32_t *writes = verify_writes(v, window, rank);
    const struct cecl_call *theirs = cecl_plan_part(verify_plan(v, call, from), part);
    uint64_t begin, bytes = verify_block(c, from, &begin);
    const uint64_t input = cecl_is_variable(c)        ? cecl_sent_offset(theirs, rank)
                           : c->op == ceclOpAllGather ? 0
                                                      : (uint64_t)rank * bytes;
    for (uint64_t i = 0; i < bytes; i++) {
        const uint64_t at = begin + cecl_offset_within(c, c->shape.recv_pitch, i),
                       source = input + i;
        const uint32_t expected = c->in_place && from == rank ? 0 : 1;
        if (writes[at] != expected)
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " of the output, from rank %d, was written %" PRIu32 " times",
                                call, rank, at, from, writes[at]);
        writes[at] = 0;
        if (tags[at] != tag_of(v, call, part, from, source))
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " of the output is not byte %" PRIu64 " of rank %d's input",
                                call, rank, at, source, from);
    }
    return ceclSuccess;
}

static ceclResult_t check_part(const struct verifier *v, int call, uint32_t part, int rank)
{
    const int window = cecl_window_of(CECL_WINDOW_RECV, part);
    const uint32_t *writes = verify_writes(v, window, rank);
    for (int from = 0; from < v->nranks; from++)
        CECL_TRY(check_block(v, call, part, rank, from));
    for (uint64_t at = 0; at < v->window_bytes[window]; at++)
        if (writes[at] > 0)
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " is no output, but was written %" PRIu32 " times",
                                call, rank, at, writes[at]);
    return ceclSuccess;
}

static ceclResult_t check_output(const struct verifier *v, int call, int rank)
{
    for (uint32_t part = 0; part < cecl_plan_parts(verify_plan(v, call, rank)); part++)
        CECL_TRY(check_part(v, call, part, rank));
    return ceclSuccess;
}

static void clear(const struct verifier *v, uint32_t **bytes, int window, int rank)
{
    memset(&bytes[window][(size_t)rank * v->window_bytes[window]], 0,
           (size_t)v->window_bytes[window] * sizeof(**bytes));
}

/* A block of `bytes` at `offset` of the input, whose first byte is byte `source` of the rank's. */
static void renew_block(const struct verifier *v, int call, uint32_t part, int rank,
                        uint32_t *input, uint64_t offset, uint64_t bytes, uint64_t source)
{
    const struct cecl_call *c = cecl_plan_part(verify_plan(v, call, rank), part);
    const uint64_t pitch = c->in_place ? c->shape.recv_pitch : c->shape.send_pitch;
    for (uint64_t i = 0; i < bytes; i++)
        input[offset + cecl_offset_within(c, pitch, i)] = tag_of(v, call, part, rank, source + i);
}

static void renew_input(const struct verifier *v, int call, uint32_t part, int rank)
{
    const struct cecl_call *c = cecl_plan_part(verify_plan(v, call, rank), part);
    const int send = cecl_window_of(CECL_WINDOW_SEND, part),
              recv = cecl_window_of(CECL_WINDOW_RECV, part);
    uint32_t *input = verify_tags(v, c->in_place ? recv : send, rank);
    if (cecl_is_variable(c)) { /* has both buffers; in place, its own block stands */
        for (uint64_t i = 0; i < verify_send_bytes(c, rank); i++)
            verify_tags(v, send, rank)[i] = tag_of(v, call, part, rank, i);
        for (uint64_t i = 0; c->in_place && i < cecl_sent_bytes(c, rank); i++)
            verify_tags(v, recv, rank)[cecl_received_offset(c, rank) + i] =
                tag_of(v, call, part, rank, cecl_sent_offset(c, rank) + i);
    } else if (c->op == ceclOpAllGather) {
        renew_block(v, call, part, rank, input, c->in_place ? cecl_block_offset(c, rank) : 0,
                    cecl_block_bytes(c, rank), 0);
    } else {
        for (int to = 0; to < v->nranks; to++)
            renew_block(v, call, part, rank, input,
                        c->in_place ? cecl_block_offset(c, to) : cecl_send_offset(c, to), c->bytes,
                        (uint64_t)to * c->bytes);
    }
}

/* New input, and an output that holds nothing of worth. */
static void renew_data(struct verifier *v, int call, int rank)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    for (uint32_t part = 0; part < cecl_plan_parts(plan); part++) {
        const int send = cecl_window_of(CECL_WINDOW_SEND, part),
                  recv = cecl_window_of(CECL_WINDOW_RECV, part);
        clear(v, v->tags, send, rank);
        clear(v, v->tags, recv, rank);
        clear(v, v->writes, recv, rank);
        renew_input(v, call, part, rank);
    }
}

/* The user may do with all buffers what they like: it counts as writing all of them. */
static ceclResult_t users_turn(struct verifier *v, int rank)
{
    struct verify_rank *me = &v->ranks[rank];
    new_event(v, rank);
    for (int w = 0; w < v->nwindows; w++)
        if (w % CECL_WINDOW_COUNT != CECL_WINDOW_STAGING && v->window_bytes[w] > 0)
            CECL_TRY(note(v, w, rank, 0, v->window_bytes[w], rank, true));
    if (me->call > 0 && check_output(v, me->call - 1, rank) != ceclSuccess && !v->wrong_data) {
        v->wrong_data = true; /* the walk goes on: the cause may be a race that shows later */
        cecl_keep_message(v->words);
    }
    if (me->call < v->ncalls)
        renew_data(v, me->call, rank);
    else
        me->done = true;
    me->begun = true;
    return ceclSuccess;
}

/* ---- steps */

static size_t flag_of(const struct verifier *v, int holder, int writer)
{
    return (size_t)holder * (size_t)v->nranks + (size_t)writer;
}

static uint32_t *signal_at(const struct verifier *v, int holder, int writer, uint64_t value)
{
    return &v->signals[flag_of(v, holder, writer) * (size_t)(v->base[v->ncalls] + 1) +
                       (size_t)value];
}

static ceclResult_t do_signal(struct verifier *v, int rank, const struct cecl_step *step)
{
    struct verify_rank *me = &v->ranks[rank];
    const uint64_t value = v->base[me->call] + step->phase;
    uint64_t *highest = &v->highest[flag_of(v, step->peer, rank)];
    if (value <= *highest)
        return VERIFY_FAULT("call %d, rank %d, step %" PRIu32
                            ": the flag at rank %u does not grow: phase %" PRIu32 " again",
                            me->call, rank, me->step, step->peer, step->phase);
    *highest = value;
    new_event(v, rank);
    *signal_at(v, step->peer, rank, value) = me->nevents;
    return ceclSuccess;
}

/* The event of `peer` that ends the wait, or 0 while it has not come. */
static uint32_t awaited(const struct verifier *v, int rank, const struct cecl_step *step)
{
    const uint64_t value = v->base[v->ranks[rank].call] + step->phase;
    for (uint64_t x = value; x <= v->highest[flag_of(v, rank, step->peer)]; x++)
        if (*signal_at(v, rank, step->peer, x))
            return *signal_at(v, rank, step->peer, x);
    return 0;
}

static void do_wait(struct verifier *v, int rank, const struct cecl_step *step, uint32_t event)
{
    uint32_t *mine = new_event(v, rank);
    const uint32_t *theirs = verify_clock(v, step->peer, event);
    for (int r = 0; r < v->nranks; r++)
        if (theirs[r] > mine[r])
            mine[r] = theirs[r];
}

static ceclResult_t do_row(struct verifier *v, int rank, const struct cecl_copy *copy, uint64_t row)
{
    const uint64_t to = copy->dst.offset + row * copy->dst_pitch,
                   from = copy->src.offset + row * copy->src_pitch;
    CECL_TRY(note(v, copy->src.window, copy->src.rank, from, copy->bytes, rank, false));
    CECL_TRY(note(v, copy->dst.window, copy->dst.rank, to, copy->bytes, rank, true));
    memmove(verify_tags(v, copy->dst.window, copy->dst.rank) + to,
            verify_tags(v, copy->src.window, copy->src.rank) + from,
            (size_t)copy->bytes * sizeof(uint32_t));
    uint32_t *writes = verify_writes(v, copy->dst.window, copy->dst.rank) + to;
    for (uint64_t b = 0; b < copy->bytes; b++)
        writes[b]++;
    return ceclSuccess;
}

static ceclResult_t do_copies(struct verifier *v, int rank, const struct cecl_plan *plan,
                              const struct cecl_step *step)
{
    new_event(v, rank);
    for (uint32_t i = 0; i < step->count; i++)
        for (uint64_t row = 0; row < plan->copies[step->first + i].rows; row++)
            CECL_TRY(do_row(v, rank, &plan->copies[step->first + i], row));
    return ceclSuccess;
}

/* Takes `rank` as far as it can go. */
static ceclResult_t advance(struct verifier *v, int rank, bool *moved)
{
    struct verify_rank *me = &v->ranks[rank];
    while (!me->done) {
        if (!me->begun) {
            CECL_TRY(users_turn(v, rank));
            *moved = true;
            continue;
        }
        const struct cecl_plan *plan = verify_plan(v, me->call, rank);
        if (me->step == plan->nsteps) {
            me->call++;
            me->step = 0;
            me->begun = false;
            continue;
        }
        const struct cecl_step *step = &plan->steps[me->step];
        if (step->kind == CECL_STEP_WAIT) {
            const uint32_t event = awaited(v, rank, step);
            if (!event)
                return ceclSuccess;
            do_wait(v, rank, step, event);
        } else if (step->kind == CECL_STEP_SIGNAL) {
            CECL_TRY(do_signal(v, rank, step));
        } else {
            CECL_TRY(do_copies(v, rank, plan, step));
        }
        me->step++;
        *moved = true;
    }
    return ceclSuccess;
}

ceclResult_t verify_run(struct verifier *v)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < v->nranks; r++)
            CECL_TRY(advance(v, r, &moved));
    }
    for (int r = 0; r < v->nranks; r++) {
        const struct verify_rank *me = &v->ranks[r];
        if (!me->done) {
            const struct cecl_step *step = &verify_plan(v, me->call, r)->steps[me->step];
            return VERIFY_FAULT("deadlock: call %d, rank %d, step %" PRIu32
                                " waits for rank %u to come to phase %" PRIu32,
                                me->call, r, me->step, step->peer, step->phase);
        }
    }
    return ceclSuccess;
}
