/* Communicators over pretended nodes under CECL_NCCL=auto. A file says that gathers and
 * all-to-alls are served; they use a split of NCCL's communicator between nodes. Other calls are
 * passed. NCCL is the stand-in, which records the order of calls on a communicator and its
 * splits. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include "processes.h"

enum { MOST = 3000, ROUNDS = 12 };
/* Seconds: far longer than anything here on a busy machine, and the limit of an abort */
#define SLOW_S 100

static __typeof__(standin_calls) *calls_of;
static __typeof__(standin_story) *story_of;
static __typeof__(standin_take_us) *take_us;
static __typeof__(standin_looks_take_us) *looks_take_us;
static __typeof__(standin_trouble_splits) *trouble_splits;
static __typeof__(standin_overlaps) *overlaps;
static __typeof__(standin_outlived) *outlived;

static uint32_t element(int number, int rank, int i)
{
    return (uint32_t)(number * 100003 + rank * 4001 + i);
}

/* Odd element counts. */
static int count_of(int number)
{
    return 1 + number * 977 % (MOST - 1);
}

/* ---- calls, with a check of all bytes */

/* After a failed gather, its buffers may be in use until its communicator has ended, so they stay
 * allocated. */
static bool gather(const struct rank *r, int number)
{
    static uint32_t inputs[MAX_RANKS][MOST], outputs[MAX_RANKS][MAX_RANKS * MOST];
    const int count = count_of(number);
    uint32_t *mine = inputs[r->rank], *all = outputs[r->rank];
    for (int i = 0; i < count; i++)
        mine[i] = element(number, r->rank, i);
    memset(all, 0xee, sizeof(outputs[0]));
    bool is = ncclAllGather(mine, all, (size_t)count, ncclUint32, r->comm, NULL) == 0;
    for (int i = 0; i < r->nranks * count; i++)
        is = is && all[i] == element(number, i / count, i % count);
    return is && all[r->nranks * count] == 0xeeeeeeee;
}

static bool is_reduced(const struct rank *r, int number, const uint32_t *sum, int count)
{
    bool is = true;
    for (int i = 0; i < count; i++) {
        uint32_t want = 0;
        for (int rank = 0; rank < r->nranks; rank++)
            want += element(number, rank, i);
        is = is && sum[i] == want;
    }
    return is;
}

static bool reduce(const struct rank *r, int number)
{
    uint32_t sum[MOST];
    const int count = count_of(number);
    for (int i = 0; i < count; i++)
        sum[i] = element(number, r->rank, i);
    return outcome_of(r->comm, ncclAllReduce(sum, sum, (size_t)count, ncclUint32, ncclSum, r->comm,
                                             NULL)) == 0 &&
           is_reduced(r, number, sum, count);
}

/* A group with a passed reduction and a served all-to-all, whose blocks cross nodes. */
static bool exchange_in_a_group(const struct rank *r, int number)
{
    uint32_t sum[MOST], send[MAX_RANKS], recv[MAX_RANKS];
    const int count = count_of(number);
    for (int i = 0; i < count; i++)
        sum[i] = element(number, r->rank, i);
    for (int peer = 0; peer < r->nranks; peer++)
        send[peer] = element(number, r->rank, peer);
    bool is = ncclGroupStart() == 0 &&
              ncclAllReduce(sum, sum, (size_t)count, ncclUint32, ncclSum, r->comm, NULL) == 0 &&
              ncclAlltoAll(send, recv, 1, ncclUint32, r->comm, NULL) == 0 &&
              outcome_of(r->comm, ncclGroupEnd()) == 0;
    for (int peer = 0; peer < r->nranks; peer++)
        is = is && recv[peer] == element(number, peer, r->rank);
    return is && is_reduced(r, number, sum, count);
}

/* ---- layouts */

