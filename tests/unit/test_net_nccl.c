/* The network between GPUs against a fake NCCL library: how the library is found and refused, which calls
 * it receives, and how long waits for it last. One rank of several, on the host device; the test makes up
 * the other ranks' messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "fake_nccl.h"
#include "net/nccl_internal.h"
#include "util/clock.h"

static struct fake_nccl *fake;
static struct cecl_device *dev;
static ceclStream_t stream;
static int nranks;
static int other_version; /* the version that the other ranks report; 0: the same */

/* Parentheses around an op `fail`: cmocka has a macro of that name. */

/* ---- replacements of the library's functions (by the linker, see CMakeLists.txt) */

ceclResult_t __wrap_cecl_mesh_agree(struct cecl_mesh *mesh, ceclResult_t mine);
ceclResult_t __wrap_cecl_mesh_agree(struct cecl_mesh *mesh, ceclResult_t mine)
{
    (void)mesh;
    return mine;
}

ceclResult_t __wrap_cecl_mesh_allgather(struct cecl_mesh *mesh, const char *kind, const void *send,
                                        void *recv, size_t bytes);
ceclResult_t __wrap_cecl_mesh_allgather(struct cecl_mesh *mesh, const char *kind, const void *send,
                                        void *recv, size_t bytes)
{
    (void)mesh;
    assert_true(strlen(kind) <= 7);
    for (int r = 0; r < nranks; r++)
        memcpy((char *)recv + (size_t)r * bytes, send, bytes);
    for (int r = 1; r < nranks && other_version; r++)
        memcpy((char *)recv + (size_t)r * bytes, &(int32_t){other_version}, sizeof(int32_t));
    return ceclSuccess;
}

ceclResult_t __wrap_cecl_mesh_news(struct cecl_mesh *mesh);
ceclResult_t __wrap_cecl_mesh_news(struct cecl_mesh *mesh)
{
    return ceclSuccess;
}

void __wrap_cecl_mesh_tell_abort(struct cecl_mesh *mesh, const char *cause);
void __wrap_cecl_mesh_tell_abort(struct cecl_mesh *mesh, const char *cause)
{
}

/* ---- */

static int patience_ms; /* time limit of a join, and of an exchange */
static int slack_ms;    /* what an exchange has in addition */

static ceclResult_t open_net(struct cecl_net **net)
{
    return cecl_net_nccl_open(dev, NULL, 0, nranks, 2, patience_ms, slack_ms,
                              cecl_deadline(patience_ms), net);
}

static void expect_refused(ceclResult_t want, const char *words)
{
    struct cecl_net *net = NULL;
    assert_int_equal(open_net(&net), want);
    assert_null(net);
    if (!strstr(cecl_message(), words))
        fail_msg("'%s' expected in '%s'", words, cecl_message());
}

static struct cecl_net *opened(void)
{
    struct cecl_net *net = NULL;
    assert_int_equal(open_net(&net), ceclSuccess);
    fake->log[0] = '\0';
    return net;
}

static void close_net(struct cecl_net *net)
{
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    net->ops->close(net);
}

static int set_up(void **state)
{
    *fake = (struct fake_nccl){.version = 22803, .polls = 3};
    other_version = 0;
    nranks = 2;
    patience_ms = 20000;
    slack_ms = 0;
    setenv("CECL_NCCL_PATH", FAKE_NCCL, 1);
    return cecl_host_open(&dev) != ceclSuccess ||
           dev->ops->stream_create(dev, &stream) != ceclSuccess;
}

static int tear_down(void **state)
{
    dev->ops->close(dev);
    return 0;
}

/* These tests come first, because an opened library stays open. */
static void a_library_that_is_missing_or_too_old_is_refused_by_name(void **state)
{
    setenv("CECL_NCCL_PATH", "/none/libnccl.so.2", 1);
    expect_refused(ceclSystemError, "CECL_NCCL_PATH=/none/libnccl.so.2: No such file");
    setenv("CECL_NCCL_PATH", "/dev/null", 1);
    expect_refused(ceclSystemError, "CECL_NCCL_PATH=/dev/null: ");
    setenv("CECL_NCCL_PATH", OURS_NCCL, 1);
    expect_refused(ceclSystemError, "this is cecl's library, not NCCL");
    setenv("CECL_NCCL_PATH", BARE_NCCL, 1);
    expect_refused(ceclSystemError, "bare_nccl.so lacks ncclGetUniqueId");
    setenv("CECL_NCCL_PATH", FAKE_NCCL, 1);
    fake->version = 21602;
    expect_refused(ceclSystemError, "fake_nccl.so has version 21602");
}

