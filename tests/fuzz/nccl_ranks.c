#include "nccl_ranks.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../prompt.h"
#include "../threads_alive.h"

struct input in;
struct model model;
ncclComm_t comms[RANKS];
struct batch batch;

#define IN_PROGRESS ((ncclResult_t)ceclInProgress)

/* Waits until the rank's communicator is ready, if the call returned "in progress". Returns the call's final result. */
static int settle(int rank, ncclResult_t result)
{
    const bool is_later = result == IN_PROGRESS;
    while (result == IN_PROGRESS) {
        ncclResult_t error = IN_PROGRESS;
        OK(ncclCommGetAsyncError(comms[rank], &error));
        result = error;
        if (result == IN_PROGRESS)
            usleep(50);
    }
    REQUIRE(!is_later || (int)result == 0, "rank %d: %d came of a call", rank, (int)result);
    return (int)result;
}

static int settle_all(ncclResult_t result)
{
    int settled = result == IN_PROGRESS ? 0 : (int)result;
    for (int r = 0; r < model.nranks && result == IN_PROGRESS; r++)
        settled = settled ? settled : settle(r, result);
    return settled;
}

/* Begins to make communicators, which are in progress when this returns. */
static void begin_comms(void)
{
    struct {
        size_t size;
        unsigned magic, version;
        int blocking;
        char rest[256];
    } config = {.size = sizeof(config)};
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < model.nranks; r++) {
        const int begun = (int)ncclCommInitRankConfig(&comms[r], model.nranks, id, r,
                                                      (ncclConfig_t *)(void *)&config);
        REQUIRE(begun == (int)IN_PROGRESS, "ncclCommInitRankConfig: %d", begun);
    }
    REQUIRE(ncclGroupEnd() == IN_PROGRESS, "ncclGroupEnd is not in progress");
}

static void abort_comms(unsigned patience)
{
    ncclResult_t error;
    begin_comms();
    for (unsigned i = 0; i < patience; i++) {
        OK(ncclCommGetAsyncError(comms[i % (unsigned)model.nranks], &error));
        usleep(100);
    }
    for (int r = 0; r < model.nranks; r++)
        OK(ncclCommAbort(comms[(r + (int)patience) % model.nranks]));
}

void make_comms(unsigned how)
{
    if (how % 8 == 1)
        abort_comms(how * 7 % 64);
    if (how % 2 == 0) {
        OK(ncclCommInitAll(comms, model.nranks, NULL));
    } else {
        begin_comms();
        OK(settle_all(IN_PROGRESS));
    }
}

/* The thread that makes an aborted communicator ends a little after the abort. While it runs, the leak check after each
 * input may report memory to which only this thread's stack refers. */
static void await_makers(void)
{
    char names[4096];
    const time_t limit = time(NULL) + PROMPT;
    for (threads_name(names, sizeof(names)); strstr(names, "cecl-make");
         threads_name(names, sizeof(names))) {
        REQUIRE(time(NULL) < limit, "a communicator that was aborted is still being made: %s",
                names);
        usleep(1000);
    }
}

void end_comms(void)
{
    for (int r = 0; r < model.nranks; r++)
        OK(ncclCommDestroy(comms[r]));
    await_makers();
}

/* Ranks other than the root may pass NULL for unused buffers. */
static void leave_out(const struct random_call *c, void **send, void **recv)
{
    if (c->rank == c->root || random_is_in_place(c) || c->count % 4 > 1)
        return;
    if (c->kind == GATHER || c->kind == REDUCE)
        *recv = NULL;
    else if (c->kind == SCATTER || c->kind == BROADCAST)
        *send = NULL;
}

int call(int i, int rank)
{
    const struct random_call *c = &batch.calls[i][rank];
    void *send = c->in, *recv = c->out;
    const ncclComm_t comm = comms[rank];
    const ncclDataType_t type = (ncclDataType_t)c->type;
    const ncclRedOp_t op = (ncclRedOp_t)c->op;
    leave_out(c, &send, &recv);
    switch (c->kind) {
    case ALL_GATHER: return (int)ncclAllGather(send, recv, c->count, type, comm, NULL);
    case ALL_TO_ALL: return (int)ncclAlltoAll(send, recv, c->count, type, comm, NULL);
    case BROADCAST:
        return random_is_in_place(c)
                   ? (int)ncclBcast(recv, c->count, type, c->root, comm, NULL)
                   : (int)ncclBroadcast(send, recv, c->count, type, c->root, comm, NULL);
    case GATHER: return (int)ncclGather(send, recv, c->count, type, c->root, comm, NULL);
    case SCATTER: return (int)ncclScatter(send, recv, c->count, type, c->root, comm, NULL);
    case ALL_REDUCE: return (int)ncclAllReduce(send, recv, c->count, type, op, comm, NULL);
    case REDUCE_SCATTER: return (int)ncclReduceScatter(send, recv, c->count, type, op, comm, NULL);
    default: return (int)ncclReduce(send, recv, c->count, type, op, c->root, comm, NULL);
    }
}

