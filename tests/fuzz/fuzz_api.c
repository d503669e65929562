/* Sequences of calls of cecl.h on the host device: collectives, also captured, and messages alone and in groups. All
 * ranks are in this process: one thread makes the calls of all ranks, in a group or rank after rank, or each rank has a
 * thread. After each batch, every byte of all memory is compared with a plain model. Between batches, invalid calls
 * must be refused, and change nothing. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model.h"

/* The call of cecl.h must succeed. */
#define OK(expr) \
    do { \
        const ceclResult_t result_ = (expr); \
        REQUIRE(result_ == ceclSuccess, "%s: %d: %s", #expr, (int)result_, \
                ceclGetLastError(NULL)); \
    } while (0)

#define CALLS_MOST 6
#define BATCHES_MOST 8
#define MESSAGES_MOST 256 /* messages from one rank to another in a group */
#define OWN_MOST 6        /* allocations besides the ranks' memory */

enum memory { POOL, PRIVATE, MAPPED, MEMORIES };
enum mode { RANK_AFTER_RANK, ONE_GROUP, THREADS, THREADS_WITH_GROUPS, MODES };

static struct input in;
static struct model model;
static ceclComm_t comms[RANKS];
static ceclStream_t streams[RANKS];
static enum memory memories[RANKS];
static int files[RANKS];
static bool checks;    /* ranks compare calls; one thread can make them only in a group */
static bool registers; /* the value of CECL_REGISTER_ON_USE */
static struct {
    size_t bytes;
    char *at[RANKS];
} own[OWN_MOST];
static int nown;

/* Sets each of some variables at random, or unsets it. Uses putenv: the C library never frees the memory of setenv. */
static void draw_settings(void)
{
    static const char *const names[] = {"CECL_STAGING_BYTES",  "CECL_SM_POLICY", "CECL_DIRECTION",
                                        "CECL_FLAGS",          "CECL_MAX_SMS",   "CECL_CHECK",
                                        "CECL_REGISTER_ON_USE"};
    static const char *const values[][4] = {{"4K", "16K", "64K", "1M"},
                                            {"reduce_only", "allow", "allow", "reduce_only"},
                                            {"auto", "push", "pull", "auto"},
                                            {"auto", "host", "auto", "auto"},
                                            {"1", "2", "8", "1024"},
                                            {"0", "0", "0", "1"},
                                            {"1", "1", "0", "1"}};
    static char texts[7][64], urgent[] = "CECL_URGENT=1";
    const unsigned which = take_byte(&in);
    if (which >> 7)
        putenv(urgent);
    else
        unsetenv("CECL_URGENT");
    for (unsigned i = 0; i < 7; i++) {
        const unsigned value = which >> i & 1 ? take_below(&in, 4) : 4;
        if (value == 4) {
            unsetenv(names[i]);
            continue;
        }
        snprintf(texts[i], sizeof(texts[i]), "%s=%s", names[i], values[i][value]);
        putenv(texts[i]);
    }
    checks = getenv("CECL_CHECK") && *getenv("CECL_CHECK") == '1';
    registers = !getenv("CECL_REGISTER_ON_USE") || *getenv("CECL_REGISTER_ON_USE") == '1';
}

