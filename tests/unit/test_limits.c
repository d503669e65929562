/* ceclCommLimits reports real limits: a call past a limit is refused because of it, a call at it is not. Ranks of one
 * process. */

#include "../soft_limit.h"
#include "../with_cmocka.h"

#include <cecl/cecl.h>

#define MOST_RANKS 65 /* more ranks than messages support */
#define MOST_CALLS 4097
#define OK(expr) assert_int_equal((expr), ceclSuccess)

static ceclComm_t comms[MOST_RANKS];
static char memory[MOST_CALLS * (1 + MOST_RANKS)];

static ceclLimits_t open_ranks(int nranks)
{
    ceclLimits_t limits, others;
    setenv("CECL_POOL_BYTES", "64M", 1); /* many ranks share one address space */
    OK(ceclCommInitAll(comms, nranks, NULL));
    OK(ceclCommLimits(comms[0], &limits));
    OK(ceclCommLimits(comms[nranks - 1], &others));
    assert_memory_equal(&limits, &others, sizeof(limits));
    return limits;
}

static void close_ranks(int nranks)
{
    for (int r = 0; r < nranks; r++)
        OK(ceclCommDestroy(comms[r]));
}

static void begin_calls(int count, int nranks)
{
    OK(ceclGroupStart());
    for (int i = 0; i < count; i++)
        (void)!ceclAllGather(memory + i, memory + MOST_CALLS + (ptrdiff_t)i * nranks, 1, ceclInt8,
                             comms[0], NULL);
}

static ceclResult_t group_of_messages(int count)
{
    ceclExplanation_t told;
    OK(ceclGroupStart());
    for (int i = 0; i < count; i++)
        (void)!ceclSend(memory, 1, ceclInt8, 1, comms[0], NULL);
    return ceclGroupExplain(comms[0], &told);
}

TEST(a_group_has_so_many_calls_at_most)
{
    static const int sizes[] = {1, 2, 12};
    ceclExplanation_t told;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const ceclLimits_t limits = open_ranks(sizes[i]);
        assert_in_range(limits.groupCalls, 1, MOST_CALLS - 1);
        begin_calls(limits.groupCalls, sizes[i]);
        OK(ceclGroupExplain(comms[0], &told));
        begin_calls(limits.groupCalls + 1, sizes[i]);
        assert_int_equal(ceclGroupEnd(), ceclInvalidUsage);
        close_ranks(sizes[i]);
    }
}

TEST(a_group_has_so_many_messages_to_a_rank_at_most)
{
    static const int sizes[] = {2, 8, 12, MOST_RANKS};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const ceclLimits_t limits = open_ranks(sizes[i]);
        assert_int_equal(limits.groupMessages > 0, sizes[i] <= 64);
        if (limits.groupMessages > 0)
            OK(group_of_messages(limits.groupMessages));
        assert_int_equal(group_of_messages(limits.groupMessages + 1), ceclInvalidUsage);
        close_ranks(sizes[i]);
    }
}

static ceclResult_t gather(size_t count, int type)
{
    ceclExplanation_t told;
    return ceclExplain(ceclOpAllGather, memory, memory + 16, count, (ceclDataType_t)type, comms[0],
                       &told);
}

static ceclResult_t reduce(int type, int op)
{
    ceclExplanation_t told;
    OK(ceclGroupStart());
    (void)!ceclAllReduce(memory, memory + 16, 1, (ceclDataType_t)type, (ceclRedOp_t)op, comms[0],
                         NULL);
    return ceclGroupExplain(comms[0], &told);
}

TEST(the_types_are_those_that_calls_take)
{
    const ceclLimits_t limits = open_ranks(2);
    for (int type = 0; type < 32; type++) {
        assert_int_equal(limits.types >> type & 1, gather(1, type) == ceclSuccess);
        for (int op = 0; op < CECL_NUM_RED_OPS; op++)
            assert_int_equal(limits.reductions[op] >> type & 1, reduce(type, op) == ceclSuccess);
    }
    close_ranks(2);
}

TEST(more_bytes_than_a_block_may_have_are_refused)
{
    const ceclLimits_t limits = open_ranks(2);
    assert_int_equal(gather((size_t)limits.blockBytes, ceclInt8), ceclInvalidArgument);
    assert_null(strstr(ceclGetLastError(NULL), "address space"));
    assert_int_equal(gather((size_t)limits.blockBytes + 1, ceclInt8), ceclInvalidArgument);
    assert_non_null(strstr(ceclGetLastError(NULL), "address space"));
    close_ranks(2);
}

