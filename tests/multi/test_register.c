/* Registration of memory: what is accepted, what is refused, and which path calls take. In test_mixed.c ranks register
 * random ranges, which overlap, are freed before they are deregistered, or stay registered. */
#include "memory.h"

#define BLOCK 3000

static ceclComm_t comm;
static unsigned char *host, *pool;
static struct memory memory;
static size_t bytes; /* of each */

/* name: an environment variable to set, or NULL. */
static int open_under(const char *name, const char *value, const ceclConfig_t *config)
{
    comm = name ? multi_comm_under(name, value, config) : multi_comm(config);
    bytes = (size_t)multi_nranks * BLOCK;
    host = malloc(bytes);
    assert_non_null(host);
    pool = multi_alloc(comm, bytes);
    memory = memory_new(comm, MEMORY_SHARED, bytes);
    return 0;
}

static int set_up(void **state)
{
    return open_under(NULL, NULL, NULL);
}

/* Nothing is registered on use, and peers read inputs where they can. */
static int set_up_manual(void **state)
{
    ceclConfig_t config = multi_config();
    config.registerOnUse = 0;
    config.smPolicy = CECL_SM_ALLOW;
    return open_under("CECL_DIRECTION", "pull", &config);
}

static int set_up_pull(void **state)
{
    return open_under("CECL_DIRECTION", "pull", NULL);
}

static int set_up_checked(void **state)
{
    return open_under("CECL_CHECK", "1", NULL);
}

static int tear_down(void **state)
{
    memory_free(comm, &memory);
    multi_ok(NULL, ceclCommDestroy(comm));
    free(host);
    return 0;
}

static ceclRegistration_t registered(void *ptr, size_t size)
{
    ceclRegistration_t handle = NULL;
    multi_ok(comm, ceclCommRegister(comm, ptr, size, &handle));
    assert_non_null(handle);
    return handle;
}

static void deregistered(ceclRegistration_t handle)
{
    multi_ok(comm, ceclCommDeregister(comm, handle));
}

static ceclResult_t gather(unsigned char *recv)
{
    return ceclAllGather(recv + multi_rank * BLOCK, recv, BLOCK, ceclUint8, comm, NULL);
}

/* Fills `recv` for gather. by: a communicator that has no call in an open group. */
static void ready(ceclComm_t by, unsigned char *recv, uint64_t seed)
{
    multi_guard(by, recv, bytes);
    multi_fill_device(by, recv + multi_rank * BLOCK, seed, multi_rank, BLOCK);
}

static void fill(unsigned char *recv, uint64_t seed)
{
    ready(comm, recv, seed);
}

static void check(const unsigned char *recv, uint64_t seed)
{
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    for (int r = 0; r < multi_nranks; r++)
        multi_check_device(comm, recv + r * BLOCK, seed, r, BLOCK, BLOCK);
}

static void run(unsigned char *recv, uint64_t seed)
{
    fill(recv, seed);
    multi_ok(comm, gather(recv));
    check(recv, seed);
}

TEST_BETWEEN(memory_of_the_pool_may_be_registered, set_up, tear_down)
{
    ceclRegistration_t handle = registered(pool, bytes), part = registered(pool + 1, 1);
    deregistered(handle);
    run(pool, 1);
    deregistered(part);
    run(pool, 2);
}

/* Programs end without waiting for each other. */
TEST_BETWEEN(local_calls_succeed_when_a_peer_has_left, set_up, tear_down)
{
    ceclComm_t other = multi_comm(NULL);
    ceclRegistration_t early = NULL, late = NULL;
    multi_ok(other, ceclCommRegister(other, memory.at, 1, &early));
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == multi_nranks - 1)
        multi_ok(NULL, ceclCommDestroy(other));
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == multi_nranks - 1)
        return;
    multi_ok(other, ceclCommDeregister(other, early));
    multi_ok(other, ceclCommRegister(other, memory.at, 1, &late));
    multi_ok(NULL, ceclCommDestroy(other));
}

static void refused(void *ptr, size_t size, ceclResult_t result, const char *words)
{
    ceclRegistration_t handle = (ceclRegistration_t)(void *)host;
    multi_refused(comm, ceclCommRegister(comm, ptr, size, &handle), result, words);
    assert_ptr_equal(handle, host);
}

TEST_BETWEEN(bad_arguments_are_named, set_up, tear_down)
{
    refused(memory.at, SIZE_MAX, ceclInvalidArgument, "bytes");
    refused(pool, bytes + 256, ceclInvalidUsage, "left in its allocation");
    run(memory.at, 1);
}

