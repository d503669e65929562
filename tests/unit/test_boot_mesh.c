/* Making the mesh: a rank gives up, dies or never comes, or many callers connect. Most ranks are threads. */
#include "../soft_limit.h"
#include "../with_cmocka.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../descriptors.h"
#include "../forked.h"
#define RANKS 3
#include "../oob_threads.h"
#include "../open_descriptors.h"
#include "../prompt.h"
#include "util/clock.h"

#define INVITATION 64 /* bytes of the first message that a rank sends to the others */

static void *run_exchange(void *argument)
{
    struct rank *me = argument;
    me->result = cecl_mesh_allgather(me->mesh, "x", &me->index, me->all, sizeof(int));
    return NULL;
}

static ceclResult_t exchange_as_rank_0(void)
{
    run_exchange(&ranks[0]);
    return ranks[0].result;
}

static size_t large_bytes;
static const size_t sizes[] = {MESH_PIECE_BYTES, MESH_PIECE_BYTES + 1, 5 * MESH_PIECE_BYTES - 1};

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)(i % 251 * 7 + (size_t)rank * 59);
}

static void *run_large(void *argument)
{
    struct rank *me = argument;
    static unsigned char send[RANKS][5 * MESH_PIECE_BYTES],
        recv[RANKS][RANKS * 5 * MESH_PIECE_BYTES];
    for (size_t i = 0; i < large_bytes; i++)
        send[me->index][i] = byte_of(me->index, i);
    me->result =
        cecl_mesh_allgather(me->mesh, "large", send[me->index], recv[me->index], large_bytes);
    for (size_t i = 0; i < RANKS * large_bytes && me->result == ceclSuccess; i++)
        if (recv[me->index][i] != byte_of((int)(i / large_bytes), i % large_bytes))
            me->result = ceclInternalError;
    return NULL;
}

static int open_all(void **state)
{
    open_with(LONG_MS, LONG_MS);
    return 0;
}

TEST_BETWEEN(a_death_that_an_exchange_saw_is_seen_by_the_watch, open_all, close_ranks)
{
    die(2);
    assert_int_equal(exchange_as_rank_0(), ceclRemoteError);
    assert_non_null(strstr(cecl_message(), "rank 2 ended"));
    assert_int_equal(cecl_mesh_watch(ranks[0].mesh, 50), ceclRemoteError);
    assert_non_null(strstr(cecl_message(), "rank 2 ended"));
}

/* Ranks 1 and 2 come to an exchange that rank 0 has given up. Rank 0's next call repeats the reason. */
TEST_BETWEEN(a_broken_mesh_gives_its_first_reason_again, NULL, close_ranks)
{
    static const char words[] = "joining: ranks 1 and 2 did not come within 3000 ms "
                                "(CECL_INIT_TIMEOUT_MS); has a process ended?";
    open_with(3000, LONG_MS);
    assert_int_equal(exchange_as_rank_0(), ceclTimeout);
    assert_string_equal(cecl_message(), words);
    cecl_mesh_joined(ranks[0].mesh);
    cecl_mesh_activity(ranks[0].mesh, "ceclMemAlloc");
    const int64_t start = cecl_now_ms();
    assert_int_equal(exchange_as_rank_0(), ceclTimeout);
    assert_true(cecl_now_ms() - start < LONG_MS / 2);
    assert_string_equal(cecl_message(), words);
    /* If the rank has an error of its own, it gets that error instead of the mesh's reason. */
    const ceclResult_t own = cecl_fail(ceclSystemError, "no descriptor left (ulimit -n)");
    assert_int_equal(cecl_mesh_agree(ranks[0].mesh, own), ceclSystemError);
    assert_string_equal(cecl_message(), "no descriptor left (ulimit -n)");
}

