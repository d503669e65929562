/* A library that is linked to NCCL, as PyTorch's library is. */
#include "calls.h"

CECL_NCCL_API int torch_nccl_version(void);
CECL_NCCL_API int torch_group(void);

int torch_nccl_version(void)
{
    int version = 0;
    return ncclGetVersion(&version) == 0 ? version : -1;
}

int torch_group(void)
{
    return ncclGroupStart() + ncclGroupEnd();
}
