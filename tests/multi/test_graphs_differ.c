/* Ranks launch graphs in different orders: no byte moves before every rank has an error, and the error names both
 * calls. Rank 0, or the last rank, launches the second graph first. */
#include "multi.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"

#define COUNT 300 /* elements of a block */
#define SMALL 16
#define POISON 0xa5

static ceclComm_t comm;
static ceclStream_t stream;
static uint32_t *send, *recv[2];
static size_t bytes; /* of a recvbuff */

/* ---- how many ranks have failed, in memory of all ranks: waits are released only once all have */

static _Atomic int *failed;
static const struct cecl_device_ops *true_ops;
static struct cecl_device_ops ops;
static _Atomic bool has_looked, was_touched;

static bool is_poisoned(const uint32_t *at)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)at)[i] != POISON)
            return false;
    return true;
}

/* Called before this rank's watchdog ends waits. */
static void look(void)
{
    if (!atomic_load(&has_looked)) {
        atomic_store(&was_touched, !is_poisoned(recv[0]) || !is_poisoned(recv[1]));
        atomic_store(&has_looked, true);
        atomic_fetch_add(failed, 1);
    }
    for (int i = 0; atomic_load(failed) < multi_nranks && i < 60000; i++)
        multi_pause_ms(1);
}

static void set_bits_late(struct cecl_device *dev, uint32_t *word, uint32_t bits)
{
    look();
    true_ops->host_set_bits(dev, word, bits);
}
static void write_late(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value)
{
    look();
    true_ops->host_write(dev, words, count, value);
}
static ceclResult_t release_late(struct cecl_device *dev, uint32_t *words, size_t count,
                                 uint32_t value)
{
    look();
    return true_ops->words_release(dev, words, count, value);
}

static void watch_releases(bool on)
{
    if (on) {
        true_ops = comm->dev->ops;
        ops = *true_ops;
        ops.host_set_bits = set_bits_late;
        ops.host_write = write_late;
        ops.words_release = release_late;
    }
    comm->dev->ops = on ? &ops : true_ops;
}

/* ---- calls */

typedef ceclResult_t (*make_call)(uint32_t *out);

static ceclResult_t gather(uint32_t *out)
{
    return ceclAllGather(send, out, COUNT, ceclUint32, comm, stream);
}
static ceclResult_t exchange(uint32_t *out)
{
    return ceclAlltoAll(send, out, COUNT, ceclUint32, comm, stream);
}
static ceclResult_t reduce(uint32_t *out)
{
    return ceclAllReduce(send, out, COUNT, ceclUint32, ceclSum, comm, stream);
}
static ceclResult_t reduce_small(uint32_t *out)
{
    return ceclAllReduce(send, out, SMALL, ceclFloat32, ceclSum, comm, stream);
}
static ceclResult_t reduce_small_integers(uint32_t *out)
{
    return ceclAllReduce(send, out, SMALL, ceclUint32, ceclSum, comm, stream);
}
static ceclResult_t scatter_small(uint32_t *out)
{
    return ceclReduceScatter(send, out, SMALL, ceclFloat32, ceclSum, comm, stream);
}
static ceclResult_t reduce_scatter(uint32_t *out)
{
    return ceclReduceScatter(send, out, COUNT, ceclUint32, ceclSum, comm, stream);
}
static ceclResult_t broadcast(uint32_t *out)
{
    return ceclBroadcast(send, out, COUNT, ceclUint32, 0, comm, stream);
}
static ceclResult_t barrier(uint32_t *out)
{
    return ceclBarrier(comm, stream);
}
static ceclResult_t gather_to_root(uint32_t *out)
{
    return ceclGather(send, out, COUNT, ceclUint32, 0, comm, stream);
}
static ceclResult_t group(uint32_t *out)
{
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllGather(send, out, COUNT / 2, ceclUint32, comm, stream));
    multi_ok(comm, ceclAlltoAll(send, out + multi_nranks * (COUNT / 2), COUNT / 2, ceclUint32, comm,
                                stream));
    return ceclGroupEnd();
}

struct pair {
    const char *name;
    make_call make[2];
    const char *said[2];
};

