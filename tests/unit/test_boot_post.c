/* Messages that ranks post outside of exchanges: many arrive whole and in order, a message ends its receiver's wait, and
 * a post to a rank that has ended fails. Ranks are threads. (tests/fuzz/fuzz_mesh.c: single messages; strangers.) */
#include "../soft_limit.h"
#include "../with_cmocka.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#define RANKS 3
#include "../descriptors.h"
#include "../oob_threads.h"
#include "../open_descriptors.h"
#include "util/clock.h"

struct taken {
    struct cecl_letter letter;
    char text[CECL_INBOX_BYTES];
};

static int open_ranks(void **state)
{
    open_with(LONG_MS, 300);
    return 0;
}

static ceclResult_t post(int from, int to, const char *text, const int *fds, int nfds)
{
    return cecl_mesh_post(ranks[from].mesh, to, text, strlen(text) + 1, fds, nfds,
                          cecl_deadline(100));
}

static ceclResult_t take(int rank, struct taken *taken)
{
    return cecl_mesh_take(ranks[rank].mesh, taken->text, sizeof(taken->text), &taken->letter);
}

static void expect_text(int rank, int peer, const char *text)
{
    struct taken taken;
    assert_int_equal(take(rank, &taken), ceclSuccess);
    assert_int_equal(taken.letter.rank, peer);
    assert_int_equal(taken.letter.bytes, strlen(text) + 1);
    assert_string_equal(taken.text, text);
    assert_int_equal(taken.letter.nfds, 0);
}

static void expect_nothing(int rank)
{
    struct taken taken;
    assert_int_equal(take(rank, &taken), ceclInProgress);
}

enum { MANY = 20000 };

static void *post_many(void *argument)
{
    char text[200];
    for (int i = 0; i < MANY && ranks[0].result == ceclSuccess; i++) {
        snprintf(text, sizeof(text), "%0*d", 1 + i % 190, i);
        ranks[0].result = cecl_mesh_post(ranks[0].mesh, 1, text, strlen(text) + 1, &(int){2},
                                         i % 3 == 0, cecl_deadline(LONG_MS));
    }
    return NULL;
}

/* The receiver sleeps now and then, which lets the sender find a full queue. */
TEST_BETWEEN(many_messages_are_neither_lost_nor_mixed, open_ranks, close_ranks)
{
    const int before = open_descriptors();
    struct taken taken;
    assert_int_equal(pthread_create(&ranks[0].thread, NULL, post_many, NULL), 0);
    for (int i = 0; i < MANY;) {
        char text[200];
        cecl_mesh_await(ranks[1].mesh, true, LONG_MS);
        if (take(1, &taken) == ceclInProgress)
            continue;
        snprintf(text, sizeof(text), "%0*d", 1 + i % 190, i);
        assert_string_equal(taken.text, text);
        assert_int_equal(taken.letter.nfds, i % 3 == 0);
        if (taken.letter.nfds)
            close(taken.letter.fds[0]);
        if (++i % 5000 == 0)
            usleep(50000);
    }
    pthread_join(ranks[0].thread, NULL);
    assert_int_equal(ranks[0].result, ceclSuccess);
    expect_nothing(1);
    assert_int_equal(open_descriptors(), before);
}

TEST_BETWEEN(a_full_queue_times_out_and_goes_on_once_drained, open_ranks, close_ranks)
{
    char text[32];
    int sent = 0;
    for (;; sent++) {
        snprintf(text, sizeof(text), "%d", sent);
        const ceclResult_t result = post(0, 1, text, NULL, 0);
        if (result != ceclSuccess) {
            assert_int_equal(result, ceclTimeout);
            break;
        }
    }
    assert_string_equal(cecl_message(), "rank 1 took no message in time");
    assert_true(sent > 0);
    assert_int_equal(post(0, 2, "others are not held up", NULL, 0), ceclSuccess);
    for (int i = 0; i < sent; i++) {
        snprintf(text, sizeof(text), "%d", i);
        expect_text(1, 0, text);
    }
    expect_nothing(1); /* no part of the message that timed out arrives */
    assert_int_equal(post(0, 1, "again", NULL, 0), ceclSuccess);
    expect_text(1, 0, "again");
}

