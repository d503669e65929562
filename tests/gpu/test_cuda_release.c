/* The watchdog's use of the CUDA device from its own thread: it reads words, queries streams and ends waits, whatever
 * the caller does at the same time. */
#include <pthread.h>
#include <stdatomic.h>

#include "cuda_fixture.h"
#include "hold_sms.h"

struct watch {
    uint32_t *word;
    ceclStream_t stream;
    ceclResult_t read, query, release;
    uint32_t seen;
};

static void *watchdog(void *argument)
{
    struct watch *watch = argument;
    watch->read = OPS(gpu[0])->words_read(gpu[0], watch->word, 1, &watch->seen);
    watch->query = OPS(gpu[0])->stream_query(gpu[0], watch->stream);
    watch->release = OPS(gpu[0])->words_release(gpu[0], watch->word, 1, 9);
    return NULL;
}

static struct watch watch_from_a_thread(uint32_t *word, ceclStream_t stream)
{
    struct watch watch = {.word = word, .stream = stream};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watchdog, &watch), 0);
    pthread_join(thread, NULL);
    return watch;
}

TEST_WITH_KIT(release_from_another_thread_frees_a_held_stream)
{
    must(write_word(gpu[0], kit.stream, kit.memory.at, 3));
    must(wait_word(gpu[0], kit.stream, kit.memory.at, 9));
    assert_false(ends_within(gpu[0], kit.stream, A_WHILE_MS));
    const struct watch watch = watch_from_a_thread(kit.memory.at, kit.stream);
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
    assert_int_equal(watch.read, ceclSuccess);
    assert_int_equal(watch.seen, 3);
    assert_int_equal(watch.query, ceclInProgress);
    assert_int_equal(watch.release, ceclSuccess);
}

TEST_WITH_KIT(many_words_are_written_alone)
{
    enum { MOST = 5000 };
    static uint32_t seen[MOST + 2];
    for (uint32_t value = 77; value < 79; value++) {
        const size_t count = value == 77 ? 200 : MOST;
        must(OPS(gpu[0])->mem_set(gpu[0], kit.memory.at, 0, sizeof(seen)));
        must(OPS(gpu[0])->words_release(gpu[0], kit.memory.at + 1, count, value));
        must(OPS(gpu[0])->words_read(gpu[0], kit.memory.at, count + 2, seen));
        for (size_t i = 0; i < count + 2; i++)
            assert_int_equal(seen[i], i == 0 || i == count + 1 ? 0 : value);
    }
}

/* These words are pinned, so the host can read them without a copy, whatever streams do. */
TEST(released_words_have_landed_when_release_returns)
{
    enum { COUNT = 200, ROUNDS = 500 };
    uint32_t *words = NULL;
    must(OPS(gpu[0])->words_alloc(gpu[0], COUNT, &words));
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        must(OPS(gpu[0])->words_release(gpu[0], words, COUNT, round));
        for (size_t i = 0; i < COUNT; i++)
            assert_int_equal(__atomic_load_n(&words[i], __ATOMIC_SEQ_CST), round);
    }
    OPS(gpu[0])->words_free(gpu[0], words);
}

TEST_WITH_KIT(watchdog_beside_a_global_capture_is_served_and_spoils_nothing)
{
    must(wait_word(gpu[0], kit.stream, kit.memory.at, 9));
    must_cuda(cudaStreamBeginCapture(kit.other, cudaStreamCaptureModeGlobal));
    const struct watch watch = watch_from_a_thread(kit.memory.at, kit.stream);
    end_capture_and_check_it(kit.other);
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
    assert_int_equal(watch.read, ceclSuccess);
    assert_int_equal(watch.query, ceclInProgress);
    assert_int_equal(watch.release, ceclSuccess);
}

/* Waiting streams occupy all hardware queues, of which there are at most 32. */
TEST_WITH_KIT(release_is_not_held_up_by_many_streams_that_wait)
{
    enum { COUNT = 40 };
    ceclStream_t streams[COUNT];
    for (int i = 0; i < COUNT; i++)
        must(OPS(gpu[0])->stream_create(gpu[0], false, &streams[i]));
    for (int i = 0; i < COUNT; i++)
        must(wait_word(gpu[0], streams[i], kit.memory.at + i, 9));
    assert_false(ends_within(gpu[0], streams[0], A_WHILE_MS));
    for (int round = 0; round < 2;
         round++) /* the second release comes while the first is blocked */
        must(OPS(gpu[0])->words_release(gpu[0], kit.memory.at + round * COUNT / 2, COUNT / 4, 9));
    must(OPS(gpu[0])->words_release(gpu[0], kit.memory.at, COUNT, 9));
    for (int i = 0; i < COUNT; i++) {
        assert_true(ends_within(gpu[0], streams[i], SOON_MS));
        OPS(gpu[0])->stream_destroy(gpu[0], streams[i]);
    }
}

/* No assertion may fail between the hold and the release: SMs would stay held. */
TEST_WITH_KIT(words_need_no_sm)
{
    uint32_t seen = 0;
    struct hold_sms *hold = hold_sms_start_on(0, NULL);
    const ceclResult_t released = OPS(gpu[0])->words_release(gpu[0], kit.memory.at, 1, 5);
    const ceclResult_t read = OPS(gpu[0])->words_read(gpu[0], kit.memory.at, 1, &seen);
    const bool held = hold_sms_stop(hold);
    assert_true(held);
    assert_int_equal(released, ceclSuccess);
    assert_int_equal(read, ceclSuccess);
    assert_int_equal(seen, 5);
}

/* A caller that goes on enqueuing behind a wait blocks inside the driver, because the queue is full. */
struct stuffing {
    atomic_int calls;
    atomic_bool done;
    ceclResult_t result;
};

static void *stuff(void *argument)
{
    struct stuffing *stuffing = argument;
    for (int i = 0; i < 20000 && stuffing->result == ceclSuccess; i++) {
        stuffing->result = write_word(gpu[0], kit.stream, kit.memory.at + 1, (uint32_t)i);
        atomic_fetch_add(&stuffing->calls, 1);
    }
    atomic_store(&stuffing->done, true);
    return NULL;
}

TEST_WITH_KIT(release_frees_a_caller_stuck_in_a_full_queue)
{
    pthread_t thread;
    must(wait_word(gpu[0], kit.stream, kit.memory.at, 9));
    struct stuffing stuffing = {.result = ceclSuccess};
    assert_int_equal(pthread_create(&thread, NULL, stuff, &stuffing), 0);
    for (int before = -1, now = 0; before != now;) {
        before = now;
        pause_ms(A_WHILE_MS);
        now = atomic_load(&stuffing.calls);
    }
    print_message("%s after %d calls\n", atomic_load(&stuffing.done) ? "not stuck" : "stuck",
                  atomic_load(&stuffing.calls));
    ceclResult_t result = OPS(gpu[0])->words_release(gpu[0], kit.memory.at, 1, 9);
    pthread_join(thread, NULL); /* bounded by the program's alarm */
    assert_int_equal(result, ceclSuccess);
    assert_int_equal(stuffing.result, ceclSuccess);
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
}

GPU_TESTS(gpus_open, gpus_close)
