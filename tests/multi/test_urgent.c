/* Urgent communicators: which calls go through host memory, which communicators inherit the
 * setting, and that urgent calls, repeated with other calls between them, leave the data of the
 * calls before and after intact. */
#include "multi.h"

#define COUNT 300 /* ints of a block */
/* ints of a block that never goes through host memory, on any device */
#define LARGE 300000
#define ROUNDS 150

static const char by_host[] = "urgent, through host memory";

static ceclComm_t urgent_comm(void)
{
    ceclConfig_t config = multi_config();
    config.urgent = 1;
    return multi_comm(&config);
}

static int *ints(ceclComm_t comm, size_t count)
{
    int *at = NULL;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&at, count * sizeof(int)));
    return at;
}

/* A communicator, with buffers for a large block of each rank. */
struct work {
    ceclComm_t comm;
    int *in, *out;
};

static struct work work_of(ceclComm_t comm)
{
    const size_t all = (size_t)multi_nranks * LARGE;
    return (struct work){comm, ints(comm, all), ints(comm, all)};
}

enum kind { ALL_GATHER, ALL_TO_ALL, BROADCAST, GATHER, SCATTER, MOVERS, ALL_REDUCE };

static ceclResult_t make(const struct work *w, enum kind kind, int *out, size_t count)
{
    switch (kind) {
    case ALL_GATHER: return ceclAllGather(w->in, out, count, ceclInt, w->comm, 0);
    case ALL_TO_ALL: return ceclAlltoAll(w->in, out, count, ceclInt, w->comm, 0);
    case BROADCAST: return ceclBroadcast(w->in, out, count, ceclInt, 0, w->comm, 0);
    case GATHER: return ceclGather(w->in, out, count, ceclInt, 0, w->comm, 0);
    case SCATTER: return ceclScatter(w->in, out, count, ceclInt, 0, w->comm, 0);
    case ALL_REDUCE: return ceclAllReduce(w->in, out, count, ceclInt, ceclSum, w->comm, 0);
    case MOVERS: break;
    }
    return ceclInvalidArgument;
}

/* Whether this many calls in a group would go through host memory. Makes no call. */
static bool group_goes_by_host(const struct work *w, enum kind kind, size_t count, int calls)
{
    ceclExplanation_t e;
    multi_ok(w->comm, ceclGroupStart());
    for (int i = 0; i < calls; i++)
        multi_ok(w->comm, make(w, kind, w->out + i * multi_nranks, count));
    multi_ok(w->comm, ceclGroupExplain(w->comm, &e));
    const bool goes = strcmp(e.path, by_host) == 0;
    assert_true(!goes || (e.zeroSm && e.localCopies == 0));
    return goes;
}

static bool goes_by_host(const struct work *w, enum kind kind, size_t count)
{
    return group_goes_by_host(w, kind, count, 1);
}

TEST(small_calls_that_move_data_go_through_host_memory)
{
    const struct work w = work_of(urgent_comm());
    const bool peers = multi_nranks > 1;
    for (enum kind kind = 0; kind < MOVERS; kind++) {
        assert_int_equal(goes_by_host(&w, kind, COUNT), peers);
        assert_false(goes_by_host(&w, kind, LARGE));
    }
    assert_false(goes_by_host(&w, ALL_REDUCE, COUNT));
    assert_false(group_goes_by_host(&w, ALL_GATHER, 1, 2));
    multi_ok(NULL, ceclCommDestroy(w.comm));
}

TEST(a_chosen_direction_is_kept)
{
    const struct work w = work_of(urgent_comm());
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = CECL_DIRECTION_PUSH;
    multi_ok(w.comm, ceclSetOptions(w.comm, &options));
    assert_false(goes_by_host(&w, ALL_GATHER, COUNT));
    multi_ok(NULL, ceclCommDestroy(w.comm));
}

static bool child_goes_by_host(ceclComm_t parent, const ceclConfig_t *config)
{
    ceclComm_t child = NULL;
    multi_ok(parent, ceclCommSplit(parent, 0, multi_rank, &child, config));
    const struct work w = work_of(child);
    const bool goes = goes_by_host(&w, ALL_GATHER, COUNT);
    multi_ok(NULL, ceclCommDestroy(child));
    return goes;
}