TEST_BETWEEN(a_post_to_a_peer_that_left_or_died_says_so, open_ranks, close_ranks)
{
    assert_int_equal(post(1, 0, "farewell", NULL, 0), ceclSuccess);
    assert_int_equal(post(0, 1, "not read", NULL, 0), ceclSuccess);
    cecl_mesh_close(ranks[1].mesh);
    ranks[1].mesh = NULL;
    assert_int_equal(post(0, 1, "x", NULL, 0), ceclRemoteError);
    assert_string_equal(cecl_message(), "rank 1 has left: its process or its communicator ended");
    die(2);
    assert_int_equal(post(0, 2, "x", NULL, 0), ceclRemoteError);
    assert_string_equal(cecl_message(), "rank 2 ended unexpectedly");
    expect_nothing(2);             /* the inbox is open, as if a child kept it open */
    expect_text(0, 1, "farewell"); /* posted before rank 1 left */
    expect_nothing(0);
}

static void *fill(void *argument)
{
    while (ranks[0].result == ceclSuccess)
        ranks[0].result = cecl_mesh_post(ranks[0].mesh, 1, "x", 2, NULL, 0, cecl_deadline(LONG_MS));
    return NULL;
}

TEST(a_waiting_post_ends_when_the_peer_does_and_with_an_interrupt)
{
    for (int interrupts = 0; interrupts < 2; interrupts++) {
        open_ranks(state);
        const int64_t begin = cecl_now_ms();
        start(&ranks[0], fill);
        usleep(50000);
        if (interrupts)
            cecl_mesh_interrupt(ranks[0].mesh);
        else
            die(1);
        pthread_join(ranks[0].thread, NULL);
        assert_int_equal(ranks[0].result, ceclRemoteError);
        assert_true(cecl_now_ms() - begin < LONG_MS / 2);
        close_ranks(state);
    }
}

/* ---- messages that cecl_mesh_post never sends */

static int call_rank_1(void)
{
    const int fd = inbox_call(ranks[0].mesh->peers[1].invitation.at.name, MESH_POST);
    assert_true(fd >= 0);
    return fd;
}

