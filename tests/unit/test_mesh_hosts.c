/* The mesh over many hosts: threads, each of which is the only rank of a pretended host. */
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <pthread.h>
#include <sys/resource.h>

#include "../oob_threads.h"
#include "boot/mesh_internal.h"
#include "boot/net.h"

#define RANKS 8
#define LONG_MS 60000 /* ms; a step that takes longer has hung */

static struct rank {
    pthread_t thread;
    struct cecl_oob oob;
    struct cecl_mesh *mesh;
    ceclResult_t result;
    int index, all[RANKS];
} ranks[RANKS];

struct introduction {
    struct cecl_invitation invitation;
    struct cecl_reach reach;
};

static ceclResult_t open_over_hosts(struct rank *me)
{
    static const uint16_t host[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct introduction mine = {.reach = {{{0}}}}, all[RANKS];
    CECL_TRY(cecl_mesh_new(&me->oob, LONG_MS, &mine.invitation, &me->mesh));
    CECL_TRY(cecl_mesh_reach(me->mesh, &mine.reach));
    CECL_TRY(me->oob.allgather(&me->oob, &mine, all, sizeof(mine)));
    CECL_TRY(cecl_mesh_spread(me->mesh, host, &all[0].reach, sizeof(all[0])));
    CECL_TRY(cecl_mesh_connect(me->mesh, &all[0].invitation, sizeof(all[0])));
    cecl_mesh_joined(me->mesh);
    return ceclSuccess;
}

static void *run_open(void *argument)
{
    struct rank *me = argument;
    me->result = open_over_hosts(me);
    return NULL;
}

static void *run_gather(void *argument)
{
    struct rank *me = argument;
    me->result = cecl_mesh_allgather(me->mesh, "x", &me->index, me->all, sizeof(int));
    return NULL;
}

static void run_all(void *(*run)(void *))
{
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].result, ceclSuccess);
    }
}

static int set_up(void **state)
{
    static struct oob_threads oobs;
    oobs = (struct oob_threads)OOB_THREADS_NONE;
    setenv("CECL_SOCKET_IFNAME", "lo", 1);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.index = r, .oob = oob_of_thread(&oobs, RANKS, r, LONG_MS)};
        ranks[r].oob.find_address = cecl_tcp_named_address;
    }
    run_all(run_open);
    return 0;
}

static int tear_down(void **state)
{
    for (int r = 0; r < RANKS; r++)
        cecl_mesh_close(ranks[r].mesh);
    return 0;
}

static struct rlimit limit_descriptors(rlim_t most)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit small = {.rlim_cur = most, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    return before;
}

/* poll() refuses lists that are longer than the limit of descriptors, and most ranks of a large job have none
 * here. So the limit is 12: a leader's thread polls 9 descriptors, and a rank fewer. */
static void the_number_of_ranks_may_pass_the_limit_of_descriptors(void **state)
{
    const struct rlimit before = limit_descriptors(12);
    for (int round = 0; round < 3; round++) {
        run_all(run_gather);
        for (int r = 0; r < RANKS; r++)
            for (int from = 0; from < RANKS; from++)
                assert_int_equal(ranks[r].all[from], from);
    }
    cecl_fail(ceclInternalError, "its own fault");
    cecl_mesh_tell_abort(ranks[RANKS - 1].mesh, cecl_message());
    for (int r = 0; r < RANKS - 1; r++) {
        assert_int_equal(cecl_mesh_watch(ranks[r].mesh, LONG_MS), ceclRemoteError);
        assert_non_null(strstr(cecl_message(), "rank 7 gave up: its own fault"));
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_number_of_ranks_may_pass_the_limit_of_descriptors,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
