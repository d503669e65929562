/* The host device's flag words: waits sleep, and every way of writing a word wakes them, through every
 * mapping of the word, within one process and between two. */
#include "host_fixture.h"

#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../descriptors.h"

/* A sleeper that is not woken looks again after 50 ms: ten rounds of two waits each then take 1 s, but
 * only milliseconds if it is woken. Other work of this machine may delay some groups of ten rounds,
 * but not all. */
#define ROUNDS 100
#define TEN 10
#define WOKEN_MS 400

/* Counts calls of syscall(), with which the library sleeps and wakes sleepers. */
static _Thread_local int system_calls;

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
    long args[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) /* callers may pass fewer arguments; the rest is ignored */
        args[i] = va_arg(list, long);
    va_end(list);
    system_calls++;
    return __real_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

/* One stream writes i and waits for the other's i; the other stream answers. `say` and `hear` are the same
 * word, maybe at two addresses. So are `answer` and `heard`. */
struct dialogue {
    uint32_t *say, *hear, *answer, *heard;
    bool copied; /* words are written by copies of `values` */
    uint32_t values[ROUNDS + 1];
};

static void tell(const struct dialogue *dialogue, ceclStream_t stream, uint32_t *word, uint32_t i)
{
    if (dialogue->copied)
        copy(stream, word, &dialogue->values[i], sizeof(*word));
    else
        memop(stream, CECL_MEMOP_WRITE, word, i);
}

