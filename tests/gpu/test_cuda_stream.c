/* The CUDA device's streams: the order of copies and words, the legacy default stream, and capture. */
#include <pthread.h>
#include <stdatomic.h>

#include "cuda_fixture.h"

/* Whether a wait of this kind for `value` ends when the word is `word`. */
static bool passes(enum cecl_memop_kind kind, uint32_t word, uint32_t value)
{
    const struct cecl_memop wait = {kit.flag, value, kind};
    host_writes(kit.flag, word);
    must(OPS(gpu[0])->memops(gpu[0], kit.stream, &wait, 1));
    const bool passed = ends_within(gpu[0], kit.stream, A_WHILE_MS);
    host_writes(kit.flag, value);
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
    return passed;
}

TEST_WITH_KIT(wait_compares_cyclically)
{
    assert_true(passes(CECL_MEMOP_WAIT, 5, 5));
    assert_true(passes(CECL_MEMOP_WAIT, 6, 5));
    assert_false(passes(CECL_MEMOP_WAIT, 4, 5));
    assert_true(passes(CECL_MEMOP_WAIT, 5, 0xfffffff0u));
    assert_false(passes(CECL_MEMOP_WAIT, 0xfffffff0u, 5));
}

TEST_WITH_KIT(wait_for_bits_ends_with_any_of_them)
{
    assert_true(passes(CECL_MEMOP_WAIT_ANY, 6, 2));
    assert_true(passes(CECL_MEMOP_WAIT_ANY, 2, 6));
    assert_false(passes(CECL_MEMOP_WAIT_ANY, 0xfffffffdu, 2));
    assert_true(passes(CECL_MEMOP_WAIT_ANY, 0xaaaa0003u, 2));
}