TEST_BETWEEN(a_handle_serves_once, set_up, tear_down)
{
    ceclRegistration_t kept = registered(memory.at, bytes), handle = registered(memory.at, 1);
    deregistered(handle);
    multi_refused(comm, ceclCommDeregister(comm, handle), ceclInvalidArgument,
                  "not a registration");
    multi_refused(comm, ceclCommDeregister(comm, (ceclRegistration_t)(void *)host),
                  ceclInvalidArgument, "not a registration");
    run(memory.at, 1);
    deregistered(kept);
}

/* Unmaps memory, and leaves a hole that no other thread fills. (On GPUs a thread may; the barrier makes it unlikely.) */
static void make_hole(struct memory *m)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_on_gpus(comm)) {
        memory_free(comm, m);
        return;
    }
    host_unmap(m->at, m->bytes);
    close(m->fd);
    m->fd = -1;
}

TEST_BETWEEN(freed_memory_is_refused, set_up, tear_down)
{
    struct memory other = memory_new(comm, MEMORY_SHARED, bytes);
    unsigned char *at = other.at;
    deregistered(registered(at, bytes));
    ceclRegistration_t kept = registered(at, bytes);
    make_hole(&other);
    refused(at, bytes, ceclInvalidArgument, multi_on_gpus(comm) ? "" : "no memory of this process");
    deregistered(kept);
    memory_free(comm, &other);
    run(memory.at, 1);
}

