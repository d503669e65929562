/* Reductions on GPUs in a library built without CUDA: every call says that there are none. */
#include "sm/reduce.h"

ceclResult_t cecl_reduce_cuda_prepare(void)
{
    return cecl_fail(ceclInvalidUsage, "reductions on GPUs: this libcecl was built without CUDA");
}

ceclResult_t cecl_reduce_cuda(ceclStream_t stream, const struct cecl_reduction *reduction)
{
    (void)stream;
    (void)reduction;
    return cecl_reduce_cuda_prepare();
}

ceclResult_t cecl_reduce_cuda_has_bulk(bool *has)
{
    *has = false;
    return ceclSuccess;
}
