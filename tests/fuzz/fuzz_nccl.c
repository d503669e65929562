/* Calls of the library in NCCL's place, on the host device, with a stand-in for NCCL. Communicators are blocking or
 * not, and some are aborted while they begin. cecl carries out most calls, the stand-in the rest; a few are invalid. */
#include "nccl_ranks.h"

#define BATCHES_MOST 6

/* Makes an invalid call, whose buffers no other call uses. If it shared another call's recvbuff, it would be refused in
 * a later stage of the group, after the first stage was carried out. */
static int misuse(int rank, unsigned which)
{
    static uint8_t apart[RANKS][128];
    uint8_t *recv = apart[rank], *send = recv + 64;
    const ncclComm_t comm = comms[rank];
    switch (which) {
    case 0: return (int)ncclAllGather(send, NULL, 1, ncclInt32, comm, NULL);
    case 1: return (int)ncclAllGather(NULL, recv, 1, ncclInt32, comm, NULL);
    case 2: return (int)ncclAllReduce(NULL, recv, 1, ncclInt32, ncclSum, comm, NULL);
    case 3: return (int)ncclAllReduce(recv + 8, recv, 9, ncclInt32, ncclSum, comm, NULL);
    case 4: return (int)ncclAlltoAll(recv + 1, recv, 8, ncclInt8, comm, NULL);
    case 5: return (int)ncclBroadcast(send, recv, 1, ncclInt32, model.nranks, comm, NULL);
    case 6: return (int)ncclReduce(send, recv, 1, ncclInt32, ncclMax, -1, comm, NULL);
    default: return (int)ncclReduceScatter(send, NULL, 1, ncclFloat32, ncclSum, comm, NULL);
    }
}

/* Whether NCCL refuses the call at once, and not only at the end of a group. */
static bool names_no_rank(unsigned which)
{
    return which == 5 || which == 6;
}

/* A group with an invalid call returns that call's error, and carries out no call. */
static void misuse_in_group(int rank, unsigned which)
{
    OK(ncclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        for (int r = 0; r < model.nranks; r++)
            OK(call(i, r));
    const int at_once = misuse(rank, which);
    REQUIRE(at_once == (names_no_rank(which) ? ceclInvalidArgument : ceclSuccess),
            "a bad call in a group returns %d", at_once);
    const int result = (int)ncclGroupEnd();
    REQUIRE(result == ceclInvalidArgument, "a group with a bad call returns %d", result);
}

/* Whether a group that is only simulated may contain this call. The stand-in would carry out an empty call at once, and
 * refuse a reduction of small floats. */
static bool is_simulated(const struct random_call *c)
{
    const bool is_small = c->type == ceclFloat16 || c->type >= ceclBfloat16;
    return c->count > 0 && !(random_reduces(c) && is_small);
}

static void simulate(void)
{
    OK(ncclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        for (int r = 0; r < model.nranks; r++)
            if (is_simulated(&batch.calls[i][r]))
                OK(call(i, r));
    OK(ncclGroupSimulateEnd(NULL));
}

static void run_misuse(void)
{
    const int rank = (int)take_below(&in, (unsigned)model.nranks);
    const unsigned which = take_below(&in, 8), how = take_below(&in, 3);
    draw_batch(false);
    if (how == 0) {
        const int result = misuse(rank, which);
        REQUIRE(result == ceclInvalidArgument, "bad call %u returns %d", which, result);
    } else if (how == 1) {
        misuse_in_group(rank, which);
    } else {
        simulate();
    }
    compare("after a bad call");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    begin_process("all");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    in = (struct input){data, bytes < 1024 ? bytes : 1024};
    /* At least two ranks: the calls of one rank go to the stand-in, which lacks types and checks no arguments. */
    const unsigned how = take_byte(&in);
    model.nranks = 2 + (int)(how % (NCCL_RANKS - 1));
    make_comms(how / (NCCL_RANKS - 1));
    for (int i = 0; i < BATCHES_MOST && in.left > 0; i++) {
        if (take_below(&in, 4) == 0) {
            run_misuse();
        } else {
            draw_batch(false);
            make_batch();
        }
    }
    end_comms();
    return 0;
}
