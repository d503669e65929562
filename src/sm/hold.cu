/* The kernel that holds every SM; see hold.h. */
#include "sm/hold_args.h"

#include "sm/clock.cuh"

/* Thread 0 polls. The other threads wait at the barrier, and so keep their places on the SM. */
extern "C" __global__ void __launch_bounds__(1024, 2)
    cecl_hold(struct cecl_hold_words *words, uint64_t limit_ns)
{
    if (threadIdx.x == 0) {
        const uint64_t start = now_ns();
        words->runs[blockIdx.x] = 1;
        __threadfence_system();
        while (!words->let_go) {
            if (now_ns() - start > limit_ns) {
                words->gave_up = 1;
                __threadfence_system();
                break;
            }
            __nanosleep(1000);
        }
    }
    __syncthreads();
}
