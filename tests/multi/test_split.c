/* ceclCommSplit: what children share with their parent, and refusals. test_mixed.c has random splits: members, order,
 * calls beside the parent's, ends; tests/soak has children that fail alone, tests/fault ranks that do not come. */
#include "memory.h"

#define COUNT 1000

static int value(int world, int i)
{
    return world * 10000 + i;
}

/* Checks that an in-place all-gather accesses each rank's buffer directly, and has the right result. */
static void gathers_directly(ceclComm_t comm, ceclStream_t stream, int *buffer, const int *world)
{
    ceclExplanation_t how;
    int rank, count, host[COUNT];
    multi_ok(comm, ceclCommUserRank(comm, &rank));
    multi_ok(comm, ceclCommCount(comm, &count));
    int *mine = buffer + (size_t)rank * COUNT;
    for (int i = 0; i < COUNT; i++)
        host[i] = value(multi_rank, i);
    multi_put(comm, mine, host, sizeof(host));
    multi_ok(comm, ceclExplain(ceclOpAllGather, mine, buffer, COUNT, ceclInt, comm, &how));
    assert_null(strstr(how.path, "private"));
    multi_ok(comm, ceclAllGather(mine, buffer, COUNT, ceclInt, comm, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    for (int r = 0; r < count; r++) {
        multi_get(comm, host, buffer + (size_t)r * COUNT, sizeof(host));
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(host[i], value(world[r], i));
    }
}

/* Makes a child of all ranks, in the opposite order, and gathers in `buffer` on the child. */
static void a_child_gathers_directly(ceclComm_t parent, int *buffer)
{
    ceclComm_t child = NULL;
    int reversed[64];
    for (int r = 0; r < multi_nranks; r++)
        reversed[r] = multi_nranks - 1 - r;
    multi_ok(parent, ceclCommSplit(parent, 0, -multi_rank, &child, NULL));
    ceclStream_t stream = multi_stream(child);
    gathers_directly(child, stream, buffer, reversed);
    multi_ok(child, ceclStreamDestroy(child, stream));
    multi_ok(NULL, ceclCommDestroy(child));
}

TEST_WITH_COMM(a_child_uses_its_parents_memory)
{
    const size_t bytes = (size_t)multi_nranks * COUNT * sizeof(int);
    int *buffer = multi_alloc(comm, bytes);
    a_child_gathers_directly(comm, buffer);
}

/* The child has no register-on-use. So the memory that it accesses directly was registered with its parent. */
TEST(a_child_has_its_parents_registrations)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.registerOnUse = 0;
    ceclComm_t comm = multi_comm(&config);
    ceclRegistration_t handle = NULL;
    const size_t bytes = (size_t)multi_nranks * COUNT * sizeof(int);
    struct memory memory = memory_new(comm, MEMORY_SHARED, bytes);
    multi_ok(comm, ceclCommRegister(comm, memory.at, bytes, &handle));
    a_child_gathers_directly(comm, (int *)(void *)memory.at);
    multi_ok(comm, ceclCommDeregister(comm, handle));
    memory_free(comm, &memory);
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST_WITH_COMM(a_config_is_the_childs_alone)
{
    ceclComm_t child = NULL;
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    ceclPoolStats_t mine, theirs;
    config.poolBytes = 64 << 20;
    config.stagingBytes = 1 << 20;
    config.cudaDevice = 999; /* not used: the rank keeps its GPU */
    multi_ok(comm, ceclCommSplit(comm, 0, 0, &child, &config));
    multi_ok(comm, ceclPoolStats(comm, &mine));
    multi_ok(child, ceclPoolStats(child, &theirs));
    assert_int_equal(theirs.reservedBytes, 64 << 20);
    assert_int_not_equal(mine.reservedBytes, 64 << 20);
    multi_ok(NULL, ceclCommDestroy(child));
    multi_ok(comm, ceclCommSplit(comm, 0, 0, &child, NULL));
    multi_ok(child, ceclPoolStats(child, &theirs));
    assert_int_equal(theirs.reservedBytes, mine.reservedBytes);
    multi_ok(NULL, ceclCommDestroy(child));
}

/* Whether a small call of this communicator would go through host memory. Makes no call. */
static bool goes_by_host(ceclComm_t comm)
{
    ceclExplanation_t e;
    int *in = multi_alloc(comm, COUNT * sizeof(*in)),
        *out = multi_alloc(comm, (size_t)multi_nranks * COUNT * sizeof(*out));
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllGather(in, out, COUNT, ceclInt, comm, 0));
    multi_ok(comm, ceclGroupExplain(comm, &e));
    const bool goes = strcmp(e.path, "urgent, through host memory") == 0;
    assert_true(!goes || (e.zeroSm && e.localCopies == 0));
    return goes;
}

static bool child_goes_by_host(ceclComm_t parent, const ceclConfig_t *config)
{
    ceclComm_t child = NULL;
    multi_ok(parent, ceclCommSplit(parent, 0, multi_rank, &child, config));
    const bool goes = goes_by_host(child);
    multi_ok(NULL, ceclCommDestroy(child));
    return goes;
}

TEST(children_are_urgent_as_their_parent_or_their_configuration)
{
    const bool peers = multi_nranks > 1;
    ceclConfig_t config = multi_config();
    config.urgent = 1;
    ceclComm_t urgent = multi_comm(&config), usual = multi_comm(NULL);
    assert_int_equal(goes_by_host(urgent), peers);
    assert_int_equal(child_goes_by_host(urgent, NULL), peers);
    assert_false(child_goes_by_host(usual, NULL));
    config.urgent = 0;
    assert_false(child_goes_by_host(urgent, &config));
    config.urgent = 1;
    assert_int_equal(child_goes_by_host(usual, &config), peers);
    multi_ok(NULL, ceclCommDestroy(urgent));
    multi_ok(NULL, ceclCommDestroy(usual));
}

struct refusal {
    int color;
    bool no_handle, bad_config, other_device;
    const char *words;
};

static ceclResult_t split_as(const struct refusal *one, ceclComm_t comm, ceclComm_t *child)
{
    const char *device = getenv("CECL_DEVICE");
    char before[16] = "";
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    snprintf(before, sizeof(before), "%s", device ? device : "auto");
    config.smPolicy = one->bad_config ? 9 : CECL_UNDEF;
    if (one->other_device) /* CECL_DEVICE overrides the field */
        multi_setenv("CECL_DEVICE", multi_on_gpus(comm) ? "host" : "cuda");
    const ceclResult_t result =
        ceclCommSplit(comm, one->color, 0, one->no_handle ? NULL : child, &config);
    multi_setenv("CECL_DEVICE", before);
    return result;
}

TEST_WITH_COMM(what_one_rank_refuses_all_refuse)
{
    const struct refusal refusals[] = {
        {-2, false, false, false, "color -2: 0 or more, or CECL_SPLIT_NOCOLOR (-1) expected"},
        {0, true, false, false,
         "newcomm: NULL; the address of a handle expected, even with CECL_SPLIT_NOCOLOR"},
        {0, false, true, false, "config.smPolicy = 9: 0 to 2 expected"},
        {0, false, false, true, "config.device (CECL_DEVICE) = "},
    };
    ceclComm_t child = (ceclComm_t)8;
    const int last = multi_nranks - 1;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const double start = multi_seconds();
        char words[128];
        snprintf(words, sizeof(words), "rank %d refused its call: %s", last, refusals[i].words);
        if (multi_rank == last)
            multi_refused(comm, split_as(&refusals[i], comm, &child), ceclInvalidArgument,
                          refusals[i].words);
        else
            multi_refused(comm, ceclCommSplit(comm, 0, 0, &child, NULL), ceclInvalidUsage, words);
        assert_ptr_equal(child, (ceclComm_t)8);
        assert_true(multi_seconds() - start < PROMPT);
        multi_works(comm, NULL, multi_nranks);
    }
    multi_ok(comm, ceclCommSplit(comm, 0, 0, &child, NULL));
    multi_ok(NULL, ceclCommDestroy(child));
}