TEST(children_are_urgent_as_their_parent_or_their_configuration)
{
    const bool peers = multi_nranks > 1;
    ceclConfig_t config = multi_config();
    ceclComm_t urgent = urgent_comm(), usual = multi_comm(NULL);
    assert_int_equal(child_goes_by_host(urgent, NULL), peers);
    assert_false(child_goes_by_host(usual, NULL));
    config.urgent = 0;
    assert_false(child_goes_by_host(urgent, &config));
    config.urgent = 1;
    assert_int_equal(child_goes_by_host(usual, &config), peers);
    multi_ok(NULL, ceclCommDestroy(urgent));
    multi_ok(NULL, ceclCommDestroy(usual));
}

/* ---- repeated calls */

static int value(int round, int rank, int i)
{
    return round * 1000003 + rank * 1009 + i;
}

/* Makes another call, or none, between two urgent calls. */
static void make_other(const struct work *other, int round, ceclStream_t stream)
{
    ceclComm_t comm = other->comm;
    switch (round * 7 % 11) {
    case 0: multi_ok(comm, ceclBarrier(comm, stream)); break;
    case 1:
        multi_ok(comm, ceclAllReduce(other->in, other->out, 5, ceclInt, ceclSum, comm, stream));
        break;
    case 2:
        multi_ok(comm, ceclAllGather(other->in, other->out, LARGE, ceclInt, comm, stream));
        break;
    case 3: multi_ok(comm, ceclAllGather(other->in, other->out, 0, ceclInt, comm, stream)); break;
    case 4:
        multi_ok(comm,
                 ceclGather(other->in, other->out, 7, ceclInt, round % multi_nranks, comm, stream));
        break;
    case 5:
        multi_ok(comm, ceclReduceScatter(other->in, other->out, 3, ceclInt, ceclSum, comm, stream));
        break;
    case 6:
        multi_refused(comm, ceclAllGather(NULL, other->out, 9, ceclInt, comm, stream),
                      ceclInvalidArgument, "sendbuff");
        break;
    default: break;
    }
}

/* Each round has another input. Results are copied, and checked at the end. */
static void rounds(const struct work *w, const struct work *other, const ceclStream_t streams[2])
{
    const size_t block = COUNT * sizeof(int), all = (size_t)multi_nranks * block;
    int *inputs = malloc(ROUNDS * block), *results = malloc(ROUNDS * all);
    assert_true(inputs && results);
    for (int i = 0; i < ROUNDS * COUNT; i++)
        inputs[i] = value(i / COUNT, multi_rank, i % COUNT);
    for (int round = 0; round < ROUNDS; round++) {
        ceclStream_t stream = streams[round / 20 % 2];
        if (round % 20 == 0)
            multi_ok(w->comm, ceclStreamSynchronize(w->comm, streams[1 - round / 20 % 2]));
        if (round % 31 == multi_rank)
            multi_pause_ms(3);
        multi_ok(w->comm, ceclMemcpyAsync(w->comm, w->in, inputs + round * COUNT, block, stream));
        multi_ok(w->comm, ceclAllGather(w->in, w->out, COUNT, ceclInt, w->comm, stream));
        multi_ok(w->comm, ceclMemcpyAsync(w->comm, (char *)results + (size_t)round * all, w->out,
                                          all, stream));
        make_other(other, round, stream);
    }
    for (int s = 0; s < 2; s++)
        multi_ok(w->comm, ceclStreamSynchronize(w->comm, streams[s]));
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < multi_nranks * COUNT; i++)
            assert_int_equal(results[round * multi_nranks * COUNT + i],
                             value(round, i / COUNT, i % COUNT));
    free(inputs);
    free(results);
}

TEST(a_kept_plan_serves_both_halves_with_other_calls_between)
{
    static const char *const policies[] = {"reduce_only", "allow"};
    for (int p = 0; p < 2; p++) {
        multi_setenv("CECL_SM_POLICY", policies[p]);
        const struct work w = work_of(urgent_comm()),
                          other = {w.comm, ints(w.comm, LARGE),
                                   ints(w.comm, (size_t)multi_nranks * LARGE)};
        ceclStream_t streams[2];
        for (int s = 0; s < 2; s++)
            multi_ok(w.comm, ceclStreamCreate(w.comm, &streams[s]));
        rounds(&w, &other, streams);
        for (int s = 0; s < 2; s++)
            multi_ok(w.comm, ceclStreamDestroy(w.comm, streams[s]));
        multi_ok(NULL, ceclCommDestroy(w.comm));
    }
    multi_setenv("CECL_SM_POLICY", NULL);
}
