/* What is pending when a communicator fails: it goes on, it is freed, and no peer takes what comes
 * of it for good. Ranks are threads of this process, or its children where one has to stop or die. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "util/clock.h"

#define RANKS 2

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

/* ---- ranks as children */

struct meeting {
    _Atomic int ready, joined, done;
    ceclUniqueId id;
};

static struct meeting *new_meeting(void)
{
    struct meeting *meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(meeting, MAP_FAILED);
    fflush(NULL);
    return meeting;
}

/* In a child: exits where joining fails. */
static ceclComm_t meet(struct meeting *meeting, int rank, char **buffer, size_t bytes)
{
    ceclComm_t comm;
    alarm(30);
    if (rank == 0) {
        if (ceclGetUniqueId(&meeting->id) != ceclSuccess)
            _exit(100);
        meeting->ready = 1;
    }
    while (!meeting->ready)
        usleep(1000);
    if (ceclCommInitRank(&comm, RANKS, meeting->id, rank) != ceclSuccess ||
        ceclMemAlloc(comm, (void **)buffer, bytes) != ceclSuccess)
        _exit(101);
    meeting->joined++;
    while (meeting->joined < RANKS)
        usleep(1000);
    return comm;
}

static int exit_code(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* Stands before the host device's own (by the linker, see CMakeLists.txt): at one of a thread's
 * batches the process stops, or the call fails. */
static _Thread_local int batches, stop_at, fail_at;
ceclResult_t __real_host_copies(struct cecl_device *dev, ceclStream_t work,
                                const struct cecl_batch *batch);
ceclResult_t __wrap_host_copies(struct cecl_device *dev, ceclStream_t work,
                                const struct cecl_batch *batch);
ceclResult_t __wrap_host_copies(struct cecl_device *dev, ceclStream_t work,
                                const struct cecl_batch *batch)
{
    if (++batches == stop_at)
        raise(SIGSTOP);
    if (batches == fail_at)
        return cecl_fail(ceclUnhandledCudaError, "a driver's failure");
    return __real_host_copies(dev, work, batch);
}

/* Beyond half a cycle of flags nobody could tell a call that is far from one that has not begun. */
static void a_peer_that_stops_deep_inside_a_call_is_noticed(void **state)
{
    (void)state;
    const size_t block = 17500 * (size_t)4096;
    struct meeting *meeting = new_meeting();
    pid_t children[RANKS];
    set("CECL_STAGING_BYTES", "4096");
    set("CECL_TIMEOUT_MS", "1000");
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            char *buffer;
            ceclComm_t comm = meet(meeting, r, &buffer, RANKS * block);
            batches = 0;
            stop_at = r == 1 ? 17000 * 4 : 0; /* four batches a chunk */
            if (ceclAlltoAll(buffer, buffer, block, ceclInt8, comm, NULL) != ceclSuccess)
                _exit(1);
            const ceclResult_t result = ceclStreamSynchronize(comm, NULL);
            if (result != ceclTimeout)
                fprintf(stderr, "rank %d: %d: %s\n", r, (int)result, ceclGetLastError(comm));
            _exit(result == ceclTimeout && strstr(ceclGetLastError(comm), "rank 1") ? 0 : 2);
        }
    assert_int_equal(exit_code(children[0]), 0);
    kill(children[1], SIGKILL);
    (void)exit_code(children[1]);
    unsetenv("CECL_STAGING_BYTES");
    munmap(meeting, sizeof(*meeting));
}

/* Rank 0 gives up on a stopped rank, and its released stream signals what it never waited for. */
static void wrong_data_never_passes_for_good(void **state)
{
    (void)state;
    const char *const ways[] = {"copy", "write"};
    const size_t block = 3 * (size_t)4096;
    set("CECL_STAGING_BYTES", "4096");
    set("CECL_TIMEOUT_MS", "200");
    for (int way = 0; way < 4; way++) {
        struct meeting *meeting = new_meeting();
        pid_t children[RANKS];
        set("CECL_FLAGS", ways[way % 2]);
        for (int r = 0; r < RANKS; r++)
            if ((children[r] = fork()) == 0) {
                char *buffer;
                ceclResult_t async = ceclInternalError;
                ceclComm_t comm = meet(meeting, r, &buffer, RANKS * block);
                for (size_t i = 0; i < RANKS * block; i++)
                    buffer[i] = (char)(10 * (r + 1) + (int)(i % block / 4096));
                if (r == 1)
                    raise(SIGSTOP);
                ceclResult_t result = ceclAlltoAll(buffer, buffer, block, ceclInt8, comm, NULL);
                if (result == ceclSuccess) /* as cudaStreamSynchronize, which knows no cecl */
                    result = comm->dev->ops->stream_synchronize(comm->dev, NULL);
                const int wrong = memcmp(buffer, "\x0a", 1) != 0 || buffer[8192] != 12;
                (void)!ceclCommGetAsyncError(comm, &async);
                if (r == 0)
                    while (!meeting->done)
                        usleep(1000); /* alive, as its released stream is */
                _exit(r == 1 && wrong && result == ceclSuccess && async == ceclSuccess);
            }
        int status;
        assert_int_equal(waitpid(children[1], &status, WUNTRACED), children[1]);
        usleep(600000); /* rank 0 has given up */
        kill(children[1], SIGCONT);
        assert_int_equal(exit_code(children[1]), 0);
        meeting->done = 1;
        assert_int_equal(exit_code(children[0]), 0);
        munmap(meeting, sizeof(*meeting));
    }
    unsetenv("CECL_FLAGS");
    unsetenv("CECL_STAGING_BYTES");
}