/* Maps a file. Peers can open this memory as long as the file is open. */
static uint8_t *map_file(int rank)
{
    const int file = files[rank] = memfd_create("fuzz", MFD_CLOEXEC);
    REQUIRE(file >= 0 && ftruncate(file, MODEL_BYTES) == 0, "memfd: %s", strerror(errno));
    void *at = mmap(NULL, MODEL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(at != MAP_FAILED, "mmap: %s", strerror(errno));
    return at;
}

/* Allocates from the pool on all ranks, even on ranks that use other memory. */
static void allocate(size_t bytes, char *at[RANKS])
{
    OK(ceclGroupStart());
    for (int r = 0; r < model.nranks; r++)
        OK(ceclMemAlloc(comms[r], (void **)&at[r], bytes));
    OK(ceclGroupEnd());
}

static void open_memory(void)
{
    char *pool[RANKS];
    allocate(MODEL_BYTES, pool);
    for (int r = 0; r < model.nranks; r++) {
        memories[r] = (enum memory)take_below(&in, MEMORIES);
        model.memory[r] = memories[r] == POOL      ? (uint8_t *)pool[r]
                          : memories[r] == PRIVATE ? malloc(MODEL_BYTES)
                                                   : map_file(r);
        REQUIRE(model.memory[r], "no memory");
    }
}

static void close_memory(void)
{
    for (int r = 0; r < model.nranks; r++) {
        if (memories[r] == PRIVATE)
            free(model.memory[r]);
        if (memories[r] != MAPPED)
            continue;
        munmap(model.memory[r], MODEL_BYTES);
        close(files[r]);
    }
}

/* Allocates or frees pool memory. A value that one rank writes through a peer's pointer must arrive there. */
static void change_pool(void)
{
    const int which = (int)take_below(&in, OWN_MOST),
              r = (int)take_below(&in, (unsigned)model.nranks);
    const int peer = (int)take_below(&in, (unsigned)model.nranks);
    void *there = NULL;
    if (checks)
        return;
    if (which < nown) {
        for (int i = 0; i < model.nranks; i++)
            OK(ceclMemFree(comms[i], own[which].at[i]));
        own[which] = own[--nown];
        return;
    }
    own[nown].bytes = 1 + 64 * take_below(&in, 4096);
    allocate(own[nown].bytes, own[nown].at);
    const size_t at = own[nown].bytes - 1;
    OK(ceclGetPeerPointer(comms[r], own[nown].at[r] + at, peer, &there));
    own[nown].at[peer][at] = 1;
    *(char *)there = 77;
    REQUIRE(own[nown].at[peer][at] == 77, "a peer's pointer points elsewhere");
    REQUIRE((uintptr_t)own[nown].at[r] % 256 == 0, "an allocation is not aligned");
    nown++;
}

static void change_registration(void)
{
    const int r = (int)take_below(&in, (unsigned)model.nranks);
    const size_t at = take_below(&in, 4096), bytes = 1 + take_below(&in, 4096);
    ceclRegistration_t handle = NULL;
    if (memories[r] == PRIVATE)
        return;
    OK(ceclCommRegister(comms[r], model.memory[r] + at, bytes, &handle));
    if (take_below(&in, 2))
        OK(ceclCommDeregister(comms[r], handle));
}

static struct batch {
    enum mode mode;
    int ncalls;
    bool on_stream;
    bool captures; /* in mode THREADS: calls on a stream, outside of groups, are captured */
    ceclOptions_t options;
    struct random_call calls[CALLS_MOST][RANKS];
    /* bit i: in mode THREADS, the rank adds message i to the group of the messages before it */
    unsigned joins[RANKS];
} batch;

static ceclStream_t stream_of(int rank)
{
    return batch.on_stream ? streams[rank] : NULL;
}

/* `asks`: an all-to-all may be ceclAlltoAllv, whose receivers tell senders where blocks belong */
static ceclResult_t call(int i, int rank, ceclStream_t stream, bool asks)
{
    struct random_call c = batch.calls[i][rank];
    c.stream = stream;
    return random_call(comms[rank], &c, !asks);
}

/* Captures the call, and launches the graph once. Needs a thread for each rank, because ranks wait for each other. */
static void make_in_graph(int i, int rank)
{
    ceclGraph_t graph = NULL;
    OK(ceclStreamBeginCapture(comms[rank], streams[rank]));
    OK(call(i, rank, streams[rank], true));
    OK(ceclStreamEndCapture(comms[rank], streams[rank], &graph));
    OK(ceclGraphLaunch(graph, streams[rank]));
    OK(ceclGraphDestroy(graph));
}

static bool is_message(int i)
{
    return i < batch.ncalls && batch.calls[i][0].kind == MESSAGE;
}

static void make(int i, int rank, bool grouped)
{
    if (!grouped && batch.mode == THREADS && batch.on_stream && (batch.captures || i % 3 == 2) &&
        !is_message(i)) {
        make_in_graph(i, rank);
        return;
    }
    OK(call(i, rank, stream_of(rank), !grouped && batch.mode >= THREADS));
}

/* Makes calls one by one; consecutive messages may become a group. Each rank draws its own groups. */
static void make_all(int rank)
{
    bool open = false;
    for (int i = 0; i < batch.ncalls; i++) {
        const bool goes_on = is_message(i + 1) && batch.joins[rank] >> (i + 1) & 1;
        if (is_message(i) && goes_on && !open) {
            OK(ceclGroupStart());
            open = true;
        }
        make(i, rank, false);
        if (open && !goes_on) {
            OK(ceclGroupEnd());
            open = false;
        }
    }
}

static void *run_rank(void *argument)
{
    const int rank = (int)(intptr_t)argument;
    const bool grouped = batch.mode == THREADS_WITH_GROUPS;
    if (!grouped) {
        make_all(rank);
        return NULL;
    }
    OK(ceclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        make(i, rank, true);
    OK(ceclGroupEnd());
    return NULL;
}

static void run_alone(void)
{
    const bool grouped = batch.mode == ONE_GROUP;
    if (grouped)
        OK(ceclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        for (int r = 0; r < model.nranks; r++)
            make(i, (r + i) % model.nranks, grouped);
    if (grouped)
        OK(ceclGroupEnd());
}

static bool has_messages(void)
{
    for (int i = 0; i < batch.ncalls; i++)
        if (is_message(i))
            return true;
    return false;
}

/* Messages are drawn more often than other calls, because a group needs several. */
static enum kind draw_kind(void)
{
    enum { MESSAGES = 4 };
    const unsigned kind = take_below(&in, KINDS + MESSAGES + 1);
    return kind < KINDS ? (enum kind)kind : kind < KINDS + MESSAGES ? MESSAGE : BARRIER;
}

static void draw_batch(void)
{
    static const int sms[] = {CECL_UNDEF, 1, 3, 1024};
    const unsigned flags = take_byte(&in), ncalls = 1 + take_below(&in, CALLS_MOST);
    batch.mode = (enum mode)(flags % MODES);
    if (checks && batch.mode == RANK_AFTER_RANK)
        batch.mode = THREADS;
    batch.on_stream = flags >> 2 & 1;
    batch.options = (ceclOptions_t)CECL_OPTIONS_INITIALIZER;
    batch.options.smPolicy = flags >> 3 & 1 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
    batch.options.direction = (int)(flags >> 4 & 3) - 1;
    batch.options.maxSms = sms[flags >> 6 & 3];
    batch.ncalls = 0;
    model_begin(&model, take_byte(&in));
    while (batch.ncalls < (int)ncalls &&
           model_draw(&in, &model, draw_kind(), false, batch.calls[batch.ncalls]))
        batch.ncalls++;
    for (int r = 0; r < model.nranks && batch.mode == THREADS; r++)
        batch.joins[r] = has_messages() ? take_byte(&in) : 0;
    batch.captures = batch.mode >= THREADS && take_below(&in, 2);
}

static void synchronize(void)
{
    for (int r = 0; r < model.nranks; r++) {
        ceclResult_t error = ceclInternalError;
        OK(ceclStreamSynchronize(comms[r], NULL));
        OK(ceclStreamSynchronize(comms[r], streams[r]));
        OK(ceclCommGetAsyncError(comms[r], &error));
        REQUIRE(error == ceclSuccess, "asynchronous error %d: %s", (int)error,
                ceclGetLastError(comms[r]));
    }
}

static void run_batch(void)
{
    char what[80];
    draw_batch();
    for (int r = 0; r < model.nranks; r++)
        OK(ceclSetOptions(comms[r], &batch.options));
    if (batch.mode < THREADS)
        run_alone();
    else
        model_run(&model, run_rank);
    for (int i = 0; i < batch.ncalls; i++)
        model_apply(&model, batch.calls[i]);
    synchronize();
    snprintf(what, sizeof(what), "mode %d, %d calls, the first of kind %d", (int)batch.mode,
             batch.ncalls, (int)batch.calls[0][0].kind);
    model_compare(&model, what);
}

/* ---- calls with one invalid argument, on one rank; test_refusals.c has all such calls, and their messages */

/* Calls that a group may contain. Some are refused for an argument, for their buffers' places, or their stream. */
static ceclResult_t misuse_call(unsigned which, int rank, char *send, char *recv)
{
    const size_t twos[RANKS] = {2, 2, 2, 2, 2, 2, 2, 2}, near[RANKS] = {0, 1, 5, 9, 13, 17, 21, 25};
    const ceclStrided_t close = {.width = 4, .rows = 3, .recvPitch = 3};
    /* whether cecl can know where the memory ends */
    const bool has_end = memories[rank] == POOL || (memories[rank] == MAPPED && registers);
    uint64_t words[64] = {0};
    const ceclStream_t stranger = (ceclStream_t)(void *)words;
    ceclComm_t comm = comms[rank];
    switch (which) {
    case 0: return ceclAllReduce(send, recv, 1, (ceclDataType_t)-1, ceclSum, comm, NULL);
    case 1: return ceclReduceScatter(send, recv, 1, ceclUint64, ceclAvg, comm, NULL);
    case 2: return ceclBroadcast(send, recv, 1, ceclInt, model.nranks, comm, NULL);
    case 3: return ceclScatter(send, recv, SIZE_MAX / 8, ceclDouble, 0, comm, NULL);
    case 4: return ceclAlltoAll(send, NULL, 4, ceclInt, comm, NULL);
    case 5: return ceclAllGather(recv + 64 * rank + 1, recv, 64, ceclInt8, comm, NULL);
    case 6: return ceclReduceScatter(send, recv + 2, 8, ceclFloat, ceclMin, comm, NULL);
    case 7: return ceclAllGather(send, has_end ? recv : NULL, MODEL_BYTES, ceclInt8, comm, NULL);
    case 8: return ceclAllGather(send, recv, 1, ceclInt8, comm, stranger);
    case 9: return ceclAlltoAllStrided(send, recv, &close, ceclInt, comm, NULL);
    case 10: /* blocks that overlap; needs two blocks */
        return ceclAllGatherv(send, 2, recv, model.nranks == 1 ? NULL : twos, near, ceclInt, comm,
                              NULL);
    case 11: return ceclAlltoAllvAt(send, NULL, NULL, recv, twos, NULL, twos, ceclInt, comm, NULL);
    case 12: return ceclSend(send, 1, ceclInt, model.nranks, comm, NULL);
    case 13: return ceclRecv(has_end ? recv : NULL, MODEL_BYTES, ceclInt8, rank, comm, NULL);
    case 14: return ceclSend(send, 1, ceclInt, rank, comm, stranger);
    default: return ceclRecv(recv, 1, ceclInt, rank, comm, NULL);
    }
}

static ceclResult_t misuse(int rank)
{
    const unsigned which = take_byte(&in);
    char *const recv = (char *)model.memory[rank] + 8, *const send = recv + MODEL_BYTES / 2;
    return misuse_call(which % 16, rank, send, recv);
}

static void require_refusal(ceclResult_t result)
{
    REQUIRE(result == ceclInvalidArgument || result == ceclInvalidUsage,
            "a bad call returns %d: %s", (int)result, ceclGetLastError(NULL));
    REQUIRE(*ceclGetLastError(NULL), "a refusal without a message");
}

/* Makes a valid call of the group. `follows`: the rank's invalid call came before. If its stream is invalid, which only
 * ceclGroupEnd refuses, this call may be refused for naming another stream. */
static void call_beside_bad(int i, int r, bool follows)
{
    const ceclResult_t result = call(i, r, stream_of(r), false);
    REQUIRE(result == ceclSuccess || (follows && result == ceclInvalidUsage),
            "a valid call after a bad one returns %d: %s", (int)result, ceclGetLastError(NULL));
}

/* A group with an invalid call: no call of it is carried out, on any rank. */
static void misuse_in_group(int rank)
{
    const int bad = (int)take_below(&in, (unsigned)batch.ncalls + 1);
    ceclResult_t refusal = ceclSuccess;
    OK(ceclGroupStart());
    for (int i = 0; i <= batch.ncalls; i++) {
        if (i == bad)
            refusal = misuse(rank);
        for (int r = 0; r < model.nranks && i < batch.ncalls; r++)
            call_beside_bad(i, r, r == rank && i >= bad);
    }
    const ceclResult_t result = ceclGroupEnd();
    /* some places of buffers, and some streams, are refused only by ceclGroupEnd */
    require_refusal(result);
    REQUIRE(refusal == ceclSuccess || result == refusal, "a group returns %d, its call %d",
            (int)result, (int)refusal);
}

/* Messages of a rank to itself that do not match, or too many to a peer. The group carries out none of its calls. */
static void misuse_messages_in_group(int rank)
{
    char *const recv = (char *)model.memory[rank], *const send = recv + MODEL_BYTES / 2;
    const bool many = take_below(&in, 2) && model.nranks > 1;
    OK(ceclGroupStart());
    for (int i = 0; i < batch.ncalls; i++)
        for (int r = 0; r < model.nranks; r++)
            call_beside_bad(i, r, false);
    for (int i = 0; i < MESSAGES_MOST + 1 && many; i++)
        OK(ceclSend(send, 1, ceclInt, (rank + 1) % model.nranks, comms[rank], NULL));
    if (!many) {
        OK(ceclSend(send, 1, ceclInt, rank, comms[rank], NULL));
        OK(ceclRecv(recv, 2, ceclInt, rank, comms[rank], NULL));
    }
    require_refusal(ceclGroupEnd());
}

/* A group with one call twice is refused if both write the same memory, unless the calls are messages. */
static void overlap_in_group(void)
{
    const struct random_call *c = &batch.calls[0][0];
    const bool differ = c->kind == ALL_GATHERV || c->kind == ALL_TO_ALLV;
    if (batch.ncalls == 0 || c->kind == BARRIER || c->count == 0 ||
        (c->root != 0 && !differ && c->kind != MESSAGE))
        return;
    OK(ceclGroupStart());
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < model.nranks; r++)
            OK(call(0, r, stream_of(r), false));
    const ceclResult_t result = ceclGroupEnd();
    const bool writes = !differ && c->kind != MESSAGE;
    REQUIRE(result == ceclInvalidArgument || (!writes && result == ceclSuccess),
            "calls that overlap return %d", (int)result);
    if (result == ceclSuccess) {
        model_apply(&model, batch.calls[0]);
    }
}

static void run_misuse(void)
{
    const int rank = (int)take_below(&in, (unsigned)model.nranks);
    const unsigned how = take_below(&in, 9);
    if (checks)
        return;
    draw_batch();
    batch.on_stream = false; /* a group has one stream; invalid calls use the default one */
    if (how < 5)
        require_refusal(misuse(rank));
    else if (how < 6)
        misuse_in_group(rank);
    else if (how < 7)
        overlap_in_group();
    else if (how < 8)
        misuse_messages_in_group(rank);
    else
        require_refusal(ceclGroupEnd());
    synchronize();
    model_compare(&model, "after a bad call");
}

static void step(void)
{
    switch (take_below(&in, 12)) {
    case 0: change_pool(); break;
    case 1: change_registration(); break;
    case 2:
    case 3:
    case 4:
    case 5: run_misuse(); break;
    default: run_batch();
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    model_prepare(&model);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    in = (struct input){data, bytes < 1024 ? bytes : 1024};
    model.nranks = 1 + (int)take_below(&in, RANKS);
    nown = 0;
    draw_settings();
    OK(ceclCommInitAll(comms, model.nranks, NULL));
    open_memory();
    for (int r = 0; r < model.nranks; r++)
        OK(ceclStreamCreate(comms[r], &streams[r]));
    for (int i = 0; i < BATCHES_MOST && in.left > 0; i++)
        step();
    for (int r = 0; r < model.nranks; r++)
        OK(ceclCommDestroy(comms[r]));
    close_memory();
    return 0;
}
