/* A rank that ends its communicator tells its peers first, and then waits for its graphs. */
#include "../prompt.h"
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <pthread.h>

#include "launch/launcher.h"

#define RANKS 2
#define OK(expr) assert_int_equal((expr), ceclSuccess)

static ceclComm_t comms[RANKS];
static ceclStream_t streams[RANKS];
static ceclGraph_t graphs[RANKS];

static void capture(void)
{
    OK(ceclCommInitAll(comms, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamCreate(comms[r], &streams[r]));
        OK(ceclStreamBeginCapture(comms[r], streams[r]));
    }
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclBarrier(comms[r], streams[r]));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamEndCapture(comms[r], streams[r], &graphs[r]));
}

static void *end(void *argument)
{
    ceclResult_t (*ends)(ceclComm_t) = *(ceclResult_t(**)(ceclComm_t))argument;
    return ends(comms[0]) == ceclSuccess ? NULL : comms;
}

static void peers_learn_it_before_graphs_are_gone(ceclResult_t (*ends)(ceclComm_t))
{
    pthread_t thread;
    void *failed;
    capture();
    comms[0]->launcher->gone_ms = 4 * PROMPT * 1000;
    assert_int_equal(pthread_create(&thread, NULL, end, &ends), 0);
    ceclResult_t result = ceclBarrier(comms[1], streams[1]);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(comms[1], streams[1]);
    assert_int_equal(result, ceclRemoteError);
    assert_non_null(strstr(ceclGetLastError(comms[1]), "rank 0 "));
    for (int r = 0; r < RANKS; r++)
        OK(ceclGraphDestroy(graphs[r]));
    pthread_join(thread, &failed);
    assert_null(failed);
    OK(ceclCommAbort(comms[1]));
}

TEST(an_abort_is_known_before_its_graphs_are_gone)
{
    peers_learn_it_before_graphs_are_gone(ceclCommAbort);
}

TEST(an_end_is_known_before_its_graphs_are_gone)
{
    peers_learn_it_before_graphs_are_gone(ceclCommDestroy);
}

int main(void)
{
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    return tests_run(NULL, NULL);
}
