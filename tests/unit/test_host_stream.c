/* The host device's streams: which handles are valid; enqueueing neither waits nor keeps the caller's arrays; what
 * happens to pending work when a stream is destroyed. (tests/multi/test_streams.c uses streams of other communicators,
 * and a child's default stream.) */
#include "host_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../threads_alive.h"

#define HANDLE(number) ((ceclStream_t)(uintptr_t)(number))

static uint32_t *new_words(size_t count)
{
    uint32_t *words = NULL;
    assert_int_equal(dev->ops->words_alloc(dev, count, &words), ceclSuccess);
    return words;
}

TEST_BETWEEN(all_default_handles_are_one_stream, set_up, tear_down)
{
    ceclStream_t work[3] = {NULL, NULL, NULL}, own = new_stream(), forked = NULL;
    for (uintptr_t i = 0; i < 3; i++) {
        assert_int_equal(dev->ops->stream_fork(dev, HANDLE(i), &work[i]), ceclSuccess);
        assert_non_null(work[i]);
        assert_ptr_equal(work[i], work[0]);
        assert_int_equal(dev->ops->stream_join(dev, HANDLE(i), work[i]), ceclSuccess);
    }
    assert_int_equal(dev->ops->stream_fork(dev, own, &forked), ceclSuccess);
    assert_ptr_equal(forked, own);
    assert_ptr_not_equal(forked, work[0]);
}

TEST_BETWEEN(default_streams_cannot_be_destroyed, set_up, tear_down)
{
    ceclStream_t work = NULL;
    assert_int_equal(dev->ops->stream_fork(dev, NULL, &work), ceclSuccess);
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(dev->ops->stream_destroy(dev, HANDLE(i)), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_destroy(dev, work), ceclInvalidArgument);
    synchronize(NULL); /* the default stream still works */
}

/* Asserts that each function that takes a stream refuses this one. */
static void assert_refused_everywhere(ceclStream_t stream)
{
    char from = 1, to = 0;
    void *dst = &to, *src = &from;
    size_t bytes = 1;
    uint32_t word = 0;
    ceclStream_t work = NULL;
    const struct cecl_batch batch = {&dst, &src, &bytes, 1, false};
    const struct cecl_memop op = {&word, 1, CECL_MEMOP_WRITE};
    assert_int_equal(dev->ops->copies(dev, stream, &batch), ceclInvalidArgument);
    assert_int_equal(dev->ops->memops(dev, stream, &op, 1), ceclInvalidArgument);
    assert_int_equal(dev->ops->memcpy_async(dev, &to, &from, 1, stream), ceclInvalidArgument);
    assert_int_equal(dev->ops->memcpy_async(dev, &to, &from, 0, stream), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_check(dev, stream, NULL), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_fork(dev, stream, &work), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_query(dev, stream), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_destroy(dev, stream), ceclInvalidArgument);
    assert_null(work);
    assert_int_equal(to, 0);
    assert_int_equal(word, 0);
}

TEST_BETWEEN(a_stream_that_was_destroyed_or_closed_is_refused_by_every_call, set_up, tear_down)
{
    struct cecl_device *other = NULL;
    ceclStream_t stream = new_stream(), foreign = NULL;
    assert_int_equal(dev->ops->stream_destroy(dev, stream), ceclSuccess);
    assert_refused_everywhere(stream);
    assert_int_equal(cecl_host_open(&other), ceclSuccess);
    assert_int_equal(other->ops->stream_create(other, false, &foreign), ceclSuccess);
    other->ops->close(other);
    assert_refused_everywhere(foreign);
}

