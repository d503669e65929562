/* Joining by a unique id: strangers, wrong secrets, missing and duplicate ranks, used ids. Ranks are child processes. */
#include <errno.h>

#include "../soft_limit.h"
#include "../with_cmocka.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../forked.h"
#include "../open_descriptors.h"
#include "boot/net.h"
#include "boot/oob.h"
#include "boot/tcp.h"
#include "util/clock.h"
#include "util/fds.h"

#define RANKS 3
#define LONG_MS 60000   /* ms; a step that takes longer has hung */
#define LONG "60000"    /* LONG_MS, for CECL_INIT_TIMEOUT_MS */
#define PROMPT_MS 45000 /* ms; far above what a busy machine takes, and below LONG_MS */

__attribute__((constructor)) static void roots_wait_long(void)
{
    setenv("CECL_INIT_TIMEOUT_MS", LONG, 1);
}

/* Runs `run` in a child process. `end_child` returns its exit code. */
static pid_t begin_child(int (*run)(void *argument), void *argument)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends the child if a failed test leaves it stopped */
        alarm(200);
        _exit(run(argument));
    }
    return child;
}

static int end_child(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Joins, and all-gathers one number of each rank. */
static ceclResult_t join(const ceclUniqueId *id, int nranks, int rank, int timeout_ms, int mine,
                         int *all)
{
    struct cecl_oob oob;
    cecl_oob_from_id(&oob, id, nranks, rank, timeout_ms);
    const ceclResult_t result = oob.allgather(&oob, &mine, all, sizeof(mine));
    cecl_lifeline_close(&oob.line);
    return result;
}

struct life {
    int nranks, rank;
    bool stays_away, wrong_secret;
    const ceclUniqueId *id;
    const char *words; /* that the error must contain; or NULL */
};

/* Exit code: the result; 100 if the all-gather returned wrong bytes; 101 if the message lacks `words`. */
static int live(void *argument)
{
    const struct life *life = argument;
    ceclUniqueId id = *life->id;
    int all[RANKS], wrong = 0;
    if (life->stays_away)
        return 0;
    if (life->wrong_secret)
        ((struct cecl_tcp_id *)(void *)&id)->secret[3] ^= 1;
    const ceclResult_t result = join(&id, life->nranks, life->rank, LONG_MS, 100 + life->rank, all);
    for (int r = 0; r < RANKS && result == ceclSuccess; r++)
        wrong += all[r] != 100 + r;
    if (life->words && result != ceclSuccess && !strstr(cecl_message(), life->words)) {
        fprintf(stderr, "said: %s\n", cecl_message());
        return 101;
    }
    return wrong ? 100 : (int)result;
}

/* Runs a child for each life. Returns whether each has its expected result. */
static bool end_as(const ceclUniqueId *id, const struct life lives[RANKS],
                   const ceclResult_t expected[RANKS], const char *words)
{
    pid_t children[RANKS];
    bool right = true;
    for (int r = 0; r < RANKS; r++) {
        struct life life = lives[r];
        life.id = id;
        life.words = words;
        children[r] = begin_child(live, &life);
    }
    for (int r = 0; r < RANKS; r++) {
        const int code = end_child(children[r]);
        if (code != (int)expected[r])
            print_error("rank %d: result %d, %d expected\n", r, code, (int)expected[r]);
        right = right && code == (int)expected[r];
    }
    return right;
}

/* A process that makes an id and lives until close_host: the process that forks ranks must not have the id's thread. */
struct host {
    pid_t process;
    ceclUniqueId *id;
};

static int make_id_and_stay(void *argument)
{
    struct forked_id *made = argument;
    made->ready = cecl_tcp_unique_id(&made->id) == ceclSuccess ? 1 : -1;
    pause();
    return 0;
}

static void open_host(struct host *host)
{
    struct forked_id *made = shared_memory(sizeof(*made));
    host->process = begin_child(make_id_and_stay, made);
    host->id = &made->id;
    while (made->ready == 0)
        usleep(1000);
    assert_int_equal(made->ready, 1);
}

static void close_host(struct host *host)
{
    kill(host->process, SIGKILL);
    waitpid(host->process, NULL, 0);
}

/* Stops the child, and returns once all of its threads have stopped; kill() returns earlier. */
static void stop(pid_t child)
{
    int status = 0;
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
}

static bool end_as_within(const char *limit_ms, const struct life lives[RANKS],
                          const ceclResult_t expected[RANKS], const char *words)
{
    struct host host;
    setenv("CECL_INIT_TIMEOUT_MS", limit_ms, 1);
    open_host(&host);
    const bool right = end_as(host.id, lives, expected, words);
    close_host(&host);
    return right;
}

#define RANK(number) \
    { \
        .nranks = RANKS, .rank = (number) \
    }
static const struct life good[RANKS] = {RANK(0), RANK(1), RANK(2)};
static const ceclResult_t all_succeed[RANKS] = {ceclSuccess, ceclSuccess, ceclSuccess};

#define ALL(result) \
    { \
        result, result, result \
    }

/* Checks each rank's result and message if one rank does something else than the others. If a rank never comes, the
 * time limit is short. On a busy machine another rank may miss it; then a longer limit is tried. */
TEST(ranks_meet_or_hear_why_not)
{
    static const struct {
        struct life lives[RANKS];
        ceclResult_t expected[RANKS];
        const char *words, *limit_ms;
    } rows[] = {
        {{RANK(0), RANK(1), RANK(2)}, ALL(ceclSuccess), NULL, LONG},
        {{RANK(0), RANK(1), RANK(1)}, ALL(ceclInvalidArgument), "two ranks joined as rank 1", LONG},
        {{{.nranks = 2}, RANK(1), RANK(2)}, ALL(ceclInvalidArgument), "nranks", LONG},
        {{RANK(0), {.stays_away = true}, RANK(2)},
         {ceclTimeout, ceclSuccess, ceclTimeout},
         "missing: rank 1",
         "3000"},
        {{RANK(0), RANK(1), {.nranks = RANKS, .rank = 2, .wrong_secret = true}},
         {ceclTimeout, ceclTimeout, ceclInvalidUsage},
         NULL,
         "3000"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bool right =
            end_as_within(rows[i].limit_ms, rows[i].lives, rows[i].expected, rows[i].words);
        assert_true(right ||
                    (strcmp(rows[i].limit_ms, LONG) != 0 &&
                     end_as_within("20000", rows[i].lives, rows[i].expected, rows[i].words)));
    }
}

/* A third party can neither change what a rank says, nor use the rank's tag with another secret. */
TEST(tags_cover_all_that_a_rank_says)
{
    struct cecl_tcp_said said = {.kind = CECL_TCP_MAGIC};
    uint8_t secret[16] = {0};
    unsigned char *bytes = (unsigned char *)&said;
    const uint64_t tag = said.tag = cecl_tcp_rank_tag(secret, &said),
                   proof = cecl_tcp_root_tag(secret, &said);
    for (size_t i = 0; i < sizeof(said); i++) {
        const bool is_tag = i >= offsetof(struct cecl_tcp_said, tag);
        bytes[i] ^= 1;
        if ((is_tag ? cecl_tcp_root_tag(secret, &said) : cecl_tcp_rank_tag(secret, &said)) ==
            (is_tag ? proof : tag))
            fail_msg("byte %zu is not in the tag", i);
        bytes[i] ^= 1;
    }
    for (size_t i = 0; i < 16; i++) {
        secret[i] ^= 1;
        assert_true(cecl_tcp_rank_tag(secret, &said) != tag);
        assert_true(cecl_tcp_root_tag(secret, &said) != proof);
        secret[i] ^= 1;
    }
}

TEST(a_used_id_is_refused)
{
    struct host host;
    open_host(&host);
    assert_true(end_as(host.id, good, all_succeed, NULL));
    assert_true(end_as(host.id, good, (const ceclResult_t[])ALL(ceclInvalidUsage), "used already"));
    close_host(&host);
}

TEST(an_interface_that_is_not_there_is_named)
{
    ceclUniqueId id;
    setenv("CECL_SOCKET_IFNAME", "nosuch0", 1);
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSystemError);
    unsetenv("CECL_SOCKET_IFNAME");
    assert_non_null(strstr(cecl_message(), "nosuch0"));
}

/* Replaces getifaddrs (by the linker, see CMakeLists.txt): returns `told`; the real interfaces if `told` is NULL. */
static struct ifaddrs *told;
WRAPPED(int, getifaddrs, (struct ifaddrs * *all))
{
    *all = told;
    return told ? 0 : __real_getifaddrs(all);
}
WRAPPED(void, freeifaddrs, (struct ifaddrs * all))
{
    if (all != told)
        __real_freeifaddrs(all);
}

TEST(interfaces_that_are_down_or_have_no_address_are_passed_over)
{
    ceclUniqueId id;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct ifaddrs down = {.ifa_name = (char *)"lo",
                           .ifa_flags = IFF_LOOPBACK,
                           .ifa_addr = (struct sockaddr *)&address};
    struct ifaddrs bare = {
        .ifa_next = &down, .ifa_name = (char *)"lo", .ifa_flags = IFF_UP | IFF_LOOPBACK};
    told = &bare;
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSystemError);
    assert_non_null(strstr(cecl_message(), "no loopback interface is up"));
    setenv("CECL_SOCKET_IFNAME", "lo", 1);
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSystemError);
    assert_non_null(strstr(cecl_message(), "CECL_SOCKET_IFNAME=lo"));
    unsetenv("CECL_SOCKET_IFNAME");
    told = NULL;
}

