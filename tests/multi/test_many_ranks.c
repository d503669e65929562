/* Processes with several ranks each, and one thread for all ranks of a process. */
#include "random_call.h"

#define EACH 2 /* ranks of one process */
#define ROUNDS 60
#define POISON 0x5A

static size_t room; /* bytes of each buffer */

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

/* Starts a group with the joins of this process. refused: the last process's last rank passes a bad argument. */
static void join_in_group(ceclComm_t comms[EACH], bool refused)
{
    ceclConfig_t config = on_host();
    const ceclUniqueId id = multi_one_id();
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < EACH; i++) {
        const bool bad = refused && rank_of(i) == EACH * multi_nranks - 1;
        config.smPolicy = bad ? 77 : config.smPolicy;
        comms[i] = NULL;
        assert_int_equal(
            ceclCommInitRankConfig(&comms[i], EACH * multi_nranks, id, rank_of(i), &config),
            bad ? ceclInvalidArgument : ceclSuccess);
    }
}

/* Draws a call of all ranks, and writes the input. want [out]: what recv must hold. */
static void prepare(struct random_call *c, enum kind kind, uint64_t seed, unsigned char *want)
{
    uint64_t x = seed;
    c->seed = seed;
    random_draw_of(c, kind, &x);
    random_set_places(c, 0);
    memset(c->recv, POISON, room);
    model_fill(c->in, seed, c->rank, random_sent(c, c->rank));
    memcpy(want, c->recv, room);
    random_result(c, want + (c->out - c->recv));
}

TEST(processes_with_several_ranks_each_exchange_in_groups)
{
    static struct random_call calls[EACH];
    ceclComm_t comms[EACH];
    unsigned char *want[EACH];
    uint64_t x = 20261129;
    room = (size_t)(EACH * multi_nranks + 1) * MAX_ROOM;
    join_in_group(comms, false);
    multi_ok(NULL, ceclGroupEnd());
    for (int i = 0; i < EACH; i++) { /* out of place, ranks send from private memory */
        calls[i] = (struct random_call){.rank = rank_of(i), .nranks = EACH * multi_nranks};
        assert_true((calls[i].send = malloc(room)) && (want[i] = malloc(room)));
    }
    multi_ok(NULL, ceclGroupStart());
    for (int i = 0; i < EACH; i++)
        multi_ok(comms[i], ceclMemAlloc(comms[i], (void **)&calls[i].recv, room));
    multi_ok(NULL, ceclGroupEnd());
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t kind = random_next(&x) % KINDS, seed = random_next(&x);
        for (int i = 0; i < EACH; i++)
            prepare(&calls[i], (enum kind)kind, seed, want[i]);
        multi_ok(NULL, ceclGroupStart());
        for (int i = 0; i < EACH; i++)
            multi_ok(comms[i], random_call(comms[i], &calls[i], true));
        multi_ok(NULL, ceclGroupEnd());
        for (int i = 0; i < EACH; i++) {
            multi_ok(comms[i], ceclStreamSynchronize(comms[i], NULL));
            assert_memory_equal(calls[i].recv, want[i], room);
        }
    }
    for (int i = 0; i < EACH; i++) {
        multi_ok(NULL, ceclCommDestroy(comms[i]));
        free(calls[i].send);
        free(want[i]);
    }
}

TEST(a_refused_rank_is_told_to_all_processes)
{
    ceclComm_t comms[EACH];
    join_in_group(comms, true);
    multi_refused(NULL, ceclGroupEnd(), ceclInvalidArgument, "config.smPolicy = 77");
    assert_true(!comms[0] && !comms[1]);
}

/* Rank 0's process also makes a communicator of one rank, by a bad id, so its group fails. */
TEST(another_failed_join_ends_the_communicator_at_its_peers)
{
    const ceclConfig_t config = on_host();
    ceclUniqueId no_id = {"none"};
    ceclComm_t comms[EACH], other = NULL;
    join_in_group(comms, false);
    if (multi_rank == 0)
        multi_ok(NULL, ceclCommInitRankConfig(&other, 1, no_id, 0, &config));
    if (multi_rank == 0) {
        multi_refused(NULL, ceclGroupEnd(), ceclInvalidUsage, "id");
        assert_true(!comms[0] && !comms[1] && !other);
        return;
    }
    /* Rank 0's process may give up before this group ends. */
    const ceclResult_t joined = ceclGroupEnd();
    if (joined != ceclSuccess)
        assert_int_equal(joined, ceclRemoteError);
    for (int i = 0; i < EACH && joined == ceclSuccess; i++) {
        assert_int_equal(multi_async_within(comms[i], PROMPT), ceclRemoteError);
        (void)!ceclCommAbort(comms[i]);
    }
}