TEST_BETWEEN(a_forked_child_has_streams_of_its_own_alone, set_up, tear_down)
{
    ceclStream_t stream = new_stream();
    ceclEvent_t event = NULL;
    assert_int_equal(dev->ops->event_create(dev, &event), ceclSuccess);
    const pid_t child = fork();
    if (child == 0) {
        struct cecl_device *own;
        ceclStream_t made;
        const bool fine = cecl_host_open(&own) == ceclSuccess &&
                          own->ops->stream_create(own, false, &made) == ceclSuccess &&
                          own->ops->stream_synchronize(own, made) == ceclSuccess &&
                          own->ops->stream_synchronize(own, NULL) == ceclSuccess &&
                          own->ops->stream_query(own, stream) == ceclInvalidArgument &&
                          own->ops->event_record(own, event, made) == ceclInvalidArgument;
        _exit(fine ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    synchronize(stream);
    assert_int_equal(dev->ops->event_destroy(dev, event), ceclSuccess);
}

TEST_BETWEEN(enqueued_arrays_may_be_reused_at_once, set_up, tear_down)
{
    int from[2] = {11, 22}, to[2] = {0, 0}, wrong = 0;
    void *dst[2] = {&to[0], &to[1]}, *src[2] = {&from[0], &from[1]};
    size_t bytes[2] = {sizeof(int), sizeof(int)};
    uint32_t *words = new_words(2);
    struct cecl_memop ops[2] = {{&words[0], 1, CECL_MEMOP_WAIT}, {&words[1], 5, CECL_MEMOP_WRITE}};
    struct cecl_batch batch = {dst, src, bytes, 2, false};

    assert_int_equal(dev->ops->memops(dev, NULL, ops, 2), ceclSuccess);
    assert_int_equal(dev->ops->copies(dev, NULL, &batch), ceclSuccess);
    for (int i = 0; i < 2; i++) {
        ops[i] = (struct cecl_memop){&words[1], 99, CECL_MEMOP_WRITE};
        dst[i] = &wrong;
        src[i] = &wrong;
        bytes[i] = 0;
    }
    batch.count = 0;
    release(&words[0], 1);
    synchronize(NULL);
    assert_int_equal(words[1], 5);
    assert_int_equal(to[0], 11);
    assert_int_equal(to[1], 22);
    dev->ops->words_free(dev, words);
}

/* A batch has no order: a plan that relies on an order must not pass by luck. */
TEST_BETWEEN(every_second_batch_runs_in_another_order, set_up, tear_down)
{
    uint64_t first = 1, second = 2, to = 0, seen[4];
    void *dst[2] = {&to, &to}, *src[2] = {&first, &second};
    size_t bytes[2] = {sizeof(to), sizeof(to)};
    const struct cecl_batch batch = {dst, src, bytes, 2, false};
    ceclStream_t stream = new_stream();
    for (int i = 0; i < 4; i++) {
        assert_int_equal(dev->ops->copies(dev, stream, &batch), ceclSuccess);
        synchronize(stream);
        seen[i] = to;
    }
    assert_true(seen[0] != seen[1]);
    assert_int_equal(seen[0], seen[2]); /* a given batch runs in the same order each time */
    assert_int_equal(seen[1], seen[3]);
}

TEST_BETWEEN(a_held_stream_takes_all_work_and_keeps_its_room, set_up, tear_down)
{
    enum { ROUNDS = 3, PIECES = 10000 };
    uint32_t *words = new_words(2);
    uint64_t cells[2] = {0, 0};
    size_t capacity[ROUNDS];
    ceclStream_t stream = new_stream();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        memop(stream, CECL_MEMOP_WAIT, &words[0], round + 1);
        for (uint32_t i = 1; i <= PIECES; i += 2) {
            copy(stream, &cells[i / 2 % 2], &cells[1 - i / 2 % 2], sizeof(cells[0]));
            memop(stream, CECL_MEMOP_WRITE, &words[1], i + 1);
        }
        assert_int_equal(dev->ops->stream_query(dev, stream), ceclInProgress);
        capacity[round] = ((struct host_stream *)stream)->capacity;
        release(&words[0], round + 1);
        synchronize(stream);
        assert_int_equal(words[1], PIECES);
        assert_int_equal(dev->ops->stream_query(dev, stream), ceclSuccess);
    }
    assert_true(capacity[0] > PIECES);
    assert_int_equal(capacity[1], capacity[0]);
    assert_int_equal(capacity[2], capacity[0]);
    dev->ops->words_free(dev, words);
}

TEST_BETWEEN(waits_end_by_their_kind, set_up, tear_down)
{
    static const struct {
        uint32_t have, want;
        bool over;
        enum cecl_memop_kind kind;
    } cases[] = {{5, 5, true, CECL_MEMOP_WAIT},
                 {6, 5, true, CECL_MEMOP_WAIT},
                 {4, 5, false, CECL_MEMOP_WAIT},
                 {1, 0xffffffffu, true, CECL_MEMOP_WAIT},
                 {0xffffffffu, 1, false, CECL_MEMOP_WAIT},
                 {0x80000000u, 1, true, CECL_MEMOP_WAIT},
                 {6, 2, true, CECL_MEMOP_WAIT_ANY},
                 {2, 6, true, CECL_MEMOP_WAIT_ANY},
                 {5, 2, false, CECL_MEMOP_WAIT_ANY},
                 {0x80000000u, 0x80000000u, true, CECL_MEMOP_WAIT_ANY}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t word = cases[i].have;
        _Atomic uint32_t begun = 0;
        ceclStream_t stream = new_stream();
        memop(stream, CECL_MEMOP_WRITE, (uint32_t *)&begun, 1);
        memop(stream, cases[i].kind, &word, cases[i].want);
        if (cases[i].over) {
            assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
        } else {
            while (!atomic_load(&begun))
                usleep(1000);
            usleep(20000); /* time enough for the stream to go on */
            assert_int_equal(dev->ops->stream_query(dev, stream), ceclInProgress);
        }
        release(&word, cases[i].want);
        assert_int_equal(dev->ops->stream_destroy(dev, stream), ceclSuccess);
    }
}

TEST_BETWEEN(stream_ids_are_never_used_again, set_up, tear_down)
{
    uint64_t last = 0;
    for (int i = 0; i < 50; i++) {
        ceclStream_t stream = new_stream();
        assert_true(dev->ops->stream_id(dev, stream) > last);
        last = dev->ops->stream_id(dev, stream);
        assert_int_equal(dev->ops->stream_destroy(dev, stream), ceclSuccess);
    }
}

struct helper {
    pthread_t thread;
    ceclStream_t stream;
    uint32_t *word;
    _Atomic int tid;
    _Atomic bool over;
};

static void *release_and_hold(void *argument)
{
    struct helper *helper = argument;
    usleep(30000);
    memop(NULL, CECL_MEMOP_WAIT, helper->word, 2);
    dev->ops->words_release(dev, helper->word, 1, 1);
    return NULL;
}

/* Another communicator may wait for the streams' work. So the work is carried out, and closing does not wait for it.
 * (Only the address sanitizer finds memory that is freed too early.) */
TEST_BETWEEN(streams_that_wait_for_each_other_are_closed, set_up, tear_down)
{
    uint32_t *gate = new_words(1), to = 0;
    for (uint32_t i = 1; i <= 20; i++) {
        struct cecl_device *own;
        ceclStream_t later, earlier, witness = new_stream();
        assert_int_equal(cecl_host_open(&own), ceclSuccess);
        assert_int_equal(own->ops->stream_create(own, false, &later), ceclSuccess);
        assert_int_equal(own->ops->stream_create(own, false, &earlier), ceclSuccess);
        memop(earlier, CECL_MEMOP_WAIT, gate, i);
        copy(earlier, &to, &i, sizeof(to));
        assert_int_equal(own->ops->stream_after(own, later, earlier), ceclSuccess);
        assert_int_equal(dev->ops->stream_after(dev, witness, later), ceclSuccess);
        own->ops->close(own);
        assert_int_equal(dev->ops->stream_query(dev, witness), ceclInProgress);
        release(gate, i);
        synchronize(witness); /* `witness` waited for streams that are in no list any more */
        assert_int_equal(to, i);
    }
    dev->ops->words_free(dev, gate);
}

/* Two communicators may share the default stream: a drain by one must not wait for what the other enqueues meanwhile. */
TEST_BETWEEN(a_drain_waits_for_earlier_work_of_the_default_stream_alone, set_up, tear_down)
{
    struct cecl_device *child;
    uint32_t *gate = new_words(1);
    assert_int_equal(cecl_host_open(&child), ceclSuccess);
    cecl_host_inherit(child, dev);
    memop(NULL, CECL_MEMOP_WAIT, gate, 1);
    assert_int_equal(child->ops->streams_drain(child, cecl_deadline(30)), ceclTimeout);
    struct helper helper = {.word = gate};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_and_hold, &helper), 0);
    assert_int_equal(child->ops->streams_drain(child, cecl_deadline(60000)), ceclSuccess);
    pthread_join(thread, NULL);
    assert_int_equal(dev->ops->stream_query(dev, NULL), ceclInProgress);
    release(gate, 2);
    child->ops->close(child);
    synchronize(NULL);
    dev->ops->words_free(dev, gate);
}

