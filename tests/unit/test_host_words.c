/* The host device's flag words: waits sleep, and every way to write a word, through any mapping of it, wakes them. */
#include "host_fixture.h"

#include "../wrapped_syscall.h"

#include <time.h>

/* A sleeper that is not woken looks again after 50 ms, so ten rounds of two waits each would take 1 s; if woken, a few
 * ms. Other work of this machine may delay some groups of ten rounds, but not all. */
#define ROUNDS 100
#define TEN 10
#define WOKEN_MS 400

/* Counts calls of syscall(), by which the library sleeps and wakes sleepers. */
static _Thread_local int system_calls;

WRAPPED_SYSCALL(system_calls++ < 0)

/* One stream writes i into `say`, and the other answers. `hear` is `say`, maybe at another address; `heard` is `answer`. */
struct dialogue {
    uint32_t *say, *hear, *answer, *heard;
    bool copied; /* copies of `values` write the words */
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

TEST_BETWEEN(a_written_or_copied_word_wakes_who_waits_for_it, set_up, tear_down)
{
    for (int copied = 0; copied < 2; copied++) {
        uint32_t words[2] = {0, 0};
        struct dialogue dialogue = {&words[0], &words[0], &words[1], &words[1], copied, {0}};
        run_dialogue(&dialogue);
    }
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

/* Many ranks may share few cores: a rank that waits must leave them to ranks that work. */
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
    for (int i = 0; i < 3; i++) { /* the least counts: CPU time may include a standstill */
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
    assert_true(least_ms < SLEEP_MS / 4); /* one spinning rank would use all of this time */
}

/* Four bytes at an odd address are no flag. */
TEST_BETWEEN(four_unaligned_bytes_are_copied_like_any, set_up, tear_down)
{
    char from[] = ".abcd.", to[] = "......";
    copy(NULL, to + 1, from + 1, 4);
    synchronize(NULL);
    assert_string_equal(to, ".abcd.");
}

TEST_BETWEEN(released_words_wake_a_sleeper_each, set_up, tear_down)
{
    enum { COUNT = 10 };
    uint32_t words[COUNT] = {0};
    system_calls = 0;
    assert_int_equal(dev->ops->words_release(dev, words, COUNT, 8), ceclSuccess);
    assert_int_equal(system_calls, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(words[i], 8);
}