/* The child keeps the sockets of the rank that dies. */
static void a_death_is_noticed_though_a_forked_child_lives(void **state)
{
    (void)state;
    struct meeting *meeting = new_meeting();
    pid_t children[RANKS];
    set("CECL_TIMEOUT_MS", "0");
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            char *buffer;
            ceclComm_t comm = meet(meeting, r, &buffer, 4096);
            if (r == 1) {
                if (fork() == 0)
                    for (int i = 0; i < 5000 && !meeting->done; i++)
                        usleep(1000);
                _exit(0);
            }
            ceclResult_t result = ceclAllGather(buffer, buffer, 4, ceclInt8, comm, NULL);
            if (result == ceclSuccess)
                result = ceclStreamSynchronize(comm, NULL);
            _exit(result == ceclRemoteError &&
                          strstr(ceclGetLastError(comm), "rank 1 ended unexpectedly")
                      ? 0
                      : 1);
        }
    const int64_t start = cecl_now_ms();
    assert_int_equal(exit_code(children[0]), 0);
    assert_true(cecl_now_ms() - start < 4000);
    meeting->done = 1;
    assert_int_equal(exit_code(children[1]), 0);
    munmap(meeting, sizeof(*meeting));
}

static void a_forked_child_is_refused(void **state)
{
    (void)state;
    struct meeting *meeting = new_meeting();
    pid_t children[RANKS];
    set("CECL_TIMEOUT_MS", "5000");
    for (int r = 0; r < RANKS; r++)
        if ((children[r] = fork()) == 0) {
            char *buffer;
            ceclComm_t comm = meet(meeting, r, &buffer, 4096);
            const pid_t child = fork();
            if (child == 0)
                _exit(ceclCommAbort(comm) == ceclInvalidUsage &&
                              ceclAllGather(buffer, buffer, 1, ceclInt8, comm, NULL) ==
                                  ceclInvalidUsage &&
                              strstr(ceclGetLastError(NULL), "forked")
                          ? 0
                          : 1);
            int status = -1;
            waitpid(child, &status, 0);
            if (status != 0 ||
                ceclAllGather(buffer + r, buffer, 1, ceclInt8, comm, NULL) != ceclSuccess)
                _exit(2);
            _exit(ceclCommDestroy(comm) == ceclSuccess ? 0 : 3);
        }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(exit_code(children[r]), 0);
    munmap(meeting, sizeof(*meeting));
}

/* ---- ranks as threads */

static ceclComm_t comms[RANKS];
static char *buffers[RANKS];
static size_t wanted;

static void *allocate(void *argument)
{
    const int rank = *(int *)argument;
    return ceclMemAlloc(comms[rank], (void **)&buffers[rank], wanted) == ceclSuccess ? argument
                                                                                     : NULL;
}

static void open_ranks(size_t bytes, const char *timeout_ms)
{
    pthread_t threads[RANKS];
    static int numbers[RANKS] = {0, 1};
    set("CECL_TIMEOUT_MS", timeout_ms);
    assert_int_equal(ceclCommInitAll(comms, RANKS, NULL), ceclSuccess);
    wanted = bytes;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, allocate, &numbers[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        void *fine;
        pthread_join(threads[r], &fine);
        assert_non_null(fine);
    }
}

static void close_ranks(void)
{
    for (int r = 0; r < RANKS; r++)
        (void)ceclCommAbort(comms[r]);
}

/* Makes rank 0's call fail after its first signals are enqueued. */
static void fail_in_the_middle(void)
{
    batches = 0;
    fail_at = 2; /* the first are flags */
    assert_int_equal(ceclAllGather(buffers[0], buffers[0], 100, ceclInt8, comms[0], NULL),
                     ceclUnhandledCudaError);
    fail_at = 0;
}

static void a_call_that_fails_in_the_middle_holds_no_stream(void **state)
{
    (void)state;
    open_ranks(4096, "0");
    fail_in_the_middle();
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclUnhandledCudaError);
    assert_int_equal(comms[0]->dev->ops->stream_query(comms[0]->dev, NULL), ceclSuccess);
    close_ranks();
}

static void a_call_that_fails_in_the_middle_may_be_destroyed(void **state)
{
    (void)state;
    open_ranks(4096, "0");
    fail_in_the_middle();
    assert_int_equal(ceclCommDestroy(comms[0]), ceclUnhandledCudaError);
    (void)ceclCommAbort(comms[1]);
}