static void it_is_not_used_under_cecl_run(void **state)
{
    void *ours = dlopen(OURS_NCCL, RTLD_NOW);
    unsetenv("CECL_NCCL_PATH");
    expect_refused(ceclInvalidUsage, "cecl's own library is in its place (cecl-run)");
    dlclose(ours);
}

/* A program has loaded fake_nccl.so, which is also in the wheel's directory. */
static void the_one_of_a_wheel_is_found(void **state)
{
    unsetenv("CECL_NCCL_PATH");
    struct cecl_net *net = NULL;
    assert_int_equal(open_net(&net), ceclSuccess);
    assert_string_equal(fake->log, "init ");
    close_net(net);
}

static void ranks_with_different_versions_are_refused(void **state)
{
    other_version = 22900;
    expect_refused(ceclInvalidUsage, "22900 on rank 1, 22803 on most others");
    nranks = 4;
    expect_refused(ceclInvalidUsage, "22803 on rank 0, 22900 on most others");
}

static void it_is_made_without_blocking_and_takes_two_sms(void **state)
{
    struct cecl_net *net = NULL;
    assert_int_equal(open_net(&net), ceclSuccess);
    assert_string_equal(net->name, "NCCL 2.28.3");
    assert_int_equal(net->sms, 2);
    assert_int_equal(fake->max_ctas, 2);
    assert_int_equal(fake->blocking, 0);
    assert_int_equal(fake->nranks, 2);
    assert_int_equal(fake->config_size, 40);
    assert_string_equal(fake->log, "init ");
    close_net(net);
    assert_string_equal(fake->log, "init finalize destroy ");
}

static void a_join_that_does_not_end_is_given_up_in_time(void **state)
{
    fake->polls = -1;
    patience_ms = 300;
    expect_refused(ceclTimeout, "ncclCommInitRankConfig did not end in time");
    assert_string_equal(fake->log, "init abort ");
}

static void a_join_that_fails_is_refused_in_nccls_words(void **state)
{
    fake->state = 6;
    expect_refused(ceclRemoteError, "ncclCommInitRankConfig failed: remote process exited");
    assert_string_equal(fake->log, "init abort ");
}

static void an_exchange_is_one_group_in_order(void **state)
{
    char bytes[8];
    struct cecl_net *net = opened();
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}, {bytes, 3, 1, false}};
    assert_int_equal(net->ops->exchange(net, stream, list, 2), ceclSuccess);
    assert_string_equal(fake->log, "start send(1,5,0) recv(1,3,0) end ");
    close_net(net);
}

static void a_group_that_nccl_refuses_is_passed_on_in_words(void **state)
{
    char bytes[8];
    struct cecl_net *net = opened();
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}};
    fake->ends = 6;
    assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclRemoteError);
    assert_non_null(strstr(cecl_message(), "ncclGroupEnd failed: remote process exited"));
    fake->ends = 0;
    close_net(net);
}

static uint32_t gate;

static void hold(void *context)
{
    const struct cecl_memop wait = {&gate, 1, CECL_MEMOP_WAIT};
    (void)context;
    assert_int_equal(dev->ops->memops(dev, stream, &wait, 1), ceclSuccess);
}

static void what_waits_is_listed_until_it_has_ended(void **state)
{
    char bytes[8];
    struct cecl_net *net = opened();
    struct cecl_rank_list ranks = {.count = 0};
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}};
    uint32_t moved = 0, then = 0;
    assert_false(net->ops->late(net, &ranks, &moved));
    fake->on_group = hold;
    assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclSuccess);
    const int64_t end = cecl_deadline(5000);
    while (!net->ops->late(net, &ranks, &then) && cecl_ms_left(end) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_int_equal(ranks.count, 1);
    assert_int_equal(ranks.ranks[0], 1);
    dev->ops->host_write(dev, &gate, 1, 1);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    assert_false(net->ops->late(net, &ranks, &moved));
    close_net(net);
}

static void make_pending(struct cecl_net *net, int rank, uint32_t count)
{
    static char bytes[8];
    const struct cecl_net_transfer list[] = {{bytes, 5, rank, true}};
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclSuccess);
}