TEST_BETWEEN(a_drain_of_a_held_stream_times_out_and_says_how_many, set_up, tear_down)
{
    uint32_t *words = new_words(1);
    const ceclStream_t streams[3] = {NULL, new_stream(), new_stream()};
    for (uint32_t i = 0; i < 3; i++) {
        memop(streams[i], CECL_MEMOP_WAIT, &words[0], i + 1);
        const int64_t begin = cecl_now_ms();
        assert_int_equal(dev->ops->streams_drain(dev, cecl_deadline(30)), ceclTimeout);
        assert_in_range(cecl_now_ms() - begin, 29, 60000);
        assert_non_null(strstr(cecl_message(), " 1 still"));
        assert_int_equal(dev->ops->stream_query(dev, streams[i]), ceclInProgress);
        release(&words[0], i + 1);
        assert_int_equal(dev->ops->streams_drain(dev, cecl_deadline(60000)), ceclSuccess);
    }
    dev->ops->words_free(dev, words);
}

static void *destroy_stream(void *argument)
{
    struct helper *helper = argument;
    atomic_store(&helper->tid, (int)syscall(SYS_gettid));
    dev->ops->stream_destroy(dev, helper->stream);
    return NULL;
}

TEST_BETWEEN(a_drain_waits_for_a_stream_that_is_being_destroyed, set_up, tear_down)
{
    uint32_t *words = new_words(1);
    struct helper helper = {.stream = new_stream()};
    memop(helper.stream, CECL_MEMOP_WAIT, &words[0], 1);
    assert_int_equal(pthread_create(&helper.thread, NULL, destroy_stream, &helper), 0);
    assert_true(thread_falls_asleep(&helper.tid));
    const ceclResult_t held = dev->ops->streams_drain(dev, cecl_deadline(30));
    release(&words[0], 1);
    pthread_join(helper.thread, NULL);
    assert_int_equal(held, ceclTimeout);
    assert_int_equal(dev->ops->streams_drain(dev, CECL_NO_DEADLINE), ceclSuccess);
    dev->ops->words_free(dev, words);
}

