/* Describes the memory of ceclSumRows, which is a local call. */
#include "plan/describe.h"

#include <inttypes.h>

/* The bytes of `count` items of `each` bytes. */
static ceclResult_t multiply(const char *name, uint64_t count, uint64_t each, uint64_t *bytes)
{
    return !__builtin_mul_overflow(count, each, bytes) && *bytes <= PTRDIFF_MAX
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "%s %" PRIu64 ": as many times %" PRIu64
                           " bytes do not fit into the address space",
                           name, count, each);
}

static ceclResult_t check_buffer(const struct cecl_use *use, uint64_t align)
{
    if (!use->buffer)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", use->name);
    return use->low % align == 0
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "%s %p: not aligned to its elements of %" PRIu64 " bytes", use->name,
                           use->buffer, align);
}

/* Checks the buffers that have bytes, and lists them. `sums`, the first buffer, must not overlap the others. */
static ceclResult_t list_uses(const struct cecl_use *all, const uint64_t *aligns,
                              struct cecl_use uses[CECL_ROW_SUMS_USES], size_t *count)
{
    *count = 0;
    for (int i = 0; i < CECL_ROW_SUMS_USES; i++) {
        if (all[i].low == all[i].high)
            continue;
        CECL_TRY(check_buffer(&all[i], aligns[i]));
        if (i > 0 && all[0].low < all[i].high && all[i].low < all[0].high)
            return cecl_fail(ceclInvalidArgument, "%s %p and sums %p overlap; they must not",
                             all[i].name, all[i].buffer, all[0].buffer);
        uses[(*count)++] = all[i];
    }
    return ceclSuccess;
}

ceclResult_t cecl_row_sums_describe(const struct cecl_row_sums *s,
                                    struct cecl_use uses[CECL_ROW_SUMS_USES], size_t *count)
{
    const uint64_t element = cecl_reduction_element_bytes(s->type),
                   aligns[] = {element, element, sizeof(*s->places), sizeof(*s->weights)};
    uint64_t row, rows, places, sums;
    if (!cecl_row_sums_adds(s->type))
        return cecl_fail(
            ceclInvalidArgument,
            "datatype %d: fp32, fp16, bf16 or fp8 expected (the sums are computed in fp32)",
            (int)s->type);
    CECL_TRY(multiply("rowcount", s->count, element, &row));
    CECL_TRY(multiply("nrows", s->nrows, row, &rows));
    CECL_TRY(multiply("tokens", s->tokens, 8 * (uint64_t)s->each, &places));
    CECL_TRY(multiply("tokens", s->tokens, row, &sums));
    struct cecl_use all[CECL_ROW_SUMS_USES] = {
        cecl_use_all(s->sums, sums, "sums"), cecl_use_all(s->rows, rows, "rows"),
        cecl_use_all(s->places, places, "places"),
        cecl_use_all(s->weights, s->weights ? places / 2 : 0, "weights")};
    all[0].written = true;
    return list_uses(all, aligns, uses, count);
}