static void run_dialogue(struct dialogue *dialogue)
{
    ceclStream_t one = new_stream(), two = new_stream();
    int64_t least_ms = INT64_MAX;
    for (uint32_t first = 1; first <= ROUNDS; first += TEN) {
        const int64_t start = cecl_now_ms();
        for (uint32_t i = first; i < first + TEN; i++) {
            dialogue->values[i] = i;
            tell(dialogue, one, dialogue->say, i);
            memop(one, CECL_MEMOP_WAIT, dialogue->heard, i);
            memop(two, CECL_MEMOP_WAIT, dialogue->hear, i);
            tell(dialogue, two, dialogue->answer, i);
        }
        synchronize(one);
        synchronize(two);
        const int64_t took_ms = cecl_now_ms() - start;
        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    assert_true(least_ms < WOKEN_MS);
    assert_int_equal(*dialogue->say, ROUNDS);
    assert_int_equal(*dialogue->answer, ROUNDS);
}

TEST_BETWEEN(a_written_word_wakes_who_waits_for_it, set_up, tear_down)
{
    uint32_t words[2] = {0, 0};
    struct dialogue dialogue = {&words[0], &words[0], &words[1], &words[1], false, {0}};
    run_dialogue(&dialogue);
}

TEST_BETWEEN(a_copied_word_wakes_who_waits_for_it, set_up, tear_down)
{
    uint32_t words[2] = {0, 0};
    struct dialogue dialogue = {&words[0], &words[0], &words[1], &words[1], true, {0}};
    run_dialogue(&dialogue);
}

TEST_BETWEEN(a_word_wakes_who_waits_at_another_mapping, set_up, tear_down)
{
    struct cecl_mem mem = {0};
    assert_int_equal(dev->ops->mem_create(dev, dev->granularity, &mem), ceclSuccess);
    uint32_t *here = map_granule(&mem), *there = map_granule(&mem);
    struct dialogue dialogue = {&here[0], &there[0], &there[16], &here[16], false, {0}};
    run_dialogue(&dialogue);
    unmap_granule(here);
    unmap_granule(there);
    dev->ops->mem_release(dev, &mem);
}

TEST_BETWEEN(released_words_free_every_stream_they_hold, set_up, tear_down)
{
    enum { HELD = 8 };
    uint32_t *words = NULL, got[HELD];
    ceclStream_t streams[HELD];
    assert_int_equal(dev->ops->words_alloc(dev, HELD, &words), ceclSuccess);
    assert_int_equal(dev->ops->words_read(dev, words, HELD, got), ceclSuccess);
    for (int i = 0; i < HELD; i++) {
        assert_int_equal(got[i], 0);
        streams[i] = new_stream();
        memop(streams[i], CECL_MEMOP_WAIT, &words[i], 1000u + (uint32_t)i);
    }
    for (int i = 0; i < HELD; i++)
        assert_int_equal(dev->ops->stream_query(dev, streams[i]), ceclInProgress);
    assert_int_equal(dev->ops->words_release(dev, words, HELD, 2000), ceclSuccess);
    for (int i = 0; i < HELD; i++)
        synchronize(streams[i]);
    assert_int_equal(dev->ops->words_read(dev, words, HELD, got), ceclSuccess);
    for (int i = 0; i < HELD; i++)
        assert_int_equal(got[i], 2000);
    dev->ops->words_free(dev, words);
}

/* The epoch wraps around: 0xfffffffd ... 0xffffffff, 0, 1, 2. Each wait blocks until its own value is
 * written. */
TEST_BETWEEN(waits_follow_a_word_across_its_wrap, set_up, tear_down)
{
    uint32_t word = 0xfffffffcu;
    ceclStream_t stream = new_stream();
    for (uint32_t step = 1; step <= 6; step++) {
        const uint32_t value = 0xfffffffcu + step;
        memop(stream, CECL_MEMOP_WAIT, &word, value);
        usleep(2000);
        assert_int_equal(dev->ops->stream_query(dev, stream), ceclInProgress);
        assert_int_equal(dev->ops->words_release(dev, &word, 1, value), ceclSuccess);
        synchronize(stream);
    }
    assert_int_equal(word, 2);
}

/* Many ranks share few cores: a rank that waits must leave the cores to ranks that work. */
TEST_BETWEEN(held_streams_use_no_processor, set_up, tear_down)
{
    enum { HELD = 8, SLEEP_MS = 400 };
    uint32_t gate = 0;
    int64_t least_ms = INT64_MAX;
    ceclStream_t streams[HELD];
    for (int i = 0; i < HELD; i++) {
        streams[i] = new_stream();
        memop(streams[i], CECL_MEMOP_WAIT, &gate, 1);
    }
    for (int i = 0; i < 3; i++) { /* time for which a machine stands still may count, too */
        struct timespec before, after;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
        usleep(SLEEP_MS * 1000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        const int64_t used_ms =
            (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
        least_ms = used_ms < least_ms ? used_ms : least_ms;
    }
    assert_int_equal(dev->ops->words_release(dev, &gate, 1, 1), ceclSuccess);
    for (int i = 0; i < HELD; i++)
        synchronize(streams[i]);
    assert_true(least_ms < SLEEP_MS / 4); /* a single spinning rank would use all of this time */
}

/* An unaligned flag: four bytes at an odd address are copied as bytes. */
TEST_BETWEEN(four_unaligned_bytes_are_copied_like_any, set_up, tear_down)
{
    char from[] = ".abcd.", to[] = "......";
    copy(NULL, to + 1, from + 1, 4);
    synchronize(NULL);
    assert_string_equal(to, ".abcd.");
}

/* ---- two processes: each makes memory, shares it with the other, and pushes into it */

#define SENT_WORDS 256
#define EXCHANGES 300
#define FIRST_FLAG 0xffffff80u /* the flags wrap around within the exchange */

static uint32_t word_of(int rank, uint32_t round, uint32_t i)
{
    return (uint32_t)rank * 0x40000000u + round * SENT_WORDS + i;
}

/* Word 0 of a slice is the flag for new data, word 1 the flag that the data was read; the data follows.
 * Both sides run this. Returns 0 if all received data was right. */
static int exchange(struct cecl_device *here, uint32_t *mine, uint32_t *theirs, int rank)
{
    uint32_t sent[SENT_WORDS], got[SENT_WORDS];
    ceclStream_t stream;
    if (here->ops->stream_create(here, false, &stream))
        return 10;
    for (uint32_t round = 1; round <= EXCHANGES; round++) {
        const uint32_t flag = FIRST_FLAG + round;
        const struct cecl_memop there = {&theirs[0], flag, CECL_MEMOP_WRITE},
                                arrived = {&mine[0], flag, CECL_MEMOP_WAIT},
                                over[] = {{&theirs[1], flag, CECL_MEMOP_WRITE},
                                          {&mine[1], flag, CECL_MEMOP_WAIT}};
        for (uint32_t i = 0; i < SENT_WORDS; i++)
            sent[i] = word_of(rank, round, i);
        if (here->ops->memcpy_async(here, theirs + 16, sent, sizeof(sent), stream) ||
            here->ops->memops(here, stream, &there, 1) ||
            here->ops->memops(here, stream, &arrived, 1) ||
            here->ops->memcpy_async(here, got, mine + 16, sizeof(got), stream) ||
            here->ops->memops(here, stream, over, 2) || here->ops->stream_synchronize(here, stream))
            return 11;
        for (uint32_t i = 0; i < SENT_WORDS; i++)
            if (got[i] != word_of(1 - rank, round, i))
                return 12;
    }
    return here->ops->stream_destroy(here, stream) ? 13 : 0;
}

static int be_rank(int rank, int socket)
{
    struct cecl_device *here = NULL;
    struct cecl_mem mem[2] = {{0}, {0}};
    void *slices = NULL;
    int fd = -1;
    alarm(200); /* a dead peer must not keep this process for ever */
    if (cecl_host_open(&here))
        return 1;
    const size_t bytes = here->granularity;
    if (here->ops->mem_create(here, bytes, &mem[0]) || here->ops->reserve(here, 2 * bytes, &slices))
        return 2;
    uint32_t *mine = slices, *theirs = (uint32_t *)(void *)((char *)slices + bytes);
    if (here->ops->mem_map(here, mine, &mem[0]))
        return 3;
    /* Before the peer gets it, because a zeroed word would count as later than any of the flags. */
    mine[0] = mine[1] = FIRST_FLAG;
    if (here->ops->mem_export(here, &mem[0], &fd) ||
        send_descriptors(socket, "", 1, &fd, 1, 0) != 1)
        return 4;
    close(fd);
    char byte;
    fd = receive_descriptor(socket, &byte, 1);
    if (fd < 0 || here->ops->mem_import(here, fd, bytes, &mem[1]) ||
        here->ops->mem_map(here, theirs, &mem[1]))
        return 5;
    close(fd);
    const int result = exchange(here, mine, theirs, rank);
    for (int i = 0; i < 2; i++) {
        here->ops->mem_unmap(here, (char *)slices + (size_t)i * bytes, bytes);
        here->ops->mem_release(here, &mem[i]);
    }
    here->ops->unreserve(here, slices, 2 * bytes);
    here->ops->close(here);
    alarm(0);
    return result;
}

TEST(two_processes_exchange_data_and_flags_through_sent_memory)
{
    int sockets[2], status = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    const pid_t child = fork(); /* forks without threads, because this test comes first */
    assert_true(child >= 0);
    if (child == 0) {
        close(sockets[0]);
        _exit(be_rank(1, sockets[1]));
    }
    close(sockets[1]);
    assert_int_equal(be_rank(0, sockets[0]), 0);
    close(sockets[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* On failure a table of 131,072 values is overwritten. Waking a sleeper for each value took 50 ms. */
TEST_BETWEEN(overwriting_words_asks_nothing_of_the_kernel, set_up, tear_down)
{
    enum { COUNT = 1000 };
    static uint32_t words[COUNT];
    system_calls = 0;
    assert_int_equal(dev->ops->words_overwrite(dev, words, COUNT, 7), ceclSuccess);
    assert_int_equal(system_calls, 0);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(words[i], 7);
    assert_int_equal(dev->ops->words_release(dev, words, COUNT, 8), ceclSuccess);
    assert_int_equal(system_calls, COUNT);
}
