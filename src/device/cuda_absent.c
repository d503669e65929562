/* What a library built without CUDA has in place of GPUs: every call says that there are none. */
#include <stdio.h>

#include "device/nvtx.h"
#include "device/ops.h"
#include "sm/reduce.h"

ceclResult_t cecl_cuda_probe(int which, int rank, struct cecl_gpu_id *id, char *why, size_t bytes)
{
    *id = (struct cecl_gpu_id){.ordinal = -1};
    snprintf(why, bytes, "this libcecl was built without CUDA");
    return ceclSuccess;
}

ceclResult_t cecl_cuda_open(int ordinal, struct cecl_device **dev)
{
    return cecl_fail(ceclInvalidUsage, "GPU %d: this libcecl was built without CUDA", ordinal);
}

bool cecl_cuda_reaches(struct cecl_device *dev, const uint8_t uuid[16])
{
    return false;
}

bool cecl_nvtx_open(void)
{
    return false;
}

void cecl_nvtx_push(const char *name)
{
}

void cecl_nvtx_pop(void)
{
}

/* ---- reductions */

ceclResult_t cecl_reduce_cuda_prepare(void)
{
    return cecl_fail(ceclInvalidUsage, "reductions on GPUs: this libcecl was built without CUDA");
}

ceclResult_t cecl_reduce_cuda(ceclStream_t stream, const struct cecl_reduction *reduction)
{
    return cecl_reduce_cuda_prepare();
}

ceclResult_t cecl_reduce_cuda_has_bulk(bool *has)
{
    *has = false;
    return ceclSuccess;
}
