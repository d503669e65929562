/* A rank's end of its line to the root (boot/oob.h): the goodbye, failures and agreements. The test is the root. */
#include "boot/oob.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "../with_cmocka.h"

#include "boot/tcp.h"
#include "util/clock.h"

#define RANKS 2
#define READS_MS 200  /* how long another thread reads */
#define HUNG_MS 20000 /* how long that thread reads if nobody ends its read */
#define ATTEMPTS 5    /* tries: no goodbye is sent if the machine stands still for 1 s */
#define LONG_MS 60000

static struct cecl_lifeline line;
static int root, fd; /* the two ends of the line */
static pthread_barrier_t both;
static _Atomic bool is_over, has_hung;

static _Thread_local bool no_memory; /* thread-local: an earlier test's root may still allocate */
WRAPPED(void *, calloc, (size_t count, size_t size))
{
    return no_memory ? NULL : __real_calloc(count, size);
}

static int open_line(void **state)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    root = ends[0];
    fd = ends[1];
    line = (struct cecl_lifeline){.nranks = RANKS, .fd = fd, .left = -1, .timeout_ms = LONG_MS};
    pthread_barrier_init(&both, NULL, 2);
    is_over = has_hung = false;
    return 0;
}

static int close_line(void **state)
{
    cecl_lifeline_close(&line);
    pthread_barrier_destroy(&both);
    close(root);
    return 0;
}

/* Stands for a thread that reads, and so holds the lock. A thread that does not wait for the lock finds no descriptor. */
static void *read_for_a_while(void *ms)
{
    pthread_mutex_lock(&line.lock);
    line.fd = -1;
    pthread_barrier_wait(&both);
    for (int i = 0; i < *(const int *)ms && !is_over; i++)
        usleep(1000);
    has_hung = !is_over;
    line.fd = fd;
    pthread_mutex_unlock(&line.lock);
    return NULL;
}

static pthread_t let_another_read(const int *ms)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_for_a_while, (void *)(uintptr_t)ms), 0);
    pthread_barrier_wait(&both);
    return thread;
}

static void *answer_goodbye(void *heard)
{
    struct cecl_tcp_said said;
    *(bool *)heard = recv(root, &said, sizeof(said), MSG_WAITALL) == sizeof(said) &&
                     said.kind == CECL_TCP_GOODBYE;
    shutdown(root, SHUT_RDWR);
    return NULL;
}

static bool says_goodbye(void)
{
    const int ms = READS_MS;
    bool heard = false;
    pthread_t hears;
    open_line(NULL);
    assert_int_equal(pthread_create(&hears, NULL, answer_goodbye, &heard), 0);
    const pthread_t reads = let_another_read(&ms);
    cecl_lifeline_leave(&line);
    pthread_join(reads, NULL);
    shutdown(fd, SHUT_RDWR);
    pthread_join(hears, NULL);
    close_line(NULL);
    return heard;
}

TEST(a_goodbye_waits_for_a_thread_that_reads)
{
    bool heard = false;
    for (int i = 0; i < ATTEMPTS && !heard; i++)
        heard = says_goodbye();
    assert_true(heard);
}

TEST_BETWEEN(a_failure_does_not_wait_for_long, open_line, close_line)
{
    const int ms = HUNG_MS;
    const pthread_t reads = let_another_read(&ms);
    cecl_lifeline_fail(&line, "why");
    is_over = true;
    pthread_join(reads, NULL);
    assert_false(has_hung);
}

static int open_tcp(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    open_line(state);
    close(fd);
    fd = line.fd = socket(AF_INET, SOCK_STREAM, 0);
    return bind(fd, (struct sockaddr *)&at, sizeof(at));
}

TEST_BETWEEN(the_address_of_a_line_is_not_read_while_another_thread_reads, open_tcp, close_line)
{
    const int ms = READS_MS;
    ceclUniqueId id;
    const pthread_t reads = let_another_read(&ms);
    assert_int_equal(cecl_tcp_unique_id_beside(&line, &id), ceclSuccess);
    pthread_join(reads, NULL);
}

/* The root sends back what the rank has said, as the parts of all ranks. */
static void *echo(void *result)
{
    struct cecl_tcp_said said;
    const struct cecl_tcp_reply reply = {.bytes = RANKS * sizeof(said.part)};
    if (recv(root, &said, sizeof(said), MSG_WAITALL) != sizeof(said))
        return NULL;
    memcpy(result, said.part, sizeof(int32_t));
    send(root, &reply, sizeof(reply), 0);
    for (int r = 0; r < RANKS; r++)
        send(root, said.part, sizeof(said.part), 0);
    return NULL;
}

TEST_BETWEEN(a_rank_without_memory_takes_part_in_an_agreement, open_line, close_line)
{
    int32_t told = ceclSuccess;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, echo, &told), 0);
    no_memory = true;
    const ceclResult_t result =
        cecl_lifeline_agree(&line, ceclSuccess, cecl_deadline(LONG_MS), NULL);
    no_memory = false;
    shutdown(fd, SHUT_RDWR); /* ends the read if the rank sent nothing */
    pthread_join(thread, NULL);
    assert_int_equal(result, ceclOutOfMemory);
    assert_int_equal(told, ceclOutOfMemory);
}

TEST_BETWEEN(a_rank_that_heard_of_a_failure_waits_for_no_agreement, open_line, close_line)
{
    const struct cecl_tcp_reply reply = {.status = ceclRemoteError, .bytes = 6};
    assert_int_equal(send(root, &reply, sizeof(reply), 0), sizeof(reply));
    assert_int_equal(send(root, "a test", 6, 0), 6);
    assert_int_equal(cecl_lifeline_news(&line), ceclRemoteError);
    assert_string_equal(cecl_message(), "a test");
    const int64_t start = cecl_now_ms();
    assert_int_equal(cecl_lifeline_agree(&line, ceclSuccess, cecl_deadline(5000), NULL),
                     ceclRemoteError);
    assert_true(cecl_now_ms() - start < 5000);
}