/* Makes an id whose job ends at once, and returns the id's contents. */
static struct cecl_tcp_id make_id(void)
{
    struct host host;
    struct cecl_tcp_id inside;
    open_host(&host);
    memcpy(&inside, host.id, sizeof(inside));
    close_host(&host);
    return inside;
}

TEST(an_id_is_for_loopback_and_says_so_where_nobody_listens)
{
    ceclUniqueId id = {{0}};
    int all[2];
    const struct cecl_tcp_id inside = make_id();
    assert_true(cecl_tcp_is_loopback(&inside));
    memcpy(&id, &inside, sizeof(inside));
    assert_int_equal(join(&id, 2, 0, 1000, 0, all), ceclInvalidUsage);
    assert_non_null(strstr(cecl_message(), "no process listens"));
    assert_non_null(strstr(cecl_message(), "set CECL_SOCKET_IFNAME there"));
}

/* Skipped on a machine that has only the loopback interface. */
TEST(an_id_is_for_the_interface_that_is_named)
{
    struct ifaddrs *all, *one;
    assert_int_equal(getifaddrs(&all), 0);
    for (one = all; one; one = one->ifa_next)
        if (one->ifa_addr && (one->ifa_flags & IFF_UP) && !(one->ifa_flags & IFF_LOOPBACK) &&
            one->ifa_addr->sa_family == AF_INET)
            break;
    if (!one) {
        freeifaddrs(all);
        skip_because("no network interface is up but the loopback");
    }
    setenv("CECL_SOCKET_IFNAME", one->ifa_name, 1);
    const struct cecl_tcp_id inside = make_id();
    unsetenv("CECL_SOCKET_IFNAME");
    const struct sockaddr_in *address = (const void *)one->ifa_addr;
    assert_memory_equal(&inside.at.v4.sin_addr, &address->sin_addr, sizeof(address->sin_addr));
    freeifaddrs(all);
}

