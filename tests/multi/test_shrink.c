/* ceclCommShrink, on communicators that have failed and on others. test_mixed.c shrinks working communicators at
 * random; tests/fault and tests/soak shrink after an abort, a revoke or a death, and where a rank does not come. */
#include "multi.h"

#include <ctype.h>

#define COUNT 1000
#define SHORT_WAIT "3000" /* ms, for calls that end by their deadline */

/* Checks `comm`, whose members are the ranks that `excluded` does not contain, in ascending order. */
static void works(ceclComm_t comm, const int *excluded, int nexcluded)
{
    int members[64], n = 0;
    for (int r = 0; r < multi_nranks; r++) {
        bool is_out = false;
        for (int i = 0; i < nexcluded; i++)
            is_out = is_out || excluded[i] == r;
        if (!is_out)
            members[n++] = r;
    }
    multi_works(comm, members, n);
}

static void shrink_works(ceclComm_t comm, const int *excluded, int count)
{
    ceclComm_t rest = NULL;
    multi_ok(NULL, ceclCommShrink(comm, excluded, count, &rest, NULL));
    works(rest, excluded, count);
    multi_ok(NULL, ceclCommDestroy(rest));
}

static ceclComm_t joined(int timeout_ms)
{
    ceclConfig_t config = multi_config();
    config.timeoutMs = timeout_ms;
    ceclComm_t comm = multi_comm(&config);
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

static void end(ceclComm_t comm)
{
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(NULL, ceclCommAbort(comm));
}

/* An exchange that was cut off leaves the mesh unusable for later exchanges. A shrink needs none. */
TEST(after_an_exchange_that_was_cut_off_all_may_stay)
{
    ceclComm_t comm = joined(1000);
    ceclPoolStats_t stats;
    void *ptr = NULL;
    multi_ok(comm, ceclPoolStats(comm, &stats));
    if (multi_rank > 0)
        assert_int_not_equal(ceclMemAlloc(comm, &ptr, (size_t)stats.mappedBytes * 2), ceclSuccess);
    assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
    multi_limit(comm, 60000);
    shrink_works(comm, NULL, 0);
    assert_int_not_equal(ceclCommDestroy(comm), ceclSuccess);
}

/* This rank leaves. The revoke tells all ranks at once, even those that do not wait. */
static void leave(ceclComm_t comm)
{
    multi_ok(NULL, ceclCommRevoke(comm));
    multi_ok(NULL, ceclCommAbort(comm));
}

/* Only rank 0 has tried to shrink with a rank that left. Others, which exclude that rank, must not get rank 0's error. */
TEST(who_excludes_the_missing_rank_is_not_told_of_it)
{
    ceclComm_t comm = joined(CECL_UNDEF), rest = NULL;
    const int gone = multi_nranks / 2;
    if (multi_rank == gone)
        leave(comm);
    else
        assert_int_equal(multi_async_within(comm, PROMPT), ceclRemoteError);
    if (multi_rank == 0)
        multi_refused(NULL, ceclCommShrink(comm, NULL, 0, &rest, NULL), ceclRemoteError,
                      "it is not excluded");
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == gone)
        return;
    shrink_works(comm, &gone, 1);
    assert_int_equal(ceclCommDestroy(comm), ceclRemoteError);
}

TEST_WITH(joined(CECL_UNDEF), a_finalized_communicator_shrinks)
{
    multi_ok(comm, ceclCommFinalize(comm));
    shrink_works(comm, NULL, 0);
}

/* Passes a configuration, because otherwise the call would not read the environment. */
static ceclResult_t shrink_impatiently(ceclComm_t comm, const int *excluded, int count,
                                       ceclComm_t *rest)
{
    const ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    multi_setenv("CECL_INIT_TIMEOUT_MS", SHORT_WAIT);
    const ceclResult_t result = ceclCommShrink(comm, excluded, count, rest, &config);
    multi_setenv("CECL_INIT_TIMEOUT_MS", NULL);
    return result;
}

/* Rank 0 excludes itself, alone or with rank 1; the others exclude no rank. Rank 0 comes first, last, or second. */
TEST_WITH(joined(CECL_UNDEF), a_list_with_its_own_rank_is_told_to_all)
{
    ceclComm_t rest = (ceclComm_t)8;
    const int list[] = {0, 1};
    for (int round = 0; round < 6; round++) {
        const int count = multi_nranks == 2 ? 1 : 1 + round % 2;
        const double start = multi_seconds();
        if (round / 2 == 0 ? multi_rank > 0 : round / 2 == 1 ? multi_rank == 0 : multi_rank != 1)
            multi_pause_ms(multi_rank == 0 ? 50 : 100);
        if (multi_rank == 0)
            multi_refused(NULL, ceclCommShrink(comm, list, count, &rest, NULL), ceclInvalidArgument,
                          "excludeRanks has rank 0, which makes this call");
        else
            multi_refused(NULL, ceclCommShrink(comm, NULL, 0, &rest, NULL), ceclInvalidUsage,
                          "ranks differ in which ranks they exclude: ");
        assert_non_null(multi_rank == 0 ? "" : strstr(ceclGetLastError(NULL), "no rank on rank "));
        assert_non_null(multi_rank == 0 ? ""
                                        : strstr(ceclGetLastError(NULL),
                                                 count == 1 ? " rank 0 on rank 0"
                                                            : " ranks 0 and 1 on rank 0"));
        assert_true(multi_seconds() - start < PROMPT);
        assert_ptr_equal(rest, (ceclComm_t)8);
        MPI_Barrier(MPI_COMM_WORLD);
        shrink_works(comm, NULL, 0);
    }
}

