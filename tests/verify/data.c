/* The verifier's data: tags that stand for input bytes, and the tag that cecl_call_block gives each output byte. */
#include <inttypes.h>
#include <string.h>

#include "verify/internal.h"

uint32_t verify_tag(const struct verifier *v, int call, uint32_t part, int rank, uint64_t offset)
{
    const uint64_t input =
        ((uint64_t)call * v->nparts + part) * (uint64_t)v->nranks + (uint64_t)rank;
    return (uint32_t)(input * v->input_bytes + offset + 1);
}

static const struct cecl_call *call_at(const struct verifier *v, int call, uint32_t part, int rank)
{
    return &cecl_plan_part(verify_plan(v, call, rank), part)->call;
}

/* Where byte `i` of a rank's block for rank `to` lies in that rank's input. */
static uint64_t input_offset(const struct cecl_call *call, int to, uint64_t i)
{
    return call->op->has_tiles ? verify_tile_byte(call, to, i)
                               : cecl_call_block(call, call->rank, to).send_offset +
                                     cecl_offset_within(call, verify_input_pitch(call), i);
}

/* The tag of byte `i` of the block from rank `from` to rank `to`. */
static uint32_t source_tag(const struct verifier *v, int call, uint32_t part, int from, int to,
                           uint64_t i)
{
    const struct cecl_call *theirs = call_at(v, call, part, from);
    return verify_tag(v, call, part, from, input_offset(theirs, to, i));
}

ceclResult_t verify_writes_of(const struct verifier *v, int call, uint32_t part, int rank,
                              uint64_t at, uint32_t expected)
{
    uint32_t *writes = &verify_writes(v, cecl_area_of(CECL_AREA_RECV, part), rank)[at];
    if (*writes != expected)
        return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64 " of the output was written %" PRIu32
                            " times",
                            call, rank, at, *writes);
    *writes = 0;
    return ceclSuccess;
}

/* Checks the bytes of the output that come from rank `from`. */
static ceclResult_t check_block(const struct verifier *v, int call, uint32_t part, int rank,
                                int from)
{
    const struct cecl_call *c = call_at(v, call, part, rank);
    const uint32_t *tags = verify_tags(v, cecl_area_of(CECL_AREA_RECV, part), rank);
    const struct cecl_block block = cecl_call_block(c, from, rank);
    for (uint64_t i = 0; i < block.bytes; i++) {
        const uint64_t at = block.recv_offset + cecl_offset_within(c, c->view.shape.recv_pitch, i);
        CECL_TRY(verify_writes_of(v, call, part, rank, at, c->in_place && from == rank ? 0 : 1));
        if (tags[at] != source_tag(v, call, part, from, rank, i))
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " of the output is not byte %" PRIu64 " of the block from rank %d",
                                call, rank, at, i, from);
    }
    return ceclSuccess;
}

/* The tag of the reduction of byte `i` of all ranks' blocks for `rank`, in rank order. */
static uint32_t reduced_tag(const struct verifier *v, int call, uint32_t part, int rank, uint64_t i)
{
    uint32_t tag = source_tag(v, call, part, 0, rank, i);
    for (int r = 1; r < v->nranks; r++)
        tag = verify_combine(tag, source_tag(v, call, part, r, rank, i));
    return tag;
}

static ceclResult_t check_reduced(const struct verifier *v, int call, uint32_t part, int rank)
{
    const struct cecl_call *c = call_at(v, call, part, rank);
    const uint32_t *tags = verify_tags(v, cecl_area_of(CECL_AREA_RECV, part), rank);
    const struct cecl_block block = cecl_call_block(c, rank, rank);
    /* in place on a single rank, the result is there before the call */
    const uint32_t expected = c->in_place && v->nranks == 1 ? 0 : 1;
    const uint64_t bytes = cecl_call_result_bytes(c, block.bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        CECL_TRY(verify_writes_of(v, call, part, rank, block.recv_offset + i, expected));
        const uint32_t tag = reduced_tag(v, call, part, rank, i * block.bytes / bytes);
        if (tags[block.recv_offset + i] != (expected > 0 ? verify_reduced(tag) : tag))
            return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                " of the result is not that of all ranks' bytes, in order",
                                call, rank, i);
    }
    return ceclSuccess;
}

static ceclResult_t check_part(const struct verifier *v, int call, uint32_t part, int rank)
{
    const int area = cecl_area_of(CECL_AREA_RECV, part);
    const uint32_t *writes = verify_writes(v, area, rank);
    const bool reduces = call_at(v, call, part, rank)->op->family == CECL_FAMILY_REDUCTION;
    if (call_at(v, call, part, rank)->op->family == CECL_FAMILY_SPLITS)
        CECL_TRY(verify_splits_output(v, call, rank));
    for (int from = 0; from < v->nranks && !reduces; from++)
        CECL_TRY(check_block(v, call, part, rank, from));
    if (reduces)
        CECL_TRY(check_reduced(v, call, part, rank));
    for (uint64_t at = 0; at < v->area_bytes[area]; at++)
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

static void clear(const struct verifier *v, uint32_t **bytes, int area, int rank)
{
    memset(&bytes[area][(size_t)rank * v->area_bytes[area]], 0,
           (size_t)v->area_bytes[area] * sizeof(**bytes));
}

static void renew_input(const struct verifier *v, int call, uint32_t part, int rank)
{
    const struct cecl_call *c = call_at(v, call, part, rank);
    uint32_t *input = verify_tags(v, cecl_area_of(verify_input_area(c), part), rank);
    for (uint64_t i = 0; c->op->family == CECL_FAMILY_SPLITS && i < verify_send_bytes(c); i++)
        input[i] = verify_tag(v, call, part, rank, i);
    for (int to = 0; to < v->nranks; to++) {
        const struct cecl_block block = cecl_call_block(c, rank, to);
        for (uint64_t i = 0; i < block.bytes; i++)
            input[input_offset(c, to, i)] = source_tag(v, call, part, rank, to, i);
    }
    if (!cecl_op_has_both_buffers(c->op) || !c->in_place)
        return;
    /* An in-place call with both buffers has the own block in both. */
    uint32_t *recv = verify_tags(v, cecl_area_of(CECL_AREA_RECV, part), rank);
    const struct cecl_block own = cecl_call_block(c, rank, rank);
    for (uint64_t i = 0; i < own.bytes; i++)
        recv[own.recv_offset + i] = source_tag(v, call, part, rank, rank, i);
}

void verify_renew(const struct verifier *v, int call, int rank)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    for (uint32_t part = 0; part < cecl_plan_parts(plan); part++) {
        const int send = cecl_area_of(CECL_AREA_SEND, part),
                  recv = cecl_area_of(CECL_AREA_RECV, part);
        clear(v, v->tags, send, rank);
        clear(v, v->tags, recv, rank);
        clear(v, v->writes, recv, rank);
        renew_input(v, call, part, rank);
    }
}
