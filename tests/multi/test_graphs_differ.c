/* Ranks launch graphs in different orders: no byte moves before every rank has an error that names both calls. Rank 0,
 * or the last rank, launches the second graph first. */
#include "multi.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "comm/comm.h"

#define COUNT 300 /* elements of a block */
#define SMALL 16

/* A pair of graphs on its own communicator. All pairs run at once, to save time: each watchdog needs three looks. */
struct trial {
    ceclComm_t comm;
    ceclStream_t stream;
    uint32_t *send, *recv[2];
    ceclGraph_t graphs[2];
    /* in memory that all ranks share, how many have failed: waits are released only once all have */
    _Atomic int *failed;
    struct cecl_device *dev;
    const struct cecl_device_ops *true_ops;
    struct cecl_device_ops ops;
    _Atomic bool has_looked, was_touched;
};

#define TRIALS_MAX 32
static struct trial trials[TRIALS_MAX];
static _Atomic int *failed; /* [2][TRIALS_MAX], in memory that all ranks share */
static size_t bytes;        /* of a recvbuff */

/* ---- looking at recvbuffs before waits are released */

static bool was_written(const struct trial *t, const uint32_t *at)
{
    unsigned char *now = malloc(bytes);
    bool is = !now || t->true_ops->words_read(t->dev, at, bytes / sizeof(*at), (uint32_t *)now);
    for (size_t i = 0; !is && i < bytes; i++)
        is = now[i] != MULTI_GUARD;
    free(now);
    return is;
}

/* Called before the watchdog ends waits. The first time, notes whether a recvbuff was written. Waits until all have failed. */
static struct trial *look(const struct cecl_device *dev)
{
    struct trial *t = trials;
    while (t->dev != dev)
        t++;
    if (!atomic_load(&t->has_looked)) {
        atomic_store(&t->was_touched, was_written(t, t->recv[0]) || was_written(t, t->recv[1]));
        atomic_store(&t->has_looked, true);
        atomic_fetch_add(t->failed, 1);
    }
    for (int i = 0; atomic_load(t->failed) < multi_nranks && i < 60000; i++)
        multi_pause_ms(1);
    return t;
}

static void set_bits_late(struct cecl_device *dev, uint32_t *word, uint32_t bits)
{
    look(dev)->true_ops->host_set_bits(dev, word, bits);
}
static void write_late(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value)
{
    look(dev)->true_ops->host_write(dev, words, count, value);
}
static ceclResult_t release_late(struct cecl_device *dev, uint32_t *words, size_t count,
                                 uint32_t value)
{
    return look(dev)->true_ops->words_release(dev, words, count, value);
}

static void watch_releases(struct trial *t)
{
    t->dev = t->comm->dev;
    t->true_ops = t->dev->ops;
    t->ops = *t->true_ops;
    t->ops.host_set_bits = set_bits_late;
    t->ops.host_write = write_late;
    t->ops.words_release = release_late;
    t->dev->ops = &t->ops;
}

enum what {
    GATHER,
    EXCHANGE,
    REDUCTION,
    SMALL_REDUCTION,
    SMALL_INTEGERS,
    SMALL_SCATTER,
    SCATTER,
    BROADCAST,
    BARRIER,
    GATHER_TO_ROOT,
    GROUP
};
static const char *const names[] = {
    "ceclAllGather", "ceclAlltoAll",      "ceclAllReduce",     "ceclAllReduce",
    "ceclAllReduce", "ceclReduceScatter", "ceclReduceScatter", "ceclBroadcast",
    "ceclBarrier",   "ceclGather",        "ceclAllGather",
};

static ceclResult_t group(const struct trial *t, uint32_t *out)
{
    multi_ok(t->comm, ceclGroupStart());
    multi_ok(t->comm, ceclAllGather(t->send, out, COUNT / 2, ceclUint32, t->comm, t->stream));
    multi_ok(t->comm, ceclAlltoAll(t->send, out + multi_nranks * (COUNT / 2), COUNT / 2, ceclUint32,
                                   t->comm, t->stream));
    return ceclGroupEnd();
}

static ceclResult_t make(const struct trial *t, enum what what, uint32_t *out)
{
    const ceclDataType_t type = ceclUint32, real = ceclFloat32;
    const ceclComm_t comm = t->comm;
    const ceclStream_t on = t->stream;
    switch (what) {
    case GATHER: return ceclAllGather(t->send, out, COUNT, type, comm, on);
    case EXCHANGE: return ceclAlltoAll(t->send, out, COUNT, type, comm, on);
    case REDUCTION: return ceclAllReduce(t->send, out, COUNT, type, ceclSum, comm, on);
    case SMALL_REDUCTION: return ceclAllReduce(t->send, out, SMALL, real, ceclSum, comm, on);
    case SMALL_INTEGERS: return ceclAllReduce(t->send, out, SMALL, type, ceclSum, comm, on);
    case SMALL_SCATTER: return ceclReduceScatter(t->send, out, SMALL, real, ceclSum, comm, on);
    case SCATTER: return ceclReduceScatter(t->send, out, COUNT, type, ceclSum, comm, on);
    case BROADCAST: return ceclBroadcast(t->send, out, COUNT, type, 0, comm, on);
    case BARRIER: return ceclBarrier(comm, on);
    case GATHER_TO_ROOT: return ceclGather(t->send, out, COUNT, type, 0, comm, on);
    default: return group(t, out);
    }
}