static void peers_hear_why_a_call_failed(void **state)
{
    (void)state;
    open_ranks(4096, "0");
    fail_in_the_middle();
    (void)!ceclAllGather(buffers[1] + 100, buffers[1], 100, ceclInt8, comms[1], NULL);
    assert_int_equal(ceclStreamSynchronize(comms[1], NULL), ceclRemoteError);
    assert_non_null(strstr(ceclGetLastError(comms[1]), "rank 0 gave up: a driver's failure"));
    close_ranks();
}

static void more_calls_than_flags_can_tell_are_released(void **state)
{
    (void)state;
    open_ranks(4096, "300");
    for (int i = 0; i < 20000; i++)
        if (ceclAllGather(buffers[0], buffers[0], 100, ceclInt8, comms[0], NULL) != ceclSuccess)
            break; /* the timeout came first */
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
    assert_int_equal(ceclCommDestroy(comms[0]), ceclTimeout);
    (void)ceclCommAbort(comms[1]);
}

static void a_call_of_more_phases_than_flags_can_tell_is_released(void **state)
{
    (void)state;
    const size_t block = 9000 * (size_t)4096;
    set("CECL_STAGING_BYTES", "4096");
    open_ranks(RANKS * block, "300");
    assert_int_equal(ceclAlltoAll(buffers[0], buffers[0], block, ceclInt8, comms[0], NULL),
                     ceclSuccess);
    assert_int_equal(ceclStreamSynchronize(comms[0], NULL), ceclTimeout);
    close_ranks();
    unsetenv("CECL_STAGING_BYTES");
}

static void destroy_waits_for_copies(void **state)
{
    (void)state;
    const size_t bytes = (size_t)64 << 20;
    char *host = malloc(bytes);
    assert_non_null(host);
    open_ranks(bytes, "5000");
    memset(buffers[0], 7, bytes);
    host[bytes - 1] = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(ceclMemcpyAsync(comms[0], host, buffers[0], bytes, NULL), ceclSuccess);
    assert_int_equal(ceclCommDestroy(comms[0]), ceclSuccess);
    assert_int_equal(host[bytes - 1], 7);
    assert_int_equal(ceclCommDestroy(comms[1]), ceclSuccess);
    free(host);
}

static void a_destroyed_handle_is_refused(void **state)
{
    (void)state;
    int count;
    open_ranks(4096, "5000");
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ceclCommDestroy(comms[r]), ceclSuccess);
    assert_int_equal(ceclCommDestroy(comms[0]), ceclInvalidArgument);
    assert_int_equal(ceclCommAbort(comms[1]), ceclInvalidArgument);
    assert_int_equal(ceclCommCount(comms[1], &count), ceclInvalidArgument);
    assert_non_null(strstr(ceclGetLastError(NULL), "destroyed before?"));
}

static void the_librarys_own_memory_is_nobodys(void **state)
{
    (void)state;
    void *peer;
    open_ranks(4096, "5000");
    const struct cecl_engine *engine = &comms[0]->engine;
    const uint64_t own[] = {engine->flags_offset, engine->values_offset, engine->staging_offset};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        char *at = cecl_pool_at(&comms[0]->pool, 0, own[i]);
        assert_int_equal(ceclMemFree(comms[0], at), ceclInvalidArgument);
        assert_int_equal(ceclGetPeerPointer(comms[0], at, 1, &peer), ceclInvalidArgument);
        assert_int_equal(ceclAllGather(at, at, 4, ceclInt8, comms[0], NULL), ceclInvalidUsage);
    }
    char *peers = cecl_pool_at(&comms[0]->pool, 1, own[0]);
    assert_int_equal(ceclAllGather(peers, buffers[0], 4, ceclInt8, comms[0], NULL),
                     ceclInvalidUsage);
    close_ranks();
}

int main(void)
{
    set("CECL_DEVICE", "host");
    set("CECL_DEBUG", "none");
    const struct CMUnitTest tests[] = {
        /* these fork: before there is any thread */
        cmocka_unit_test(a_peer_that_stops_deep_inside_a_call_is_noticed),
        cmocka_unit_test(wrong_data_never_passes_for_good),
        cmocka_unit_test(a_death_is_noticed_though_a_forked_child_lives),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(a_call_that_fails_in_the_middle_holds_no_stream),
        cmocka_unit_test(a_call_that_fails_in_the_middle_may_be_destroyed),
        cmocka_unit_test(peers_hear_why_a_call_failed),
        cmocka_unit_test(more_calls_than_flags_can_tell_are_released),
        cmocka_unit_test(a_call_of_more_phases_than_flags_can_tell_is_released),
        cmocka_unit_test(destroy_waits_for_copies),
        cmocka_unit_test(a_destroyed_handle_is_refused),
        cmocka_unit_test(the_librarys_own_memory_is_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
