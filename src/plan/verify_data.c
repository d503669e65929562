/* What the user gives and may expect: inputs as tags that stand for bytes, and what every byte of an
 * output must be. Here each collective is defined. */
#include <inttypes.h>
#include <string.h>

#include "plan/layout.h"
#include "plan/verify_internal.h"

/* The tag of byte `offset` of rank's input to a part of a call; 0 is no byte. */
static uint32_t tag_of(const struct verifier *v, int call, uint32_t part, int rank, uint64_t offset)
{
    const uint64_t input =
        ((uint64_t)call * v->nparts + part) * (uint64_t)v->nranks + (uint64_t)rank;
    return (uint32_t)(input * v->input_bytes + offset + 1);
}

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

/* What the ranks' bytes at `offset` of their inputs become, taken in order. */
static uint32_t reduced_tag(const struct verifier *v, int call, uint32_t part, uint64_t offset)
{
    uint32_t tag = tag_of(v, call, part, 0, offset);
    for (int r = 1; r < v->nranks; r++)
        tag = verify_combine(tag, tag_of(v, call, part, r, offset));
    return tag;
}

/* The result of a reduction: all of it, a rank's block, or nothing but at the root. */
static ceclResult_t check_reduced(const struct verifier *v, int call, uint32_t part, int rank)
{
    const struct cecl_call *c = cecl_plan_part(verify_plan(v, call, rank), part);
    const int window = cecl_window_of(CECL_WINDOW_RECV, part);
    const bool scatters = c->op == ceclOpReduceScatter;
    const uint64_t input = scatters ? (uint64_t)rank * c->bytes : 0;
    const uint64_t begin = scatters && c->in_place ? input : 0;
    const uint64_t bytes = scatters                                   ? c->bytes
                           : c->op == ceclOpReduce && c->root != rank ? 0
                                                                      : c->total;
    const uint32_t expected = c->in_place && v->nranks == 1 ? 0 : 1; /* where it stands already */
    for (uint64_t i = 0; i < bytes; i++) {
        uint32_t *writes = &verify_writes(v, window, rank)[begin + i];
        if (*writes != expected)
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " of the result was written %" PRIu32 " times",
                                call, rank, i, *writes);
        *writes = 0;
        if (verify_tags(v, window, rank)[begin + i] != reduced_tag(v, call, part, input + i))
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " of the result is not that of all ranks' bytes, in order",
                                call, rank, i);
    }
    return ceclSuccess;
}

static ceclResult_t check_part(const struct verifier *v, int call, uint32_t part, int rank)
{
    const int window = cecl_window_of(CECL_WINDOW_RECV, part);
    const uint32_t *writes = verify_writes(v, window, rank);
    const bool reduces = cecl_op_reduces(cecl_plan_part(verify_plan(v, call, rank), part)->op);
    for (int from = 0; from < v->nranks && !reduces; from++)
        CECL_TRY(check_block(v, call, part, rank, from));
    if (reduces)
        CECL_TRY(check_reduced(v, call, part, rank));
    for (uint64_t at = 0; at < v->window_bytes[window]; at++)
        if (writes[at] > 0)
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " is no output, but was written %" PRIu32 " times",
                                call, rank, at, writes[at]);
    return ceclSuccess;
}

ceclResult_t verify_output(const struct verifier *v, int call, int rank)
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
    if (cecl_op_reduces(c->op)) {
        for (uint64_t i = 0; i < verify_send_bytes(c, rank); i++)
            input[i] = tag_of(v, call, part, rank, i);
    } else if (cecl_is_variable(c)) { /* has both buffers; in place, its own block stands */
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
void verify_renew(const struct verifier *v, int call, int rank)
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