TEST_WITH_KIT(memops_of_many_batches_run_in_order)
{
    enum { COUNT = 1000 };
    static struct cecl_memop ops[2 * COUNT];
    uint32_t *words = NULL;
    must(OPS(gpu[0])->words_alloc(gpu[0], COUNT, &words));
    /* If batches ran out of order, the flag would end with an earlier value. */
    for (uint32_t i = 0; i < COUNT; i++) {
        ops[2 * i] = (struct cecl_memop){&words[i], i + 1, CECL_MEMOP_WRITE};
        ops[2 * i + 1] = (struct cecl_memop){kit.flag, i + 1, CECL_MEMOP_WRITE};
    }
    must(OPS(gpu[0])->memops(gpu[0], kit.stream, ops, 2 * COUNT));
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
    assert_int_equal(*kit.flag, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(words[i], i + 1);
    OPS(gpu[0])->words_free(gpu[0], words);
}

TEST_WITH_KIT(memops_after_a_wait_in_an_earlier_batch_are_held)
{
    enum { COUNT = 300 };
    static struct cecl_memop ops[COUNT];
    uint32_t *word = NULL;
    must(OPS(gpu[0])->words_alloc(gpu[0], 1, &word));
    ops[0] = (struct cecl_memop){kit.flag, 1, CECL_MEMOP_WAIT};
    for (uint32_t i = 1; i < COUNT; i++)
        ops[i] = (struct cecl_memop){word, i, CECL_MEMOP_WRITE};
    must(OPS(gpu[0])->memops(gpu[0], kit.stream, ops, COUNT));
    pause_ms(A_WHILE_MS);
    const uint32_t early = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    host_writes(kit.flag, 1);
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
    assert_int_equal(early, 0);
    assert_int_equal(*word, COUNT - 1);
    OPS(gpu[0])->words_free(gpu[0], word);
}

TEST_WITH_KIT(fork_of_a_stream_or_the_per_thread_default_is_itself)
{
    ceclStream_t work = NULL, per_thread = cudaStreamPerThread;
    must(OPS(gpu[0])->stream_fork(gpu[0], kit.stream, &work));
    assert_ptr_equal(work, kit.stream);
    must(OPS(gpu[0])->stream_join(gpu[0], kit.stream, work));
    must(OPS(gpu[0])->stream_fork(gpu[0], per_thread, &work));
    assert_ptr_equal(work, per_thread);
    put_pattern(&kit, kit.memory.at, 13);
    must(copy_one(gpu[0], work, kit.memory.at + PATTERN_WORDS, kit.memory.at, PATTERN_WORDS * 4));
    must(OPS(gpu[0])->stream_join(gpu[0], per_thread, work));
    assert_true(ends_within(gpu[0], per_thread, SOON_MS));
    assert_true(has_pattern(&kit, kit.memory.at + PATTERN_WORDS, 13));
}

static atomic_bool host_goes_on;

static void CUDART_CB wait_on_host(void *nothing)
{
    (void)nothing;
    for (int i = 0; i < SOON_MS && !atomic_load(&host_goes_on); i++)
        pause_ms(1);
}

/* legacy: [host holds] copy in -> fork: [word holds] batch -> join -> copy out */
static void check_legacy_order(ceclStream_t legacy)
{
    ceclStream_t work = NULL;
    struct kit out = kit_make(gpu[0]);
    uint32_t *first = kit.memory.at, *second = first + PATTERN_WORDS;
    put_pattern(&out, first, 14);
    put_pattern(&out, second, 15);
    pattern_fill(kit.host, 16);
    atomic_store(&host_goes_on, false);

    must_cuda(cudaLaunchHostFunc(legacy, wait_on_host, NULL));
    must(OPS(gpu[0])->memcpy_async(gpu[0], first, kit.host, PATTERN_WORDS * 4, legacy));
    must(OPS(gpu[0])->stream_fork(gpu[0], legacy, &work));
    const bool other = work != legacy;
    must(wait_word(gpu[0], work, kit.flag, 1));
    must(copy_one(gpu[0], work, second, first, PATTERN_WORDS * 4));
    must(OPS(gpu[0])->stream_join(gpu[0], legacy, work));
    must(OPS(gpu[0])->memcpy_async(gpu[0], out.host, second, PATTERN_WORDS * 4, legacy));

    /* Without the fork, the batch would run now, with the old bytes. */
    host_writes(kit.flag, 1);
    const bool forked_early = ends_within(gpu[0], work, A_WHILE_MS);
    host_writes(kit.flag, 0);
    atomic_store(&host_goes_on, true);
    /* Without the join, the legacy stream would end now. */
    const bool joined_early = ends_within(gpu[0], legacy, A_WHILE_MS);
    host_writes(kit.flag, 1);
    const bool ended = ends_within(gpu[0], legacy, SOON_MS);

    assert_true(ended);
    assert_true(other);
    assert_false(forked_early);
    assert_false(joined_early);
    assert_true(pattern_is(out.host, 16));
    kit_end(&out);
}

TEST_WITH_KIT(legacy_stream_orders_what_comes_before_and_after)
{
    check_legacy_order(NULL);
}

TEST_WITH_KIT(legacy_stream_by_its_name_orders_alike)
{
    check_legacy_order(cudaStreamLegacy);
}

TEST(check_refuses_another_gpus_stream)
{
    struct cecl_capture capture;
    need_two();
    struct kit theirs = kit_make(gpu[1]);
    refused(ceclInvalidArgument, "stream", OPS(gpu[0])->stream_check(gpu[0], theirs.stream, NULL));
    refused(ceclInvalidArgument, "stream",
            OPS(gpu[0])->stream_check(gpu[0], theirs.stream, &capture));
    kit_end(&theirs);
}

TEST(destroy_of_a_default_stream_is_refused)
{
    const ceclStream_t streams[] = {NULL, cudaStreamLegacy, cudaStreamPerThread};
    for (size_t i = 0; i < 3; i++)
        refused(ceclInvalidArgument, "default stream",
                OPS(gpu[0])->stream_destroy(gpu[0], streams[i]));
}

TEST(stream_ids_are_never_used_again)
{
    enum { COUNT = 50 };
    uint64_t ids[COUNT];
    for (int i = 0; i < COUNT; i++) { /* one after the other, so that addresses are reused */
        ceclStream_t stream = NULL;
        must(OPS(gpu[0])->stream_create(gpu[0], false, &stream));
        ids[i] = OPS(gpu[0])->stream_id(gpu[0], stream);
        assert_int_equal(OPS(gpu[0])->stream_id(gpu[0], stream), ids[i]);
        must(OPS(gpu[0])->stream_destroy(gpu[0], stream));
        for (int k = 0; k < i; k++)
            assert_int_not_equal(ids[i], ids[k]);
    }
}

TEST_WITH_KIT(check_takes_every_stream_of_the_device_and_enqueues_nothing)
{
    must(wait_word(gpu[0], kit.stream, kit.flag, 1));
    const ceclResult_t held = OPS(gpu[0])->stream_check(gpu[0], kit.stream, NULL);
    host_writes(kit.flag, 1);
    assert_int_equal(held, ceclSuccess);
    must(OPS(gpu[0])->stream_check(gpu[0], NULL, NULL));
    must(OPS(gpu[0])->stream_check(gpu[0], cudaStreamLegacy, NULL));
    must(OPS(gpu[0])->stream_check(gpu[0], cudaStreamPerThread, NULL));
}

/* More streams than the table had room for at first. A wait holds the last one, then the legacy stream's work stream. */
TEST_WITH_KIT(drain_is_bounded_and_ends_with_the_last_stream)
{
    enum { COUNT = 20 };
    ceclStream_t streams[COUNT + 1];
    for (int i = 0; i < COUNT; i++)
        must(OPS(gpu[0])->stream_create(gpu[0], false, &streams[i]));
    must(OPS(gpu[0])->stream_fork(gpu[0], NULL, &streams[COUNT]));
    must(OPS(gpu[0])->streams_drain(gpu[0], cecl_deadline(SOON_MS)));
    for (uint32_t i = COUNT - 1; i <= COUNT; i++) {
        must(wait_word(gpu[0], streams[i], kit.flag, i));
        const ceclResult_t early = OPS(gpu[0])->streams_drain(gpu[0], cecl_deadline(A_WHILE_MS));
        const bool told = strstr(cecl_message(), " 1 still") != NULL;
        host_writes(kit.flag, i);
        must(OPS(gpu[0])->streams_drain(gpu[0], CECL_NO_DEADLINE));
        must(OPS(gpu[0])->stream_query(gpu[0], streams[i]));
        assert_int_equal(early, ceclTimeout);
        assert_true(told);
    }
    must(OPS(gpu[0])->stream_join(gpu[0], NULL, streams[COUNT]));
    for (int i = 0; i < COUNT; i++)
        must(OPS(gpu[0])->stream_destroy(gpu[0], streams[i]));
    must(OPS(gpu[0])->streams_drain(gpu[0], cecl_deadline(SOON_MS)));
}

/* A capturing stream cannot be queried. The drain must still await all other streams before it returns that error. */
TEST_WITH_KIT(drain_beside_a_capturing_stream_is_refused_and_spoils_nothing)
{
    must(wait_word(gpu[0], kit.stream, kit.flag, 1));
    must_cuda(cudaStreamBeginCapture(kit.other, cudaStreamCaptureModeGlobal));
    const ceclResult_t early = OPS(gpu[0])->streams_drain(gpu[0], cecl_deadline(A_WHILE_MS));
    host_writes(kit.flag, 1);
    refused(ceclInvalidUsage, "captures a graph",
            OPS(gpu[0])->streams_drain(gpu[0], cecl_deadline(SOON_MS)));
    end_capture_and_check_it(kit.other);
    assert_int_equal(early, ceclTimeout);
    must(OPS(gpu[0])->streams_drain(gpu[0], cecl_deadline(SOON_MS)));
}

struct closing {
    struct cecl_device *dev;
    atomic_bool done;
};

static void *close_it(void *argument)
{
    struct closing *closing = argument;
    OPS(closing->dev)->close(closing->dev);
    atomic_store(&closing->done, true);
    return NULL;
}

/* Closes another device object on the same GPU, in a thread, so that the test notices if the close waits. */
TEST(close_with_a_busy_stream_left_returns_and_ends_it)
{
    struct closing closing = {.dev = NULL};
    struct cecl_device *own = NULL;
    ceclStream_t stream = NULL;
    pthread_t thread;
    uint32_t *words = NULL;
    must(OPS(gpu[0])->words_alloc(gpu[0], 2, &words));
    must(cecl_cuda_open(0, &own));
    must(OPS(own)->stream_create(own, false, &stream));
    must(wait_word(own, stream, &words[0], 1));
    must(write_word(own, stream, &words[1], 7));
    closing.dev = own;
    assert_int_equal(pthread_create(&thread, NULL, close_it, &closing), 0);
    for (int i = 0; i < SOON_MS && !atomic_load(&closing.done); i++)
        pause_ms(1);
    const bool in_time = atomic_load(&closing.done);
    const uint32_t early = __atomic_load_n(&words[1], __ATOMIC_SEQ_CST);
    host_writes(&words[0], 1);
    for (int i = 0; i < SOON_MS && __atomic_load_n(&words[1], __ATOMIC_SEQ_CST) != 7; i++)
        pause_ms(1);
    pthread_join(thread, NULL);
    assert_true(in_time);
    assert_int_equal(early, 0);
    assert_int_equal(__atomic_load_n(&words[1], __ATOMIC_SEQ_CST), 7);
    OPS(gpu[0])->words_free(gpu[0], words);
}

TEST_WITH_KIT(check_refuses_a_stream_that_captures_and_spoils_nothing)
{
    const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal,
                                                cudaStreamCaptureModeThreadLocal,
                                                cudaStreamCaptureModeRelaxed};
    for (size_t i = 0; i < 3; i++) {
        must_cuda(cudaStreamBeginCapture(kit.stream, modes[i]));
        refused(ceclInvalidUsage, "captures a graph",
                OPS(gpu[0])->stream_check(gpu[0], kit.stream, NULL));
        end_capture_and_check_it(kit.stream);
    }
}