TEST(they_say_what_is_chosen)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    ceclLimits_t limits = open_ranks(2);
    assert_int_equal(limits.smPolicy, CECL_SM_REDUCE_ONLY);
    assert_int_equal(limits.hostFlags, 0);
    options.smPolicy = CECL_SM_NEVER;
    OK(ceclSetOptions(comms[0], &options));
    OK(ceclCommLimits(comms[0], &limits));
    assert_int_equal(limits.smPolicy, CECL_SM_NEVER);
    close_ranks(2);
    setenv("CECL_FLAGS", "host", 1);
    assert_int_equal(open_ranks(2).hostFlags, 1);
    unsetenv("CECL_FLAGS");
    close_ranks(2);
}

TEST(asking_is_no_error)
{
    open_ranks(2);
    assert_int_equal(gather(1, -1), ceclInvalidArgument);
    char words[512];
    strncpy(words, ceclGetLastError(NULL), sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    ceclLimits_t limits;
    OK(ceclCommLimits(comms[0], &limits));
    assert_string_equal(ceclGetLastError(NULL), words);
    close_ranks(2);
}

TEST(ranks_share_the_memory_that_is_lent)
{
    open_ranks(3);
    void *first;
    size_t bytes;
    OK(ceclCommGetSharedMemory(comms[0], &first, &bytes));
    assert_int_equal(bytes, CECL_LENT_BYTES);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((unsigned char *)first)[i], 0);
    memset(first, 0x5a, bytes);
    for (int r = 1; r < 3; r++) {
        void *other;
        OK(ceclCommGetSharedMemory(comms[r], &other, &bytes));
        assert_int_equal((uintptr_t)other % 64, 0);
        assert_memory_equal(other, first, bytes);
    }
    close_ranks(3);
}

/* 64 ranks need more than 440 descriptors: each rank has 6, and for a moment a copy of one of these. */
TEST(a_process_that_may_open_too_few_files_is_told_how_many)
{
    const rlim_t before = soft_limit(RLIMIT_NOFILE, 440);
    const ceclResult_t result = ceclCommInitAll(comms, 64, NULL);
    (void)soft_limit(RLIMIT_NOFILE, before);
    assert_int_equal(result, ceclSystemError);
    assert_string_equal(
        ceclGetLastError(NULL),
        "ceclCommInitAll: limit of open files (ulimit -n): 440; 64 ranks in one process need more "
        "than 448 descriptors");
}

/* Makes the call under a limit on file sizes. A write past the limit would end the process by the signal SIGXFSZ. */
static ceclResult_t with_files_of(rlim_t bytes, ceclResult_t (*call)(void))
{
    const rlim_t before = soft_limit(RLIMIT_FSIZE, bytes);
    const ceclResult_t result = call();
    (void)soft_limit(RLIMIT_FSIZE, before);
    return result;
}

static ceclResult_t join_one(void)
{
    return ceclCommInitAll(comms, 2, NULL);
}

static ceclResult_t allocate_much(void)
{
    void *got[2];
    OK(ceclGroupStart());
    for (int r = 0; r < 2; r++)
        OK(ceclMemAlloc(comms[r], &got[r], (size_t)32 << 20));
    return ceclGroupEnd();
}

TEST(a_limit_on_files_is_named_and_no_signal)
{
    assert_int_equal(with_files_of(1 << 20, join_one), ceclOutOfMemory);
    assert_non_null(
        strstr(ceclGetLastError(NULL), "RLIMIT_FSIZE (ulimit -f) allows files of 1048576"));
    OK(ceclCommInitAll(comms, 2, NULL));
    assert_int_equal(with_files_of(1 << 20, allocate_much), ceclOutOfMemory);
    assert_non_null(
        strstr(ceclGetLastError(NULL), "RLIMIT_FSIZE (ulimit -f) allows files of 1048576"));
    OK(allocate_much());
    close_ranks(2);
}

/* The pool reserves as many bytes of addresses as the machine has memory, unless CECL_POOL_BYTES says less. */
TEST(a_limit_on_addresses_is_named_with_a_cure)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("the sanitizer's own range of addresses is larger than any limit");
#endif
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit low = {.rlim_cur = (rlim_t)4 << 30, .rlim_max = before.rlim_max};
    unsetenv("CECL_POOL_BYTES");
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    const ceclResult_t refused = ceclCommInitAll(comms, 2, NULL);
    char words[1024];
    snprintf(words, sizeof(words), "%s", ceclGetLastError(NULL));
    setenv("CECL_POOL_BYTES", "64M", 1);
    const ceclResult_t cured = ceclCommInitAll(comms, 2, NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(refused, ceclOutOfMemory);
    if (!strstr(words, "for each of 2 ranks: set config.poolBytes or CECL_POOL_BYTES to less, or "
                       "raise the limit of address space (ulimit -v)"))
        fail_msg("%s", words);
    assert_int_equal(cured, ceclSuccess);
    close_ranks(2);
}
