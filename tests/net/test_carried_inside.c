/* What only the inside of the library shows of communicators that NCCL carries: its functions are replaced. Two ranks on
 * pretended hosts, in one thread. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "../prompt.h"
#include "../with_cmocka.h"

#include "comm/comm.h"
#include "launch/launcher.h"
#include "net/net.h"

#define RANKS 2
#define BYTES 64
#define OK(call) assert_int_equal(call, ceclSuccess)

static ceclComm_t comms[RANKS];
static ceclStream_t streams[RANKS];
static unsigned char *recv[RANKS];
static struct nccl replaced; /* the ranks' NCCL; a test changes it */

static int open_ranks(void **state)
{
    ceclUniqueId id;
    OK(ceclGetUniqueId(&id));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommInitRank(&comms[r], RANKS, id, r));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamCreate(comms[r], &streams[r]));
        OK(ceclMemAlloc(comms[r], (void **)&recv[r], RANKS * BYTES));
        replaced = *comms[r]->net->nccl;
        comms[r]->net->nccl = &replaced;
    }
    return 0;
}

static int close_ranks(void **state)
{
    for (int r = 0; r < RANKS; r++)
        if (comms[r])
            OK(ceclCommAbort(comms[r]));
    memset(comms, 0, sizeof(comms));
    return 0;
}

static void says(const char *text)
{
    if (!strstr(ceclGetLastError(NULL), text))
        fail_msg("'%s' lacks '%s'", ceclGetLastError(NULL), text);
}

/* ---- graphs */

/* Of GPUs, whose calls streams capture. The stand-in knows no stream, so it makes the call at once. */
static void capture_gathers(ceclGraph_t graphs[RANKS])
{
    replaced.on_host = false;
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamBeginCapture(comms[r], streams[r]));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclAllGather(recv[r] + r * BYTES, recv[r], BYTES, ceclInt8, comms[r], streams[r]));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamEndCapture(comms[r], streams[r], &graphs[r]));
        comms[r]->launcher->gone_ms = 20;
    }
    replaced.on_host = true;
}

TEST_BETWEEN(memory_of_a_living_graph_is_not_freed, open_ranks, close_ranks)
{
    ceclGraph_t graphs[RANKS];
    capture_gathers(graphs);
    assert_int_equal(ceclMemFree(comms[0], recv[0]), ceclInvalidUsage);
    says("a graph holds a captured ceclAllGather that uses this memory");
    for (int r = 0; r < RANKS; r++) {
        OK(ceclGraphDestroy(graphs[r]));
        comms[r]->launcher->gone_ms = 1000 * PROMPT;
        OK(ceclMemFree(comms[r], recv[r]));
        OK(ceclCommDestroy(comms[r]));
        comms[r] = NULL;
    }
}

TEST_BETWEEN(a_communicator_ends_soon_beside_a_living_graph, open_ranks, close_ranks)
{
    ceclGraph_t graphs[RANKS];
    ceclResult_t error;
    capture_gathers(graphs);
    assert_int_equal(ceclCommDestroy(comms[1]), ceclInvalidUsage);
    says("graphs hold 1 captured calls of the communicator");
    comms[1] = NULL;
    OK(ceclCommGetAsyncError(comms[0], &error)); /* rank 1 has said goodbye */
    assert_int_equal(error, ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        OK(ceclGraphDestroy(graphs[r]));
}
