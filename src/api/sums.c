/* Sums of rows: a local call, which is one kernel. */
#include "sm/sums.h"

#include "comm/comm.h"

static ceclResult_t check_sizes(const struct cecl_row_sums *s, uint64_t bytes[3])
{
    const uint64_t element = cecl_reduction_element_bytes(s->type);
    if (!cecl_row_sums_adds(s->type))
        return cecl_fail(
            ceclInvalidArgument,
            "datatype %d: fp32, fp16, bf16 or fp8 expected (the sums are computed in fp32)",
            (int)s->type);
    if (__builtin_mul_overflow(s->count, element, &bytes[2]) ||
        __builtin_mul_overflow(bytes[2], s->nrows, &bytes[0]) ||
        __builtin_mul_overflow(bytes[2], s->tokens, &bytes[2]) ||
        __builtin_mul_overflow(s->tokens, 8 * (uint64_t)s->each, &bytes[1]) ||
        bytes[0] > PTRDIFF_MAX || bytes[1] > PTRDIFF_MAX || bytes[2] > PTRDIFF_MAX)
        return cecl_fail(ceclInvalidArgument,
                         "nrows, tokens, each or rowcount: more bytes than an address space");
    return ceclSuccess;
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
            return cecl_fail(ceclInvalidArgument, "%s %p: not aligned to its elements",
                             buffers[i].name, buffers[i].at);
        CECL_TRY(check_memory(comm->dev, buffers[i].name, buffers[i].at, buffers[i].bytes, i == 0));
        if (i > 0 && overlap(s->sums, bytes[2], buffers[i].at, buffers[i].bytes))
            return cecl_fail(ceclInvalidArgument, "%s and sums overlap; they must not",
                             buffers[i].name);
    }
    return ceclSuccess;
}

CECL_API ceclResult_t ceclSumRows(const void *rows, size_t nrows, const uint64_t *places,
                                  const float *weights, void *sums, size_t tokens, size_t each,
                                  size_t rowcount, ceclDataType_t datatype, ceclComm_t comm,
                                  ceclStream_t stream)
{
    CECL_UNCANCELLED;
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
                         "CECL_SM_NEVER: ceclSumRows needs SMs for its arithmetic");
    CECL_TRY(check_buffers(comm, &all, bytes));
    if (tokens == 0 || rowcount == 0)
        return ceclSuccess;
    struct cecl_row_sums call = all;
    call.max_sms = comm->options.max_sms;
    return comm->dev->ops->sum_rows(comm->dev, stream, &call);
}
