/* Replaces a function of NCCL, and passes its calls on by the second name, as profiling tools do. */
#include <stdio.h>

#include "calls.h"

ncclResult_t pncclGetVersion(int *version);

CECL_NCCL_API ncclResult_t ncclGetVersion(int *version)
{
    printf("the tool saw ncclGetVersion\n");
    return pncclGetVersion(version);
}
