/* Random calls over several hosts, which CECL_NODE_SIZE pretends: NCCL carries them, on the host device the stand-in of
 * tests/nccl. CECL_TEST_CALLS and CECL_TEST_SEED override the number of calls and the seed. tests/net tests all else that
 * concerns several hosts. */
#include "random_call.h"

#define MOST 4 /* calls of a group */

static struct random_slot slots[MOST];
static struct memory sends[MOST], recvs[MOST];
static unsigned char *host;

/* NCCL has neither strided calls nor tiles, nor an all-to-all in place. Floats would be added in another order. In
 * groups and captured, ranks do not tell each other the places of an all-to-all. */
static bool is_carried(const struct random_call *c, bool no_places)
{
    return c->type < ceclFloat16 && c->kind != ALL_GATHER_STRIDED &&
           c->kind != ALL_TO_ALL_STRIDED && c->kind != REDUCE_SCATTER_TILES &&
           !(c->kind == ALL_TO_ALL && c->in_place) &&
           !(c->kind == ALL_TO_ALLV && c->exchange && no_places);
}

static void prepare(ceclComm_t comm, int i, bool no_places, ceclStream_t stream, uint64_t *x)
{
    struct random_call *c = &slots[i].call;
    uint64_t y = random_next(x);
    c->rank = multi_rank;
    c->nranks = multi_nranks;
    c->stream = stream;
    c->seed = (random_next(x) & ~UINT64_C(0x1c00)) | 0x400; /* for random_make: not captured */
    do
        random_draw(c, x);
    while (!is_carried(c, no_places));
    random_prepare(comm, &slots[i], &sends[i], &recvs[i], &y, host);
}

/* On GPUs, a graph captures some of the calls and groups. */
static void make_and_check(ceclComm_t comm, int count, ceclStream_t stream, uint64_t *x)
{
    const bool captured = random_next(x) % 4 == 0 && multi_on_gpus(comm);
    ceclGraph_t graph;
    for (int i = 0; i < count; i++)
        prepare(comm, i, count > 1 || captured, stream, x);
    if (captured)
        multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    if (count > 1)
        multi_ok(comm, ceclGroupStart());
    for (int i = 0; i < count; i++)
        multi_ok(comm, random_make(comm, &slots[i].call, count > 1));
    if (count > 1)
        multi_ok(comm, ceclGroupEnd());
    if (captured) {
        multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
        multi_ok(comm, ceclGraphLaunch(graph, stream));
    }
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    for (int i = 0; i < count; i++)
        random_compare(comm, &slots[i], host);
    if (captured)
        multi_ok(comm, ceclGraphDestroy(graph));
}

static void random_calls_are_right(const char *node_size)
{
    const char *calls = getenv("CECL_TEST_CALLS"), *given = getenv("CECL_TEST_SEED");
    const int total = multi_share(calls ? atoi(calls) : 400);
    uint64_t x = given ? strtoull(given, NULL, 10) : 88172645463325252u;
    multi_setenv("CECL_NODE_SIZE", node_size);
    ceclComm_t comm = multi_comm(NULL);
    ceclStream_t stream = multi_stream(comm);
    assert_non_null(host = malloc(random_room()));
    for (int i = 0; i < MOST; i++) {
        assert_non_null(slots[i].want = malloc(random_room()));
        sends[i] = memory_new(comm, MEMORY_POOL, random_room());
        recvs[i] = memory_new(comm, MEMORY_POOL, random_room());
    }
    for (int done = 0, count; done < total; done += count) {
        count = random_next(&x) % 3 == 0 ? 2 + (int)(random_next(&x) % (MOST - 1)) : 1;
        make_and_check(comm, count, stream, &x);
    }
    for (int i = 0; i < MOST; i++)
        free(slots[i].want);
    free(host);
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommDestroy(comm));
    multi_setenv("CECL_NODE_SIZE", NULL);
}

TEST(random_calls_are_carried_between_hosts_of_two_ranks)
{
    if (multi_nranks != 4)
        skip_because("it needs 4 ranks");
    random_calls_are_right("2");
}

TEST(random_calls_are_carried_between_hosts_of_unequal_size)
{
    if (multi_nranks != 4)
        skip_because("it needs 4 ranks");
    random_calls_are_right("3");
}

TEST(random_calls_are_carried_between_hosts_of_one_rank)
{
    random_calls_are_right("1");
}

/* Each process has a communicator of its own, whose ranks one thread joins and calls in groups. */
TEST(one_thread_has_several_ranks)
{
    enum { N = 4 };
    ceclComm_t comms[N];
    unsigned char *all[N];
    ceclUniqueId id;
    if (strcmp(getenv("CECL_DEVICE"), "host") != 0)
        skip_because("it needs as many GPUs as ranks, for each process");
    multi_setenv("CECL_NODE_SIZE", "2");
    multi_ok(NULL, ceclGetUniqueId(&id));
    multi_ok(NULL, ceclGroupStart());
    for (int r = 0; r < N; r++)
        multi_ok(NULL, ceclCommInitRank(&comms[r], N, id, r));
    multi_ok(NULL, ceclGroupEnd());
    for (int r = 0; r < N; r++) {
        all[r] = multi_alloc(comms[r], N);
        all[r][r] = (unsigned char)(10 + r); /* the host device's memory is the host's */
    }
    multi_ok(NULL, ceclGroupStart());
    for (int r = 0; r < N; r++)
        multi_ok(comms[r], ceclAllGather(all[r] + r, all[r], 1, ceclInt8, comms[r], NULL));
    multi_ok(NULL, ceclGroupEnd());
    for (int r = 0; r < N; r++) {
        multi_ok(comms[r], ceclStreamSynchronize(comms[r], NULL));
        for (int q = 0; q < N; q++)
            assert_int_equal(all[r][q], 10 + q);
    }
    for (int r = 0; r < N; r++)
        multi_ok(NULL, ceclCommDestroy(comms[r]));
    multi_setenv("CECL_NODE_SIZE", NULL);
}

int main(int argc, char **argv)
{
    char name[32];
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    snprintf(name, sizeof(name), "host%s", rank ? rank : "0");
    setenv("NCCL_HOSTID", name, 0); /* ranks may share a GPU, which NCCL refuses within a host */
    return multi_main(argc, argv);
}