/* Exchanges descriptors as ranks of several processes do. */
static void *run_fds(void *argument)
{
    struct rank *me = argument;
    int fds[RANKS];
    for (int r = 0; r < RANKS; r++)
        me->mesh->peers[r].invitation.process = 1 + (uint64_t)r;
    me->result = cecl_mesh_exchange_fd(me->mesh, 2, fds);
    for (int r = 0; r < RANKS && me->result == ceclSuccess; r++)
        me->all[r] = fcntl(fds[r], F_GETFD);
    if (me->result == ceclSuccess)
        cecl_mesh_drop_fds(me->mesh, fds);
    return NULL;
}

static int own_fds[RANKS];

static void *run_fds_within(void *argument)
{
    struct rank *me = argument;
    me->result = cecl_mesh_exchange_fd(me->mesh, own_fds[me->index], me->all);
    if (me->result == ceclSuccess)
        cecl_mesh_drop_fds(me->mesh, me->all);
    return NULL;
}

TEST_BETWEEN(ranks_of_one_process_use_each_others_descriptors, open_all, close_ranks)
{
    for (int r = 0; r < RANKS; r++)
        own_fds[r] = dup(2);
    const int before = open_descriptors();
    all_run(run_fds_within);
    for (int r = 0; r < RANKS; r++)
        for (int peer = 0; peer < RANKS; peer++)
            assert_int_equal(ranks[r].all[peer], own_fds[peer]);
    assert_int_equal(open_descriptors(), before);
    cecl_mesh_close_fd(ranks[1].mesh, own_fds[1]); /* before the mesh closes it */
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(fcntl(own_fds[r], F_GETFD) >= 0, r != 1);
        assert_int_equal(cecl_mesh_fd_is_gone(ranks[0].mesh, r), r == 1);
    }
}

/* Waits until rank 1 has come to rank 0's next exchange. */
static void await_rank_1(void)
{
    const uint32_t before = ranks[0].mesh->sequence;
    for (int tries = 0; tries < LONG_MS; tries++) {
        if (atomic_load(&ranks[0].mesh->rows[1].came) > before)
            return;
        usleep(1000);
    }
    fail();
}

TEST_BETWEEN(a_late_rank_is_named_with_the_call_and_the_milliseconds, NULL, close_ranks)
{
    open_with(LONG_MS, 300);
    start(&ranks[1], run_exchange);
    await_rank_1(); /* rank 1 is not late */
    cecl_mesh_joined(ranks[0].mesh);
    cecl_mesh_activity(ranks[0].mesh, "ceclMemAlloc");
    assert_int_equal(exchange_as_rank_0(), ceclTimeout);
    assert_string_equal(cecl_message(), "ceclMemAlloc: rank 2 did not come within 300 ms "
                                        "(CECL_TIMEOUT_MS); did every rank make the call?");
    cecl_mesh_interrupt(ranks[1].mesh);
    pthread_join(ranks[1].thread, NULL);
}

static void *tell_later(void *argument)
{
    struct rank *me = argument;
    usleep(330000);
    cecl_mesh_tell_abort(me->mesh, "rank 1 did not come");
    return NULL;
}

/* Ranks 1 and 2 are late. Rank 2's time limit passes while it waits for rank 1 in another call. */
TEST_BETWEEN(a_rank_that_waits_itself_is_not_blamed, NULL, close_ranks)
{
    open_with(LONG_MS, 300);
    cecl_mesh_joined(ranks[0].mesh);
    cecl_mesh_activity(ranks[0].mesh, "ceclMemAlloc");
    start(&ranks[2], tell_later);
    assert_int_equal(exchange_as_rank_0(), ceclRemoteError);
    assert_string_equal(cecl_message(), "ceclMemAlloc: rank 2 gave up: rank 1 did not come");
    pthread_join(ranks[2].thread, NULL);
}

