/* The pool when one rank is refused memory: a smaller growth, or an error. Ranks are threads on the host device.
 * (tests/exhaust refuses all other requests of a growth.) */
#include "../with_cmocka.h"

#include <pthread.h>

#define RANKS 3
#include "comms.h"

#include "boot/mesh_internal.h"
#include "comm/comm.h"
#include "util/clock.h"

/* ---- refusals to this thread: these functions replace the host device's own (by the linker, see CMakeLists.txt) */

static _Thread_local struct {
    size_t create_above; /* refuse memory of more bytes; 0: refuse none */
    bool grows_no_list;
} refuse;

WRAPPED(ceclResult_t, host_mem_create,
        (struct cecl_device * dev, size_t bytes, struct cecl_mem *mem))
{
    if (refuse.create_above > 0 && bytes > refuse.create_above)
        return cecl_fail(ceclOutOfMemory, "%zu bytes: refused", bytes);
    return __real_host_mem_create(dev, bytes, mem);
}

static _Atomic bool gives_up; /* the owner of the memory imported next says that it has closed it */

WRAPPED(ceclResult_t, host_mem_import,
        (struct cecl_device * dev, int fd, size_t bytes, struct cecl_mem *mem))
{
    const ceclResult_t result = __real_host_mem_import(dev, fd, bytes, mem);
    if (atomic_exchange(&gives_up, false))
        for (int r = 0; r < RANKS; r++)
            if (comms[0]->mesh->rows[r].fd == fd)
                atomic_store(&comms[0]->mesh->rows[r].fd, -1);
    return result;
}

WRAPPED(void *, realloc, (void *memory, size_t bytes))
{
    return refuse.grows_no_list ? NULL : __real_realloc(memory, bytes);
}

struct rank {
    pthread_t thread;
    size_t wanted, create_above;
    bool grows_no_list;
    void *got;
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
};

static struct rank ranks[RANKS];

static int open_ranks(void **state)
{
    setenv("CECL_SEGMENT_BYTES", "32M", 1);
    setenv("CECL_STAGING_BYTES", "4096", 1);
    memset(ranks, 0, sizeof(ranks));
    return open_all(state);
}

static void *allocate(void *argument)
{
    struct rank *me = argument;
    refuse.create_above = me->create_above;
    refuse.grows_no_list = me->grows_no_list;
    me->result = ceclMemAlloc(comms[me - ranks], &me->got, me->wanted);
    cecl_keep_message(me->words);
    return NULL;
}

static size_t more_than_is_left(size_t bytes)
{
    ceclPoolStats_t stats;
    OK(ceclPoolStats(comms[0], &stats));
    return (size_t)(stats.mappedBytes - stats.usedBytes) + bytes;
}

/* All ranks allocate; each is refused what its entry of `ranks` says. */
static void allocate_on_all(size_t bytes)
{
    for (int r = 0; r < RANKS; r++) {
        ranks[r].wanted = bytes;
        ranks[r].got = NULL;
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, allocate, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(ranks[r].thread, NULL);
    ranks[1].create_above = 0;
}

/* The pool grows by more than requested if all ranks have room for that, and otherwise by the requested size. */
TEST_BETWEEN(growth_that_one_rank_has_no_room_for_is_tried_smaller, open_ranks, close_all)
{
    ceclPoolStats_t before, after;
    const size_t wanted = more_than_is_left(4096);
    OK(ceclPoolStats(comms[0], &before));
    ranks[1].create_above = wanted + 65536;
    assert_true(ranks[1].create_above < comms[1]->pool.growth);
    allocate_on_all(wanted);
    for (int r = 0; r < RANKS; r++) {
        OK(ranks[r].result);
        OK(ceclPoolStats(comms[r], &after));
        assert_in_range(after.mappedBytes - before.mappedBytes, wanted, wanted + 65536);
    }
}

/* When a rank has given up, its descriptor's number may belong to another file. */
TEST_BETWEEN(memory_of_a_rank_of_this_process_that_gave_up_is_not_used, open_ranks, abort_all)
{
    gives_up = true;
    allocate_on_all(more_than_is_left(4096));
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].result, ceclRemoteError);
        assert_non_null(strstr(ranks[r].words, "gave up"));
    }
}

/* An allocation inside the pool exchanges nothing, so the other ranks succeed. */
TEST_BETWEEN(an_allocation_that_one_rank_alone_refuses_fails_the_communicator, open_ranks,
             abort_all)
{
    ceclResult_t result = ceclSuccess;
    const int64_t deadline = cecl_deadline(60000);
    ranks[1].grows_no_list = true;
    for (int i = 0; i < 1000 && ranks[1].result == ceclSuccess; i++)
        allocate_on_all(256);
    assert_int_equal(ranks[1].result, ceclOutOfMemory);
    while (result == ceclSuccess && cecl_ms_left(deadline) != 0)
        OK(ceclCommGetAsyncError(comms[0], &result));
    assert_int_equal(result, ceclRemoteError);
    assert_non_null(
        strstr(ceclGetLastError(comms[0]), "rank 1 gave up: no host memory for the pool's table"));
}
