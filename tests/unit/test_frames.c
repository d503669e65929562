/* The number of function calls between ceclAllGather and the device (see the call path in docs/architecture.md). The
 * files on that path are compiled without optimization here, so no function is inlined. */
#include "../with_cmocka.h"

#include "../frames.h"

#define RANKS 2
#include "comms.h"

#define COUNT 1000
#define FRAMES_MOST 9
#define FRAMES_MOST_PRIVATE 10
#define CALLS 5 /* the last one is a warm call */

/* The largest number of functions on the way from a warm in-place ceclAllGather to the device. */
static int frames_of(int *buffers[RANKS])
{
    int caller = 0;
    deepest = batches = 0;
    watch(comms[0]->dev->ops);
    for (int i = 0; i < CALLS; i++)
        for (int r = 0; r < RANKS; r++) {
            comms[r]->dev->ops = i == CALLS - 1 ? &watched : real;
            caller = depth();
            OK(ceclAllGather(buffers[r] + r * COUNT, buffers[r], COUNT, ceclInt32, comms[r], NULL));
        }
    for (int r = 0; r < RANKS; r++) {
        comms[r]->dev->ops = real;
        OK(ceclStreamSynchronize(comms[r], NULL));
    }
    print_message("%d functions from ceclAllGather to the device\n", deepest - caller);
    assert_true(batches > 0);
    assert_true(deepest - caller >= 2);
    return deepest - caller;
}

TEST(a_warm_all_gather_is_nine_functions_from_the_device)
{
    int *buffers[RANKS];
    allocate_all(buffers, RANKS * COUNT * sizeof(int));
    assert_true(frames_of(buffers) <= FRAMES_MOST);
}

TEST(private_memory_takes_no_more_than_ten)
{
    static int memory[RANKS][RANKS * COUNT];
    int *buffers[RANKS] = {memory[0], memory[1]};
    assert_true(frames_of(buffers) <= FRAMES_MOST_PRIVATE);
}

TESTS_BETWEEN(open_all, close_all)
