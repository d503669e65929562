/* The start of a request allocates no memory, takes no lock, and asks its device for nothing but the ids of
 * its regions and the stream. A first start that gets no memory can be made again. Two ranks of one thread, on the
 * host device with functions that return at once. The linker replaces libc's malloc and locks with this program's. */
#include <stdio.h>
#include <stdlib.h>

#include "../with_cmocka.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"

#define RANKS 2
#include "comms.h"

#define COUNT 1000
#define STARTS 100

static _Thread_local int
    counts_on; /* of this thread, because the library's own threads do not count */
static atomic_int locks, allocations;
static int ids, checks, enqueued;
static int until_refused; /* 1: the next counted allocation is refused; 0: none is */

static int is_refused(void)
{
    return counts_on && until_refused > 0 && --until_refused == 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

void *__wrap_malloc(size_t bytes)
{
    allocations += counts_on;
    return is_refused() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations += counts_on;
    return is_refused() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    allocations += counts_on;
    return is_refused() ? NULL : __real_realloc(old, bytes);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    locks += counts_on;
    return __real_pthread_mutex_lock(mutex);
}

/* ---- a device that counts */

static const struct cecl_device_ops *real;
static struct cecl_device_ops counting;
static uint64_t id_of[RANKS];
static char *begin_of[RANKS];

static ceclResult_t count_copies(struct cecl_device *dev, ceclStream_t work,
                                 const struct cecl_batch *batch)
{
    (void)dev, (void)work, (void)batch;
    enqueued++;
    return ceclSuccess;
}

static ceclResult_t count_memops(struct cecl_device *dev, ceclStream_t work,
                                 const struct cecl_memop *ops, size_t count)
{
    (void)dev, (void)work;
    enqueued++;
    for (size_t i = 0; i < count; i++)
        if (ops[i].kind == CECL_MEMOP_WRITE)
            atomic_store((_Atomic uint32_t *)ops[i].addr, ops[i].value);
    return ceclSuccess;
}

static ceclResult_t count_id(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                             uint64_t *id)
{
    (void)dev, (void)use;
    ids++;
    for (int r = 0; r < RANKS; r++)
        if ((const char *)ptr >= begin_of[r] &&
            (const char *)ptr < begin_of[r] + RANKS * COUNT * sizeof(int))
            *id = id_of[r];
    return ceclSuccess;
}

static ceclResult_t count_fork(struct cecl_device *dev, ceclStream_t stream, ceclStream_t *work)
{
    (void)dev;
    checks++;
    *work = stream;
    return ceclSuccess;
}

static ceclResult_t count_join(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work)
{
    (void)dev, (void)stream, (void)work;
    checks++;
    return ceclSuccess;
}

static ceclResult_t count_check(struct cecl_device *dev, ceclStream_t stream, bool *captures)
{
    (void)dev, (void)stream, (void)captures;
    checks++;
    return ceclSuccess;
}

static uint64_t count_stream(struct cecl_device *dev, ceclStream_t work)
{
    (void)dev, (void)work;
    checks++;
    return 1;
}

/* Other functions are NULL, so a start that called one would crash this program. */
static void count_calls(void)
{
    real = comms[0]->dev->ops;
    counting = (struct cecl_device_ops){.copies = count_copies,
                                        .memops = count_memops,
                                        .region_id = count_id,
                                        .stream_fork = count_fork,
                                        .stream_join = count_join,
                                        .stream_check = count_check,
                                        .stream_id = count_stream};
    for (int r = 0; r < RANKS; r++)
        comms[r]->dev->ops = &counting;
}

static void count_no_more(void)
{
    for (int r = 0; r < RANKS; r++)
        comms[r]->dev->ops = real;
}

/* ---- */

static char *map_file(size_t bytes)
{
    const int fd = memfd_create("start", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static void start_all(ceclRequest_t requests[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclStart(requests[r], NULL));
}

/* The all-gather is in place, so each rank uses one region. */
static void a_start_asks_for_the_ids_of_its_regions_alone(void **state)
{
    ceclRequest_t requests[RANKS];
    for (int r = 0; r < RANKS; r++) {
        begin_of[r] = map_file(RANKS * COUNT * sizeof(int));
        OK(ceclAllGatherInit(begin_of[r] + (size_t)r * COUNT * sizeof(int), begin_of[r], COUNT,
                             ceclInt32, comms[r], &requests[r]));
    }
    start_all(requests);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamSynchronize(comms[r], NULL));
        id_of[r] = cecl_registry_find(&comms[r]->registry, begin_of[r])->regions[0].id;
    }
    count_calls();
    counts_on = 1;
    for (int i = 0; i < STARTS; i++)
        start_all(requests);
    counts_on = 0;
    count_no_more();
    assert_int_equal(allocations, 0);
    assert_int_equal(locks, 0);
    assert_int_equal(ids, RANKS * STARTS);
    assert_int_equal(checks,
                     4 * RANKS * STARTS); /* 4 per start: check, fork, id and join of the stream */
    assert_true(enqueued >= 3 * RANKS * STARTS);
    for (int r = 0; r < RANKS; r++)
        OK(ceclRequestFree(requests[r]));
}

/* Refuses the nth allocation of the first start of a request on which no peer relies. Returns whether there was such
 * an allocation while the program was made. Later ones are made while the work is enqueued, where a refusal fails the
 * communicator. */
static bool first_start_is_refused_at(int nth)
{
    ceclComm_t one;
    ceclRequest_t request;
    int in[COUNT] = {nth}, out[COUNT] = {0};
    OK(ceclCommInitAll(&one, 1, NULL));
    OK(ceclAllGatherInit(in, out, COUNT, ceclInt32, one, &request));
    until_refused = nth;
    counts_on = 1;
    ceclResult_t failed, result = ceclStart(request, NULL);
    counts_on = 0;
    OK(ceclCommGetAsyncError(one, &failed));
    const bool was_refused = result != ceclSuccess && failed == ceclSuccess;
    if (was_refused) {
        assert_int_equal(result, ceclOutOfMemory);
        OK(ceclStart(request, NULL));
        OK(ceclStreamSynchronize(one, NULL));
        assert_int_equal(out[0], nth);
    }
    (void)!ceclCommDestroy(one);
    OK(ceclRequestFree(request));
    return was_refused;
}

static void a_first_start_without_memory_is_made_again(void **state)
{
    int nth = 1;
    while (first_start_is_refused_at(nth))
        nth++;
    assert_true(nth > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_asks_for_the_ids_of_its_regions_alone),
        cmocka_unit_test(a_first_start_without_memory_is_made_again),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