static bool goes_on(void *context)
{
    return true;
}

/* The device object that waits need not be the one that made the stream: each communicator has its own. */
TEST_WITH_KIT(quiet_beside_a_capture_of_the_gpu_is_refused_and_spoils_nothing)
{
    struct cecl_device *other = NULL;
    must(cecl_cuda_open(0, &other));
    must_cuda(cudaStreamBeginCapture(kit.stream, cudaStreamCaptureModeRelaxed));
    refused(ceclInvalidUsage, "captures a graph", OPS(gpu[0])->quiet(gpu[0], goes_on, NULL));
    refused(ceclInvalidUsage, "captures a graph", OPS(other)->quiet(other, goes_on, NULL));
    end_capture_and_check_it(kit.stream);
    must(OPS(other)->quiet(other, goes_on, NULL));
    OPS(other)->close(other);
}

TEST(legacy_stream_beside_a_blocking_capture_is_refused_and_spoils_nothing)
{
    ceclStream_t work = NULL, blocking = NULL;
    struct cecl_capture capture;
    must_cuda(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
    must_cuda(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
    refused(ceclInvalidUsage, "legacy default stream",
            OPS(gpu[0])->stream_check(gpu[0], NULL, &capture));
    refused(ceclInvalidUsage, "legacy default stream",
            OPS(gpu[0])->stream_check(gpu[0], NULL, NULL));
    end_capture_and_check_it(blocking);
    must_cuda(cudaStreamDestroy(blocking));
    must(OPS(gpu[0])->stream_fork(gpu[0], NULL, &work)); /* usable again */
    must(OPS(gpu[0])->stream_join(gpu[0], NULL, work));
}

GPU_TESTS(gpus_open, gpus_close)
