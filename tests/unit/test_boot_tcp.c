/* Joining by a unique id: strangers, wrong secrets, missing and doubled ranks, used ids. Ranks are
 * processes of this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot/oob.h"
#include "boot/tcp.h"
#include "util/clock.h"

#define RANKS 3

struct life {
    int nranks, rank;
    bool stays_away, wrong_secret;
};

/* Exit code: the result, or 100 when an all-gather gave wrong bytes, or 101 when `words` are not
 * said. */
static int live(const ceclUniqueId *given, const struct life *life, const char *words)
{
    ceclUniqueId id = *given;
    struct cecl_oob oob = {0};
    int all[RANKS], wrong = 0;
    if (life->stays_away)
        return 0;
    if (life->wrong_secret)
        ((struct cecl_tcp_id *)(void *)&id)->secret[3] ^= 1;
    ceclResult_t result = cecl_tcp_join(&oob, &id, life->nranks, life->rank, cecl_deadline(5000));
    for (int round = 0; round < 3 && result == ceclSuccess; round++) {
        const int mine = 100 * round + life->rank;
        result = oob.allgather(&oob, &mine, all, sizeof(mine));
        for (int r = 0; r < RANKS && result == ceclSuccess; r++)
            wrong += all[r] != 100 * round + r;
    }
    cecl_oob_close(&oob);
    if (words && result != ceclSuccess && !strstr(cecl_message(), words)) {
        fprintf(stderr, "said: %s\n", cecl_message());
        return 101;
    }
    return wrong ? 100 : (int)result;
}

/* Runs the lives and compares each one's result. */
static void run_with(const ceclUniqueId *id, const struct life lives[RANKS],
                     const ceclResult_t expected[RANKS], const char *words)
{
    pid_t children[RANKS];
    fflush(NULL);
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            alarm(20);
            _exit(live(id, &lives[r], words));
        }
    for (int r = 0; r < RANKS; r++) {
        int status = -1;
        waitpid(children[r], &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (int)expected[r])
            fail_msg("rank %d: status %#x, result %d expected", r, (unsigned)status,
                     (int)expected[r]);
    }
}

/* A process that makes an id and lives until it is told to end: the id's thread must not be here
 * when ranks are forked. */
struct host {
    pid_t process;
    int end; /* closing it ends the process */
    ceclUniqueId *id;
};

