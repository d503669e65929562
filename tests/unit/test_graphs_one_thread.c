/* Captured calls of several ranks in one thread: in a group, they are captured and replayed. Outside a
 * group, the first is refused at once, because it would wait for the others. */
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <cecl/cecl.h>

#define RANKS 3
#define COUNT 100
#include "comms.h"

static ceclStream_t streams[RANKS];
static uint32_t *recv[RANKS];

static int open_with_memory(void **state)
{
    assert_int_equal(open_all(state), 0);
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclMemAlloc(comms[r], (void **)&recv[r], RANKS * COUNT * sizeof(**recv)));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamCreate(comms[r], &streams[r]));
    return 0;
}

static int close_with_memory(void **state)
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamDestroy(comms[r], streams[r]));
    return close_all(state);
}

static ceclResult_t gather(int r)
{
    return ceclAllGather(recv[r] + r * COUNT, recv[r], COUNT, ceclUint32, comms[r], streams[r]);
}

static void a_group_of_all_ranks_is_captured(void **state)
{
    ceclGraph_t graphs[RANKS];
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamBeginCapture(comms[r], streams[r]));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(gather(r));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamEndCapture(comms[r], streams[r], &graphs[r]));
    for (uint32_t round = 1; round < 50; round++) {
        for (int r = 0; r < RANKS;
             r++) /* the program may write the host device's memory directly */
            for (uint32_t i = 0; i < COUNT; i++)
                recv[r][(uint32_t)r * COUNT + i] = round * 1000 + (uint32_t)r * 100 + i;
        for (int r = 0; r < RANKS; r++)
            OK(ceclGraphLaunch(graphs[r], streams[r]));
        for (int r = 0; r < RANKS; r++)
            OK(ceclStreamSynchronize(comms[r], streams[r]));
        for (int r = 0; r < RANKS; r++)
            for (uint32_t i = 0; i < RANKS * COUNT; i++)
                assert_int_equal(recv[r][i], round * 1000 + i / COUNT * 100 + i % COUNT);
    }
    for (int r = 0; r < RANKS; r++)
        OK(ceclGraphDestroy(graphs[r]));
}

static void a_lone_call_is_refused_at_once(void **state)
{
    ceclGraph_t graph;
#ifdef __SANITIZE_THREAD__
    skip(); /* the sanitizer has a thread, which might make the other ranks' calls */
#endif
    OK(ceclStreamBeginCapture(comms[0], streams[0]));
    assert_int_equal(gather(0), ceclInvalidUsage);
    assert_non_null(strstr(ceclGetLastError(NULL), "put their calls into one group"));
    OK(ceclStreamEndCapture(comms[0], streams[0], &graph));
    OK(ceclGraphDestroy(graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_call_is_refused_at_once),
        cmocka_unit_test(a_group_of_all_ranks_is_captured),
    };
    return cmocka_run_group_tests(tests, open_with_memory, close_with_memory);
}
