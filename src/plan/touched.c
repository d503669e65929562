/* Which memory a call uses on this rank, and whether the call may use it. */
#include <inttypes.h>
#include <string.h>

#include "plan/block.h"
#include "plan/splits.h"

/* The range [low, high) from the first byte of some blocks to their end. low == high if no block has bytes. */
struct extent {
    uint64_t low, high;
    int blocks; /* how many blocks are not empty */
};

static void include(struct extent *extent, const struct cecl_call *call, uint64_t offset,
                    uint64_t bytes, uint64_t pitch)
{
    const struct cecl_shape *shape = &call->view.shape;
    const uint64_t end =
        offset + (shape->width ? cecl_rows_extent(shape->width, shape->rows, pitch) : bytes);
    if (bytes == 0)
        return;
    extent->low = extent->blocks == 0 || offset < extent->low ? offset : extent->low;
    extent->high = end > extent->high ? end : extent->high;
    extent->blocks++;
}

static uint64_t input_pitch(const struct cecl_call *call)
{
    return cecl_call_is_one_buffer(call) ? call->view.shape.recv_pitch
                                         : call->view.shape.send_pitch;
}

/* In a reduction to a root only the root receives. If only the root checked its recvbuff and then refused the call, the
 * other ranks would wait for it. So every rank checks its recvbuff for the bytes that the root needs. */
struct cecl_block cecl_touched_block(const struct cecl_call *call, bool received, int peer)
{
    const bool all_alike = cecl_op_reduces_to(call->op, CECL_TO_ROOT);
    return received ? cecl_call_block(call, peer, all_alike ? call->root : call->rank)
                    : cecl_call_block(call, call->rank, peer);
}

static struct extent message_of(const struct cecl_call *call, bool received)
{
    struct extent extent = {0};
    if (received != (call->op->to == CECL_TO_PEER))
        include(&extent, call, 0, call->bytes, 0);
    return extent;
}

/* All rows that a buffer has room for, because only the device knows which of them are used. */
static struct extent rows_of(const struct cecl_call *call, bool received)
{
    const struct cecl_splits_form form = cecl_call_splits(call);
    struct extent extent = {0};
    include(&extent, call, 0, (received ? form.recv_rows : form.send_rows) * form.row_bytes, 0);
    return extent;
}

static struct extent tiles_of(const struct cecl_call *call)
{
    const struct cecl_shape *shape = &call->view.shape;
    const uint64_t bytes = cecl_rows_extent(shape->width, cecl_tile_rows(call), shape->send_pitch);
    struct extent extent = {.low = UINT64_MAX, .blocks = call->nranks};
    for (int to = 0; to < call->nranks; to++)
        for (uint64_t i = 0; i < cecl_call_tiles(call); i++) {
            const uint64_t begin = cecl_tile_begin(call, to, i);
            extent.low = begin < extent.low ? begin : extent.low;
            extent.high = begin + bytes > extent.high ? begin + bytes : extent.high;
        }
    return extent;
}

/* The blocks that this rank sends. In place they lie in recvbuff, otherwise in sendbuff. */
static struct extent input_of(const struct cecl_call *call)
{
    struct extent extent = {0};
    if (call->op->family == CECL_FAMILY_MESSAGE)
        return message_of(call, false);
    if (call->op->family == CECL_FAMILY_SPLITS)
        return rows_of(call, false);
    if (call->op->has_tiles)
        return tiles_of(call);
    for (int to = 0; to < call->nranks; to++) {
        const struct cecl_block block = cecl_touched_block(call, false, to);
        include(&extent, call, block.send_offset, block.bytes, input_pitch(call));
    }
    return extent;
}

static struct extent output_of(const struct cecl_call *call)
{
    struct extent extent = {0};
    if (call->op->family == CECL_FAMILY_MESSAGE)
        return message_of(call, true);
    if (call->op->family == CECL_FAMILY_SPLITS)
        return rows_of(call, true);
    for (int from = 0; from < call->nranks; from++) {
        const struct cecl_block block = cecl_touched_block(call, true, from);
        include(&extent, call, block.recv_offset, cecl_call_result_bytes(call, block.bytes),
                call->view.shape.recv_pitch);
    }
    return extent;
}

static struct extent union_of(struct extent a, struct extent b)
{
    if (a.blocks == 0 || b.blocks == 0)
        return a.blocks == 0 ? b : a;
    return (struct extent){.low = a.low < b.low ? a.low : b.low,
                           .high = a.high > b.high ? a.high : b.high,
                           .blocks = a.blocks + b.blocks};
}

/* Sets the width and the pitch of the memory that strided blocks take. Blocks side by side are one wide block. Blocks
 * one below another are as wide as a single block if all begin in the same column. Otherwise leaves pitch 0. */
static void set_rows(struct cecl_touched *touched, const struct cecl_shape *s, uint64_t blocks,
                     uint64_t stride, uint64_t pitch)
{
    const uint64_t beside = (blocks - 1) * stride + s->width;
    if (s->rows > 1 && beside <= pitch)
        touched->width = beside;
    else if (s->rows > 1 && stride % pitch == 0)
        touched->width = s->width;
    else
        return;
    touched->pitch = pitch;
}

int cecl_call_touched(const struct cecl_call *call, struct cecl_touched touched[2])
{
    const struct cecl_shape *shape = &call->view.shape;
    const uint64_t nranks = (uint64_t)call->nranks;
    const bool one = cecl_call_is_one_buffer(call);
    const struct extent in = input_of(call),
                        out = one ? union_of(in, output_of(call)) : output_of(call);
    int n = 0;
    if (out.blocks > 0) {
        touched[n] = (struct cecl_touched){call->recv, out.low, out.high, 0, 0, true};
        if (shape->width && !call->op->has_tiles)
            set_rows(&touched[n], shape, nranks, shape->recv_stride, shape->recv_pitch);
        n++;
    }
    if (!one && in.blocks > 0) {
        touched[n] = (struct cecl_touched){call->send, in.low, in.high, 0, 0, false};
        if (shape->width && !call->op->has_tiles)
            set_rows(&touched[n], shape, cecl_call_input_blocks(call), shape->send_stride,
                     shape->send_pitch);
        n++;
    }
    return n;
}