/* Opens a host whose root accepts at most `callers` connections at a time. */
static void open_small_host(struct host *host, rlim_t callers)
{
    const rlim_t before = soft_limit(RLIMIT_NOFILE, 2 * callers);
    open_host(host);
    (void)soft_limit(RLIMIT_NOFILE, before);
}

static void come_as_strangers(const ceclUniqueId *id, int *sockets, int count)
{
    struct cecl_tcp_id inside;
    memcpy(&inside, id, sizeof(inside));
    for (int i = 0; i < count; i++) {
        sockets[i] = socket(inside.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(sockets[i], &inside.at.any, cecl_tcp_length(inside.at.any.sa_family)) != 0)
            fail_msg("stranger %d: %s", i, strerror(errno));
    }
}

static void close_sockets(const int *sockets, int count)
{
    for (int i = 0; i < count; i++)
        close(sockets[i]);
}

/* Many more strangers come than the root accepts at a time; some are silent, some send nonsense. The job succeeds. */
TEST(strangers_do_not_disturb_the_job)
{
    enum { STRANGERS = 600 };
    struct host host;
    int sockets[STRANGERS];
    open_small_host(&host, 64);
    come_as_strangers(host.id, sockets, STRANGERS);
    for (int i = 0; i < STRANGERS; i += 3) /* the root may have closed this connection */
        (void)!send(sockets[i],
                    "GET / HTTP/1.1\r\nHost: somewhere.invalid\r\n\r\nand so on and on and on", 60,
                    MSG_NOSIGNAL);
    const int64_t start = cecl_now_ms();
    assert_true(end_as(host.id, good, all_succeed, NULL));
    assert_true(cecl_now_ms() - start < PROMPT_MS);
    close_host(&host);
    close_sockets(sockets, STRANGERS);
}

