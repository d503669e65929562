/* Sums of rows: a local call, which is one kernel. */
#include "sm/sums.h"

#include <inttypes.h>

#include "comm/comm.h"

/* The bytes of `count` things of `each` bytes. */
static ceclResult_t multiply(const char *name, uint64_t count, uint64_t each, uint64_t *bytes)
{
    return !__builtin_mul_overflow(count, each, bytes) && *bytes <= PTRDIFF_MAX
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "%s %" PRIu64 ": as many times %" PRIu64
                           " bytes do not fit into the address space",
                           name, count, each);
}

static ceclResult_t check_sizes(const struct cecl_row_sums *s, uint64_t bytes[3])
{
    const uint64_t element = cecl_reduction_element_bytes(s->type);
    if (!cecl_row_sums_adds(s->type))
        return cecl_fail(
            ceclInvalidArgument,
            "datatype %d: fp32, fp16, bf16 or fp8 expected (the sums are computed in fp32)",
            (int)s->type);
    uint64_t row;
    CECL_TRY(multiply("rowcount", s->count, element, &row));
    CECL_TRY(multiply("nrows", s->nrows, row, &bytes[0]));
    CECL_TRY(multiply("tokens", s->tokens, 8 * (uint64_t)s->each, &bytes[1]));
    return multiply("tokens", s->tokens, row, &bytes[2]);
}

/* On the host device a kernel that meets a hole, or memory that it must not write, ends the process. */
static ceclResult_t check_memory(struct cecl_device *dev, const char *name, const void *at,
                                 uint64_t bytes, bool written)
{
    struct cecl_use use = cecl_use_all(at, bytes, name);
    use.written = written;
    CECL_TRY(dev->ops->check_pointer(dev, at, bytes, name));
    return dev->ops->check_uses ? dev->ops->check_uses(dev, &use, 1) : ceclSuccess;
}

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* `bytes`: the sizes of rows, of places, and of sums. */
static ceclResult_t check_buffers(ceclComm_t comm, const struct cecl_row_sums *s,
                                  const uint64_t bytes[3])
{
    const uint64_t element = cecl_reduction_element_bytes(s->type);
    const struct {
        const char *name;
        const void *at;
        uint64_t bytes, align;
    } buffers[] = {{"sums", s->sums, bytes[2], element},
                   {"rows", s->rows, bytes[0], element},
                   {"places", s->places, bytes[1], sizeof(*s->places)},
                   {"weights", s->weights, s->weights ? bytes[1] / 2 : 0, sizeof(*s->weights)}};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        if (buffers[i].bytes == 0)
            continue;
        if (!buffers[i].at)
            return cecl_fail(ceclInvalidArgument, "%s: NULL", buffers[i].name);
        if ((uintptr_t)buffers[i].at % buffers[i].align != 0)
            return cecl_fail(ceclInvalidArgument,
                             "%s %p: not aligned to its elements of %" PRIu64 " bytes",
                             buffers[i].name, buffers[i].at, buffers[i].align);
        CECL_TRY(check_memory(comm->dev, buffers[i].name, buffers[i].at, buffers[i].bytes, i == 0));
        if (i > 0 && overlap(s->sums, bytes[2], buffers[i].at, buffers[i].bytes))
            return cecl_fail(ceclInvalidArgument, "%s %p and sums %p overlap; they must not",
                             buffers[i].name, buffers[i].at, s->sums);
    }
    return ceclSuccess;
}

CECL_API ceclResult_t ceclSumRows(const void *rows, size_t nrows, const uint64_t *places,
                                  const float *weights, void *sums, size_t tokens, size_t each,
                                  size_t rowcount, ceclDataType_t datatype, ceclComm_t comm,
                                  ceclStream_t stream)
{
    CECL_PUBLIC;
    const struct cecl_row_sums all = {.rows = rows,
                                      .places = places,
                                      .weights = weights,
                                      .sums = sums,
                                      .nrows = nrows,
                                      .count = rowcount,
                                      .tokens = tokens,
                                      .each = (uint32_t)each,
                                      .type = datatype};
    uint64_t bytes[3];
    CECL_TRY(cecl_comm_check(comm));
    if (each > UINT32_MAX)
        return cecl_fail(ceclInvalidArgument, "each %zu: at most %u expected", each, UINT32_MAX);
    CECL_TRY(check_sizes(&all, bytes));
    if (comm->options.sm_policy == CECL_SM_NEVER)
        return cecl_fail(ceclInvalidUsage,
                         "CECL_SM_NEVER: sums need SMs for their arithmetic; set smPolicy or "
                         "CECL_SM_POLICY to CECL_SM_REDUCE_ONLY");
    CECL_TRY(check_buffers(comm, &all, bytes));
    if (tokens == 0 || rowcount == 0)
        return ceclSuccess;
    struct cecl_row_sums call = all;
    call.max_sms = comm->options.max_sms;
    return comm->dev->ops->sum_rows(comm->dev, stream, &call);
}