/* When another caller comes, the inbox turns away a silent caller, who must then call again. */
TEST_BETWEEN(silent_callers_hold_up_no_message, open_ranks, close_ranks)
{
    enum { SILENT = 48 };
    int silent[SILENT];
    const struct inbox_head head = inbox_head_of(&ranks[0].mesh->peers[1].invitation.at, 0, 0);
    for (int i = 0; i < SILENT; i++)
        silent[i] = call_rank_1();
    assert_int_equal(post(2, 1, "heard", NULL, 0), ceclSuccess);
    for (int tries = 0; tries < SILENT; tries++) { /* one take() accepts few callers */
        struct taken taken;
        if (take(1, &taken) == ceclInProgress)
            continue;
        assert_string_equal(taken.text, "heard");
        break;
    }
    assert_int_equal(send(silent[0], &head, sizeof(head), MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
    close(silent[SILENT - 1]);
    silent[SILENT - 1] = call_rank_1();
    struct taken taken;
    assert_int_equal(take(1, &taken), ceclInProgress);
    assert_int_equal(send(silent[SILENT - 1], &head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
    assert_int_equal(take(1, &taken), ceclSuccess);
    assert_int_equal(taken.letter.bytes, 0);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
}

/* Rank 1's limit on open files leaves no room for all of a message's descriptors: first for a moment, then for good. */
TEST_BETWEEN(descriptors_wait_for_room_and_are_told_as_lost_after_a_second, open_ranks, close_ranks)
{
    struct taken taken;
    ceclResult_t result;
    enum { GAPS = 16 }; /* more than there are free numbers below the highest descriptor */
    int gaps[GAPS];
    for (int i = 0; i < GAPS; i++)
        gaps[i] = dup(2);
    const int fds[] = {0, 1, 2, 2, 2, 2, 2, 2}, before = open_descriptors();
    assert_int_equal(post(0, 1, "many", fds, 8), ceclSuccess);
    const rlim_t low = (rlim_t)gaps[GAPS - 1] + 3, limit = soft_limit(RLIMIT_NOFILE, low);
    result = take(1, &taken);
    (void)soft_limit(RLIMIT_NOFILE, limit);
    assert_int_equal(result, ceclInProgress);
    assert_int_equal(take(1, &taken), ceclSuccess);
    assert_int_equal(taken.letter.nfds, 8);
    for (int i = 0; i < 8; i++)
        close(taken.letter.fds[i]);
    assert_int_equal(post(0, 1, "more", fds, 8), ceclSuccess);
    (void)soft_limit(RLIMIT_NOFILE, low);
    while ((result = take(1, &taken)) == ceclInProgress)
        ;
    (void)soft_limit(RLIMIT_NOFILE, limit);
    assert_int_equal(result, ceclSystemError); /* rank 1 lacks descriptors */
    assert_non_null(strstr(cecl_message(), "rank 0"));
    assert_non_null(strstr(cecl_message(), "ulimit -n"));
    assert_int_equal(open_descriptors(), before);
    for (int i = 0; i < GAPS; i++)
        close(gaps[i]);
}

static void *post_later(void *argument)
{
    usleep(50000);
    ranks[0].result = post(0, 1, "wake up", NULL, 0);
    return NULL;
}

/* Checks that rank 1's wait for a message ends when another thread runs `run`. */
static void ends_the_wait(void *(*run)(void *))
{
    const int64_t begin = cecl_now_ms();
    start(&ranks[0], run);
    cecl_mesh_await(ranks[1].mesh, true, LONG_MS);
    assert_true(cecl_now_ms() - begin < LONG_MS / 2);
    pthread_join(ranks[0].thread, NULL);
}

TEST_BETWEEN(a_message_ends_the_wait_for_one, open_ranks, close_ranks)
{
    ends_the_wait(post_later);
    expect_text(1, 0, "wake up");
}

/* The watchdog ignores messages; another thread receives them. */
TEST_BETWEEN(the_watch_rests_while_a_message_is_there, open_ranks, close_ranks)
{
    assert_int_equal(post(0, 1, "not for the watch", NULL, 0), ceclSuccess);
    const int64_t start = cecl_now_ms();
    assert_int_equal(cecl_mesh_watch(ranks[1].mesh, 100), ceclSuccess);
    assert_true(cecl_now_ms() - start >= 100);
    expect_text(1, 0, "not for the watch");
}

static void *rouse_later(void *argument)
{
    usleep(50000);
    cecl_mesh_rouse(ranks[1].mesh);
    return NULL;
}

TEST_BETWEEN(the_wait_for_a_message_can_be_ended, open_ranks, close_ranks)
{
    ends_the_wait(rouse_later);
    const int64_t roused = cecl_now_ms();
    cecl_mesh_await(ranks[1].mesh, true, 50); /* only one wait was ended */
    assert_true(cecl_now_ms() - roused >= 50);
}

/* A closed connection is always readable, but the wait must not return at once. */
TEST_BETWEEN(the_wait_for_a_message_rests_when_a_caller_has_gone, open_ranks, close_ranks)
{
    close(call_rank_1());
    assert_true(cecl_mesh_await(ranks[1].mesh, true, LONG_MS));
    expect_nothing(1);
    const int64_t start = cecl_now_ms();
    assert_false(cecl_mesh_await(ranks[1].mesh, true, 100));
    assert_true(cecl_now_ms() - start >= 100);
}

TEST_BETWEEN(a_message_of_a_peer_that_left_is_heard, open_ranks, close_ranks)
{
    assert_int_equal(post(0, 1, "farewell", NULL, 0), ceclSuccess);
    cecl_mesh_close(ranks[0].mesh);
    ranks[0].mesh = NULL;
    const int64_t start = cecl_now_ms();
    assert_int_equal(cecl_mesh_watch(ranks[1].mesh, LONG_MS), ceclSuccess); /* reads the goodbye */
    cecl_mesh_await(ranks[1].mesh, true, LONG_MS);
    assert_true(cecl_now_ms() - start < LONG_MS / 2);
    assert_true(cecl_mesh_left(ranks[1].mesh, 0));
    expect_text(1, 0, "farewell");
}