/* The buffers overlap in either direction, by less or more than a vector register. */
TEST_BETWEEN(an_overlapping_copy_arrives_as_a_move, set_up, tear_down)
{
    enum { BYTES = 4096 };
    static const size_t shifts[] = {1, 4, 63, 1000};
    unsigned char cells[BYTES + 1000], before[sizeof(cells)];
    ceclStream_t stream = new_stream();
    for (size_t n = 0; n < 8; n++) {
        const size_t shift = shifts[n / 2], src = n % 2 ? shift : 0, dst = shift - src;
        for (size_t i = 0; i < sizeof(cells); i++)
            cells[i] = before[i] = (unsigned char)(i * 7 + i / 256);
        assert_int_equal(dev->ops->memcpy_async(dev, cells + dst, cells + src, BYTES, stream),
                         ceclSuccess);
        synchronize(stream);
        for (size_t i = 0; i < sizeof(cells); i++)
            assert_int_equal(cells[i],
                             i >= dst && i < dst + BYTES ? before[i - dst + src] : before[i]);
    }
}

static void assert_copy_refused(void *dst, const void *src, size_t bytes, const char *name)
{
    assert_int_equal(dev->ops->memcpy_async(dev, dst, src, bytes, NULL), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), name));
    synchronize(NULL); /* a copy that was enqueued would run now */
}

TEST_BETWEEN(a_copy_from_or_to_no_memory_is_refused_and_not_enqueued, set_up, tear_down)
{
    char here[64] = "as before";
    char *high = (char *)(UINTPTR_MAX - 15), *null = NULL;
    void *hole = NULL;
    assert_int_equal(dev->ops->reserve(dev, dev->granularity, &hole), ceclSuccess);
    assert_copy_refused(hole, here, sizeof(here), "dst");
    assert_copy_refused(here, hole, sizeof(here), "src");
    assert_copy_refused(high, here, sizeof(here), "dst");
    assert_copy_refused(here, high, sizeof(here), "src");
    assert_copy_refused(null, here, sizeof(here), "dst");
    assert_copy_refused(here, null, sizeof(here), "src");
    assert_string_equal(here, "as before");
    assert_int_equal(dev->ops->memcpy_async(dev, null, null, 0, NULL), ceclSuccess);
    synchronize(NULL);
    dev->ops->unreserve(dev, hole, dev->granularity);
}