static const struct pair pairs[] = {
    {"gathers", {gather, gather}, {"ceclAllGather", "ceclAllGather"}},
    {"gather, reduce-scatter", {gather, reduce_scatter}, {"ceclAllGather", "ceclReduceScatter"}},
    {"exchanges", {exchange, exchange}, {"ceclAlltoAll", "ceclAlltoAll"}},
    {"reductions", {reduce, reduce}, {"ceclAllReduce", "ceclAllReduce"}},
    {"small reductions", {reduce_small, reduce_small}, {"ceclAllReduce", "ceclAllReduce"}},
    {"small integers", {reduce_small_integers, reduce_small}, {"ceclAllReduce", "ceclAllReduce"}},
    {"small ones", {reduce_small, scatter_small}, {"ceclAllReduce", "ceclReduceScatter"}},
    {"small, gather", {reduce_small, gather}, {"ceclAllReduce", "ceclAllGather"}},
    {"barrier, small", {barrier, scatter_small}, {"ceclBarrier", "ceclReduceScatter"}},
    {"broadcasts", {broadcast, broadcast}, {"ceclBroadcast", "ceclBroadcast"}},
    {"barrier, gather", {barrier, gather}, {"ceclBarrier", "ceclAllGather"}},
    {"gathers to a root", {gather_to_root, gather_to_root}, {"ceclGather", "ceclGather"}},
    {"groups", {group, group}, {"ceclAllGather", "ceclAllGather"}},
    {"group, reduction", {group, reduce}, {"ceclAllGather", "ceclAllReduce"}},
};

/* ---- */

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

static void open_all(void)
{
    ceclConfig_t config = multi_config();
    comm = multi_comm(&config);
    bytes = (size_t)multi_nranks * COUNT * sizeof(uint32_t);
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send, bytes));
    for (int i = 0; i < 2; i++) {
        multi_ok(comm, ceclMemAlloc(comm, (void **)&recv[i], bytes));
        memset(recv[i], POISON, bytes);
    }
    memset(send, 1 + multi_rank, bytes);
    has_looked = was_touched = false;
    *failed = 0;
    MPI_Barrier(MPI_COMM_WORLD);
}

static ceclGraph_t captured(make_call make, uint32_t *out)
{
    ceclGraph_t graph = NULL;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_ok(comm, make(out));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    return graph;
}

static void end_all(ceclGraph_t graphs[2])
{
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++)
        multi_ok(NULL, ceclGraphDestroy(graphs[i]));
    watch_releases(false);
    (void)!ceclCommAbort(comm);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void expect_both_names(const struct pair *pair)
{
    const char *said = ceclGetLastError(comm);
    if (!strstr(said, "launched a graph whose call is") || !strstr(said, pair->said[0]) ||
        !strstr(said, pair->said[1]) || !strstr(said, "captured call 1)") ||
        !strstr(said, "captured call 2)"))
        fail_msg("%s, rank %d: %s", pair->name, multi_rank, said);
}

/* odd: the rank whose order differs. `before`: how often all ranks first launch both graphs in the same order. */
static void differ(const struct pair *pair, int odd, int before)
{
    ceclGraph_t graphs[2];
    open_all();
    for (int i = 0; i < 2; i++)
        graphs[i] = captured(pair->make[i], recv[i]);
    for (int i = 0; i < 2 * before; i++)
        multi_ok(comm, ceclGraphLaunch(graphs[i % 2], stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    for (int i = 0; i < 2; i++)
        memset(recv[i], POISON, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    watch_releases(true);
    for (int i = 0; i < 2; i++)
        (void)!ceclGraphLaunch(graphs[multi_rank == odd ? 1 - i : i], stream);
    if (multi_async_within(comm, PROMPT) == ceclSuccess)
        fail_msg("%s, rank %d: no error", pair->name, multi_rank);
    for (int i = 0; i < 45000 && !has_looked; i++)
        multi_pause_ms(1);
    if (!has_looked || was_touched)
        fail_msg("%s, rank %d: %s", pair->name, multi_rank,
                 was_touched ? "bytes have moved" : "waits have not ended");
    expect_both_names(pair);
    end_all(graphs);
}

static void all_pairs(int odd, int before)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        differ(&pairs[i], odd, before);
}

static void the_first_launch_differs(void **state)
{
    all_pairs(0, 0);
}

static void a_later_launch_differs(void **state)
{
    all_pairs(multi_nranks - 1, 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_first_launch_differs, open_memory),
        cmocka_unit_test(a_later_launch_differs),
    };
    const char *device = getenv("CECL_DEVICE");
    if (device && strcmp(device, "cuda") == 0) {
        puts("skipped: it looks at memory of the host device before waits are released");
        return 77;
    }
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