static const enum what pairs[][2] = {
    {GATHER, GATHER},
    {GATHER, SCATTER},
    {EXCHANGE, EXCHANGE},
    {REDUCTION, REDUCTION},
    {SMALL_REDUCTION, SMALL_REDUCTION},
    {SMALL_INTEGERS, SMALL_REDUCTION},
    {SMALL_REDUCTION, SMALL_SCATTER},
    {SMALL_REDUCTION, GATHER},
    {BARRIER, SMALL_SCATTER},
    {BROADCAST, BROADCAST},
    {BARRIER, GATHER},
    {GATHER_TO_ROOT, GATHER_TO_ROOT},
    {GROUP, GROUP},
    {GROUP, REDUCTION},
};
#define PAIRS (sizeof(pairs) / sizeof(pairs[0]))
_Static_assert(PAIRS <= TRIALS_MAX, "each pair has a communicator");

static int open_memory(void **state)
{
    char name[64];
    snprintf(name, sizeof(name), "/cecl-differ-%d", (int)getppid());
    const int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 4096) == 0);
    failed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(failed, MAP_FAILED);
    close(fd);
    MPI_Barrier(MPI_COMM_WORLD);
    shm_unlink(name);
    return 0;
}

static ceclGraph_t captured(const struct trial *t, enum what what, uint32_t *out)
{
    ceclGraph_t graph = NULL;
    multi_ok(t->comm, ceclStreamBeginCapture(t->comm, t->stream));
    multi_ok(t->comm, make(t, what, out));
    multi_ok(t->comm, ceclStreamEndCapture(t->comm, t->stream, &graph));
    return graph;
}

static void poison(const struct trial *t)
{
    for (int i = 0; i < 2; i++)
        multi_guard(t->comm, t->recv[i], bytes);
}

/* Makes the graphs, and launches both `before` times, in the same order on all ranks. */
static void prepare(struct trial *t, const enum what *pair, int before)
{
    ceclConfig_t config = multi_config();
    t->comm = multi_comm(&config);
    t->stream = multi_stream(t->comm);
    t->send = multi_alloc(t->comm, bytes);
    for (int i = 0; i < 2; i++)
        t->recv[i] = multi_alloc(t->comm, bytes);
    multi_fill_device(t->comm, t->send, 1, multi_rank, bytes);
    for (int i = 0; i < 2; i++)
        t->graphs[i] = captured(t, pair[i], t->recv[i]);
    for (int i = 0; i < 2 * before; i++)
        multi_ok(t->comm, ceclGraphLaunch(t->graphs[i % 2], t->stream));
    multi_ok(t->comm, ceclStreamSynchronize(t->comm, t->stream));
    poison(t);
}

static void expect_both_names(const struct trial *t, const enum what *pair)
{
    const char *said = ceclGetLastError(t->comm);
    if (!strstr(said, "launched a graph whose call is") || !strstr(said, names[pair[0]]) ||
        !strstr(said, names[pair[1]]) || !strstr(said, "captured call 1)") ||
        !strstr(said, "captured call 2)") || strstr(said, "this rank"))
        fail_msg("%s, rank %d: %s", names[pair[0]], multi_rank, said);
}

static void expect_untouched(struct trial *t, const enum what *pair)
{
    if (multi_async_within(t->comm, PROMPT) == ceclSuccess)
        fail_msg("%s, rank %d: no error", names[pair[0]], multi_rank);
    for (int i = 0; i < 45000 && !t->has_looked; i++)
        multi_pause_ms(1);
    if (!t->has_looked || t->was_touched)
        fail_msg("%s, rank %d: %s", names[pair[0]], multi_rank,
                 t->was_touched ? "bytes have moved" : "waits have not ended");
    expect_both_names(t, pair);
}

static void end(struct trial *t)
{
    for (int i = 0; i < 2; i++)
        multi_ok(NULL, ceclGraphDestroy(t->graphs[i]));
    t->dev->ops = t->true_ops;
    (void)!ceclCommAbort(t->comm);
}

/* The order of rank `odd` differs. Failures are counted in half number `half` of `failed`. */
static void all_pairs(int odd, int before, int half)
{
    bytes = (size_t)multi_nranks * COUNT * sizeof(uint32_t);
    memset(trials, 0, sizeof(trials));
    for (size_t i = 0; i < PAIRS; i++) {
        trials[i].failed = &failed[half * TRIALS_MAX + (int)i];
        prepare(&trials[i], pairs[i], before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < PAIRS; i++)
        watch_releases(&trials[i]);
    for (size_t i = 0; i < 2 * PAIRS; i++) {
        const struct trial *t = &trials[i / 2];
        (void)!ceclGraphLaunch(t->graphs[multi_rank == odd ? 1 - i % 2 : i % 2], t->stream);
    }
    for (size_t i = 0; i < PAIRS; i++)
        expect_untouched(&trials[i], pairs[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < PAIRS; i++)
        end(&trials[i]);
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_BETWEEN(the_first_launch_differs, open_memory, NULL)
{
    all_pairs(0, 0, 0);
}

TEST(a_later_launch_differs)
{
    all_pairs(multi_nranks - 1, 3, 1);
}

int main(int argc, char **argv)
{
    return multi_main(argc, argv);
}
