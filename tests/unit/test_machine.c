/* What a program has set for its threads, such as rounding, does not reach the library's results. Ranks of one process, on the
 * host device. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

#include "../with_cmocka.h"

#include <cecl/cecl.h>

#define RANKS 2
#define OK(expr) assert_int_equal((expr), ceclSuccess)

static ceclComm_t comms[RANKS];
static ceclStream_t streams[RANKS];

/* ---- arithmetic */

/* Rank 0's streams are made by a thread that rounds down, rank 1's by one that rounds up and has no subnormal
 * numbers. */
static void make_streams(void)
{
    fenv_t before;
    fegetenv(&before);
    fesetround(FE_DOWNWARD);
    OK(ceclStreamCreate(comms[0], &streams[0]));
    fesetround(FE_UPWARD);
#ifdef __SSE__
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    OK(ceclStreamCreate(comms[1], &streams[1]));
    fesetenv(&before);
}

static void open_ranks(void)
{
    OK(ceclCommInitAll(comms, RANKS, NULL));
    make_streams();
}

static void close_ranks(void)
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamDestroy(comms[r], streams[r]));
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommDestroy(comms[r]));
}

static void reduce(float (*in)[4], float (*out)[4])
{
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclAllReduce(in[r], out[r], 4, ceclFloat32, ceclSum, comms[r], streams[r]));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamSynchronize(comms[r], streams[r]));
}

/* The lowest bit of a sum, in each direction, and a sum of subnormal numbers. */
static void sums_do_not_depend_on_the_programs_rounding(void **state)
{
    float in[RANKS][4] = {{1, 1, -1, 0x1p-140f}, {0x1p-25f, -0x1p-26f, -0x1p-25f, 0x1p-141f}},
          out[RANKS][4];
    const float right[4] = {1, 1, -1, 0x1.8p-140f};
    open_ranks();
    reduce(in, out);
    for (int r = 0; r < RANKS; r++)
        assert_memory_equal(out[r], right, sizeof(right));
    close_ranks();
}

int main(void)
{
    setenv("CECL_DEVICE", "host", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_the_programs_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
