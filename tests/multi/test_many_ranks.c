/* Processes with several ranks each, and one thread for all ranks of a process. */
#include "multi.h"

#define EACH 2 /* ranks of one process */
#define COUNT 5000
#define ROUNDS 20

static int rank_of(int which)
{
    return multi_rank * EACH + which;
}

/* Uses the host device: each process has one GPU at most, which its ranks would share. */
static ceclConfig_t on_host(void)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.device = CECL_DEVICE_HOST;
    multi_setenv("CECL_DEVICE", NULL);
    return config;
}

static void join(ceclComm_t comms[EACH])
{
    const ceclConfig_t config = on_host();
    const ceclUniqueId id = multi_one_id();
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < EACH; i++)
        multi_ok(NULL,
                 ceclCommInitRankConfig(&comms[i], EACH * multi_nranks, id, rank_of(i), &config));
    multi_ok(NULL, ceclGroupEnd());
}

static void allocate(ceclComm_t comms[EACH], int *buffers[EACH], size_t elements)
{
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < EACH; i++)
        multi_ok(comms[i], ceclMemAlloc(comms[i], (void **)&buffers[i], elements * sizeof(int)));
    multi_ok(NULL, ceclGroupEnd());
}

static int value(int round, int rank, size_t index)
{
    return round * 1000003 + rank * 10007 + (int)index;
}

struct buffers {
    int *gathered[EACH], *sent[EACH], *exchanged[EACH], *sums[EACH];
};

static void call_all(ceclComm_t comms[EACH], struct buffers *b)
{
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < EACH; i++) {
        multi_ok(comms[i], ceclAllGather(b->gathered[i] + (size_t)rank_of(i) * COUNT,
                                         b->gathered[i], COUNT, ceclInt, comms[i], NULL));
        multi_ok(comms[i],
                 ceclAlltoAll(b->sent[i], b->exchanged[i], COUNT, ceclInt, comms[i], NULL));
        multi_ok(comms[i],
                 ceclAllReduce(b->sent[i], b->sums[i], COUNT, ceclInt, ceclMax, comms[i], NULL));
    }
    multi_ok(NULL, ceclGroupEnd());
    for (int i = 0; i < EACH; i++)
        multi_ok(comms[i], ceclStreamSynchronize(comms[i], NULL));
}

static void check(const struct buffers *b, int which, int round)
{
    const int nranks = EACH * multi_nranks;
    for (int r = 0; r < nranks; r++)
        for (size_t i = 0; i < COUNT; i++) {
            const size_t at = (size_t)r * COUNT + i, mine = (size_t)rank_of(which) * COUNT + i;
            assert_int_equal(b->gathered[which][at], value(round, r, i));
            assert_int_equal(b->exchanged[which][at], value(round, r, mine));
        }
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(b->sums[which][i], value(round, nranks - 1, i));
}

TEST(processes_with_several_ranks_each_exchange_in_groups)
{
    const size_t all = (size_t)(EACH * multi_nranks) * COUNT;
    ceclComm_t comms[EACH];
    struct buffers b;
    join(comms);
    allocate(comms, b.gathered, all);
    allocate(comms, b.exchanged, all);
    allocate(comms, b.sums, COUNT);
    for (int i = 0; i < EACH; i++) /* one rank of a process sends from private memory */
        assert_non_null(b.sent[i] = malloc(all * sizeof(int)));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < EACH; i++)
            for (size_t e = 0; e < all; e++) {
                b.sent[i][e] = value(round, rank_of(i), e);
                b.gathered[i][e] = value(round, rank_of(i), e % COUNT);
            }
        call_all(comms, &b);
        for (int i = 0; i < EACH; i++)
            check(&b, i, round);
    }
    for (int i = 0; i < EACH; i++)
        multi_ok(NULL, ceclCommDestroy(comms[i]));
    for (int i = 0; i < EACH; i++)
        free(b.sent[i]);
}

/* Tries to join all ranks; one rank has an unknown policy. */
static ceclResult_t join_with_a_bad_rank(ceclComm_t comms[EACH], int bad)
{
    const ceclUniqueId id = multi_one_id();
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < EACH; i++) {
        ceclConfig_t config = on_host();
        config.smPolicy = rank_of(i) == bad ? 77 : CECL_UNDEF;
        const ceclResult_t result =
            ceclCommInitRankConfig(&comms[i], EACH * multi_nranks, id, rank_of(i), &config);
        assert_int_equal(result, rank_of(i) == bad ? ceclInvalidArgument : ceclSuccess);
    }
    return ceclGroupEnd();
}

TEST(a_refused_rank_is_heard_of_in_all_processes_at_once)
{
    for (int bad = 0; bad < EACH * multi_nranks; bad++) {
        ceclComm_t comms[EACH] = {NULL, NULL};
        const double begin = multi_seconds();
        multi_refused(NULL, join_with_a_bad_rank(comms, bad), ceclInvalidArgument,
                      "config.smPolicy = 77");
        assert_true(multi_seconds() - begin < PROMPT);
        assert_true(!comms[0] && !comms[1]);
    }
}

/* Rank 0's process also joins a communicator that gets no peers, so its group fails. */
TEST(another_failed_join_ends_the_communicator_at_its_peers)
{
    const ceclConfig_t config = on_host();
    const ceclUniqueId id = multi_one_id();
    ceclUniqueId no_id = {"none"};
    ceclComm_t comms[EACH] = {NULL, NULL}, other = NULL;
    ceclResult_t async = ceclSuccess;
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < EACH; i++)
        multi_ok(NULL,
                 ceclCommInitRankConfig(&comms[i], EACH * multi_nranks, id, rank_of(i), &config));
    if (multi_rank == 0)
        multi_ok(NULL, ceclCommInitRankConfig(&other, 1, no_id, 0, &config));
    if (multi_rank == 0) {
        multi_refused(NULL, ceclGroupEnd(), ceclInvalidUsage, "id");
        assert_true(!comms[0] && !comms[1] && !other);
        return;
    }
    /* rank 0's process may give up before this group ends */
    const ceclResult_t joined = ceclGroupEnd();
    if (joined != ceclSuccess)
        assert_int_equal(joined, ceclRemoteError);
    for (int i = 0; i < EACH && joined == ceclSuccess; i++) {
        const double begin = multi_seconds();
        while (async == ceclSuccess && multi_seconds() - begin < PROMPT)
            multi_ok(comms[i], ceclCommGetAsyncError(comms[i], &async));
        assert_int_equal(async, ceclRemoteError);
        (void)!ceclCommAbort(comms[i]);
        async = ceclSuccess;
    }
}
