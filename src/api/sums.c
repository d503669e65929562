/* ceclSumRows: a local call, which is one kernel. */
#include "comm/comm.h"
#include "plan/describe.h"

/* Refuses memory that the device cannot use. On the host device an access to it would end the process by a signal. */
static ceclResult_t check_memory(struct cecl_device *dev, const struct cecl_use *uses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CECL_TRY(dev->ops->check_pointer(dev, uses[i].buffer, (size_t)(uses[i].high - uses[i].low),
                                         uses[i].name));
    return count > 0 && dev->ops->check_uses ? dev->ops->check_uses(dev, uses, count) : ceclSuccess;
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
    struct cecl_use uses[CECL_ROW_SUMS_USES];
    size_t count;
    CECL_TRY(cecl_comm_check(comm));
    if (each > UINT32_MAX)
        return cecl_fail(ceclInvalidArgument, "each %zu: at most %u expected", each, UINT32_MAX);
    CECL_TRY(cecl_row_sums_describe(&all, uses, &count));
    if (comm->options.sm_policy == CECL_SM_NEVER)
        return cecl_fail(ceclInvalidUsage,
                         "CECL_SM_NEVER: sums need SMs for their arithmetic; set smPolicy or "
                         "CECL_SM_POLICY to CECL_SM_REDUCE_ONLY");
    CECL_TRY(check_memory(comm->dev, uses, count));
    if (tokens == 0 || rowcount == 0)
        return ceclSuccess;
    struct cecl_row_sums call = all;
    call.max_sms = comm->options.max_sms;
    return comm->dev->ops->sum_rows(comm->dev, stream, &call);
}