/* Whether a batch must not have this reduction: it is empty, and the stand-in would carry it out; or NCCL may carry it
 * out (`can_pass`), and the stand-in lacks its type, or computes other bits. */
static bool is_left_out(const struct random_call *c, bool can_pass)
{
    return random_reduces(c) && (c->count == 0 || (can_pass && c->type >= ceclFloat16));
}

void draw_batch(bool can_pass)
{
    static const enum kind kinds[] = {ALL_GATHER, ALL_TO_ALL, BROADCAST,      GATHER,
                                      SCATTER,    ALL_REDUCE, REDUCE_SCATTER, REDUCE};
    const unsigned flags = take_byte(&in), ncalls = 1 + take_below(&in, CALLS_MOST);
    batch.mode = (enum mode)(flags % MODES);
    batch.passes = flags >> 2 & 1;
    batch.ncalls = 0;
    batch.in_a_row = 1;
    const uint64_t seed = take_byte(&in);
    model_begin(&model, seed);
    while (batch.ncalls < (int)ncalls &&
           model_draw(&in, &model, kinds[take_below(&in, sizeof(kinds) / sizeof(kinds[0]))], true,
                      batch.calls[batch.ncalls]))
        batch.ncalls += !is_left_out(&batch.calls[batch.ncalls][0], can_pass);
    for (int r = 0; r < model.nranks; r++) {
        batch.mine[r] = seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)r;
        batch.theirs[r] = 0;
    }
}

static void pass_on(int rank)
{
    const int next = (rank + 1) % model.nranks, last = (rank + model.nranks - 1) % model.nranks;
    OK(ncclGroupStart());
    OK(ncclSend(&batch.mine[rank], 1, ncclUint64, next, comms[rank], NULL));
    OK(ncclRecv(&batch.theirs[rank], 1, ncclUint64, last, comms[rank], NULL));
    OK(settle(rank, ncclGroupEnd()));
}

static void make(int i, int rank)
{
    OK(settle(rank, (ncclResult_t)call(i, rank)));
    if (batch.passes && i == batch.ncalls / 2)
        pass_on(rank);
}

static void *run_rank(void *argument)
{
    const int rank = (int)(intptr_t)argument;
    const bool grouped = batch.mode == THREADS_WITH_GROUPS;
    for (int row = 0; row < batch.in_a_row; row++) {
        if (grouped)
            OK(ncclGroupStart());
        for (int i = 0; i < batch.ncalls; i++)
            make(i, rank);
        if (grouped)
            OK(settle(rank, ncclGroupEnd()));
    }
    return NULL;
}

static void run_alone(void)
{
    const bool twice = batch.mode == GROUP_IN_GROUP;
    OK(ncclGroupStart());
    for (int i = 0; i < batch.ncalls; i++) {
        if (twice)
            OK(ncclGroupStart());
        for (int r = 0; r < model.nranks; r++)
            make(i, (r + i) % model.nranks);
        if (twice)
            OK(ncclGroupEnd());
    }
    OK(settle_all(ncclGroupEnd()));
}

void compare(const char *what)
{
    for (int r = 0; r < model.nranks; r++) {
        const int error = settle(r, IN_PROGRESS);
        REQUIRE(error == 0, "asynchronous error %d", error);
    }
    model_compare(&model, what);
}

void make_batch(void)
{
    char what[80];
    if (batch.mode < THREADS)
        run_alone();
    else
        model_run(&model, run_rank);
    for (int i = 0; i < batch.ncalls; i++)
        model_apply(&model, batch.calls[i]);
    snprintf(what, sizeof(what), "mode %d, %d calls, the first of kind %d", (int)batch.mode,
             batch.ncalls, (int)batch.calls[0][0].kind);
    compare(what);
    for (int r = 0; r < model.nranks && batch.passes && batch.ncalls > 0; r++)
        REQUIRE(batch.theirs[r] == batch.mine[(r + model.nranks - 1) % model.nranks],
                "rank %d received another word", r);
}

/* The stand-in is in a folder beside the fuzzer, unless the environment names another file. */
static void find_standin(void)
{
    static char path[PATH_MAX], variable[PATH_MAX + 64];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    REQUIRE(length > 0, "readlink: %s", strerror(errno));
    snprintf(variable, sizeof(variable), "%s/standin/libnccl.so.2", dirname(path));
    setenv("CECL_NCCL_PATH", variable, 0);
}

void begin_process(const char *policy)
{
    find_standin();
    setenv("CECL_NCCL", policy, 1);
    setenv("CECL_DEBUG", "none", 0); /* refusals would print many warnings */
    setenv("CECL_STAGING_BYTES", "64K", 1);
    model_prepare(&model);
    for (int r = 0; r < RANKS; r++) {
        model.memory[r] = malloc(MODEL_BYTES);
        REQUIRE(model.memory[r], "no memory");
    }
}
