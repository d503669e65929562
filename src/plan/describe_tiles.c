/* Describes reductions of tiles. */
#include <inttypes.h>

#include "device/device.h"
#include "plan/describe.h"

/* Converts a field of ceclTiles_t to bytes. */
static ceclResult_t take(const char *name, size_t elements, size_t size, uint64_t *bytes)
{
    size_t product;
    if (__builtin_mul_overflow(elements, size, &product) || product > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument, "tiles.%s %zu of %zu bytes: beyond an address space",
                         name, elements, size);
    *bytes = product;
    return ceclSuccess;
}

static ceclResult_t check_given(const ceclTiles_t *given, int nranks)
{
    if (given->rows == 0 || given->count == 0)
        return cecl_fail(ceclInvalidArgument, "tiles.%s: 0; 1 or more expected",
                         given->rows == 0 ? "rows" : "count");
    if (given->count > CECL_TILES_MAX / (size_t)nranks)
        return cecl_fail(ceclInvalidArgument, "tiles.count %zu for each of %d ranks: %d at most",
                         given->count, nranks, CECL_TILES_MAX / nranks);
    return ceclSuccess;
}

static ceclResult_t fill_shape(const ceclTiles_t *given, struct cecl_call *call,
                               struct cecl_shape *s)
{
    const size_t tiles = (size_t)call->nranks * given->count;
    size_t rows, beside, all, count;
    if (__builtin_mul_overflow(given->rows, given->count, &rows) ||
        __builtin_mul_overflow(rows, given->width, &count) ||
        __builtin_mul_overflow(tiles, given->width, &beside))
        return cecl_fail(ceclInvalidArgument,
                         "tiles: %zu of %zu rows of %zu elements: beyond an address space",
                         given->count, given->rows, given->width);
    CECL_TRY(take("width", given->width, call->element, &s->width));
    CECL_TRY(
        take("pitch", given->pitch > 0 ? given->pitch : beside, call->element, &s->send_pitch));
    CECL_TRY(take("width * tiles.rows * tiles.count", count, call->element, &call->bytes));
    if (__builtin_mul_overflow(given->rows, (size_t)s->send_pitch, &all) || all > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "tiles.rows %zu, %" PRIu64 " bytes apart: beyond an address space",
                         given->rows, s->send_pitch);
    if (given->rows > 1 && (s->send_pitch < s->width || s->send_pitch > CECL_PITCH_MAX))
        return cecl_fail(ceclInvalidArgument,
                         "tiles.pitch: %" PRIu64 " bytes; a row has %" PRIu64
                         ", and copy engines take pitches up to %u",
                         s->send_pitch, s->width, CECL_PITCH_MAX);
    s->rows = rows;
    s->recv_pitch = s->width;
    call->count = count;
    return ceclSuccess;
}

/* Fills in where tiles begin. By default they lie side by side. */
static ceclResult_t fill_layout(const ceclTiles_t *given, const struct cecl_call *call,
                                const struct cecl_shape *s, uint64_t *words)
{
    const uint64_t extent = cecl_rows_extent(s->width, given->rows, s->send_pitch);
    words[0] = given->count;
    for (size_t i = 0; i < (size_t)call->nranks * given->count; i++) {
        CECL_TRY(take("begins", given->begins ? given->begins[i] : i * given->width, call->element,
                      &words[1 + i]));
        if (words[1 + i] > PTRDIFF_MAX - extent)
            return cecl_fail(ceclInvalidArgument,
                             "tiles.begins[%zu] %zu: the tile ends beyond an address space", i,
                             given->begins[i]);
    }
    return ceclSuccess;
}

static ceclResult_t find_buffers(const struct cecl_scope *scope, const struct cecl_args *args,
                                 struct cecl_call *call)
{
    if (!args->send || !args->recv)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", args->send ? "recvbuff" : "sendbuff");
    call->send = cecl_window_find(scope->windows, args->send);
    call->recv = cecl_window_find(scope->windows, args->recv);
    return ceclSuccess;
}

ceclResult_t cecl_describe_tiles(const struct cecl_scope *scope, const struct cecl_args *args,
                                 struct cecl_call *call)
{
    const ceclTiles_t *given = args->tiles;
    struct cecl_shape shape = {0};
    CECL_TRY(cecl_reduction_check(args->type, args->red_op));
    if (!given)
        return cecl_fail(ceclInvalidArgument, "tiles: NULL");
    if (given->width == 0) /* a call without bytes needs no further check */
        return ceclSuccess;
    CECL_TRY(check_given(given, scope->nranks));
    CECL_TRY(fill_shape(given, call, &shape));
    CECL_TRY(fill_layout(given, call, &shape, scope->layout));
    call->view.shape = shape;
    call->view.layout = scope->layout;
    call->layout_words = 1 + (uint32_t)scope->nranks * (uint32_t)given->count;
    CECL_TRY(find_buffers(scope, args, call));
    CECL_TRY(cecl_describe_aligned("sendbuff", args->send, call->element));
    return cecl_describe_aligned("recvbuff", args->recv, call->element);
}