static const char *const layouts[][2] = {{"2", "1"}, {"4", "2"}, {"3", "1,2"}, {"8", "3,5"}};
/* These layouts as the file of CECL_NCCL_LEARNED has them. */
static const char *const in_file[] = {"2:2x1", "4:2x2", "3:2x1-2", "8:2x3-5"};

/* Writes a file that says that gathers and all-to-alls are served on `count` layouts. `name` is a template. */
static bool write_file(char *name, const char *const *ranks, size_t count)
{
    const int file = mkstemp(name);
    FILE *out = file >= 0 ? fdopen(file, "w") : NULL;
    if (!out)
        return false;
    fprintf(out, "cecl-learned 1\n");
    for (size_t i = 0; i < count; i++)
        for (int op = 0; op < 2; op++)
            fprintf(out, "gains host %s 22809 %d.%d.%d %s any plain 1 1000000\n", ranks[i],
                    CECL_MAJOR, CECL_MINOR, CECL_PATCH, op == 0 ? "all_gather" : "alltoall");
    return fclose(out) == 0;
}

/* Whether each rank served its gathers by the split and passed its reductions, alternately. */
static bool make_both(struct rank *r)
{
    char story[STANDIN_STORY], want[STANDIN_STORY] = "";
    bool is = true;
    story_of(r->comm, story);
    for (int number = 0; is && number < ROUNDS; number++) {
        is = gather(r, number) && reduce(r, number);
        strcat(want, "sp");
    }
    story_of(r->comm, story);
    if (strcmp(story, want) != 0)
        print_error("rank %d of %d: %s came, %s expected\n", r->rank, r->nranks, story, want);
    is = is && strcmp(story, want) == 0;
    for (int number = 0; is && number < ROUNDS / 2; number++)
        is = exchange_in_a_group(r, number);
    story_of(r->comm, story);
    return is && strncmp(story, "spsp", 4) == 0;
}

static void served_and_passed_calls_follow_each_other_over_any_nodes(void **state)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        const size_t before = calls_of("ncclCommSplit");
        const int nranks = atoi(layouts[i][0]);
        setenv("CECL_NODE_SIZE", layouts[i][1], 1);
        assert_true(run_ranks(nranks, make_both));
        assert_int_equal(calls_of("ncclCommSplit") - before, nranks);
        assert_int_equal(overlaps(), 0);
        assert_int_equal(outlived(), 0);
    }
}

static bool make_one(struct rank *r)
{
    return gather(r, 1) && reduce(r, 2);
}

static void one_node_splits_nothing(void **state)
{
    const size_t before = calls_of("ncclCommSplit");
    unsetenv("CECL_NODE_SIZE");
    assert_true(run_ranks(2, make_one));
    assert_int_equal(calls_of("ncclCommSplit"), before);
}

/* ---- errors */

static struct rank ranks[4];
static pthread_t threads[4];
static _Atomic int made, ended, failed;

static void *gather_until_it_fails(void *argument)
{
    struct rank *r = argument;
    const bool is = ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 && gather(r, 1);
    r->is_right = is;
    atomic_fetch_add(&made, 1);
    for (int number = 2; is && gather(r, number);)
        number++;
    atomic_fetch_add(&failed, 1);
    return NULL;
}

static bool await(const _Atomic int *count, int most)
{
    const time_t limit = time(NULL) + SLOW_S;
    while (atomic_load(count) < most && time(NULL) < limit)
        usleep(1000);
    return atomic_load(count) >= most;
}