/* Rank 1 gives up because rank 0 did, and rank 2 learns the reason from rank 1. */
TEST_BETWEEN(a_cause_that_is_passed_on_keeps_its_origin, open_all, close_ranks)
{
    cecl_mesh_tell_abort(ranks[0].mesh, "out of paper");
    assert_int_equal(cecl_mesh_news(ranks[1].mesh), ceclRemoteError);
    assert_string_equal(cecl_message(), "rank 0 gave up: out of paper");
    cecl_mesh_tell_abort(ranks[1].mesh,
                         "rank 0 gave up: out of paper; pending on rank 0: ceclReduce");
    assert_int_equal(mesh_look(ranks[2].mesh, 1), MESH_ABORTED);
    assert_int_equal(mesh_peer_error(ranks[2].mesh, 1), ceclRemoteError);
    assert_string_equal(cecl_message(), "rank 0 gave up: out of paper");
}

/* While ranks join, rank 0 passes on rank 7's reason without "rank 0 gave up"; later the reason counts as rank 0's. */
TEST_BETWEEN(who_began_elsewhere_is_passed_on_while_ranks_join, open_all, close_ranks)
{
    static const char words[] = "joining: rank 7 gave up: out of paper";
    cecl_mesh_tell_abort(ranks[0].mesh, words);
    assert_int_equal(cecl_mesh_news(ranks[1].mesh), ceclRemoteError);
    assert_string_equal(cecl_message(), "rank 7 gave up: out of paper");
    close_ranks(state);
    open_all(state);
    cecl_mesh_joined(ranks[0].mesh);
    cecl_mesh_tell_abort(ranks[0].mesh, words);
    assert_int_equal(cecl_mesh_news(ranks[1].mesh), ceclRemoteError);
    assert_string_equal(cecl_message(), "rank 0 gave up: joining: rank 7 gave up: out of paper");
}

/* Lets rank 2 take part in the exchange of names, and listen, but not connect. */
static void start_without_rank_2(char room[RANKS * INVITATION], int64_t timeout_ms)
{
    struct cecl_invitation mine;
    assert_int_equal(sizeof(mine), INVITATION);
    patience_ms = LONG_MS;
    make_group(timeout_ms);
    start(&ranks[0], run_open);
    start(&ranks[1], run_open);
    assert_int_equal(cecl_mesh_new(&ranks[2].oob, LONG_MS, 0, &mine, &ranks[2].mesh), ceclSuccess);
    assert_int_equal(ranks[2].oob.allgather(&ranks[2].oob, &mine, room, sizeof(mine)), ceclSuccess);
}

TEST_BETWEEN(a_rank_that_never_connects_is_named, NULL, close_ranks)
{
    static char room[RANKS * INVITATION];
    start_without_rank_2(room, 1500);
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    /* Rank 0 or rank 1 gives up first. The other of the two may report only that the first one left. */
    const int first = ranks[0].result == ceclTimeout ? 0 : 1;
    assert_int_equal(ranks[first].result, ceclTimeout);
    assert_non_null(
        strstr(ranks[first].words, "rank 2 did not come within 1500 ms (CECL_INIT_TIMEOUT_MS)"));
    assert_true(strstr(ranks[1 - first].words, "rank 2 did not come") ||
                strstr(ranks[1 - first].words, first == 0 ? "rank 0 left" : "rank 1 left"));
}

/* Rank 0 or rank 1 notices that rank 2 left, and the other of the two may learn it from the one that noticed. */
TEST_BETWEEN(a_rank_that_gives_up_before_it_connects_is_named_at_once, NULL, close_ranks)
{
    static char room[RANKS * INVITATION];
    const int64_t start = cecl_now_ms();
    start_without_rank_2(room, LONG_MS);
    cecl_mesh_close(ranks[2].mesh);
    ranks[2].mesh = NULL;
    for (int r = 0; r < 2; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].result, ceclRemoteError);
        assert_non_null(strstr(ranks[r].words, "rank 2 left while"));
    }
    assert_true(cecl_now_ms() - start < 1000 * PROMPT);
}

static ceclResult_t (*true_allgather)(struct cecl_oob *, const void *, void *, size_t);

