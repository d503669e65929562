/* Posts: the two ranks of a message find out which of them came second; the second one knows both posts. */
#include <pthread.h>
#include <sched.h>

#include "../with_cmocka.h"

#include "alloc/posts.h"

#define RANKS 3

static void *shared;
static struct cecl_posts ranks[RANKS];

static void open_with(uint32_t nslots)
{
    const size_t bytes = cecl_posts_bytes(RANKS);
    shared = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(shared);
    memset(shared, 0, bytes);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(cecl_posts_open(&ranks[r], shared, r, RANKS, nslots), ceclSuccess);
}

static void close_all(void)
{
    for (int r = 0; r < RANKS; r++)
        cecl_posts_close(&ranks[r]);
    free(shared);
}

static struct cecl_post post_of(int rank, uint64_t i)
{
    return (struct cecl_post){.window = 100 + (uint64_t)rank,
                              .offset = i * 3,
                              .bytes = i * 5,
                              .version = i * 7,
                              .group = i};
}

/* To ask changes nothing: a rank that asked may post later, and comes second. */
TEST(a_peer_that_came_is_seen)
{
    uint64_t number;
    struct cecl_post theirs;
    const struct cecl_post mine = post_of(0, 1);
    open_with(4);
    for (int round = 0; round < 10; round++) {
        for (uint32_t ahead = 1; ahead <= 3; ahead++)
            assert_false(cecl_posts_came(&ranks[0], CECL_SENDER, 1, ahead));
        for (int i = 0; i < 2; i++)
            assert_false(cecl_posts_put(&ranks[1], CECL_RECEIVER, 0, &mine, &number, &theirs));
        for (uint32_t ahead = 1; ahead <= 3; ahead++)
            assert_int_equal(cecl_posts_came(&ranks[0], CECL_SENDER, 1, ahead), ahead <= 2);
        assert_false(cecl_posts_came(&ranks[0], CECL_RECEIVER, 1, 1)); /* another ring */
        assert_true(cecl_posts_put(&ranks[0], CECL_SENDER, 1, &mine, &number, &theirs));
        assert_true(cecl_posts_came(&ranks[0], CECL_SENDER, 1, 1));
        assert_true(cecl_posts_put(&ranks[0], CECL_SENDER, 1, &mine, &number, &theirs));
    }
    close_all();
}

/* The slot is free only once each rank has read the other's post. */
TEST(both_ranks_of_a_captured_message_read_the_others_post)
{
    struct cecl_post sent = post_of(0, 1), received = post_of(1, 2), theirs;
    uint64_t number;
    sent.captured = received.captured = 1;
    open_with(4);
    for (int round = 0; round < 20; round++) {
        assert_false(cecl_posts_put(&ranks[0], CECL_SENDER, 1, &sent, &number, &theirs));
        assert_false(cecl_posts_met(&ranks[0], CECL_SENDER, 1, number, &theirs));
        assert_true(cecl_posts_put(&ranks[1], CECL_RECEIVER, 0, &received, &number, &theirs));
        assert_true(cecl_posts_met(&ranks[0], CECL_SENDER, 1, number, &theirs));
        assert_memory_equal(&theirs, &received, sizeof(theirs));
        assert_true(cecl_posts_met(&ranks[1], CECL_RECEIVER, 0, number, &theirs));
        assert_memory_equal(&theirs, &sent, sizeof(theirs));
        cecl_posts_finish(&ranks[1], CECL_RECEIVER, 0);
        assert_true(cecl_posts_room(&ranks[0], CECL_SENDER, 1, 4));
        assert_false(cecl_posts_room(&ranks[1], CECL_RECEIVER, 0, 4));
        cecl_posts_finish(&ranks[0], CECL_SENDER, 1);
        assert_true(cecl_posts_room(&ranks[1], CECL_RECEIVER, 0, 4));
    }
    const uint64_t ticket = cecl_posts_ticket(&ranks[0]);
    assert_true(cecl_posts_ticket(&ranks[2]) > ticket);
    close_all();
}

TEST(each_ordered_pair_counts_for_itself)
{
    uint64_t number;
    struct cecl_post theirs;
    const struct cecl_post mine = post_of(0, 1);
    open_with(4);
    for (int peer = 1; peer < RANKS; peer++)
        for (int role = 0; role < CECL_ROLES; role++) {
            assert_false(
                cecl_posts_put(&ranks[0], (enum cecl_role)role, peer, &mine, &number, &theirs));
            assert_int_equal(number, 1);
        }
    close_all();
}

TEST(a_full_ring_has_room_when_the_peer_has_come)
{
    uint64_t number;
    struct cecl_post theirs;
    const struct cecl_post mine = post_of(0, 1);
    open_with(4);
    assert_true(cecl_posts_room(&ranks[0], CECL_SENDER, 1, 4));
    assert_false(cecl_posts_room(&ranks[0], CECL_SENDER, 1, 5));
    for (int i = 0; i < 4; i++)
        cecl_posts_put(&ranks[0], CECL_SENDER, 1, &mine, &number, &theirs);
    assert_false(cecl_posts_room(&ranks[0], CECL_SENDER, 1, 1));
    assert_true(cecl_posts_room(&ranks[0], CECL_RECEIVER, 1, 4)); /* another ring */
    assert_true(cecl_posts_put(&ranks[1], CECL_RECEIVER, 0, &mine, &number, &theirs));
    assert_true(cecl_posts_room(&ranks[0], CECL_SENDER, 1, 1));
    assert_false(cecl_posts_room(&ranks[0], CECL_SENDER, 1, 2));
    /* Rank 0 has finished 4 messages, and the ring has 4 slots, so rank 1 may post messages 2 to 8. */
    assert_true(cecl_posts_room(&ranks[1], CECL_RECEIVER, 0, 7));
    close_all();
}

TEST(rings_are_only_for_so_many_ranks)
{
    assert_true(cecl_posts_bytes(CECL_POSTS_RANKS) > 0);
    assert_int_equal(cecl_posts_bytes(CECL_POSTS_RANKS + 1), 0);
    for (int n = 2; n <= 16; n *= 2)
        assert_true(cecl_posts_bytes(n) <= (size_t)2 << 20);
}

#define MESSAGES 200000

struct end {
    enum cecl_role role;
    uint64_t seconds, wrong;
};

static void *work(void *argument)
{
    struct end *end = argument;
    const int me = end->role == CECL_SENDER ? 0 : 1, peer = 1 - me;
    for (uint64_t i = 1; i <= MESSAGES; i++) {
        const struct cecl_post mine = post_of(me, i), expected = post_of(peer, i);
        struct cecl_post theirs = {0};
        uint64_t number;
        while (!cecl_posts_room(&ranks[me], end->role, peer, 1))
            sched_yield();
        if (!cecl_posts_put(&ranks[me], end->role, peer, &mine, &number, &theirs))
            continue;
        end->seconds++;
        end->wrong += number != i || memcmp(&theirs, &expected, sizeof(theirs)) != 0;
    }
    return NULL;
}

TEST(of_two_threads_one_is_second_in_each_message)
{
    struct end ends[CECL_ROLES] = {{.role = CECL_SENDER}, {.role = CECL_RECEIVER}};
    pthread_t threads[CECL_ROLES];
    open_with(8);
    for (int i = 0; i < CECL_ROLES; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &ends[i]), 0);
    for (int i = 0; i < CECL_ROLES; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(ends[0].seconds + ends[1].seconds, MESSAGES);
    assert_int_equal(ends[0].wrong + ends[1].wrong, 0);
    close_all();
}
