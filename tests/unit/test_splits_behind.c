/* A call by splits on the device right behind a reduce-scatter, which ends on a rank while peers still reduce
 * out of their staging: neither disturbs the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cecl/cecl.h>

#define RANKS 4
#define COUNT 10000
#define ROW 16
#define ROUNDS 20
#include "comms.h"

/* What a rank has in symmetric memory. */
static struct memory {
    float input[RANKS * COUNT], output[COUNT];
    uint64_t splits[RANKS], received[2 * RANKS];
    unsigned char send[RANKS * ROW], recv[RANKS * ROW];
} * memory[RANKS];

static int open_with_memory(void **state)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_ALLOW;
    options.direction = CECL_DIRECTION_PUSH; /* by staging */
    assert_int_equal(open_all(state), 0);
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclMemAlloc(comms[r], (void **)&memory[r], sizeof(*memory[r])));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        OK(ceclSetOptions(comms[r], &options));
    return 0;
}

/* The host device's memory is the program's to write. */
static void fill(int rank, int round)
{
    struct memory *mine = memory[rank];
    for (int i = 0; i < RANKS * COUNT; i++)
        mine->input[i] = (float)(rank + i % 7);
    for (int p = 0; p < RANKS; p++) {
        mine->splits[p] = 1;
        memset(mine->send + p * ROW, round + rank * RANKS + p, ROW);
    }
}

static void check(int rank, int round)
{
    const struct memory *mine = memory[rank];
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(mine->output[i], (float)(6 + RANKS * ((rank * COUNT + i) % 7)), 0);
    for (int p = 0; p < RANKS; p++)
        assert_int_equal(mine->recv[p * ROW], round + p * RANKS + rank);
}

static void staging_that_peers_still_read_is_left_alone(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        for (int r = 0; r < RANKS; r++)
            fill(r, round);
        OK(ceclGroupStart());
        for (int r = 0; r < RANKS; r++)
            OK(ceclReduceScatter(memory[r]->input, memory[r]->output, COUNT, ceclFloat32, ceclSum,
                                 comms[r], NULL));
        OK(ceclGroupEnd());
        for (int r = 0; r < RANKS; r++)
            OK(ceclAlltoAllvDevice(memory[r]->send, RANKS, memory[r]->splits, memory[r]->recv,
                                   RANKS, memory[r]->received, ROW, ceclUint8, comms[r], NULL));
        for (int r = 0; r < RANKS; r++)
            OK(ceclStreamSynchronize(comms[r], NULL));
        for (int r = 0; r < RANKS; r++)
            check(r, round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staging_that_peers_still_read_is_left_alone),
    };
    return cmocka_run_group_tests(tests, open_with_memory, close_all);
}
