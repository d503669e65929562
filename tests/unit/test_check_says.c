/* What is said in exchanges about calls, on the host device. Under CECL_CHECK=1 a process says in one line that GPUs
 * would refuse a call's memory. If a rank with a failed communicator refuses a call, peers hear of the failure only. */
#define RANKS 2
#include "../with_cmocka.h"

#include <pthread.h>
#include <sys/mman.h>

#include "comms.h"
#include "launch/exchange.h"

#define COUNT 100

static int open_checked(void **state)
{
    setenv("CECL_CHECK", "1", 1);
    return open_all(state);
}

/* Gathers from in[r] to out[r] on each rank r, and counts the lines about memory that the calls write to stderr. */
static int lines_of(int *const in[RANKS], int *const out[RANKS])
{
    char text[4096] = "";
    FILE *file = tmpfile();
    const int saved = dup(2);
    int lines = 0;
    assert_non_null(file);
    dup2(fileno(file), 2);
    ceclResult_t result = ceclGroupStart();
    for (int r = 0; r < RANKS && result == ceclSuccess; r++)
        result = ceclAllGather(in[r], out[r], COUNT, ceclInt, comms[r], NULL);
    if (result == ceclSuccess)
        result = ceclGroupEnd();
    for (int r = 0; r < RANKS && result == ceclSuccess; r++)
        result = ceclStreamSynchronize(comms[r], NULL);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    OK(result);
    for (const char *at = text; (at = strstr(at, "CECL_CHECK: ceclAllGather: sendbuff")); at++)
        lines++;
    return lines;
}

static int *mapped(void)
{
    const int fd = memfd_create("program", MFD_CLOEXEC); /* stays open: peers can map it */
    assert_true(fd >= 0 && ftruncate(fd, COUNT * sizeof(int)) == 0);
    int *memory = mmap(NULL, COUNT * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

TEST_BETWEEN(private_memory_is_named_once_and_other_memory_never, open_checked, close_all)
{
    static int plain[RANKS][COUNT];
    int *pool[RANKS], *file[RANKS], *out[RANKS], *own[RANKS];
    allocate_all(pool, COUNT * sizeof(int));
    allocate_all(out, RANKS * COUNT * sizeof(int));
    for (int r = 0; r < RANKS; r++) {
        file[r] = mapped();
        own[r] = plain[r];
    }
    assert_int_equal(lines_of(pool, out), 0);
    assert_int_equal(lines_of(file, out), 0);
    assert_int_equal(lines_of(own, out), 1);
    assert_int_equal(lines_of(own, out), 0);
}

static char heard[CECL_MESSAGE_BYTES];

static void *exchange_as_rank_1(void *result)
{
    struct cecl_verdict mine;
    *(ceclResult_t *)result =
        cecl_exchange(comms[1], "ceclCommSplit", "split", &mine, sizeof(mine), ceclSuccess);
    cecl_keep_message(heard);
    return NULL;
}

TEST_BETWEEN(a_failure_is_told_and_not_a_wrong_argument_beside_it, open_all, abort_all)
{
    pthread_t thread;
    ceclResult_t result = ceclSuccess;
    struct cecl_verdict mine;
    assert_int_equal(pthread_create(&thread, NULL, exchange_as_rank_1, &result), 0);
    usleep(20000);
    cecl_comm_set_async(comms[0], ceclTimeout, "a stream is late");
    const ceclResult_t local = cecl_fail(ceclInvalidArgument, "color -5");
    assert_int_equal(cecl_exchange(comms[0], "ceclCommSplit", "split", &mine, sizeof(mine), local),
                     local);
    pthread_join(thread, NULL);
    assert_true(result == ceclTimeout || result == ceclRemoteError);
    assert_non_null(strstr(heard, "rank 0 gave up: a stream is late"));
}
