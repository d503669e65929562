/* Sequences of calls of the library in NCCL's place, on the host device, beside a stand-in for NCCL. All
 * ranks are in this process: one thread makes the calls of all of them in groups, or each rank has a
 * thread. Communicators are blocking or not, and some are aborted while they are being made. cecl
 * carries out most calls, and the stand-in the rest. After each batch every byte of all
 * memory is compared with a plain model. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#include "model.h"
#include "nccl/calls.h"

#define CALLS_MOST 6
#define BATCHES_MOST 6

enum mode { ONE_GROUP, GROUP_IN_GROUP, THREADS, THREADS_WITH_GROUPS, MODES };

static struct input in;
static struct model model;
static ncclComm_t comms[MODEL_RANKS];

#define OK(expr)                                                                                   \
    do {                                                                                           \
        const int result_ = (int)(expr);                                                           \
        REQUIRE(result_ == 0, "%s: %d", #expr, result_);                                           \
    } while (0)

/* ---- communicators */

#define IN_PROGRESS ((ncclResult_t)ceclInProgress)

/* Waits for what a call on rank's communicator does in the background. Returns what came of the call. */
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

/* Returns with communicators that are in progress. */
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

static void make_comms(unsigned how)
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

/* ---- calls */

/* Ranks that are not root may pass NULL for what they do not use. */
static void leave_out(const struct model_call *c, int rank, void **send, void **recv)
{
    if (rank == c->root || model_is_in_place(c, rank) || c->count % 4 > 1)
        return;
    if (c->kind == MODEL_GATHER || c->kind == MODEL_REDUCE)
        *recv = NULL;
    else if (c->kind == MODEL_SCATTER || c->kind == MODEL_BROADCAST)
        *send = NULL;
}

static int call(const struct model_call *c, int rank)
{
    void *send = model_send(&model, c, rank), *recv = model_recv(&model, c, rank);
    const ncclComm_t comm = comms[rank];
    const ncclDataType_t type = (ncclDataType_t)c->type;
    const ncclRedOp_t op = (ncclRedOp_t)c->op;
    leave_out(c, rank, &send, &recv);
    switch (c->kind) {
    case MODEL_ALL_GATHER: return (int)ncclAllGather(send, recv, c->count, type, comm, NULL);
    case MODEL_ALL_TO_ALL: return (int)ncclAlltoAll(send, recv, c->count, type, comm, NULL);
    case MODEL_BROADCAST:
        return model_is_in_place(c, rank)
                   ? (int)ncclBcast(recv, c->count, type, c->root, comm, NULL)
                   : (int)ncclBroadcast(send, recv, c->count, type, c->root, comm, NULL);
    case MODEL_GATHER: return (int)ncclGather(send, recv, c->count, type, c->root, comm, NULL);
    case MODEL_SCATTER: return (int)ncclScatter(send, recv, c->count, type, c->root, comm, NULL);
    case MODEL_ALL_REDUCE: return (int)ncclAllReduce(send, recv, c->count, type, op, comm, NULL);
    case MODEL_REDUCE_SCATTER:
        return (int)ncclReduceScatter(send, recv, c->count, type, op, comm, NULL);
    default: return (int)ncclReduce(send, recv, c->count, type, op, c->root, comm, NULL);
    }
}

/* ---- batches */

static struct {
    enum mode mode;
    int ncalls;
    bool passes; /* a word goes round by send and receive */
    uint64_t mine[MODEL_RANKS], theirs[MODEL_RANKS];
    struct model_call calls[CALLS_MOST];
} batch;