/* Rank 0 waits for rank 1, which waits for rank 2, which does not call. */
TEST(a_rank_whose_list_has_this_one_is_named)
{
    if (multi_nranks < 3)
        skip_because("it needs 3 ranks");
    ceclComm_t comm = joined(CECL_UNDEF), rest = (ceclComm_t)8;
    int list[64], count = 0; /* rank 0 keeps ranks 0 and 1; rank 1 keeps ranks 1 and 2 */
    for (int r = 0; r < multi_nranks; r++)
        if (r != 1 && r != 2 * multi_rank)
            list[count++] = r;
    if (multi_rank == 0)
        multi_pause_ms(50);
    const double start = multi_seconds();
    if (multi_rank == 0)
        multi_refused(NULL, shrink_impatiently(comm, list, count, &rest), ceclTimeout,
                      "rank 1 did not come within " SHORT_WAIT
                      " ms (CECL_INIT_TIMEOUT_MS); rank 1 last made the call without rank");
    else if (multi_rank == 1)
        multi_refused(NULL, shrink_impatiently(comm, list, count, &rest), ceclTimeout,
                      "rank 2 did not come within " SHORT_WAIT " ms (CECL_INIT_TIMEOUT_MS)");
    assert_true(multi_rank > 1 || multi_seconds() - start > 0.9 * atoi(SHORT_WAIT) / 1000);
    assert_ptr_equal(rest, (ceclComm_t)8);
    end(comm);
}

struct refusal {
    int list[2], count;
    bool no_list, no_handle, bad_config;
    const char *words;
};

static ceclResult_t shrink_as(const struct refusal *one, ceclComm_t comm, ceclComm_t *rest)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.smPolicy = one->bad_config ? 9 : CECL_UNDEF;
    return ceclCommShrink(comm, one->no_list ? NULL : one->list, one->count,
                          one->no_handle ? NULL : rest, &config);
}

/* In one round the rank that refuses comes first, in the next one last. */
TEST_WITH(joined(CECL_UNDEF), what_one_rank_refuses_all_refuse)
{
    const int last = multi_nranks - 1;
    const struct refusal refusals[] = {
        {{0}, 0, false, true, false, "newcomm: NULL; the address of a handle expected"},
        {{0}, 0, false, false, true, "config.smPolicy = 9: 0 to 2 expected"},
        {{0}, -1, false, false, false, "excludeCount -1: 0 to "},
        {{0}, 1000, false, false, false, "excludeCount 1000: 0 to "},
        {{0}, 1, true, false, false, "excludeRanks: NULL, but excludeCount is 1"},
        {{1000}, 1, false, false, false, "excludeRanks[0] = 1000: 0 to "},
        {{-1}, 1, false, false, false, "excludeRanks[0] = -1: 0 to "},
        {{0, 0}, 2, false, false, false, "excludeRanks[1] = 0: each rank once expected"},
    };
    ceclComm_t rest = (ceclComm_t)8;
    for (size_t i = 0; i < 2 * sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *one = &refusals[i / 2];
        const double start = multi_seconds();
        if (one->count == 2 && multi_nranks == 2)
            continue; /* a count above the number of ranks is refused at once */
        if ((multi_rank == last) == (i % 2 == 1))
            multi_pause_ms(50);
        if (multi_rank == last)
            multi_refused(NULL, shrink_as(one, comm, &rest), ceclInvalidArgument, one->words);
        else
            multi_refused(NULL, ceclCommShrink(comm, NULL, 0, &rest, NULL), ceclInvalidArgument,
                          one->words);
        assert_ptr_equal(rest, (ceclComm_t)8);
        assert_true(multi_seconds() - start < PROMPT);
        MPI_Barrier(MPI_COMM_WORLD);
        shrink_works(comm, NULL, 0);
    }
}