TEST_BETWEEN(an_exchange_of_many_pieces_is_whole, open_all, close_ranks)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        large_bytes = sizes[i];
        all_run(run_large);
    }
}

/* Rank 0 brings more pieces than the others, and learns from their first pieces that they make another call. */
TEST_BETWEEN(ranks_that_bring_other_numbers_of_pieces_find_out, open_all, close_ranks)
{
    large_bytes = 5 * MESH_PIECE_BYTES;
    start(&ranks[0], run_large);
    start(&ranks[1], run_exchange);
    start(&ranks[2], run_exchange);
    await_all(ceclInvalidUsage);
    all_run(run_exchange); /* all ranks are at the same exchange again */
}

/* ---- a user whose processes may have few descriptors in flight (sent, and not received yet) */

#define MANY 24 /* ranks, which send 552 descriptors */
#define FEW 64  /* descriptors that the user may have in flight */

static uid_t user_of_this_test(void)
{
    return 60000 + (uid_t)getpid() % 5000;
}

/* Whether a process of this test can become another user: not if few user ids are mapped, or setuid() fails. */
static bool can_be(uid_t user)
{
    int status = -1;
    const pid_t child = geteuid() == 0 ? fork() : -1;
    if (child == 0)
        _exit(setuid(user) != 0);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void be_a_user_of_few(uid_t user)
{
    const struct rlimit few = {FEW, FEW};
    (void)!setuid(user); /* if refused, the limit may not apply */
    if (setrlimit(RLIMIT_NOFILE, &few) != 0)
        _exit(3);
}

/* Makes the mesh of ranks that are processes of one user. said: [nranks] each rank's error. */
static void join_as_a_user(int nranks, int64_t timeout_ms, char said[][CECL_MESSAGE_BYTES])
{
    struct forked_id *made = shared_memory(sizeof(*made));
    const uid_t user = user_of_this_test();
    pid_t processes[MANY];
    for (int r = 0; r < nranks; r++)
        if ((processes[r] = fork()) == 0) {
            struct cecl_mesh *mesh = NULL;
            struct cecl_oob oob;
            alarm(200);
            be_a_user_of_few(user);
            const ceclUniqueId id = forked_meet(made, r);
            cecl_oob_from_id(&oob, &id, nranks, r,
                             timeout_ms * (1 + r)); /* rank 0 gives up first */
            const ceclResult_t result = open_mesh(&oob, timeout_ms, &mesh);
            if (result != ceclSuccess)
                snprintf(said[r], CECL_MESSAGE_BYTES, "%d: %.400s", (int)result, cecl_message());
            cecl_mesh_close(mesh);
            _exit(0);
        }
    for (int r = 0; r < nranks; r++) {
        int status = -1;
        waitpid(processes[r], &status, 0);
        assert_int_equal(status, 0);
    }
}

/* As join_as_a_user, while a process of that user has sent `count` descriptors that nobody receives. */
static void join_beside_others(int count, int nranks, int64_t timeout_ms,
                               char said[][CECL_MESSAGE_BYTES])
{
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    const uid_t user = user_of_this_test();
    const pid_t other = fork();
    if (other == 0) {
        int sockets[2], fds[FEW + 1];
        (void)!socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets);
        for (int i = 0; i < count; i++)
            fds[i] = ends[0];
        be_a_user_of_few(user);
        byte = send_descriptors(sockets[0], "", 1, fds, count, 0) == 1;
        (void)!write(ends[1], &byte, 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    join_as_a_user(nranks, timeout_ms, said);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

TEST(ranks_join_though_few_descriptors_may_be_under_way)
{
    char(*said)[CECL_MESSAGE_BYTES] = shared_memory(MANY * sizeof(*said));
    join_as_a_user(MANY, LONG_MS, said);
    for (int r = 0; r < MANY; r++)
        assert_string_equal(said[r], "");
    if (!can_be(user_of_this_test()))
        skip_because(
            "processes can be of no user of their own: those of this user would fail, too");
    join_beside_others(FEW - 10, MANY, LONG_MS, said);
    for (int r = 0; r < MANY; r++)
        assert_string_equal(said[r], "");
}

TEST(a_limit_of_descriptors_under_way_is_named)
{
    char(*said)[CECL_MESSAGE_BYTES] = shared_memory(2 * sizeof(*said));
    if (!can_be(user_of_this_test()))
        skip_because(
            "processes can be of no user of their own: those of this user would fail, too");
    join_beside_others(FEW + 1, 2, 1500, said);
    if (!strstr(said[0], "sending to rank 1: ") || !strstr(said[0], "(ulimit -n)"))
        fail_msg("rank 0: %s; rank 1: %s", said[0], said[1]);
}

static char heard[INVITATION];
static _Atomic bool is_heard;

static ceclResult_t allgather_aloud(struct cecl_oob *oob, const void *send, void *recv,
                                    size_t bytes)
{
    assert_int_equal(bytes, INVITATION);
    memcpy(heard, send, bytes);
    atomic_store(&is_heard, true);
    return true_allgather(oob, send, recv, bytes);
}

/* Connects to `address` `count` times from another process, which has its own descriptors. Returns the process once all
 * connections exist; it lives until it is killed. */
static pid_t call_as_strangers(const struct sockaddr_un *address, socklen_t length, int count)
{
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t strangers = fork();
    if (strangers == 0) {
        (void)soft_limit(RLIMIT_NOFILE, (rlim_t)count + 100);
        for (byte = 1; byte && count > 0; count--) {
            const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
            byte = connect(fd, (const struct sockaddr *)address, length) == 0;
        }
        (void)!write(ends[1], &byte, 1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    close(ends[0]);
    return strangers;
}

/* Silent strangers connect where rank 1 expects shared memory and descriptors. Rank 1 keeps few of them connected. */
TEST_BETWEEN(strangers_at_the_mesh_disturb_nobody, NULL, close_ranks)
{
    enum { STRANGERS = 3000 };
    struct sockaddr_un address;
    socklen_t length;
    patience_ms = LONG_MS;
    make_group(LONG_MS);
    (void)soft_limit(RLIMIT_NOFILE, 200);
    atomic_store(&is_heard, false);
    true_allgather = ranks[1].oob.allgather;
    ranks[1].oob.allgather = allgather_aloud;
    start(&ranks[0], run_open);
    start(&ranks[1], run_open);
    for (int tries = 0; tries < 1000 && !atomic_load(&is_heard); tries++)
        usleep(5000);
    assert_true(atomic_load(&is_heard));
    pid_t strangers[2];
    for (int i = 0; i < 2; i++) {
        address = inbox_address(heard, i == 0 ? MESH_POST : MESH_EXCHANGE, &length);
        strangers[i] = call_as_strangers(&address, length, STRANGERS);
    }
    start(&ranks[2], run_open);
    await_all(ceclSuccess);
    all_run(run_fds);
    for (int i = 0; i < 2; i++) {
        kill(strangers[i], SIGKILL);
        waitpid(strangers[i], NULL, 0);
    }
}

/* A cloned machine may have the same host id. */
TEST(rank_with_this_host_id_that_is_elsewhere_is_named)
{
    struct oob_threads nobody = OOB_THREADS_NONE;
    struct cecl_oob oob = oob_of_thread(&nobody, 2, 1, 1000);
    struct cecl_invitation all[2] = {{.at = {.name = "cecl-of-another-host"}}};
    struct cecl_mesh *mesh = NULL;
    assert_int_equal(cecl_mesh_new(&oob, 300, 0, &all[1], &mesh), ceclSuccess);
    assert_int_equal(cecl_mesh_connect(mesh, all, sizeof(all[0]), NULL), ceclRemoteError);
    assert_non_null(strstr(cecl_message(), "or it is on another host"));
    cecl_mesh_close(mesh);
}
