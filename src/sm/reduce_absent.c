/* Reductions on GPUs of a library built without CUDA: there are none, and it says so. */
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