static int join_as_all(void *id)
{
    int all;
    return (int)join(id, 1, 0, LONG_MS, 7, &all);
}

TEST(a_rank_behind_a_queue_of_strangers_joins)
{
    enum { STRANGERS = 200 };
    struct host host;
    int sockets[STRANGERS];
    open_host(&host);
    stop(host.process);
    come_as_strangers(host.id, sockets, STRANGERS);
    const pid_t rank = begin_child(join_as_all, host.id);
    usleep(100000); /* long enough for the rank to enter the queue */
    kill(host.process, SIGCONT);
    assert_int_equal(end_child(rank), 0);
    close_host(&host);
    close_sockets(sockets, STRANGERS);
}

/* ---- callers that send an incomplete message. A test can make the clock of the root's process jump forward. */

static _Atomic int64_t *skew_ms;
WRAPPED(int, clock_gettime, (clockid_t clock, struct timespec *now))
{
    const int result = __real_clock_gettime(clock, now);
    now->tv_sec += skew_ms ? (time_t)(*skew_ms / 1000) : 0;
    return result;
}

/* Opens a host with `count` callers, who have sent all but one byte of their message. */
static void open_skewed(struct host *host, int *callers, int count)
{
    static const char said[sizeof(struct cecl_tcp_said) - 1];
    skew_ms = shared_memory(sizeof(*skew_ms));
    setenv("CECL_INIT_TIMEOUT_MS", "86400000", 1);
    open_small_host(host, 20);
    come_as_strangers(host->id, callers, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(send(callers[i], said, sizeof(said), MSG_NOSIGNAL), sizeof(said));
    usleep(200000); /* long enough for the root to read them */
}

static void close_skewed(struct host *host, int *callers, int count)
{
    close_sockets(callers, count);
    close_host(host);
    skew_ms = NULL;
}

/* Waits until the root has asked the caller to come again, and has closed the connection. */
static bool is_put_off(int caller)
{
    struct cecl_tcp_proof again = {0};
    char byte;
    return recv(caller, &again, sizeof(again), MSG_WAITALL) == sizeof(again) &&
           again.tag == CECL_TCP_AGAIN && recv(caller, &byte, 1, 0) <= 0;
}

static bool is_kept(int caller)
{
    char byte;
    return recv(caller, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* The caller may be a rank whose machine stopped for a while, so the root does not just drop it. */
TEST(a_caller_that_stops_halfway_is_asked_to_come_again)
{
    struct host host;
    int caller;
    const int64_t start = cecl_now_ms();
    open_skewed(&host, &caller, 1);
    *skew_ms = 3000;
    assert_true(is_kept(caller));
    assert_true(is_put_off(caller));
    assert_true(cecl_now_ms() - start >= 5000);
    close_skewed(&host, &caller, 1);
}

/* All places are taken: a newcomer replaces the oldest caller, once that caller has had some time. */
TEST(a_newcomer_pushes_out_the_oldest_that_was_heard)
{
    enum { ROOM = 20 };
    struct host host;
    int callers[ROOM + 1];
    open_skewed(&host, callers, ROOM);
    come_as_strangers(host.id, callers + ROOM, 1);
    assert_true(is_put_off(callers[0]));
    for (int i = 1; i <= ROOM; i++)
        assert_true(is_kept(callers[i]));
    close_skewed(&host, callers, ROOM + 1);
}

/* Listens, and makes an id with the listener's address: the test is the root. */
static int listen_here(int backlog, struct cecl_tcp_id *inside, ceclUniqueId *id)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, backlog), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    *inside = (struct cecl_tcp_id){.magic = CECL_TCP_MAGIC, .at.v4 = address};
    memset(id, 0, sizeof(*id));
    memcpy(id, inside, sizeof(*inside));
    return listener;
}

TEST(a_rank_that_is_put_off_comes_again)
{
    struct cecl_tcp_id inside;
    struct cecl_tcp_said said;
    const struct cecl_tcp_proof again = {CECL_TCP_AGAIN};
    ceclUniqueId id;
    const int listener = listen_here(1, &inside, &id);
    const pid_t rank = begin_child(join_as_all, &id);
    const int first = accept(listener, NULL, NULL);
    assert_int_equal(recv(first, &said, sizeof(said), MSG_WAITALL), sizeof(said));
    assert_int_equal(send(first, &again, sizeof(again), MSG_NOSIGNAL), sizeof(again));
    close(first);
    const int second = accept(listener, NULL, NULL);
    assert_int_equal(recv(second, &said, sizeof(said), MSG_WAITALL), sizeof(said));
    const struct cecl_tcp_proof proof = {cecl_tcp_root_tag(inside.secret, &said)};
    const struct cecl_tcp_reply reply = {.bytes = sizeof(said.part)};
    assert_int_equal(send(second, &proof, sizeof(proof), MSG_NOSIGNAL), sizeof(proof));
    assert_int_equal(send(second, &reply, sizeof(reply), MSG_NOSIGNAL), sizeof(reply));
    assert_int_equal(send(second, said.part, sizeof(said.part), MSG_NOSIGNAL), sizeof(said.part));
    assert_int_equal(end_child(rank), 0);
}

/* The listener accepts no connection, and its queue is full, so TCP does not answer. */
TEST(a_root_that_takes_no_connection_is_given_up_and_nothing_is_left)
{
    enum { QUEUED = 8 };
    struct cecl_tcp_id inside;
    ceclUniqueId id;
    int all[2];
    (void)listen_here(0, &inside, &id);
    for (int i = 0; i < QUEUED; i++) {
        const int queued = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(queued, &inside.at.any, sizeof(inside.at.v4));
    }
    const int descriptors = open_descriptors();
    assert_int_equal(join(&id, 2, 1, 300, 0, all), ceclTimeout);
    assert_int_equal(open_descriptors(), descriptors);
}

/* Joins as rank 1 of 3, alone. Exit code 0: the missing ranks are named. GAVE_UP: the rank's own limit passed first. */
#define GAVE_UP 10
static int limit_of_rank_1_ms;
static int join_alone(void *id)
{
    int all[3];
    char words[96];
    snprintf(words, sizeof(words), " ms (CECL_INIT_TIMEOUT_MS=%d); missing: ranks 0 and 2",
             limit_of_rank_1_ms);
    if (join(id, 3, 1, limit_of_rank_1_ms, 0, all) != ceclTimeout)
        return 1;
    return strstr(cecl_message(), words)              ? 0
           : strstr(cecl_message(), "no answer from") ? GAVE_UP
                                                      : 2;
}

/* The root's own time limit is longer, so the root must use the rank's. On a busy machine the root's thread may answer
 * too late for a limit of 1 s; then a larger limit is tried. */
TEST(a_rank_of_little_patience_hears_who_is_missing)
{
    int code = GAVE_UP;
    for (limit_of_rank_1_ms = 1000; limit_of_rank_1_ms <= 27000 && code == GAVE_UP;
         limit_of_rank_1_ms *= 3) {
        struct host host;
        open_host(&host);
        code = end_child(begin_child(join_alone, host.id));
        close_host(&host);
    }
    assert_int_equal(code, 0);
}

/* The message with which a rank joins. The time limits may be any, as from another version of the library. */
static struct cecl_tcp_said joining(const ceclUniqueId *id, int nranks, int rank,
                                    int64_t patience_ms, int64_t timeout_ms)
{
    static uint8_t number;
    struct cecl_tcp_id inside;
    struct cecl_tcp_said said = {.kind = CECL_TCP_MAGIC,
                                 .nonce = {++number},
                                 .rank = rank,
                                 .nranks = nranks,
                                 .process = cecl_fork_process(),
                                 .patience_ms = patience_ms,
                                 .timeout_ms = timeout_ms};
    memcpy(&inside, id, sizeof(inside));
    memcpy(said.part, &rank, sizeof(rank));
    said.tag = cecl_tcp_rank_tag(inside.secret, &said);
    return said;
}

/* Sends `said`, and receives the root's proof. Returns the socket, or -1 if the root does not answer. */
static int say(const ceclUniqueId *id, const struct cecl_tcp_said *said)
{
    struct cecl_tcp_id inside;
    struct cecl_tcp_proof proof;
    memcpy(&inside, id, sizeof(inside));
    const int fd = CECL_FD(socket(inside.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd, &inside.at.any, cecl_tcp_length(inside.at.any.sa_family)) == 0 &&
        send(fd, said, sizeof(*said), MSG_NOSIGNAL) == sizeof(*said) &&
        recv(fd, &proof, sizeof(proof), MSG_WAITALL) == sizeof(proof))
        return fd;
    close(fd);
    return -1;
}

static int join_by_hand(const ceclUniqueId *id, int nranks, int rank, int64_t patience_ms,
                        int64_t timeout_ms)
{
    const struct cecl_tcp_said said = joining(id, nranks, rank, patience_ms, timeout_ms);
    return say(id, &said);
}

/* Whether ranks hear within the root's limit that rank 0 is missing, whatever their own limit. All jobs wait at once. */
static bool all_are_served_within(const char *limit_ms)
{
    enum { JOBS = 5 };
    static const int64_t patience[JOBS] = {INT64_MAX, INT64_MAX - 1, INT64_MIN, -1, 0};
    struct host hosts[JOBS];
    int ranks[JOBS];
    bool served = true;
    setenv("CECL_INIT_TIMEOUT_MS", limit_ms, 1);
    for (int i = 0; i < JOBS; i++) {
        open_host(&hosts[i]);
        ranks[i] = join_by_hand(hosts[i].id, 2, 1, patience[i], patience[i]);
    }
    for (int i = 0; i < JOBS; i++) {
        struct cecl_tcp_reply reply = {0};
        served = served && recv(ranks[i], &reply, sizeof(reply), MSG_WAITALL) == sizeof(reply) &&
                 reply.status == ceclTimeout;
        close(ranks[i]);
        close_host(&hosts[i]);
    }
    return served;
}

/* The ranks' limits include the largest and smallest that fit in the message. A busy machine may need more than 3 s. */
TEST(a_rank_of_any_patience_is_served)
{
    assert_true(all_are_served_within("3000") || all_are_served_within("20000"));
}

/* Joins as rank 0 or 1 of 3, and expects the number of rank 2. */
static int join_with_rank_2(void *argument)
{
    const struct life *life = argument;
    int all[RANKS];
    return join(life->id, RANKS, life->rank, LONG_MS, life->rank, all) != ceclSuccess ||
           all[2] != 2;
}

TEST(a_rank_that_reads_slowly_holds_up_nobody)
{
    struct cecl_tcp_reply reply = {0};
    struct host host;
    pid_t ranks[2];
    open_host(&host);
    for (int r = 0; r < 2; r++)
        ranks[r] = begin_child(join_with_rank_2, &(struct life){.id = host.id, .rank = r});
    const int fd = join_by_hand(host.id, RANKS, 2, LONG_MS, LONG_MS);
    assert_true(fd >= 0);
    for (int r = 0; r < 2; r++)
        assert_int_equal(end_child(ranks[r]), 0);
    assert_int_equal(recv(fd, &reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
    assert_int_equal(reply.status, ceclSuccess);
    assert_int_equal(reply.bytes, RANKS * CECL_OOB_PART_BYTES);
    for (int r = 0; r < RANKS; r++) {
        char part[CECL_OOB_PART_BYTES];
        int number;
        assert_int_equal(recv(fd, part, sizeof(part), MSG_WAITALL), sizeof(part));
        memcpy(&number, part, sizeof(number));
        assert_int_equal(number, r);
    }
    close(fd);
    close_host(&host);
}

static int leave_as_rank_2(void *id)
{
    close(join_by_hand(id, RANKS, 2, LONG_MS, LONG_MS));
    pause(); /* the process lives on */
    return 1;
}

/* Rank 2 of 3 joins and leaves before rank 0 comes. */
TEST(a_rank_that_goes_while_others_join_is_named)
{
    struct host host;
    open_host(&host);
    const int64_t start = cecl_now_ms();
    struct life life = {
        .nranks = RANKS, .rank = 1, .id = host.id, .words = "rank 2 left while ranks were joining"};
    const pid_t rank = begin_child(live, &life), other = begin_child(leave_as_rank_2, host.id);
    assert_int_equal(end_child(rank), ceclRemoteError);
    kill(other, SIGKILL);
    (void)end_child(other);
    assert_true(cecl_now_ms() - start < PROMPT_MS);
    close_host(&host);
}

/* In the root's process: the socket of rank 0; -1: none. Rank 0 ends the process as soon as the root tells it anything.
 * From then on send() does not return, as if the process had ended within send(). */
static _Atomic int hasty = -1;
WRAPPED(ssize_t, send, (int fd, const void *data, size_t bytes, int flags))
{
    const ssize_t sent = __real_send(fd, data, bytes, flags);
    struct pollfd heard = {.fd = hasty, .events = POLLIN};
    while (poll(&heard, 1, 0) > 0)
        pause();
    return sent;
}

/* Whether a rank receives a whole reply on its socket. */
static bool hears(int fd, ceclResult_t status)
{
    struct cecl_tcp_reply reply = {0};
    char rest[RANKS * CECL_OOB_PART_BYTES];
    return recv(fd, &reply, sizeof(reply), MSG_WAITALL) == sizeof(reply) &&
           reply.status == (int32_t)status && reply.bytes <= sizeof(rest) &&
           recv(fd, rest, reply.bytes, MSG_WAITALL) == (ssize_t)reply.bytes;
}

/* Rank 0 runs in the root's process, and ends it as soon as the root tells it the job's outcome. Another process joins
 * as both `others`, which must both hear the outcome. */
static void expect_others_hear(const int others[2], ceclResult_t outcome)
{
    struct forked_id *made = shared_memory(sizeof(*made));
    const pid_t root = fork();
    if (root == 0) {
        char byte;
        alarm(200);
        if (cecl_tcp_unique_id(&made->id) == ceclSuccess)
            hasty = join_by_hand(&made->id, RANKS, 0, LONG_MS, LONG_MS);
        made->ready = 1;
        _exit(recv(hasty, &byte, 1, 0) == 1 ? 0 : 1);
    }
    int fds[2], heard = 0;
    while (!made->ready)
        usleep(1000);
    for (int i = 0; i < 2; i++)
        fds[i] = join_by_hand(&made->id, RANKS, others[i], LONG_MS, LONG_MS);
    for (int i = 0; i < 2; i++)
        heard += hears(fds[i], outcome);
    cecl_net_drop(fds, 2);
    waitpid(root, NULL, 0);
    assert_int_equal(heard, 2);
}

TEST(a_failure_is_told_to_the_roots_process_last)
{
    expect_others_hear((const int[]){1, 1}, ceclInvalidArgument);
}

TEST(the_reply_goes_to_the_roots_process_last)
{
    expect_others_hear((const int[]){1, 2}, ceclSuccess);
}

/* Two ranks join, on this number of hosts, and each hears the parts of both. */
static void two_join(const ceclUniqueId *id, int hosts, int fds[2])
{
    struct cecl_tcp_id inside;
    memcpy(&inside, id, sizeof(inside));
    for (int r = 0; r < 2; r++) {
        struct cecl_tcp_said said = joining(id, 2, r, LONG_MS, LONG_MS);
        said.host = (uint64_t)(r % hosts);
        said.tag = cecl_tcp_rank_tag(inside.secret, &said);
        fds[r] = say(id, &said);
    }
    for (int r = 0; r < 2; r++)
        assert_true(hears(fds[r], ceclSuccess));
}

TEST(one_host_has_no_lines_and_a_line_that_ends_without_a_word_is_a_lost_rank)
{
    struct host host;
    int fds[2];
    char byte;
    open_host(&host);
    two_join(host.id, 1, fds);
    assert_int_equal(recv(fds[0], &byte, 1, 0), 0);
    cecl_net_drop(fds, 2);
    close_host(&host);
    open_host(&host);
    two_join(host.id, 2, fds);
    cecl_net_drop(fds, 1);
    assert_true(hears(fds[1], ceclRemoteError));
    cecl_net_drop(fds, 2);
    close_host(&host);
}

TEST(who_repeats_a_ranks_message_changes_nothing)
{
    struct host host;
    open_host(&host);
    const struct cecl_tcp_said said = joining(host.id, 2, 0, LONG_MS, LONG_MS);
    int fds[] = {say(host.id, &said), -1};
    assert_int_equal(say(host.id, &said), -1);
    fds[1] = join_by_hand(host.id, 2, 1, LONG_MS, LONG_MS);
    for (int i = 0; i < 2; i++)
        assert_true(hears(fds[i], ceclSuccess));
    close_host(&host);
}

static _Atomic int polls;
WRAPPED(int, poll, (struct pollfd * fds, nfds_t count, int ms))
{
    polls++;
    return __real_poll(fds, count, ms);
}

/* Whether the root's thread sleeps: it then polls every 20 ms. A thread that spins polls every few us. */
static bool rests(void)
{
    const int before = polls;
    usleep(500000);
    return polls - before < 200;
}

/* A connection that cannot be accepted stays ready: the root must not spin on it. */
TEST(a_root_without_descriptors_rests)
{
    ceclUniqueId id;
    struct cecl_tcp_id inside;
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSuccess);
    memcpy(&inside, &id, sizeof(inside));
    const int caller = socket(inside.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const rlim_t before = soft_limit(RLIMIT_NOFILE, (rlim_t)caller + 1);
    assert_int_equal(connect(caller, &inside.at.any, cecl_tcp_length(inside.at.any.sa_family)), 0);
    assert_true(rests());
    (void)soft_limit(RLIMIT_NOFILE, before);
}

/* poll() refuses more descriptors than the process may open, even if they were opened before the limit was lowered. */
TEST(a_root_that_polls_more_descriptors_than_the_limit_rests)
{
    ceclUniqueId id;
    int fds[2];
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSuccess);
    two_join(&id, 2, fds);
    const rlim_t before = soft_limit(RLIMIT_NOFILE, 1);
    assert_int_equal(send(fds[0], "", 1, 0), 1); /* makes the root poll again */
    assert_true(rests());
    (void)soft_limit(RLIMIT_NOFILE, before);
}

/* Returns the number of this process's connected TCP sockets, or -1 if one of them lacks TCP_NODELAY. */
static int sockets_that_send_at_once(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer);
        int at_once = 0;
        if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0 ||
            (peer.ss_family != AF_INET && peer.ss_family != AF_INET6))
            continue;
        length = sizeof(at_once);
        if (getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, &length) != 0 || !at_once)
            return -1;
        count++;
    }
    return count;
}

