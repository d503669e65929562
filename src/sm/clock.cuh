/* The GPU's timer in ns. All SMs read the same one. */
#ifndef CECL_SM_CLOCK_CUH
#define CECL_SM_CLOCK_CUH

#include <stdint.h>

static __device__ __forceinline__ uint64_t now_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
