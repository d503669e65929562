/* Ranks call ceclCommShrink with different lists: each gets an error at once, and they succeed
 * together in the next call. */
#include "multi.h"

#include <stdio.h>

static ceclComm_t joined(void)
{
    const ceclConfig_t config = multi_config();
    ceclComm_t comm = multi_comm(&config);
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

/* Checks that the communicator has all ranks, and destroys it. */
static void works(ceclComm_t comm)
{
    int all[64];
    for (int r = 0; r < multi_nranks; r++)
        all[r] = r;
    multi_works(comm, all, multi_nranks);
    multi_ok(NULL, ceclCommDestroy(comm));
}

static void all_meet(ceclComm_t comm)
{
    ceclComm_t all = NULL;
    multi_ok(NULL, ceclCommShrink(comm, NULL, 0, &all, NULL));
    works(all);
}

/* The ranks that each rank excludes. A rank never meets the ranks of its list. */
struct lists {
    int least_ranks;
    int (*list)(int rank, int *list); /* returns the length of the list */
};

static int next_one(int rank, int *list)
{
    list[0] = (rank + 1) % multi_nranks;
    return 1;
}

static int all_but_the_one_before(int rank, int *list)
{
    int count = 0;
    for (int r = 0; r < multi_nranks; r++)
        if (r != rank && (r + 1) % multi_nranks != rank)
            list[count++] = r;
    return count;
}

static int each_other(int rank, int *list)
{
    list[0] = 1 - rank;
    return rank < 2;
}

static int one_of_the_first_three(int rank, int *list)
{
    list[0] = (rank + 1) % 3;
    return rank < 3;
}

static int two_against_the_others(int rank, int *list)
{
    list[0] = rank < 2 ? 2 : 0;
    return rank != 0 && rank != 2;
}

static int all_else_but_the_last(int rank, int *list)
{
    int count = 0;
    for (int r = 0; r < multi_nranks - 1 && rank < multi_nranks - 1; r++)
        if (r != rank)
            list[count++] = r;
    return count;
}

static const struct lists lists_that_differ[] = {
    {3, next_one},
    {3, all_but_the_one_before},
    {3, each_other},
    {4, one_of_the_first_three},
    {3, two_against_the_others},
    {3, all_else_but_the_last},
};

/* This rank's place in order number `order`: the order's digits choose among the remaining
 * ranks. */
static int place_in(int order)
{
    int left[64];
    for (int r = 0; r < multi_nranks; r++)
        left[r] = r;
    for (int n = multi_nranks; n > 0; order /= n, n--) {
        if (left[order % n] == multi_rank)
            return multi_nranks - n;
        for (int i = order % n; i < n - 1; i++)
            left[i] = left[i + 1];
    }
    return -1;
}

/* A list as it appears in messages. */
static const char *words_of(const int *list, int count, char words[200])
{
    size_t used = (size_t)snprintf(words, 200, "%s",
                                   count == 0   ? "no rank"
                                   : count == 1 ? "rank"
                                                : "ranks");
    bool is_out[64] = {false};
    for (int i = 0; i < count; i++)
        is_out[list[i]] = true;
    for (int r = 0, i = 0; r < multi_nranks; r++)
        if (is_out[r]) {
            const char *before = i == 0 ? " " : i == count - 1 ? " and " : ", ";
            used += (size_t)snprintf(words + used, 200 - used, "%s%d", before, r);
            i++;
        }
    return words;
}

/* Whether the message has the list of rank `one`, and a rank that has this list. */
static bool names_list_of(const struct lists *lists, int one)
{
    int list[64], other[64];
    char words[200], others[200], part[240];
    words_of(list, lists->list(one, list), words);
    for (int r = 0; r < multi_nranks; r++) {
        if (strcmp(words, words_of(other, lists->list(r, other), others)) != 0)
            continue;
        snprintf(part, sizeof(part), " %s on rank %d", words, r);
        const char *found = strstr(ceclGetLastError(NULL), part);
        if (found && (found[strlen(part)] == '\0' || found[strlen(part)] == ','))
            return true;
    }
    return false;
}

/* Checks that this rank's error has its own list and another list, each with a rank that has it. */
static void both_lists_are_named(const struct lists *lists)
{
    int list[64], other[64];
    char words[200], others[200];
    bool found = false;
    assert_non_null(strstr(ceclGetLastError(NULL), "ranks differ in which ranks they exclude: "));
    assert_true(names_list_of(lists, multi_rank));
    words_of(list, lists->list(multi_rank, list), words);
    for (int r = 0; r < multi_nranks; r++)
        found = found || (strcmp(words, words_of(other, lists->list(r, other), others)) != 0 &&
                          names_list_of(lists, r));
    assert_true(found);
}

/* All orders in which up to 4 ranks may come. Of more ranks' orders 8, in which each of 8 ranks comes first
 * once. */
static int orders(void)
{
    int count = 1;
    for (int n = 2; n <= multi_nranks; n++)
        count *= n;
    return multi_nranks > 4 ? 8 : count;
}

static int order_step(void)
{
    return multi_nranks > 4 ? 13 : 1;
}

/* In each of these orders, each rank gets the error at once, and only once. */
TEST(lists_that_differ_end_at_once_in_any_order)
{
    ceclComm_t comm = joined(), rest = (ceclComm_t)8;
    for (size_t i = 0; i < sizeof(lists_that_differ) / sizeof(lists_that_differ[0]); i++) {
        const struct lists *lists = &lists_that_differ[i];
        int list[64];
        for (int order = 0; order < orders() && multi_nranks >= lists->least_ranks; order++) {
            const int count = lists->list(multi_rank, list);
            const double start = multi_seconds();
            multi_pause_ms(4 * place_in(order * order_step()));
            multi_refused(NULL, ceclCommShrink(comm, list, count, &rest, NULL), ceclInvalidUsage,
                          "ranks differ in which ranks they exclude: ");
            both_lists_are_named(lists);
            assert_true(multi_seconds() - start < PROMPT);
            assert_ptr_equal(rest, (ceclComm_t)8);
            MPI_Barrier(MPI_COMM_WORLD);
            all_meet(comm);
        }
    }
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* Ranks do not synchronize between their calls: a rank may be at its next try while another still
 * comes with the different list. */
TEST(all_meet_at_their_next_tries)
{
    ceclComm_t comm = joined();
    for (size_t i = 0; i < sizeof(lists_that_differ) / sizeof(lists_that_differ[0]); i++) {
        const struct lists *lists = &lists_that_differ[i];
        int list[64];
        for (int order = 0; order < orders() && multi_nranks >= lists->least_ranks; order++) {
            const double start = multi_seconds();
            ceclComm_t rest = NULL;
            int tries = 0, count = lists->list(multi_rank, list);
            multi_pause_ms(place_in(order * order_step()));
            while (ceclCommShrink(comm, list, count, &rest, NULL) != ceclSuccess) {
                assert_non_null(
                    strstr(ceclGetLastError(NULL), "ranks differ in which ranks they exclude: "));
                count = 0;
                assert_true(++tries < 8);
            }
            assert_true(multi_seconds() - start < PROMPT);
            works(rest);
        }
    }
    multi_ok(NULL, ceclCommDestroy(comm));
}

int main(int argc, char **argv)
{
    multi_setenv("CECL_DEBUG", "none"); /* intended failures need no warning */
    return multi_main(argc, argv);
}