static void *end_rank(void *argument)
{
    struct rank *r = argument;
    r->is_right = ncclCommAbort(r->comm) == 0;
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static void start_ranks(void)
{
    ncclUniqueId id;
    setenv("CECL_NODE_SIZE", "2", 1);
    assert_int_equal(ncclGetUniqueId(&id), 0);
    made = ended = failed = 0;
    for (int i = 0; i < 4; i++) {
        ranks[i] = (struct rank){.rank = i, .nranks = 4, .id = id};
        pthread_create(&threads[i], NULL, gather_until_it_fails, &ranks[i]);
    }
    assert_true(await(&made, 4));
    for (int i = 0; i < 4; i++)
        assert_true(ranks[i].is_right);
}

/* Aborts all ranks while they are in their calls. */
static void abort_ranks(void)
{
    pthread_t enders[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&enders[i], NULL, end_rank, &ranks[i]);
    assert_true(await(&ended, 4));
    assert_true(await(&failed, 4));
    for (int i = 0; i < 4; i++) {
        pthread_join(enders[i], NULL);
        pthread_join(threads[i], NULL);
        assert_true(ranks[i].is_right);
    }
    trouble_splits(false, 0);
}

static void an_abort_amid_an_exchange_ends_the_split_first_and_in_time(void **state)
{
    const int before = outlived();
    start_ranks();
    trouble_splits(true, 0);
    usleep(100000); /* most calls hang by now; the abort works for the others as well */
    abort_ranks();
    assert_int_equal(outlived(), before);
}

static void an_error_of_the_split_is_the_communicators(void **state)
{
    ncclResult_t error = 0;
    start_ranks();
    trouble_splits(true, ceclRemoteError);
    assert_true(await(&failed, 4));
    assert_int_equal(ncclCommGetAsyncError(ranks[0].comm, &error), 0);
    assert_int_equal(error, ceclRemoteError);
    if (!strstr(ncclGetLastError(ranks[0].comm), "the program's NCCL 2.28.9"))
        fail_msg("NCCL's name expected in '%s'", ncclGetLastError(ranks[0].comm));
    abort_ranks();
}

/* ---- trials */

static char latest[MAX_RANKS][STANDIN_STORY];

static bool train(struct rank *r)
{
    enum { STEPS = 190, LATEST = 20 };
    bool is = true;
    for (int step = 0; is && step < STEPS; step++) {
        is = gather(r, 1) && reduce(r, 2);
        if (step == STEPS - LATEST)
            story_of(r->comm, latest[r->rank]);
    }
    story_of(r->comm, latest[r->rank]);
    return is;
}

/* Which library is faster depends on this machine's load. So the test only checks that all ranks
 * decide the same. Without trials, no gather would go to NCCL. During a trial, each rank
 * exchanges times in each of some 60 periods. */
static void a_program_is_tried_and_ranks_decide_alike(void **state)
{
    const size_t before = calls_of("ncclAllGather");
    setenv("CECL_NODE_SIZE", "2", 1);
    take_us(1000);
    assert_true(run_ranks(4, train));
    take_us(0);
    assert_true(calls_of("ncclAllGather") - before > (size_t)4 * 50);
    for (int r = 1; r < 4; r++)
        assert_string_equal(latest[r], latest[0]);
    assert_int_equal(overlaps(), 0);
}

/* Two ranks on each of two hosts. This test must run first, because the parent of processes must
 * not have called NCCL. */
static void hosts_are_served_as_nodes_are(void **state)
{
    static const char *const hosts[] = {"one", "one", "other", "other"};
    setenv("CECL_SOCKET_IFNAME", "lo", 1);
    assert_true(run_processes(make_both, 4, "CECL_HOST_ID", hosts));
    char *file = strdup(getenv("CECL_NCCL_LEARNED"));
    unsetenv("CECL_NCCL_LEARNED"); /* the verdicts of this test must not reach other tests */
    assert_true(run_processes(train, 4, "CECL_HOST_ID", hosts));
    setenv("CECL_NCCL_LEARNED", file, 1);
    free(file);
}

static bool pass_all(struct rank *r)
{
    char story[STANDIN_STORY];
    story_of(r->comm, story);
    bool is = gather(r, 1) && gather(r, 2);
    story_of(r->comm, story);
    if (strchr(story, 's'))
        print_error("rank %d: %s came, no s expected\n", r->rank, story);
    return is && !strchr(story, 's');
}

/* Each file has rows for 4 ranks, but only one of them for the nodes of these ranks. A rank that served a
 * gather alone would wait for the others. This test, too, must run before the parent calls NCCL. */
static void files_that_differ_in_nodes_alone_serve_nothing(void **state)
{
    char here[] = "/tmp/cecl-test-nodes-XXXXXX", other[] = "/tmp/cecl-test-nodes-XXXXXX";
    const char *const files[] = {other, here, other, other};
    assert_true(write_file(here, (const char *const[]){"4:2x2"}, 1));
    assert_true(write_file(other, (const char *const[]){"4:4x1"}, 1));
    setenv("CECL_NODE_SIZE", "2", 1);
    const bool is = run_processes(pass_all, 4, "CECL_NCCL_LEARNED", files);
    unsetenv("CECL_NODE_SIZE");
    unlink(here);
    unlink(other);
    assert_true(is);
}

static bool finalize(struct rank *r)
{
    char story[STANDIN_STORY];
    bool is = gather(r, 3);
    story_of(r->comm, story);
    is = is && ncclCommFinalize(r->comm) == 0;
    story_of(r->comm, story);
    if (strcmp(story, "sp") != 0)
        print_error("%s came, sp expected\n", story);
    return is && strcmp(story, "sp") == 0;
}

static void finalizing_ends_the_split_first(void **state)
{
    setenv("CECL_NODE_SIZE", "2", 1);
    assert_true(run_ranks(4, finalize));
    assert_int_equal(outlived(), 0);
}

/* ---- non-blocking communicators */

static void *run_non_blocking(void *argument)
{
    struct rank *r = argument;
    struct config config;
    const ncclResult_t result =
        ncclCommInitRankConfig(&r->comm, r->nranks, r->id, r->rank, non_blocking(&config));
    r->is_right = outcome_of(r->comm, result) == 0;
    for (int number = 0; r->is_right && number < ROUNDS; number++)
        r->is_right = gather(r, number) && reduce(r, number) && exchange_in_a_group(r, number);
    /* the background thread finalizes both communicators while the program's first look is under way */
    looks_take_us(20000);
    r->is_right = outcome_of(r->comm, ncclCommFinalize(r->comm)) == 0 && r->is_right;
    r->is_right = ncclCommDestroy(r->comm) == 0 && r->is_right;
    return NULL;
}

static void non_blocking_communicators_have_rails_too(void **state)
{
    ncclUniqueId id;
    const size_t before = calls_of("ncclCommSplit");
    const int overlapped = overlaps();
    setenv("CECL_NODE_SIZE", "2", 1);
    assert_int_equal(ncclGetUniqueId(&id), 0);
    for (int i = 0; i < 4; i++) {
        ranks[i] = (struct rank){.rank = i, .nranks = 4, .id = id};
        pthread_create(&threads[i], NULL, run_non_blocking, &ranks[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    looks_take_us(0);
    for (int i = 0; i < 4; i++)
        assert_true(ranks[i].is_right);
    assert_int_equal(calls_of("ncclCommSplit") - before, 4);
    assert_int_equal(overlaps(), overlapped);
    assert_int_equal(outlived(), 0);
}

static bool serve_a_child(struct rank *r)
{
    struct rank child = *r;
    struct config config;
    const bool is = ncclCommSplit(r->comm, 0, r->rank, &child.comm, non_blocking(&config)) == 0 &&
                    make_both(&child);
    return ncclCommDestroy(child.comm) == 0 && is;
}

/* Such a child is made at once, but NCCL splits it in the background. */
static void a_non_blocking_child_of_a_blocking_communicator_has_rails_too(void **state)
{
    const int overlapped = overlaps();
    setenv("CECL_NODE_SIZE", "2", 1);
    assert_true(run_ranks(4, serve_a_child));
    assert_int_equal(overlaps(), overlapped);
    assert_int_equal(outlived(), 0);
}

/* ---- settings that forbid SMs, which transfers over a split need */

/* Under CECL_NCCL=strict, no gather goes to NCCL. */
static bool be_refused(struct rank *r)
{
    char story[STANDIN_STORY];
    uint32_t mine = 1, all[MAX_RANKS];
    story_of(r->comm, story);
    const ncclResult_t result = ncclAllGather(&mine, all, 1, ncclUint32, r->comm, NULL);
    const char *words = ncclGetLastError(r->comm);
    const bool is = result == ceclInvalidUsage && strstr(words, "what leaves a node needs SMs");
    story_of(r->comm, story);
    return is && story[0] == '\0' && reduce(r, 2); /* a reduction needs SMs on any path */
}

/* Under CECL_NCCL=all with CECL_SM_POLICY=never, all calls go to NCCL. */
static bool be_passed(struct rank *r)
{
    char story[STANDIN_STORY];
    story_of(r->comm, story);
    const bool is = gather(r, 1) && reduce(r, 2);
    story_of(r->comm, story);
    return is && strcmp(story, "p") == 0;
}

static void where_sms_are_forbidden_nothing_is_served_over_nodes(void **state)
{
    setenv("CECL_NODE_SIZE", "1", 1);
    assert_true(run_ranks(2, getenv("CECL_SM_POLICY") ? be_passed : be_refused));
}

/* For a script: prints how the calls of the last steps of 4 ranks were made. s: cecl used the split; p: passed */
static int train_alone(void)
{
    take_us(1000);
    const bool is = run_ranks(4, train);
    printf("steps: %s\n", latest[0]);
    return is ? 0 : 1;
}

/* test_nccl_nodes [forbidden | train] */
int main(int argc, char **argv)
{
    const bool is_alone = argc > 1 && strcmp(argv[1], "train") == 0;
    char name[] = "/tmp/cecl-test-nodes-XXXXXX";
    const char *real = getenv("CECL_NCCL_PATH");
    void *standin = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_served_as_nodes_are),
        cmocka_unit_test(files_that_differ_in_nodes_alone_serve_nothing),
        cmocka_unit_test(served_and_passed_calls_follow_each_other_over_any_nodes),
        cmocka_unit_test(one_node_splits_nothing),
        cmocka_unit_test(a_program_is_tried_and_ranks_decide_alike),
        cmocka_unit_test(finalizing_ends_the_split_first),
        cmocka_unit_test(non_blocking_communicators_have_rails_too),
        cmocka_unit_test(a_non_blocking_child_of_a_blocking_communicator_has_rails_too),
        cmocka_unit_test(an_abort_amid_an_exchange_ends_the_split_first_and_in_time),
        cmocka_unit_test(an_error_of_the_split_is_the_communicators),
    };
    const struct CMUnitTest forbidden[] = {
        cmocka_unit_test(where_sms_are_forbidden_nothing_is_served_over_nodes)};
    if (!standin ||
        (!is_alone && (!write_file(name, in_file, sizeof(in_file) / sizeof(in_file[0])) ||
                       setenv("CECL_NCCL_LEARNED", name, 1) != 0)))
        return 2;
    *(void **)&calls_of = dlsym(standin, "standin_calls");
    *(void **)&take_us = dlsym(standin, "standin_take_us");
    *(void **)&looks_take_us = dlsym(standin, "standin_looks_take_us");
    *(void **)&story_of = dlsym(standin, "standin_story");
    *(void **)&trouble_splits = dlsym(standin, "standin_trouble_splits");
    *(void **)&overlaps = dlsym(standin, "standin_overlaps");
    *(void **)&outlived = dlsym(standin, "standin_outlived");
    if (is_alone)
        return train_alone();
    const int result = argc > 1 ? cmocka_run_group_tests(forbidden, NULL, NULL)
                                : cmocka_run_group_tests(tests, NULL, NULL);
    unlink(name);
    return result;
}
