/* The library's own part of the host time of a call: an all-gather as a call and as the start of a request,
 * against a device whose functions return at once. One thread makes the calls of all ranks in turn, so the
 * times contain no wait for a peer.
 *
 *     cecl_start_cost [CALLS]
 *
 * Each line is the least mean of several rounds, in nanoseconds a call and rank. Memory is the pool's, or
 * registered. On registered memory each call asks for the region's id, as on CUDA. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"
#include "util/clock.h"

#define RANKS_MOST 8
#define ROUNDS 9
#define COUNT 1000

/* ---- a device that returns at once */

static struct cecl_device_ops fast;
static uint64_t ids[RANKS_MOST]; /* of the only region of each rank */
static const char *begins[RANKS_MOST];

static ceclResult_t no_copies(struct cecl_device *dev, ceclStream_t work,
                              const struct cecl_batch *batch)
{
    (void)dev, (void)work, (void)batch;
    return ceclSuccess;
}

/* Writes the words, because the host reads them: otherwise each call would count as pending. */
static ceclResult_t only_writes(struct cecl_device *dev, ceclStream_t work,
                                const struct cecl_memop *ops, size_t count)
{
    (void)dev, (void)work;
    for (size_t i = 0; i < count; i++)
        if (ops[i].kind == CECL_MEMOP_WRITE)
            atomic_store_explicit((_Atomic uint32_t *)ops[i].addr, ops[i].value,
                                  memory_order_release);
    return ceclSuccess;
}

static ceclResult_t same_id(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                            uint64_t *id)
{
    (void)dev, (void)use;
    for (int r = 0; r < RANKS_MOST; r++)
        if (begins[r] && (const char *)ptr >= begins[r] &&
            (const char *)ptr < begins[r] + COUNT * RANKS_MOST * sizeof(int))
            *id = ids[r];
    return ceclSuccess;
}

static ceclResult_t no_check(struct cecl_device *dev, const struct cecl_use *uses, size_t count)
{
    (void)dev, (void)uses, (void)count;
    return ceclSuccess;
}

static ceclResult_t fork_at_once(struct cecl_device *dev, ceclStream_t stream, ceclStream_t *work)
{
    (void)dev;
    *work = stream;
    return ceclSuccess;
}

static ceclResult_t join_at_once(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work)
{
    (void)dev, (void)stream, (void)work;
    return ceclSuccess;
}

static ceclResult_t any_stream(struct cecl_device *dev, ceclStream_t stream, bool *captures)
{
    (void)dev, (void)stream, (void)captures;
    return ceclSuccess;
}

static uint64_t one_id(struct cecl_device *dev, ceclStream_t work)
{
    (void)dev, (void)work;
    return 1;
}

static void replace_ops(ceclComm_t comm)
{
    fast = *comm->dev->ops;
    fast.copies = no_copies;
    fast.memops = only_writes;
    fast.region_id = same_id;
    fast.check_uses = no_check;
    fast.stream_check = any_stream;
    fast.stream_fork = fork_at_once;
    fast.stream_join = join_at_once;
    fast.stream_id = one_id;
    comm->dev->ops = &fast;
}

/* ---- what is timed */

struct ranks {
    int n;
    ceclComm_t comms[RANKS_MOST];
    int *buffers[RANKS_MOST];
    ceclRequest_t requests[RANKS_MOST];
};

static void check(ceclResult_t result)
{
    if (result == ceclSuccess)
        return;
    fprintf(stderr, "cecl_start_cost: %s\n", ceclGetLastError(NULL));
    exit(1);
}

static int *map_file(size_t bytes)
{
    const int fd = memfd_create("start_cost", MFD_CLOEXEC);
    void *at = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                   ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED) {
        perror("cecl_start_cost");
        exit(1);
    }
    return at;
}

static int *own_block(const struct ranks *ranks, int r)
{
    return ranks->buffers[r] + r * COUNT;
}

static void call(const struct ranks *ranks, int r)
{
    check(ceclAllGather(own_block(ranks, r), ranks->buffers[r], COUNT, ceclInt32, ranks->comms[r],
                        NULL));
}

static void start(const struct ranks *ranks, int r)
{
    check(ceclStart(ranks->requests[r], NULL));
}

/* Nanoseconds of one call, as the mean of the fastest round. */
static double least(const struct ranks *ranks, long calls,
                    void (*make)(const struct ranks *ranks, int r))
{
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t begin = cecl_now_ns();
        for (long i = 0; i < calls / ROUNDS; i++)
            for (int r = 0; r < ranks->n; r++)
                make(ranks, r);
        const double mean = (double)(cecl_now_ns() - begin) / (double)(calls / ROUNDS * ranks->n);
        best = mean < best ? mean : best;
    }
    return best;
}

static void note_region(const struct ranks *ranks, int r)
{
    const struct cecl_window *window =
        cecl_registry_find(&ranks->comms[r]->registry, ranks->buffers[r]);
    if (!window || window->nregions == 0)
        return;
    begins[r] = (const char *)ranks->buffers[r];
    ids[r] = window->regions[0].id;
}

static void run(int n, bool registered, long calls)
{
    struct ranks ranks = {.n = n};
    const size_t bytes = RANKS_MOST * COUNT * sizeof(int);
    memset(begins, 0, sizeof(begins));
    check(ceclCommInitAll(ranks.comms, n, NULL));
    check(ceclGroupStart());
    for (int r = 0; r < n && !registered; r++)
        check(ceclMemAlloc(ranks.comms[r], (void **)&ranks.buffers[r], bytes));
    check(ceclGroupEnd());
    for (int r = 0; r < n && registered; r++)
        ranks.buffers[r] = map_file(bytes);
    for (int r = 0; r < n; r++)
        check(ceclAllGatherInit(own_block(&ranks, r), ranks.buffers[r], COUNT, ceclInt32,
                                ranks.comms[r], &ranks.requests[r]));
    for (int i = 0; i < 3; i++) /* plans are made, and memory is opened */
        for (int r = 0; r < n; r++) {
            start(&ranks, r);
            call(&ranks, r);
        }
    for (int r = 0; r < n; r++)
        check(ceclStreamSynchronize(ranks.comms[r], NULL));
    for (int r = 0; r < n; r++)
        note_region(&ranks, r);
    const struct cecl_device_ops *ops = ranks.comms[0]->dev->ops;
    for (int r = 0; r < n; r++)
        replace_ops(ranks.comms[r]);
    const double called = least(&ranks, calls, call), started = least(&ranks, calls, start);
    for (int r = 0; r < n; r++)
        ranks.comms[r]->dev->ops = ops;
    printf("%d ranks, %-10s  a call %6.0f ns, a start %6.0f ns: %.2f\n", n,
           registered ? "registered" : "pool", called, started, started / called);
    for (int r = 0; r < n; r++)
        check(ceclRequestFree(ranks.requests[r]));
    for (int r = 0; r < n; r++)
        check(ceclCommDestroy(ranks.comms[r]));
    for (int r = 0; r < n && registered; r++)
        munmap(ranks.buffers[r], bytes);
}

int main(int argc, char **argv)
{
    const long calls = argc > 1 ? atol(argv[1]) : 1000000;
    setenv("CECL_DEVICE", "host", 1);
    for (int n = 2; n <= RANKS_MOST; n *= 2)
        for (int registered = 0; registered < 2; registered++)
            run(n, registered, calls);
    return 0;
}
