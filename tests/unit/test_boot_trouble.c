/* The system refuses a send() or recv(), or sends only a part of the bytes. The rank that was refused reports it, and no
 * peer is blamed. tests/exhaust tests other refusals. Ranks are threads of this test. */
#include "../with_cmocka.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define RANKS 2
#include "../oob_threads.h"

enum call { NONE, SEND, RECV };

/* Which call fails with which errno in a thread of the test (`is_ours`); which call fails in the library's threads. */
static _Thread_local struct {
    enum call call;
    int error;
} refused;
static _Thread_local bool is_ours;
static _Atomic int refused_to_others;

static bool refuses(enum call call)
{
    if (is_ours ? refused.call != call : atomic_load(&refused_to_others) != (int)call)
        return false;
    errno = is_ours ? refused.error : ENOMEM;
    return true;
}

WRAPPED(ssize_t, recv, (int fd, void *data, size_t bytes, int flags))
{
    return refuses(RECV) ? -1 : __real_recv(fd, data, bytes, flags);
}

#define CRUMB 50u               /* bytes; of the root's messages only replies are larger */
static _Atomic unsigned crumbs; /* 0: the library's sends are whole; else 1 + large ones so far */
WRAPPED(ssize_t, send, (int fd, const void *data, size_t bytes, int flags))
{
    if (refuses(SEND))
        return -1;
    if (is_ours || bytes <= CRUMB || atomic_load(&crumbs) == 0)
        return __real_send(fd, data, bytes, flags);
    errno = EAGAIN;
    return atomic_fetch_add(&crumbs, 1) % 2 ? -1 : __real_send(fd, data, CRUMB, flags);
}

static void refuse(enum call call, int error)
{
    is_ours = true;
    refused.call = call;
    refused.error = error;
}

TEST(a_refused_look_at_the_news_kills_nobody)
{
    open_with(LONG_MS, 300);
    refuse(RECV, ENOMEM);
    cecl_mesh_wake(ranks[0].mesh);
    assert_int_equal(cecl_mesh_watch(ranks[0].mesh, 10), ceclSuccess);
    refuse(NONE, 0);
    assert_int_equal(cecl_mesh_watch(ranks[0].mesh, 10), ceclSuccess);
    cecl_mesh_tell_abort(ranks[1].mesh, "the real reason");
    assert_int_equal(cecl_mesh_news(ranks[0].mesh), ceclRemoteError);
    assert_string_equal(cecl_message(), "rank 1 gave up: the real reason");
    close_ranks(NULL);
}

static ceclUniqueId id;
static enum call refused_to_1; /* which call rank 1 is refused while it joins */

/* If a rank is refused a call, its peers wait for it in vain, so their time limit is short. */
static void *join(void *argument)
{
    struct rank *me = argument;
    refuse(me->index == 1 ? refused_to_1 : NONE, ENOBUFS);
    cecl_oob_from_id(&me->oob, &id, RANKS, me->index, refused_to_1 == NONE ? LONG_MS : 3000);
    me->result = me->oob.allgather(&me->oob, &me->index, me->all, sizeof(int));
    cecl_keep_message(me->words);
    cecl_lifeline_close(&me->oob.line);
    return NULL;
}

static void join_ranks(enum call call)
{
    is_ours = true;
    setenv("CECL_INIT_TIMEOUT_MS", "60000", 1);
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSuccess);
    refused_to_1 = call;
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.index = r};
        start(&ranks[r], join);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(ranks[r].thread, NULL);
}

TEST(a_refused_answer_is_not_told_as_a_wrong_secret)
{
    join_ranks(SEND);
    assert_int_equal(ranks[1].result, ceclSystemError);
    assert_string_equal(ranks[1].words, "sending to the rank that made the unique id: "
                                        "No buffer space available");
}

/* Sockets accept few bytes at a time, and every other time none. */
TEST(a_reply_that_goes_in_crumbs_is_whole)
{
    atomic_store(&crumbs, 1);
    join_ranks(NONE);
    assert_true(atomic_exchange(&crumbs, 0) > RANKS * 10);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].result, ceclSuccess);
        for (int q = 0; q < RANKS; q++)
            assert_int_equal(ranks[r].all[q], q);
    }
}
