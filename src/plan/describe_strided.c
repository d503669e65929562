/* Describes calls with strided blocks: the shape in bytes, its defaults and its checks. */
#include <inttypes.h>

#include "device/device.h"
#include "plan/describe.h"

/* Converts a field of ceclStrided_t to bytes. `otherwise` is the default, in elements. */
static ceclResult_t take(const char *name, size_t elements, size_t otherwise, size_t size,
                         uint64_t *bytes)
{
    const size_t value = elements > 0 ? elements : otherwise;
    size_t product;
    if (__builtin_mul_overflow(value, size, &product) || product > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "strided.%s %zu of %zu bytes: beyond an address space", name, value, size);
    *bytes = product;
    return ceclSuccess;
}

/* Bytes from the first block to the end of the last. */
static ceclResult_t extent(const char *buffer, uint64_t blocks, uint64_t stride, uint64_t width,
                           uint64_t rows, uint64_t pitch, uint64_t *out)
{
    uint64_t all, within;
    if (__builtin_mul_overflow(blocks - 1, stride, &all) ||
        __builtin_mul_overflow(rows - 1, pitch, &within) ||
        __builtin_add_overflow(all, within, &all) || __builtin_add_overflow(all, width, &all) ||
        all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "strided: %s has %" PRIu64 " blocks every %" PRIu64 " bytes, of %" PRIu64
                         " rows every %" PRIu64 " bytes: beyond an address space",
                         buffer, blocks, stride, rows, pitch);
    *out = all;
    return ceclSuccess;
}

static ceclResult_t check_pitch(const char *name, uint64_t pitch, uint64_t width, uint64_t rows)
{
    if (rows > 1 && (pitch < width || pitch > CECL_PITCH_MAX))
        return cecl_fail(ceclInvalidArgument,
                         "strided.%s: %" PRIu64 " bytes; a row has %" PRIu64
                         ", and copy engines take pitches up to %u",
                         name, pitch, width, CECL_PITCH_MAX);
    return ceclSuccess;
}

/* Blocks in recvbuff must not overlap: they must lie side by side, or one below another. */
static ceclResult_t check_blocks(const struct cecl_shape *s, uint64_t nranks, uint64_t block_extent)
{
    uint64_t all_wide;
    const bool behind = s->recv_stride >= block_extent;
    const bool beside = s->recv_stride >= s->width &&
                        !__builtin_mul_overflow(nranks - 1, s->recv_stride, &all_wide) &&
                        (s->rows == 1 || all_wide + s->width <= s->recv_pitch);
    if (nranks == 1 || behind || beside)
        return ceclSuccess;
    return cecl_fail(ceclInvalidArgument,
                     "strided.recvStride: %" PRIu64
                     " bytes let blocks overlap in recvbuff that have %" PRIu64 " rows of %" PRIu64
                     " bytes, %" PRIu64 " bytes apart",
                     s->recv_stride, s->rows, s->width, s->recv_pitch);
}

/* Fills in the shape in bytes. A field that is 0 gets the call's default. */
static ceclResult_t fill_shape(const struct cecl_call *call, const ceclStrided_t *given,
                               struct cecl_shape *s)
{
    const bool each = call->op->to == CECL_TO_EACH;
    const size_t width = given->width, rows = given->rows, size = call->element;
    size_t whole, stacked;
    if (__builtin_mul_overflow(width, (size_t)call->nranks, &whole) ||
        __builtin_mul_overflow(rows, given->recvPitch > 0 ? given->recvPitch : width, &stacked))
        return cecl_fail(
            ceclInvalidArgument,
            "strided.width %zu, strided.rows %zu for %d ranks: beyond an address space", width,
            rows, call->nranks);
    s->rows = rows;
    CECL_TRY(take("width", width, 0, size, &s->width));
    CECL_TRY(take("sendPitch", given->sendPitch, each ? whole : width, size, &s->send_pitch));
    if (each) /* calls with one block in sendbuff ignore the field */
        CECL_TRY(take("sendStride", given->sendStride, width, size, &s->send_stride));
    CECL_TRY(take("recvPitch", given->recvPitch, each ? width : whole, size, &s->recv_pitch));
    CECL_TRY(take("recvStride", given->recvStride, each ? stacked : width, size, &s->recv_stride));
    CECL_TRY(check_pitch("sendPitch", s->send_pitch, s->width, rows));
    return check_pitch("recvPitch", s->recv_pitch, s->width, rows);
}

/* Checks that all blocks fit an address space, and do not overlap in recvbuff. */
static ceclResult_t check_shape(const struct cecl_call *call, const struct cecl_shape *s)
{
    const uint64_t nranks = (uint64_t)call->nranks;
    uint64_t all, block;
    CECL_TRY(extent("sendbuff", cecl_call_input_blocks(call), s->send_stride, s->width, s->rows,
                    s->send_pitch, &all));
    CECL_TRY(extent("recvbuff", nranks, s->recv_stride, s->width, s->rows, s->recv_pitch, &all));
    CECL_TRY(extent("a block", 1, 0, s->width, s->rows, s->recv_pitch, &block));
    return check_blocks(s, nranks, block);
}

ceclResult_t cecl_describe_strided(const struct cecl_scope *scope, const struct cecl_args *args,
                                   struct cecl_call *call)
{
    const ceclStrided_t *given = args->strided;
    struct cecl_shape shape = {0};
    if (!given)
        return cecl_fail(ceclInvalidArgument, "strided: NULL");
    if (given->width == 0) /* a call without bytes needs no further check */
        return ceclSuccess;
    if (given->rows == 0)
        return cecl_fail(ceclInvalidArgument,
                         "strided.rows: 0, with a width of %zu; 1 or more expected", given->width);
    CECL_TRY(fill_shape(call, given, &shape));
    CECL_TRY(check_shape(call, &shape));
    call->view.shape = shape;
    /* does not overflow: all blocks fit an address space */
    call->count = given->width * given->rows;
    call->bytes = shape.width * shape.rows;
    return cecl_describe_buffers(scope, args, call);
}