static void open_host(struct host *host)
{
    int ends[2], ready[2];
    char byte = 0;
    host->id =
        mmap(NULL, sizeof(*host->id), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(host->id, MAP_FAILED);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    host->process = fork();
    if (host->process == 0) {
        close(ends[1]);
        byte = cecl_tcp_unique_id(host->id) == ceclSuccess;
        (void)!write(ready[1], &byte, 1);
        (void)!read(ends[0], &byte, 1);
        _exit(0);
    }
    host->end = ends[1];
    close(ends[0]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    close(ready[0]);
}

static void close_host(struct host *host)
{
    close(host->end);
    waitpid(host->process, NULL, 0);
    munmap(host->id, sizeof(*host->id));
}

static void run(const struct life lives[RANKS], const ceclResult_t expected[RANKS],
                const char *words)
{
    struct host host;
    setenv("CECL_INIT_TIMEOUT_MS", "1000", 1);
    open_host(&host);
    run_with(host.id, lives, expected, words);
    close_host(&host);
}

static const struct life good[RANKS] = {
    {.nranks = RANKS, .rank = 0}, {.nranks = RANKS, .rank = 1}, {.nranks = RANKS, .rank = 2}};
static const ceclResult_t all_succeed[RANKS] = {ceclSuccess, ceclSuccess, ceclSuccess};

static void ranks_meet_and_exchange(void **state)
{
    (void)state;
    run(good, all_succeed, NULL);
}

static void a_rank_taken_twice_is_told_to_all(void **state)
{
    (void)state;
    struct life lives[RANKS];
    memcpy(lives, good, sizeof(lives));
    lives[2].rank = 1;
    run(lives,
        (const ceclResult_t[]){ceclInvalidArgument, ceclInvalidArgument, ceclInvalidArgument},
        "rank 1 was taken twice");
}

static void differing_nranks_are_told_to_all(void **state)
{
    (void)state;
    struct life lives[RANKS];
    memcpy(lives, good, sizeof(lives));
    lives[0].nranks = 2;
    run(lives,
        (const ceclResult_t[]){ceclInvalidArgument, ceclInvalidArgument, ceclInvalidArgument},
        "nranks");
}

static void a_missing_rank_is_named_to_those_who_came(void **state)
{
    (void)state;
    struct life lives[RANKS];
    memcpy(lives, good, sizeof(lives));
    lives[1].stays_away = true;
    run(lives, (const ceclResult_t[]){ceclTimeout, ceclSuccess, ceclTimeout}, "missing: 1");
}

static void a_wrong_secret_is_refused_and_counts_as_missing(void **state)
{
    (void)state;
    struct life lives[RANKS];
    memcpy(lives, good, sizeof(lives));
    lives[2].wrong_secret = true;
    run(lives, (const ceclResult_t[]){ceclTimeout, ceclTimeout, ceclInvalidUsage}, NULL);
}

static void a_used_id_is_refused(void **state)
{
    (void)state;
    struct host host;
    open_host(&host);
    run_with(host.id, good, all_succeed, NULL);
    run_with(host.id, good,
             (const ceclResult_t[]){ceclInvalidUsage, ceclInvalidUsage, ceclInvalidUsage},
             "used already");
    close_host(&host);
}

static void what_is_no_id_is_refused(void **state)
{
    (void)state;
    ceclUniqueId id;
    struct cecl_oob oob = {0};
    memset(&id, 0x5a, sizeof(id));
    assert_int_equal(cecl_tcp_join(&oob, &id, 2, 0, cecl_deadline(1000)), ceclInvalidUsage);
    assert_non_null(strstr(cecl_message(), "not one of ceclGetUniqueId"));
}

static void an_interface_that_is_not_there_is_named(void **state)
{
    (void)state;
    ceclUniqueId id;
    setenv("CECL_SOCKET_IFNAME", "nosuch0", 1);
    assert_int_equal(cecl_tcp_unique_id(&id), ceclSystemError);
    unsetenv("CECL_SOCKET_IFNAME");
    assert_non_null(strstr(cecl_message(), "nosuch0"));
}

/* More strangers than the root keeps: silent ones, and ones that talk nonsense. The job does not
 * notice. */
static void strangers_do_not_disturb_the_job(void **state)
{
    (void)state;
    enum { STRANGERS = 150 };
    struct host host;
    struct cecl_tcp_id inside;
    struct sockaddr_storage address;
    int sockets[STRANGERS];
    setenv("CECL_INIT_TIMEOUT_MS", "10000", 1);
    open_host(&host);
    memcpy(&inside, host.id, sizeof(inside));
    const socklen_t length = cecl_tcp_address(&inside, &address);
    for (int i = 0; i < STRANGERS; i++) {
        sockets[i] = socket(inside.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(sockets[i] >= 0);
        assert_int_equal(connect(sockets[i], (struct sockaddr *)&address, length), 0);
        if (i % 3 == 0)
            assert_true(
                send(sockets[i],
                     "GET / HTTP/1.1\r\nHost: somewhere.invalid\r\n\r\nand so on and on and on", 60,
                     MSG_NOSIGNAL) != 0);
    }
    const int64_t start = cecl_now_ms();
    run_with(host.id, good, all_succeed, NULL);
    assert_true(cecl_now_ms() - start < 3000);
    close_host(&host);
    for (int i = 0; i < STRANGERS; i++)
        close(sockets[i]);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

struct member {
    pthread_t thread;
    const ceclUniqueId *id;
    int rank, code;
};

static void *live_as_thread(void *argument)
{
    struct member *me = argument;
    me->code = live(me->id, &good[me->rank], NULL);
    return NULL;
}

/* Ranks as threads, in the process that makes the ids. The last test: threads from here on. */
static void the_root_leaves_nothing_behind(void **state)
{
    (void)state;
    const int before = open_descriptors();
    setenv("CECL_INIT_TIMEOUT_MS", "5000", 1);
    for (int i = 0; i < 20; i++) {
        ceclUniqueId id;
        struct member members[RANKS];
        assert_int_equal(cecl_tcp_unique_id(&id), ceclSuccess);
        for (int r = 0; r < RANKS; r++) {
            members[r] = (struct member){.id = &id, .rank = r};
            assert_int_equal(pthread_create(&members[r].thread, NULL, live_as_thread, &members[r]),
                             0);
        }
        for (int r = 0; r < RANKS; r++) {
            pthread_join(members[r].thread, NULL);
            assert_int_equal(members[r].code, 0);
        }
    }
    for (int tries = 0; tries < 200 && open_descriptors() > before; tries++)
        usleep(10000); /* the last root's thread is ending */
    assert_int_equal(open_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_and_exchange),
        cmocka_unit_test(a_rank_taken_twice_is_told_to_all),
        cmocka_unit_test(differing_nranks_are_told_to_all),
        cmocka_unit_test(a_missing_rank_is_named_to_those_who_came),
        cmocka_unit_test(a_wrong_secret_is_refused_and_counts_as_missing),
        cmocka_unit_test(a_used_id_is_refused),
        cmocka_unit_test(what_is_no_id_is_refused),
        cmocka_unit_test(an_interface_that_is_not_there_is_named),
        cmocka_unit_test(strangers_do_not_disturb_the_job),
        cmocka_unit_test(the_root_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