/* On the host device the range first ends in a hole, and then in other memory. */
TEST_BETWEEN(a_range_past_the_end_of_its_memory_is_refused, set_up, tear_down)
{
    if (multi_on_gpus(comm)) {
        refused(memory.at, (size_t)1 << 46, ceclInvalidArgument, "");
        return;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *at = host_reserve(3 * page);
    const int file = host_file(page), other = host_file(page);
    host_map(at, page, MAP_SHARED, file, 0);
    refused(at, 2 * page, ceclInvalidArgument, "no memory of this process");
    refused(at + page, 1, ceclInvalidArgument, "no memory of this process");
    host_map(at + page, page, MAP_SHARED, other, 0);
    refused(at, page + 1, ceclInvalidArgument, "before its range does");
    deregistered(registered(at, page));
    deregistered(registered(at + page, page));
    munmap(at, 3 * page);
    close(file);
    close(other);
    run(memory.at, 1);
}

TEST_BETWEEN(private_memory_is_refused, set_up, tear_down)
{
    struct memory private = memory_new(comm, MEMORY_PRIVATE, bytes);
    refused(private.at, bytes, ceclInvalidUsage, "cannot open");
    memory_free(comm, &private);
    if (multi_on_gpus(comm))
        refused(host, bytes, ceclInvalidArgument, "");
    run(memory.at, 1);
}

TEST_BETWEEN(memory_in_the_place_of_private_memory_is_registered, set_up, tear_down)
{
    const size_t pages = (bytes + 4095) & ~(size_t)4095;
    if (multi_on_gpus(comm))
        skip_because("it maps memory of the host device");
    unsigned char *at = host_reserve(pages);
    host_map(at, pages, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    run(at, 3);
    const int file = host_file(pages);
    host_map(at, pages, MAP_SHARED, file, 0);
    ceclRegistration_t handle = registered(at, bytes);
    run(at, 4);
    deregistered(handle);
    munmap(at, pages);
    close(file);
}

/* The last rank delays its call, so the others' calls stay pending. */
TEST_BETWEEN(memory_of_a_pending_call_stays_registered, set_up, tear_down)
{
    const bool late = multi_rank == multi_nranks - 1;
    for (uint64_t round = 0; round < 5; round++) {
        ceclRegistration_t handle = registered(memory.at, bytes),
                           other = registered(memory.at, bytes);
        fill(memory.at, round);
        if (!late) {
            multi_ok(comm, gather(memory.at));
            deregistered(other);
            multi_refused(comm, ceclCommDeregister(comm, handle), ceclInvalidUsage, "pending call");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (late)
            multi_ok(comm, gather(memory.at));
        check(memory.at, round);
        deregistered(handle);
        if (late)
            deregistered(other);
    }
}

/* A group's calls look up their memory when they are made, and use it when the group ends. */
TEST_BETWEEN(memory_of_an_open_group_stays_registered, set_up, tear_down)
{
    ceclRegistration_t handle = registered(memory.at, bytes);
    fill(memory.at, 3);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, gather(memory.at));
    multi_refused(comm, ceclCommDeregister(comm, handle), ceclInvalidUsage,
                  "wait for ceclGroupEnd");
    multi_ok(comm, ceclGroupEnd());
    check(memory.at, 3);
    deregistered(handle);
}

/* As gather, with a layout, which a group stores apart from the call. */
static ceclResult_t gather_variable(unsigned char *recv)
{
    size_t counts[64], displacements[64];
    assert_true(multi_nranks <= 64);
    for (int r = 0; r < multi_nranks; r++) {
        counts[r] = BLOCK;
        displacements[r] = (size_t)r * BLOCK;
    }
    return ceclAllGatherv(recv + multi_rank * BLOCK, BLOCK, recv, counts, displacements, ceclUint8,
                          comm, NULL);
}

/* The last call finds earlier calls' memory replaced, so their window closes. So many calls make the group's array of
 * layouts grow, and move. */
TEST_BETWEEN(memory_may_be_replaced_between_calls_of_a_group, set_up, tear_down)
{
    enum { CALLS = 40 };
    ceclComm_t other = multi_comm(NULL); /* may synchronize; `comm` may not in its open group */
    struct memory all = memory_new(comm, MEMORY_SHARED, (CALLS + 1) * bytes);
    run(all.at, 3);
    multi_ok(comm, ceclGroupStart());
    for (size_t i = 0; i < CALLS; i++)
        multi_ok(comm, i % 2 ? gather(all.at + i * bytes) : gather_variable(all.at + i * bytes));
    memory_renew(comm, &all, MEMORY_SHARED);
    for (size_t i = 0; i <= CALLS; i++)
        ready(other, all.at + i * bytes, i);
    multi_ok(comm, gather(all.at + CALLS * bytes));
    multi_ok(comm, ceclGroupEnd());
    for (size_t i = 0; i <= CALLS; i++)
        check(all.at + i * bytes, i);
    memory_free(comm, &all);
    multi_ok(NULL, ceclCommDestroy(other));
}

/* All ranks but the last find the replacement when the group ends: their first call gets a bounce buffer. Of two
 * such ranks the one that publishes later writes to the other's. */
TEST_BETWEEN(memory_may_be_replaced_by_private_memory_between_calls_of_a_group, set_up_checked,
             tear_down)
{
    if (multi_on_gpus(comm))
        skip_because("on GPUs private memory has addresses of its own");
    ceclComm_t other = multi_comm(NULL); /* may synchronize; `comm` may not in its open group */
    struct memory both = memory_new(comm, MEMORY_SHARED, 2 * bytes);
    run(both.at, 3);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, gather(both.at));
    if (multi_rank < multi_nranks - 1)
        memory_renew(comm, &both, MEMORY_PRIVATE);
    for (size_t i = 0; i < 2; i++)
        ready(other, both.at + i * bytes, i + 5);
    multi_ok(comm, gather(both.at + bytes));
    multi_ok(comm, ceclGroupEnd());
    for (size_t i = 0; i < 2; i++)
        check(both.at + i * bytes, i + 5);
    run(memory.at, 4);
    memory_free(comm, &both);
    multi_ok(NULL, ceclCommDestroy(other));
}

/* The last call needs a larger bounce buffer than the earlier calls. This buffer is mapped where the first call's
 * private memory was: that is the first hole which is large enough. */
TEST_BETWEEN(a_bounce_buffer_may_lie_where_private_memory_was, set_up_pull, tear_down)
{
    const size_t block = (size_t)8 << 20;
    struct memory old = memory_new(comm, MEMORY_PRIVATE, (size_t)64 << 20),
                  send = memory_new(comm, MEMORY_PRIVATE, block),
                  recv = memory_new(comm, MEMORY_SHARED, (size_t)multi_nranks * block);
    run(old.at, 3);
    run(send.at, 3);
    run(recv.at, 3);
    memory_free(comm, &old);
    multi_ok(comm, ceclAllGather(send.at, recv.at, block, ceclUint8, comm, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    run(recv.at, 4);
    memory_free(comm, &send);
    memory_free(comm, &recv);
}

/* Only the root has a recvbuff. The others pass freed memory, whose window closes when the next call opens a new one. */
TEST_BETWEEN(a_group_does_not_look_at_a_recvbuff_without_use, set_up, tear_down)
{
    const bool is_root = multi_rank == 0;
    struct memory old = memory_new(comm, MEMORY_SHARED, bytes),
                  new = memory_new(comm, MEMORY_SHARED, bytes);
    run(memory.at, 2);
    run(old.at, 3);
    unsigned char *const unused = old.at;
    memory_free(comm, &old);
    fill(memory.at, 4);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclGather(memory.at + multi_rank * BLOCK, is_root ? memory.at : unused, BLOCK,
                              ceclUint8, 0, comm, NULL));
    multi_ok(comm, gather(new.at));
    multi_ok(comm, ceclGroupEnd());
    if (is_root)
        check(memory.at, 4);
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    memory_free(comm, &new);
}

static void explained(const unsigned char *send, const unsigned char *recv, ceclExplanation_t *e)
{
    memset(e, 0, sizeof(*e));
    multi_ok(comm, ceclExplain(ceclOpAlltoAll, send, recv, BLOCK, ceclUint8, comm, e));
}

static void expect_same(const ceclExplanation_t *a, const ceclExplanation_t *b)
{
    assert_string_equal(a->path, b->path);
    assert_string_equal(a->reason, b->reason);
    assert_int_equal(a->zeroSm, b->zeroSm);
    assert_int_equal(a->copies, b->copies);
    assert_int_equal(a->localCopies, b->localCopies);
    assert_int_equal(a->barriers, b->barriers);
    assert_int_equal(a->bytesSent, b->bytesSent);
}

/* The pull path reads the peers' sendbuffs, so its explanation depends on whether peers can open the memory. */
TEST_BETWEEN(registered_memory_is_explained_as_the_pool_is, set_up_manual, tear_down)
{
    ceclExplanation_t on_pool, on_memory;
    struct memory send = memory_new(comm, MEMORY_SHARED, bytes);
    unsigned char *other = multi_alloc(comm, bytes);
    explained(other, pool, &on_pool);
    assert_non_null(strstr(on_pool.path, "pull"));
    explained(send.at, memory.at, &on_memory); /* not registered yet: private */
    assert_null(strstr(on_memory.path, "pull"));
    ceclRegistration_t handles[] = {registered(send.at, bytes), registered(memory.at, bytes)};
    explained(send.at, memory.at, &on_memory);
    expect_same(&on_memory, &on_pool);
    deregistered(handles[0]);
    deregistered(handles[1]);
    explained(send.at, memory.at, &on_memory);
    assert_null(strstr(on_memory.path, "pull"));
    multi_ok(comm, ceclMemFree(comm, other));
    memory_free(comm, &send);
}

/* Memory of the host device with a hole behind it. */
static struct memory memory_before_a_hole(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct memory m = memory_new(comm, MEMORY_SHARED, (bytes + page - 1) / page * page);
    unsigned char *at = host_reserve(m.bytes + page);
    assert_ptr_equal(mremap(m.at, m.bytes, m.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at), at);
    m.at = at;
    return m;
}

TEST_BETWEEN(a_refused_registration_ends_no_other, set_up_manual, tear_down)
{
    ceclExplanation_t before, after;
    if (multi_on_gpus(comm))
        skip_because("no hole can be put behind memory");
    struct memory m = memory_before_a_hole();
    ceclRegistration_t handle = registered(m.at, m.bytes);
    explained(m.at, pool, &before);
    refused(m.at, m.bytes + 1, ceclInvalidArgument, "before its range does");
    explained(m.at, pool, &after);
    expect_same(&after, &before);
    deregistered(handle);
    memory_free(comm, &m);
}

/* All ranks but the last are refused a registration and a call on a pending call's memory. Then the last rank calls. */
TEST_BETWEEN(what_is_refused_leaves_a_pending_call_as_it_is, set_up, tear_down)
{
    const bool late = multi_rank == multi_nranks - 1;
    if (multi_on_gpus(comm))
        skip_because("no hole can be put behind memory");
    struct memory m = memory_before_a_hole();
    run(m.at, 1);
    fill(m.at, 2);
    if (!late) {
        multi_ok(comm, gather(m.at));
        refused(m.at, m.bytes + 1, ceclInvalidArgument, "before its range does");
        multi_refused(comm, ceclAllGather(m.at, m.at, m.bytes, ceclUint8, comm, NULL),
                      ceclInvalidArgument, "before its range does");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(20000); /* lets the peers' messages arrive */
    if (late)
        multi_ok(comm, gather(m.at));
    check(m.at, 2);
    memory_free(comm, &m);
}

/* The last rank calls after the others. Before round 1 the others unmap unused memory of the window, and register more. */
TEST_BETWEEN(a_window_stays_open_while_a_pending_call_uses_it, set_up, tear_down)
{
    const bool late = multi_rank == multi_nranks - 1;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (multi_on_gpus(comm))
        skip_because("memory.h has no memory of which a part can be freed");
    struct memory m = memory_new(comm, MEMORY_SHARED, page + bytes);
    unsigned char *recv = m.at + page;
    for (uint64_t round = 0; round < 2; round++) { /* the second call has a kept plan */
        fill(recv, round);
        if (!late)
            multi_ok(comm, gather(recv));
        if (!late && round == 1) {
            assert_int_equal(munmap(m.at, page), 0);
            m.at += page; /* another thread may map memory at the old address */
            m.bytes -= page;
            deregistered(registered(memory.at, bytes));
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (round == 1)
            usleep(600000); /* lets the last rank close the windows that it takes for unused */
        if (late)
            multi_ok(comm, gather(recv));
        check(recv, round);
    }
    memory_free(comm, &m);
}