/* Ranks of different colors may have different configurations, ranks of one color may not. The keys reverse the order,
 * and the message has the ranks' numbers in `comm`. */
TEST_WITH_COMM(members_whose_settings_differ_are_refused)
{
    ceclComm_t child = (ceclComm_t)8;
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.timeoutMs = 1000 + multi_rank;
    const int last = multi_nranks - 1;
    char words[128];
    snprintf(words, sizeof(words),
             "ranks differ in timeoutMs (CECL_TIMEOUT_MS): %d on rank %d, %d on rank %d",
             1000 + last, last, 1000 + last - 1, last - 1);
    multi_refused(comm, ceclCommSplit(comm, 0, -multi_rank, &child, &config), ceclInvalidArgument,
                  words);
    assert_ptr_equal(child, (ceclComm_t)8);
    multi_ok(comm, ceclCommSplit(comm, multi_rank, 0, &child, &config));
    multi_ok(NULL, ceclCommDestroy(child));
}

TEST_WITH_COMM(a_split_is_not_in_a_group)
{
    ceclComm_t child = (ceclComm_t)8;
    multi_ok(comm, ceclGroupStart());
    multi_refused(comm, ceclCommSplit(comm, 0, 0, &child, NULL), ceclInvalidUsage,
                  "ceclCommSplit: call it outside a group");
    multi_refused(comm, ceclCommShrink(comm, NULL, 0, &child, NULL), ceclInvalidUsage,
                  "ceclCommShrink: call it outside a group");
    assert_ptr_equal(child, (ceclComm_t)8);
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclCommSplit(comm, 0, 0, &child, NULL));
    multi_ok(NULL, ceclCommDestroy(child));
}

TEST(a_failed_or_finalized_communicator_is_not_split)
{
    ceclComm_t comm = multi_comm(NULL), child = (ceclComm_t)8;
    multi_refused(NULL, ceclCommSplit(NULL, 0, 0, &child, NULL), ceclInvalidArgument, "comm: NULL");
    multi_ok(comm, ceclCommFinalize(comm));
    multi_refused(comm, ceclCommSplit(comm, 0, 0, &child, NULL), ceclInvalidUsage, "finalized");
    multi_ok(NULL, ceclCommDestroy(comm));
    assert_ptr_equal(child, (ceclComm_t)8);
}

int main(int argc, char **argv)
{
    multi_setenv("CECL_DEBUG", "none"); /* failures are intended */
    return multi_main(argc, argv);
}