static struct cecl_rank_list listed(struct cecl_net *net)
{
    struct cecl_rank_list ranks = {.count = 0};
    const int64_t end = cecl_deadline(20000);
    uint32_t moved = 0;
    while (!net->ops->late(net, &ranks, &moved) && cecl_ms_left(end) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    dev->ops->host_write(dev, &gate, 1, 1);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    gate = 0;
    fake->on_group = NULL;
    return ranks;
}

/* More exchanges are pending than there is room for their sets of ranks. */
static void of_many_exchanges_the_one_that_waits_lists_at_least_its_own_ranks(void **state)
{
    nranks = 4;
    struct cecl_net *net = opened();
    gate = 0;
    fake->on_group = hold;
    make_pending(net, 1, 1);
    fake->on_group = NULL;
    make_pending(net, 2, 2 * NOTES + 10);
    struct cecl_rank_list ranks = listed(net);
    assert_string_equal(cecl_rank_list_words(&ranks), "ranks 1 and 2");
    make_pending(net, 2, NOTES); /* ranks of exchanges that have ended are forgotten */
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    fake->on_group = hold;
    make_pending(net, 3, 1);
    ranks = listed(net);
    assert_string_equal(cecl_rank_list_words(&ranks), "rank 3");
    close_net(net);
}

static void expect_waits_for(struct cecl_net *net, int rank)
{
    struct cecl_rank_list ranks = {.count = 0};
    uint32_t moved = 0;
    const int64_t end = cecl_deadline(5000);
    while (!net->ops->late(net, &ranks, &moved) && cecl_ms_left(end) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_int_equal(ranks.count, 1);
    assert_int_equal(ranks.ranks[0], rank);
    dev->ops->host_write(dev, &gate, 1, 1);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    assert_false(net->ops->late(net, &ranks, &moved));
    gate = 0;
}

/* Replays write the same numbers again. */
static void each_replay_of_an_exchange_lists_its_own_ranks(void **state)
{
    char bytes[8];
    nranks = 4;
    struct cecl_net *net = opened();
    const struct cecl_net_transfer list[] = {
        {bytes, 5, 1, true}, {bytes, 5, 2, true}, {bytes, 5, 3, true}};
    void *graphs[2];
    gate = 0;
    fake->on_group = hold;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dev->captures->stream_begin(dev, stream), ceclSuccess);
        assert_int_equal(net->ops->capture(net, stream, &list[i], 1), ceclSuccess);
        assert_int_equal(dev->captures->stream_end(dev, stream, &graphs[i]), ceclSuccess);
    }
    for (int i = 0; i < 6; i++) {
        if (i % 3 < 2)
            assert_int_equal(dev->captures->graph_launch(dev, graphs[i % 3], stream), ceclSuccess);
        else
            assert_int_equal(net->ops->exchange(net, stream, &list[2], 1), ceclSuccess);
        expect_waits_for(net, i % 3 + 1);
    }
    for (int i = 0; i < 3; i++) { /* nothing comes between two replays */
        assert_int_equal(dev->captures->graph_launch(dev, graphs[0], stream), ceclSuccess);
        expect_waits_for(net, 1);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(dev->captures->graph_destroy(graphs[i]), ceclSuccess);
    close_net(net);
}

/* More sets of ranks than there is room for: the last ones are listed together. */
static void captured_exchanges_with_many_sets_of_ranks_list_at_least_their_own(void **state)
{
    enum { MANY = 400 };
    char bytes[8];
    nranks = 12;
    struct cecl_net *net = opened();
    void *graph;
    assert_int_equal(dev->captures->stream_begin(dev, stream), ceclSuccess);
    for (int set = 1; set <= MANY; set++) {
        struct cecl_net_transfer list[11];
        uint32_t count = 0;
        for (int r = 1; r < nranks; r++)
            if (set >> (r - 1) & 1)
                list[count++] = (struct cecl_net_transfer){bytes, 5, r, true};
        fake->on_group = set == MANY ? hold : NULL;
        assert_int_equal(net->ops->capture(net, stream, list, count), ceclSuccess);
    }
    assert_int_equal(dev->captures->stream_end(dev, stream, &graph), ceclSuccess);
    gate = 0;
    assert_int_equal(dev->captures->graph_launch(dev, graph, stream), ceclSuccess);
    struct cecl_rank_list ranks = {.count = 0};
    uint32_t moved = 0;
    const int64_t end = cecl_deadline(5000);
    while ((!net->ops->late(net, &ranks, &moved) || moved < 2 * MANY - 1) && cecl_ms_left(end) > 0)
        ranks.count = 0, moved = 0;
    for (int r = 1, found; r < nranks; r++) {
        found = !(MANY >> (r - 1) & 1);
        for (int i = 0; i < ranks.count && i < CECL_RANKS_NAMED; i++)
            found = found || ranks.ranks[i] == r;
        assert_true(found);
    }
    dev->ops->host_write(dev, &gate, 1, 1);
    close_net(net);
    assert_int_equal(dev->captures->graph_destroy(graph), ceclSuccess);
}

static void an_error_of_nccls_is_passed_on_in_words(void **state)
{
    struct cecl_net *net = opened();
    assert_int_equal(net->ops->error(net), ceclSuccess);
    const struct cecl_net_transfer list[] = {{fake, 5, 1, true}};
    assert_int_equal(net->ops->exchange(net, stream, list, 1),
                     ceclSuccess); /* no lock is left taken */
    fake->state = 6;
    for (int i = 0; i < 4; i++) /* the polls of the last call */
        (void)!net->ops->error(net);
    assert_int_equal(net->ops->error(net), ceclRemoteError);
    assert_non_null(
        strstr(cecl_message(), "NCCL 2.28.3: an exchange failed: remote process exited"));
    fake->state = 0;
    close_net(net);
}

static void a_failed_network_is_aborted_once_and_refuses_exchanges(void **state)
{
    char bytes[8];
    struct cecl_net *net = opened();
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}};
    (net->ops->fail)(net);
    (net->ops->fail)(net);
    assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclRemoteError);
    assert_int_equal(net->ops->error(net), ceclSuccess);
    close_net(net);
    assert_string_equal(fake->log, "abort ");
}