bool cecl_call_writes_recv(const struct cecl_call *call)
{
    const bool keeps_own = call->in_place && call->op->family != CECL_FAMILY_REDUCTION;
    bool writes = false;
    if (call->op->family == CECL_FAMILY_MESSAGE)
        return call->op->to != CECL_TO_PEER;
    if (call->op->family == CECL_FAMILY_SPLITS)
        return true;
    for (int from = 0; from < call->nranks && !writes; from++)
        writes =
            cecl_call_block(call, from, call->rank).bytes > 0 && !(keeps_own && from == call->rank);
    return writes;
}

uint64_t cecl_call_recv_needed(const struct cecl_call *call)
{
    const struct extent out =
        cecl_call_is_one_buffer(call) ? union_of(input_of(call), output_of(call)) : output_of(call);
    return out.high;
}

uint64_t cecl_call_send_needed(const struct cecl_call *call)
{
    return cecl_call_is_one_buffer(call) ? 0 : input_of(call).high;
}

/* In place sendbuff and recvbuff may share only the own block. If it is all of the input or of the output, nothing else
 * can be in both. */
static ceclResult_t check_overlap(const struct cecl_call *call, const struct extent *in,
                                  const struct extent *out)
{
    const struct cecl_block own = cecl_call_block(call, call->rank, call->rank);
    const uint64_t send = call->send.offset, recv = call->recv.offset;
    const struct cecl_buffer in_place =
        cecl_buffer_at(call->recv, own.recv_offset - own.send_offset);
    if (call->send.window != call->recv.window || send + in->low >= recv + out->high ||
        recv + out->low >= send + in->high)
        return ceclSuccess;
    if (call->in_place && (in->blocks == 1 || out->blocks == 1))
        return ceclSuccess;
    const void *from = cecl_buffer_address(call->send), *to = cecl_buffer_address(call->recv);
    if (call->op->family == CECL_FAMILY_OWN_LAYOUT || call->op->family == CECL_FAMILY_SPLITS ||
        call->op->widens)
        return cecl_fail(ceclInvalidArgument,
                         "sendbuff %p and recvbuff %p overlap: bytes %" PRIu64 " to %" PRIu64
                         " are sent, bytes %" PRIu64 " to %" PRIu64
                         " received; they must not overlap",
                         from, to, in->low, in->high - 1, out->low, out->high - 1);
    return cecl_fail(ceclInvalidArgument,
                     "sendbuff %p and recvbuff %p overlap (%" PRIu64 " and %" PRIu64
                     " bytes); in place, %ssendbuff is %p",
                     from, to, in->high, out->high,
                     cecl_op_has_both_buffers(call->op) ? "on root, " : "",
                     cecl_buffer_address(in_place));
}

void cecl_call_splits_arrays(const struct cecl_call *call,
                             struct cecl_splits_array arrays[CECL_SPLITS_ARRAYS])
{
    const struct cecl_splits_form form = cecl_call_splits(call);
    const uint64_t bytes = (uint64_t)form.nranks * form.experts * sizeof(uint64_t);
    const struct cecl_splits_array all[CECL_SPLITS_ARRAYS] = {
        {CECL_LAYOUT_SPLITS, form.back ? 2 * bytes : bytes, "sendsplits", false},
        {CECL_LAYOUT_SPLITS_OUT, 2 * bytes, "recvsplits", true},
        {CECL_LAYOUT_SEND_SCALES, form.send_rows * form.scale_bytes, "experts->sendscales", false},
        {CECL_LAYOUT_RECV_SCALES, form.recv_rows * form.scale_bytes, "experts->recvscales", true}};
    memcpy(arrays, all, sizeof(all));
}

static ceclResult_t check_splits(const struct cecl_call *call, const struct cecl_windows *windows)
{
    struct cecl_splits_array arrays[CECL_SPLITS_ARRAYS];
    cecl_call_splits_arrays(call, arrays);
    for (size_t i = 0; i < CECL_SPLITS_ARRAYS; i++)
        if (arrays[i].bytes > 0)
            CECL_TRY(cecl_window_check(
                windows, cecl_window_find(windows, cecl_call_address(call, arrays[i].word)),
                arrays[i].bytes, arrays[i].name));
    return ceclSuccess;
}

ceclResult_t cecl_call_check_buffers(const struct cecl_call *call,
                                     const struct cecl_windows *windows)
{
    if (call->op->family == CECL_FAMILY_BARRIER)
        return ceclSuccess;
    const struct extent in = input_of(call), out = output_of(call);
    if (call->op->family == CECL_FAMILY_SPLITS)
        CECL_TRY(check_splits(call, windows));
    if (out.blocks > 0)
        CECL_TRY(cecl_window_check(windows, call->recv, cecl_call_recv_needed(call), "recvbuff"));
    if (cecl_call_is_one_buffer(call) || in.blocks == 0)
        return ceclSuccess;
    CECL_TRY(cecl_window_check(windows, cecl_buffer_at(call->send, in.low), in.high - in.low,
                               "sendbuff"));
    /* a message has one buffer, and a rank that receives nothing may pass any recvbuff */
    if (call->op->family == CECL_FAMILY_MESSAGE || out.blocks == 0)
        return ceclSuccess;
    return check_overlap(call, &in, &out);
}
