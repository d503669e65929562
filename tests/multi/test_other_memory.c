/* Sendbuffs outside the communicator's pool: in another communicator's pool, and on the host
 * device in any memory. Also: a collective does not change its input. */
#include "multi.h"

#define COUNT 5001 /* odd, and more than a page */
#define GUARD 32
#define POISON 0x99

static const char *const directions[] = {"push", "pull"};

static ceclComm_t comm_towards(const char *direction)
{
    multi_setenv("CECL_DIRECTION", direction);
    ceclComm_t comm = multi_comm(NULL);
    multi_setenv("CECL_DIRECTION", NULL);
    return comm;
}

static size_t bytes_sent(ceclOp_t op)
{
    return op == ceclOpAllGather ? COUNT : (size_t)multi_nranks * COUNT;
}

/* Fills `send` (through `owner`, whose memory it is), runs `op`, and checks the result, its
 * guards, and the input. */
static void run(ceclComm_t comm, ceclComm_t owner, ceclOp_t op, unsigned char *send, uint64_t seed)
{
    const size_t all = (size_t)multi_nranks * COUNT, sent = bytes_sent(op);
    unsigned char *recv = NULL, *host = malloc(all + 2 * GUARD);
    assert_non_null(host);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv, all + 2 * GUARD));
    memset(host, POISON, all + 2 * GUARD);
    multi_put(comm, recv, host, all + 2 * GUARD);
    multi_fill(host, seed, multi_rank, sent);
    multi_put(owner, send, host, sent);
    multi_ok(comm, op == ceclOpAllGather
                       ? ceclAllGather(send, recv + GUARD, COUNT, ceclUint8, comm, 0)
                       : ceclAlltoAll(send, recv + GUARD, COUNT, ceclUint8, comm, 0));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_get(comm, host, recv, all + 2 * GUARD);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(host[i], POISON);
        assert_int_equal(host[GUARD + all + i], POISON);
    }
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < COUNT; i++)
            if (host[GUARD + (size_t)r * COUNT + i] !=
                multi_byte(seed, r, op == ceclOpAllGather ? i : (size_t)multi_rank * COUNT + i))
                fail_msg("rank %d: op %d: byte %zu of rank %d's block", multi_rank, (int)op, i, r);
    multi_get(owner, host, send, sent);
    for (size_t i = 0; i < sent; i++)
        assert_int_equal(host[i], multi_byte(seed, multi_rank, i));
    multi_ok(comm, ceclMemFree(comm, recv));
    free(host);
}

TEST(sendbuff_in_another_communicators_pool_is_right)
{
    ceclComm_t owner = multi_comm(NULL);
    unsigned char *send = NULL;
    multi_ok(owner, ceclMemAlloc(owner, (void **)&send, (size_t)multi_nranks * COUNT + 3));
    for (int d = 0; d < 2; d++) {
        ceclComm_t comm = comm_towards(directions[d]);
        for (uint64_t i = 0; i < 4; i++)
            run(comm, owner, ceclOpAllGather, send + i, 10 + i);
        for (uint64_t i = 0; i < 4; i++)
            run(comm, owner, ceclOpAlltoAll, send + i, 20 + i);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
    multi_ok(NULL, ceclCommDestroy(owner));
}

/* Calls on two communicators: the output of the first call is the input of the second. */
TEST(results_pass_from_one_communicator_to_another)
{
    ceclComm_t first = multi_comm(NULL), second = multi_comm(NULL);
    const size_t n = (size_t)multi_nranks;
    unsigned char *a = NULL, *b = NULL, *host = malloc(n * n * COUNT);
    assert_non_null(host);
    multi_ok(first, ceclMemAlloc(first, (void **)&a, n * COUNT));
    multi_ok(second, ceclMemAlloc(second, (void **)&b, n * n * COUNT));
    multi_fill(host, 77, multi_rank, COUNT);
    multi_put(first, a + (size_t)multi_rank * COUNT, host, COUNT);
    multi_ok(first, ceclAllGather(a + (size_t)multi_rank * COUNT, a, COUNT, ceclUint8, first, 0));
    multi_ok(first, ceclStreamSynchronize(first, 0));
    multi_ok(second, ceclAllGather(a, b, n * COUNT, ceclUint8, second, 0));
    multi_ok(second, ceclStreamSynchronize(second, 0));
    multi_get(second, host, b, n * n * COUNT);
    for (size_t copy = 0; copy < n; copy++)
        for (size_t r = 0; r < n; r++)
            for (size_t i = 0; i < COUNT; i++)
                if (host[(copy * n + r) * COUNT + i] != multi_byte(77, (int)r, i))
                    fail_msg("rank %d: byte %zu of rank %zu, by way of rank %zu", multi_rank, i, r,
                             copy);
    multi_ok(NULL, ceclCommDestroy(second));
    multi_ok(NULL, ceclCommDestroy(first));
    free(host);
}

/* On a GPU such memory is refused (test_bad_input.c). */
TEST(sendbuff_in_plain_memory_is_right_on_the_host_device)
{
    ceclComm_t comm = multi_comm(NULL);
    if (multi_on_gpus(comm)) {
        multi_ok(NULL, ceclCommDestroy(comm));
        skip_because("GPUs have this memory in test_memory");
    }
    unsigned char *heap = malloc((size_t)multi_nranks * COUNT + 7);
    static unsigned char fixed[COUNT];
    assert_non_null(heap);
    for (uint64_t i = 0; i < 7; i += 3) {
        run(comm, comm, ceclOpAllGather, heap + i, i);
        run(comm, comm, ceclOpAlltoAll, heap + i, i + 1);
    }
    run(comm, comm, ceclOpAllGather, fixed, 9);
    multi_ok(NULL, ceclCommDestroy(comm));
    free(heap);
}