TEST_WITH(joined(CECL_UNDEF), an_excluded_rank_that_calls_is_refused_alone)
{
    ceclComm_t rest = (ceclComm_t)8;
    const int last = multi_nranks - 1;
    for (int i = 0; i < 10; i++)
        if (multi_rank == last)
            multi_refused(NULL, ceclCommShrink(comm, &last, 1, &rest, NULL), ceclInvalidArgument,
                          "which makes this call");
        else
            shrink_works(comm, &last, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    shrink_works(comm, NULL, 0);
}

/* ---- lists that differ: each rank gets an error at once, and all succeed together in the next call */

#define FIRST 4 /* ranks with a list; all others exclude no rank */

/* For each rank: the ranks that it excludes; how its peers' errors describe its list. */
static const struct lists {
    int least_ranks, count[FIRST], list[FIRST][2];
    const char *words[FIRST];
} lists_that_differ[] = {
    {3, {1, 1, 1}, {{1}, {2}, {0}}, {"rank 1", "rank 2", "rank 0", "no rank"}},
    {3, {1, 1}, {{1}, {0}}, {"rank 1", "rank 0", "no rank", "no rank"}},
    {3, {0, 1}, {{0}, {2}}, {"no rank", "rank 2", "no rank", "no rank"}},
    {4, {0, 1, 0, 1}, {{0}, {2}, {0}, {0}}, {"no rank", "rank 2", "no rank", "rank 0"}},
    {4,
     {2, 2, 2},
     {{1, 2}, {0, 2}, {0, 1}},
     {"ranks 1 and 2", "ranks 0 and 2", "ranks 0 and 1", "no rank"}},
    {4,
     {2, 2, 2, 2},
     {{1, 2}, {2, 3}, {0, 3}, {0, 1}},
     {"ranks 1 and 2", "ranks 2 and 3", "ranks 0 and 3", "ranks 0 and 1"}},
};
#define LISTS (sizeof(lists_that_differ) / sizeof(lists_that_differ[0]))
#define DIFFER "ranks differ in which ranks they exclude: "

static const char *words_of(const struct lists *lists, int rank)
{
    return rank < FIRST ? lists->words[rank] : "no rank";
}

/* Whether this rank's error describes a list by these words, and names a rank that has such a list. */
static bool are_named(const struct lists *lists, const char *words)
{
    for (int r = 0; r < multi_nranks; r++) {
        char part[64];
        snprintf(part, sizeof(part), " %s on rank %d", words, r);
        const char *found = strstr(ceclGetLastError(NULL), part);
        if (strcmp(words, words_of(lists, r)) == 0 && found && !isdigit(found[strlen(part)]))
            return true;
    }
    return false;
}

static void own_and_another_are_named(const struct lists *lists)
{
    const char *own = words_of(lists, multi_rank);
    bool found = false;
    for (int r = 0; r < multi_nranks; r++)
        found =
            found || (strcmp(words_of(lists, r), own) != 0 && are_named(lists, words_of(lists, r)));
    if (!found || !are_named(lists, own))
        fail_msg("rank %d: %s", multi_rank, ceclGetLastError(NULL));
}

/* Shrinks with this rank's list. Ranks come one by one, in ascending or descending order, beginning with any rank. */
static ceclResult_t shrink_in_turn(const struct lists *lists, int order, int ms, ceclComm_t comm,
                                   ceclComm_t *rest)
{
    const bool has_list = multi_rank < FIRST;
    const int place = (multi_rank + order / 2) % multi_nranks;
    multi_pause_ms((long)ms * (order % 2 ? multi_nranks - 1 - place : place));
    return ceclCommShrink(comm, has_list ? lists->list[multi_rank] : NULL,
                          has_list ? lists->count[multi_rank] : 0, rest, NULL);
}

/* In the second round ranks do not synchronize: one may try again while another still comes with the different list. */
TEST_WITH(joined(CECL_UNDEF), lists_that_differ_end_at_once_in_any_order)
{
    if (multi_nranks < 3)
        skip_because("it needs 3 ranks");
    for (size_t i = 0; i < 2 * LISTS; i++) {
        const struct lists *lists = &lists_that_differ[i % LISTS];
        const bool meets = i < LISTS;
        for (int order = 0; order < 2 * multi_nranks && multi_nranks >= lists->least_ranks;
             order++) {
            ceclComm_t rest = NULL;
            const double start = multi_seconds();
            ceclResult_t result = shrink_in_turn(lists, order, meets ? 4 : 1, comm, &rest);
            if (meets || result != ceclSuccess) {
                multi_refused(NULL, result, ceclInvalidUsage, DIFFER);
                assert_null(rest);
            }
            if (meets) {
                own_and_another_are_named(lists);
                MPI_Barrier(MPI_COMM_WORLD);
            }
            for (int tries = 0; !rest; tries++) {
                assert_true(tries < 8);
                if (ceclCommShrink(comm, NULL, 0, &rest, NULL) != ceclSuccess)
                    assert_false(meets || !strstr(ceclGetLastError(NULL), DIFFER));
            }
            assert_true(multi_seconds() - start < PROMPT);
            works(rest, NULL, 0);
            multi_ok(NULL, ceclCommDestroy(rest));
        }
    }
}

int main(int argc, char **argv)
{
    multi_setenv("CECL_DEBUG", "none"); /* failures are intended */
    return multi_main(argc, argv);
}