static void *join_and_wait(void *id)
{
    int all[2];
    (void)!join(id, 2, 0, LONG_MS, 0, all);
    return NULL;
}

/* Begins a job of two ranks in this process (each test is a process). When this returns, rank 0 has joined. */
static bool begin_a_job(ceclUniqueId *id, pthread_t *thread)
{
    int count = 0;
    if (cecl_tcp_unique_id(id) != ceclSuccess ||
        pthread_create(thread, NULL, join_and_wait, id) != 0)
        return false;
    for (int tries = 0; tries < 1500 && count != 2; tries++) {
        usleep(10000);
        count = sockets_that_send_at_once();
    }
    return count == 2;
}

/* This process has both ends of a rank's connection. Neither end may delay small messages. */
TEST(both_ends_of_a_connection_send_at_once)
{
    ceclUniqueId id;
    pthread_t thread;
    assert_true(begin_a_job(&id, &thread));
}

/* If a child kept a connection and its parent died, peers would not notice, and would wait for the child. */
TEST(a_child_forked_while_joining_has_no_connection)
{
    ceclUniqueId id;
    pthread_t thread;
    int all[2], status = -1;
    const int descriptors = open_descriptors();
    assert_true(begin_a_job(&id, &thread));
    const pid_t child = fork();
    if (child == 0)
        _exit(open_descriptors() != descriptors);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(join(&id, 2, 1, LONG_MS, 0, all), ceclSuccess);
    pthread_join(thread, NULL);
}

struct one_of_many {
    pthread_t thread;
    const ceclUniqueId *id;
    int rank;
    bool right;
};

enum { MANY = 150 };

static void *meet_many(void *argument)
{
    struct one_of_many *me = argument;
    int all[MANY] = {0};
    me->right = join(me->id, MANY, me->rank, LONG_MS, me->rank, all) == ceclSuccess;
    for (int r = 0; r < MANY; r++)
        me->right = me->right && all[r] == r;
    return NULL;
}

TEST(many_ranks_come_at_once)
{
    static struct one_of_many ranks[MANY];
    ceclUniqueId id;
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSuccess);
    for (int r = 0; r < MANY; r++) {
        ranks[r] = (struct one_of_many){.id = &id, .rank = r};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, meet_many, &ranks[r]), 0);
    }
    for (int r = 0; r < MANY; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_true(ranks[r].right);
    }
}