static void an_exchange_whose_peer_does_not_come_ends_in_time(void **state)
{
    char bytes[8];
    patience_ms = 600;
    slack_ms = 400;
    struct cecl_net *net = opened();
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}};
    fake->polls = -1;
    const int64_t start = cecl_now_ms();
    assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclTimeout);
    assert_in_range(cecl_now_ms() - start, 950, 60000);
    assert_non_null(strstr(cecl_message(), "a call has waited for rank 1 for 1000 ms"));
    (net->ops->fail)(net);
    close_net(net);
}

static ceclResult_t exchanged;

static void *exchange_in_vain(void *argument)
{
    static char bytes[8];
    struct cecl_net *net = argument;
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}};
    exchanged = net->ops->exchange(net, stream, list, 1);
    return NULL;
}

/* The stream has earlier work, so it cannot say yet that the exchange has begun. */
static void who_keeps_the_host_waiting_is_listed(void **state)
{
    pthread_t thread;
    struct cecl_rank_list ranks = {.count = 0};
    uint32_t moved = 0;
    gate = 0;
    struct cecl_net *net = opened();
    hold(NULL);
    fake->polls = -1;
    assert_int_equal(pthread_create(&thread, NULL, exchange_in_vain, net), 0);
    const int64_t end = cecl_deadline(15000);
    while (!net->ops->begins(net, &ranks) && cecl_ms_left(end) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_false(net->ops->late(net, &(struct cecl_rank_list){.count = 0}, &moved));
    (net->ops->fail)(net);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(exchanged, ceclRemoteError);
    assert_int_equal(ranks.count, 1);
    assert_int_equal(ranks.ranks[0], 1);
    assert_false(net->ops->begins(net, &ranks));
    dev->ops->host_write(dev, &gate, 1, 1);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    close_net(net);
}

/* ---- NCCL that the program has loaded */

static int split_result, orders;

static int split(void *context, void *config, void **comm)
{
    const int blocking = ((const int *)config)[4], most_ctas = ((const int *)config)[7];
    assert_ptr_equal(context, &orders);
    assert_int_equal(blocking, 0);
    assert_int_equal(most_ctas, 2);
    *comm = split_result ? NULL : fake;
    return split_result;
}

static int order(void *context, ceclStream_t on, int is_before)
{
    (void)context;
    assert_ptr_equal(on, stream);
    assert_int_equal(is_before, orders++ % 2 == 0);
    return 0;
}

static int (*lent_order)(void *context, ceclStream_t on, int is_before) = order;

static ceclResult_t open_lent(struct cecl_net **net)
{
    const ceclNcclNet_t lent = {&orders, dlopen(FAKE_NCCL, RTLD_NOW), split, lent_order};
    orders = 0;
    cecl_net_lend(&(struct cecl_net_lender){.nccl = &lent});
    const ceclResult_t result = open_net(net);
    cecl_net_lend(NULL);
    return result;
}

/* A program that orders exchanges by other means may also capture them. */
static void an_nccl_that_frees_what_graphs_use_is_not_captured(void **state)
{
    struct cecl_net *net = NULL;
    lent_order = NULL;
    assert_int_equal(open_lent(&net), ceclSuccess);
    assert_null(net->why_not_captured);
    close_net(net);
    fake->version = 22512;
    assert_int_equal(open_lent(&net), ceclSuccess);
    assert_non_null(strstr(net->why_not_captured, "graphs need NCCL 2.26"));
    close_net(net);
    lent_order = order;
}

static void what_a_program_lends_is_split_ordered_and_ended(void **state)
{
    char bytes[8];
    struct cecl_net *net = NULL;
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}, {bytes, 3, 1, false}};
    assert_int_equal(open_lent(&net), ceclSuccess);
    assert_string_equal(net->name, "the program's NCCL 2.28.3");
    assert_non_null(strstr(net->why_not_captured, "which a graph cannot do"));
    assert_int_equal(net->ops->exchange(net, stream, list, 2), ceclSuccess);
    assert_int_equal(orders, 2);
    close_net(net);
    /* the fake library ignores streams, so the stream's thread calls it */
    assert_string_equal(fake->log, "start send(1,5,0)? recv(1,3,0)? end finalize destroy ");
}