static void draw_batch(void)
{
    const unsigned flags = take_byte(&in), ncalls = 1 + take_below(&in, CALLS_MOST);
    batch.mode = (enum mode)(flags % MODES);
    batch.passes = flags >> 2 & 1;
    batch.ncalls = 0;
    model_begin(&model, take_byte(&in));
    while (batch.ncalls < (int)ncalls &&
           model_draw(&in, &model, MODEL_NCCL_KINDS, &batch.calls[batch.ncalls]))
        batch.ncalls++;
    for (int r = 0; r < model.nranks; r++) {
        batch.mine[r] = model.seed + (uint64_t)r;
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
    OK(settle(rank, (ncclResult_t)call(&batch.calls[i], rank)));
    if (batch.passes && i == batch.ncalls / 2)
        pass_on(rank);
}

static void *run_rank(void *argument)
{
    const int rank = (int)(intptr_t)argument;
    const bool grouped = batch.mode == THREADS_WITH_GROUPS;
    if (grouped)
        OK(ncclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        make(i, rank);
    if (grouped)
        OK(settle(rank, ncclGroupEnd()));
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[MODEL_RANKS];
    for (int r = 0; r < model.nranks; r++)
        REQUIRE(pthread_create(&threads[r], NULL, run_rank, (void *)(intptr_t)r) == 0, "no thread");
    for (int r = 0; r < model.nranks; r++)
        pthread_join(threads[r], NULL);
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

static void compare(const char *what)
{
    for (int r = 0; r < model.nranks; r++) {
        const int error = settle(r, IN_PROGRESS);
        REQUIRE(error == 0, "asynchronous error %d", error);
    }
    model_compare(&model, what);
}

static void run_batch(void)
{
    char what[80];
    draw_batch();
    if (batch.mode < THREADS)
        run_alone();
    else
        run_threads();
    for (int i = 0; i < batch.ncalls; i++)
        model_apply(&model, &batch.calls[i]);
    snprintf(what, sizeof(what), "mode %d, %d calls, the first of kind %d", (int)batch.mode,
             batch.ncalls, (int)batch.calls[0].kind);
    compare(what);
    for (int r = 0; r < model.nranks && batch.passes && batch.ncalls > 0; r++)
        REQUIRE(batch.theirs[r] == batch.mine[(r + model.nranks - 1) % model.nranks],
                "rank %d received another word", r);
}

/* ---- calls that are refused, or carried out by nobody */

/* Apart from the model's memory: a call with the recvbuff of another one goes into a later turn, and the
 * first turn of a group is carried out before the second one is refused. */
static int misuse(int rank, unsigned which)
{
    static uint8_t apart[MODEL_RANKS][128];
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

/* NCCL refuses it, and does so at once. */
static bool names_no_rank(unsigned which)
{
    return which == 5 || which == 6;
}

/* A group with such a call returns its error, and carries nothing out. */
static void misuse_in_group(int rank, unsigned which)
{
    OK(ncclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        for (int r = 0; r < model.nranks; r++)
            OK(call(&batch.calls[i], r));
    const int at_once = misuse(rank, which);
    REQUIRE(at_once == (names_no_rank(which) ? ceclInvalidArgument : ceclSuccess),
            "a bad call in a group returns %d", at_once);
    const int result = (int)ncclGroupEnd();
    REQUIRE(result == ceclInvalidArgument, "a group with a bad call returns %d", result);
}

/* The stand-in carries out empty calls of a simulated group, and refuses reductions of small floats. */
static bool is_simulated(const struct model_call *c)
{
    const bool is_small = c->type == ceclFloat16 || c->type >= ceclBfloat16;
    return c->count > 0 && !(c->kind >= MODEL_ALL_REDUCE && is_small);
}

/* A group that is only simulated. */
static void simulate(void)
{
    OK(ncclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        for (int r = 0; r < model.nranks; r++)
            if (is_simulated(&batch.calls[i]))
                OK(call(&batch.calls[i], r));
    OK(ncclGroupSimulateEnd(NULL));
}

static void run_misuse(void)
{
    const int rank = (int)take_below(&in, (unsigned)model.nranks);
    const unsigned which = take_below(&in, 8), how = take_below(&in, 3);
    draw_batch();
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

/* ---- */

/* The stand-in lies in a folder beside the fuzzer, unless the environment names another file. */
static void find_standin(void)
{
    static char path[PATH_MAX], variable[PATH_MAX + 64];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    REQUIRE(length > 0, "readlink: %s", strerror(errno));
    snprintf(variable, sizeof(variable), "%s/standin/libnccl.so.2", dirname(path));
    setenv("CECL_NCCL_PATH", variable, 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    find_standin();
    setenv("CECL_NCCL", "all", 1);
    setenv("CECL_DEBUG", "none", 1); /* refusals are many */
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_TIMEOUT_MS", "15000", 1);
    setenv("CECL_INIT_TIMEOUT_MS", "15000", 1);
    setenv("CECL_POOL_BYTES", "64M", 1);
    setenv("CECL_SEGMENT_BYTES", "256K", 1);
    setenv("CECL_STAGING_BYTES", "64K", 1);
    model_start();
    for (int r = 0; r < MODEL_RANKS; r++) {
        model.mirror[r] = malloc(MODEL_BYTES);
        model.memory[r] = malloc(MODEL_BYTES);
        REQUIRE(model.mirror[r] && model.memory[r], "no memory");
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    in = (struct input){data, bytes < 1024 ? bytes : 1024};
    /* One rank's calls all go to the stand-in, which lacks types and checks no arguments. */
    const unsigned how = take_byte(&in);
    model.nranks = 2 + (int)(how % (MODEL_RANKS - 1));
    make_comms(how / (MODEL_RANKS - 1));
    for (int i = 0; i < BATCHES_MOST && in.left > 0; i++) {
        if (take_below(&in, 4) == 0)
            run_misuse();
        else
            run_batch();
    }
    for (int r = 0; r < model.nranks; r++)
        OK(ncclCommDestroy(comms[r]));
    return 0;
}
