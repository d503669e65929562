/* Urgent communicators: which calls go through host memory, and which communicators inherit the setting. Random calls in
 * urgent communicators are test_collectives, test_group and test_mixed under CECL_URGENT=1. */
#include "multi.h"

#define COUNT 300 /* ints of a block */
/* ints of a block that never goes through host memory, on any device */
#define LARGE 300000

static const char by_host[] = "urgent, through host memory";

static ceclComm_t urgent_comm(void)
{
    ceclConfig_t config = multi_config();
    config.urgent = 1;
    return multi_comm(&config);
}

static int *ints(ceclComm_t comm, size_t count)
{
    int *at = multi_alloc(comm, count * sizeof(int));
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
