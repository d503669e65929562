/* The all-gather by which members of a new communicator join, over plain memory. One thread plays all
 * ranks. Nobody's process ends, so only the boxes tell who has given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "boot/boxes.h"
#include "boot/mesh_internal.h"
#include "util/clock.h"

#define RANKS 3
#define WAIT_MS 1000 /* a wait that ends by its deadline fails the test */

/* A mesh without connections takes every rank for alive. */
static struct cecl_mesh *mesh_without_news(int rank)
{
    struct cecl_mesh *mesh = calloc(1, sizeof(*mesh) + RANKS * sizeof(mesh->peers[0]));
    assert_non_null(mesh);
    mesh->nranks = RANKS;
    mesh->rank = rank;
    for (int r = 0; r < RANKS; r++)
        mesh->peers[r] = (struct mesh_peer){.data = -1, .life = -1, .process = -1, .post = -1};
    pthread_mutex_init(&mesh->life_lock, NULL);
    return mesh;
}

static void end_mesh(struct cecl_mesh *mesh)
{
    pthread_mutex_destroy(&mesh->life_lock);
    free(mesh);
}

static const int all[RANKS] = {0, 1, 2};

static struct cecl_boxes_plan plans[RANKS]; /* of each rank's oob */

/* The first `count` ranks are the members. */
static struct cecl_oob open_oob(void *memory, struct cecl_mesh *mesh, int count, uint64_t token)
{
    struct cecl_oob oob = {0};
    plans[mesh->rank] = (struct cecl_boxes_plan){.memory = memory,
                                                 .mesh = mesh,
                                                 .ranks = all,
                                                 .old_nranks = RANKS,
                                                 .nranks = count,
                                                 .rank = mesh->rank,
                                                 .token = token,
                                                 .timeout_ms = WAIT_MS,
                                                 .deadline = cecl_deadline(WAIT_MS)};
    cecl_oob_from_boxes(&oob, &plans[mesh->rank]);
    return oob;
}

/* Fails on the last rank, which waits for a member that has given up. */
static void hears(void *memory, struct cecl_mesh *last, uint64_t token, const char *words)
{
    int part = 7, parts[RANKS];
    struct cecl_oob oob = open_oob(memory, last, RANKS, token);
    assert_int_equal(oob.allgather(&oob, &part, parts, sizeof(part)), ceclRemoteError);
    assert_string_equal(cecl_message(), words);
    cecl_oob_close(&oob);
}

static void a_rank_that_gave_up_is_told_of_after_its_next_use(void **state)
{
    (void)state;
    void *memory = calloc(1, cecl_boxes_bytes(RANKS));
    struct cecl_mesh *first = mesh_without_news(0), *last = mesh_without_news(RANKS - 1);
    assert_non_null(memory);
    for (int count = RANKS; count > 1; count--) { /* the second use is without the last rank */
        struct cecl_oob given_up = open_oob(memory, first, count, (uint64_t)(RANKS - count + 1));
        cecl_record("out of paper %d", RANKS - count + 1);
        cecl_boxes_give_up(&given_up);
        cecl_oob_close(&given_up);
    }
    hears(memory, last, 1, "rank 0 of the parent gave up: out of paper 1");
    end_mesh(first);
    end_mesh(last);
    free(memory);
}

static void a_rank_that_leaves_without_joining_is_told_of(void **state)
{
    (void)state;
    void *memory = calloc(1, cecl_boxes_bytes(RANKS));
    struct cecl_mesh *last = mesh_without_news(RANKS - 1);
    assert_non_null(memory);
    cecl_record("out of paper");
    cecl_boxes_leave(memory, RANKS, 0, 5);
    hears(memory, last, 5, "rank 0 of the parent gave up: out of paper");
    end_mesh(last);
    free(memory);
}

/* Rank 0 gives up because rank 1 did. Whoever waits for rank 0 hears of rank 1. */
static void who_began_is_named_by_all_who_hear_of_it(void **state)
{
    (void)state;
    void *memory = calloc(1, cecl_boxes_bytes(RANKS));
    struct cecl_mesh *last = mesh_without_news(RANKS - 1);
    assert_non_null(memory);
    cecl_record("ceclCommSplit: rank 1 gave up: out of paper");
    cecl_boxes_leave(memory, RANKS, 0, 5);
    hears(memory, last, 5, "rank 1 of the parent gave up: out of paper");
    end_mesh(last);
    free(memory);
}

/* The reasons of a rank's last uses are kept. Of earlier ones only is known that it gave up. */
static void a_reason_of_long_ago_is_not_taken_for_another(void **state)
{
    (void)state;
    enum { USES = 6 };
    void *memory = calloc(1, cecl_boxes_bytes(RANKS));
    struct cecl_mesh *first = mesh_without_news(0), *last = mesh_without_news(RANKS - 1);
    assert_non_null(memory);
    for (uint64_t use = 0; use < USES; use++) { /* with all ranks, and then without the last */
        struct cecl_oob oob = open_oob(memory, first, use == 0 ? RANKS : RANKS - 1, 2 * use + 1);
        cecl_record("out of paper %d", (int)use);
        cecl_boxes_give_up(&oob);
        cecl_oob_close(&oob);
    }
    hears(memory, last, 1, "rank 0 of the parent gave up the new communicator");
    end_mesh(first);
    end_mesh(last);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_gave_up_is_told_of_after_its_next_use),
        cmocka_unit_test(a_rank_that_leaves_without_joining_is_told_of),
        cmocka_unit_test(who_began_is_named_by_all_who_hear_of_it),
        cmocka_unit_test(a_reason_of_long_ago_is_not_taken_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