static void what_fails_in_the_streams_thread_is_the_networks_error(void **state)
{
    char bytes[8];
    struct cecl_net *net = NULL;
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}};
    assert_int_equal(open_lent(&net), ceclSuccess);
    fake->state = 6;
    assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclSuccess);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    fake->state = 0;
    assert_int_equal(net->ops->error(net), ceclRemoteError);
    assert_non_null(strstr(cecl_message(), "the program's NCCL 2.28.3"));
    fake->state = 2; /* other threads may read the first error at any time, so it stays */
    assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclSuccess);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    fake->state = 0;
    assert_int_equal(net->ops->error(net), ceclRemoteError);
    assert_non_null(strstr(cecl_message(), "remote process exited"));
    (net->ops->give_up)(net);
    assert_non_null(strstr(fake->log, "abort "));
    close_net(net);
}

static ceclResult_t refuse_call(struct cecl_device *device, ceclStream_t on,
                                struct cecl_stream_call *call)
{
    free(call);
    return cecl_fail(ceclSystemError, "no thread for a stream");
}

/* A program may hold a lock from the first call to the second. */
static void the_order_is_ended_after_an_exchange_that_failed(void **state)
{
    char bytes[8];
    struct cecl_net *net = NULL;
    const struct cecl_net_transfer list[] = {{bytes, 5, 1, true}};
    const struct cecl_device_ops *const all = dev->ops;
    struct cecl_device_ops odd = *all;
    odd.call = refuse_call;
    assert_int_equal(open_lent(&net), ceclSuccess);
    dev->ops = &odd;
    assert_int_equal(net->ops->exchange(net, stream, list, 1), ceclSystemError);
    dev->ops = all;
    assert_string_equal(cecl_message(), "no thread for a stream");
    assert_int_equal(orders, 2);
    close_net(net);
}

static void a_split_that_fails_is_no_network(void **state)
{
    struct cecl_net *net = NULL;
    split_result = ceclUnhandledCudaError;
    assert_int_equal(open_lent(&net), ceclRemoteError);
    split_result = 0;
    assert_null(net);
    assert_non_null(strstr(cecl_message(), "ncclCommSplit failed"));
    assert_string_equal(fake->log, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_library_that_is_missing_or_too_old_is_refused_by_name),
        TEST(it_is_not_used_under_cecl_run),
        TEST(the_one_of_a_wheel_is_found),
        TEST(ranks_with_different_versions_are_refused),
        TEST(it_is_made_without_blocking_and_takes_two_sms),
        TEST(what_a_program_lends_is_split_ordered_and_ended),
        TEST(what_fails_in_the_streams_thread_is_the_networks_error),
        TEST(the_order_is_ended_after_an_exchange_that_failed),
        TEST(a_split_that_fails_is_no_network),
        /* from here on the fake library may still be in progress when a test begins */
        TEST(a_join_that_does_not_end_is_given_up_in_time),
        TEST(a_join_that_fails_is_refused_in_nccls_words),
        TEST(an_exchange_is_one_group_in_order),
        TEST(a_group_that_nccl_refuses_is_passed_on_in_words),
        TEST(what_waits_is_listed_until_it_has_ended),
        TEST(of_many_exchanges_the_one_that_waits_lists_at_least_its_own_ranks),
        TEST(each_replay_of_an_exchange_lists_its_own_ranks),
        TEST(captured_exchanges_with_many_sets_of_ranks_list_at_least_their_own),
        TEST(an_nccl_that_frees_what_graphs_use_is_not_captured),
        TEST(an_error_of_nccls_is_passed_on_in_words),
        TEST(a_failed_network_is_aborted_once_and_refuses_exchanges),
        TEST(an_exchange_whose_peer_does_not_come_ends_in_time),
        TEST(who_keeps_the_host_waiting_is_listed),
    };
    void *library = dlopen(FAKE_NCCL, RTLD_NOW);
    fake = library ? dlsym(library, "fake_nccl") : NULL;
    return fake ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
