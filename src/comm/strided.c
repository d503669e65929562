/* Collectives of strided blocks: their shape in bytes, with its defaults, and what is wrong with it. */
#include <inttypes.h>

#include "comm/collective.h"
#include "device/device.h"

/* A field of ceclStrided_t in bytes. */
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
                           uint64_t rows, uint64_t pitch, size_t *out)
{
    uint64_t all, within;
    if (__builtin_mul_overflow(blocks - 1, stride, &all) ||
        __builtin_mul_overflow(rows - 1, pitch, &within) ||
        __builtin_add_overflow(all, within, &all) || __builtin_add_overflow(all, width, &all) ||
        all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "strided: %s of %" PRIu64 " blocks, %" PRIu64 " bytes apart, of %" PRIu64
                         " rows, %" PRIu64 " bytes apart: beyond an address space",
                         buffer, blocks, stride, rows, pitch);
    *out = (size_t)all;
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

/* Blocks of recvbuff are side by side or one behind the other: else they would meet. */
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
                     "strided.recvStride: %" PRIu64 " bytes; blocks of %" PRIu64 " rows of %" PRIu64
                     ", %" PRIu64 " apart, then overlap in recvbuff",
                     s->recv_stride, s->rows, s->width, s->recv_pitch);
}

/* The shape in bytes, by the defaults of the operation. */
static ceclResult_t fill_shape(const struct cecl_item *item, const ceclStrided_t *given, int nranks,
                               size_t size, struct cecl_shape *s)
{
    const bool gathers = item->op == ceclOpAllGather;
    const size_t width = given->width, rows = given->rows;
    size_t whole, stacked;
    if (__builtin_mul_overflow(width, (size_t)nranks, &whole) ||
        __builtin_mul_overflow(rows, given->recvPitch > 0 ? given->recvPitch : width, &stacked))
        return cecl_fail(
            ceclInvalidArgument,
            "strided.width %zu, strided.rows %zu for %d ranks: beyond an address space", width,
            rows, nranks);
    s->rows = rows;
    CECL_TRY(take("width", width, 0, size, &s->width));
    CECL_TRY(take("sendPitch", given->sendPitch, gathers ? width : whole, size, &s->send_pitch));
    CECL_TRY(take("sendStride", gathers ? 0 : given->sendStride, width, size, &s->send_stride));
    CECL_TRY(take("recvPitch", given->recvPitch, gathers ? whole : width, size, &s->recv_pitch));
    CECL_TRY(
        take("recvStride", given->recvStride, gathers ? width : stacked, size, &s->recv_stride));
    CECL_TRY(check_pitch("sendPitch", s->send_pitch, s->width, rows));
    return check_pitch("recvPitch", s->recv_pitch, s->width, rows);
}

static bool is_in_place(ceclComm_t comm, const struct cecl_item *item)
{
    const struct cecl_shape *s = &item->shape;
    const uintptr_t send = (uintptr_t)item->send, recv = (uintptr_t)item->recv;
    const bool same_rows = s->rows == 1 || s->send_pitch == s->recv_pitch;
    if (item->op == ceclOpAllGather)
        return same_rows && send == recv + (size_t)comm->rank * s->recv_stride;
    return same_rows && send == recv && (comm->nranks == 1 || s->send_stride == s->recv_stride);
}

/* Fills in all of `item` that a shape decides. Without elements it stays a call without effect. */
static ceclResult_t apply_shape(ceclComm_t comm, const ceclStrided_t *given, struct cecl_item *item)
{
    const size_t size = cecl_type_bytes(item->type);
    const uint64_t nranks = (uint64_t)comm->nranks;
    struct cecl_shape s = {0};
    size_t block_extent;
    if (!given)
        return cecl_fail(ceclInvalidArgument, "strided: NULL");
    if (size == 0 || given->width == 0 || given->rows == 0)
        return ceclSuccess; /* an unknown type is refused with all others */
    CECL_TRY(fill_shape(item, given, comm->nranks, size, &s));
    CECL_TRY(extent("sendbuff", item->op == ceclOpAllGather ? 1 : nranks, s.send_stride, s.width,
                    s.rows, s.send_pitch, &item->send_bytes));
    CECL_TRY(extent("recvbuff", nranks, s.recv_stride, s.width, s.rows, s.recv_pitch,
                    &item->recv_bytes));
    CECL_TRY(extent("a block", 1, 0, s.width, s.rows, s.recv_pitch, &block_extent));
    CECL_TRY(check_blocks(&s, nranks, block_extent));
    item->count = given->width * given->rows; /* within recv_bytes */
    item->shape = s;
    item->in_place = is_in_place(comm, item);
    return ceclSuccess;
}

static ceclResult_t strided_call(struct cecl_item item, const ceclStrided_t *strided,
                                 ceclComm_t comm, ceclStream_t stream)
{
    CECL_TRY(cecl_comm_check(comm));
    const ceclResult_t result = apply_shape(comm, strided, &item);
    return cecl_collective(&item, comm, stream, result);
}

CECL_API ceclResult_t ceclAllGatherStrided(const void *sendbuff, void *recvbuff,
                                           const ceclStrided_t *strided, ceclDataType_t datatype,
                                           ceclComm_t comm, ceclStream_t stream)
{
    return strided_call((struct cecl_item){.op = ceclOpAllGather,
                                           .called = CECL_CALLED_ALL_GATHER_STRIDED,
                                           .send = sendbuff,
                                           .recv = recvbuff,
                                           .type = datatype},
                        strided, comm, stream);
}

CECL_API ceclResult_t ceclAlltoAllStrided(const void *sendbuff, void *recvbuff,
                                          const ceclStrided_t *strided, ceclDataType_t datatype,
                                          ceclComm_t comm, ceclStream_t stream)
{
    return strided_call((struct cecl_item){.op = ceclOpAlltoAll,
                                           .called = CECL_CALLED_ALL_TO_ALL_STRIDED,
                                           .send = sendbuff,
                                           .recv = recvbuff,
                                           .type = datatype},
                        strided, comm, stream);
}
