/* Small collectives on the host (sm/small.h): ranks run ahead of each other, epochs wrap around, lines are renewed, a
 * meeting carries out all its parts, and waits end. Ranks are threads, and slots are in the program's memory.
 * (tests/multi/test_collectives.c makes random small calls.) */
#include "../share.h"
#include "../with_cmocka.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "sm/small_args.h"
#include "util/clock.h"
#include "util/error.h"

#define MOST CECL_SMALL_RANKS_MAX
#define SLOT ((size_t)4096)
#define ROOM (MOST * SLOT)
#define LONG_NS UINT64_C(100000000000) /* for waits that must not reach it */
#define SOON_MS 45000                  /* far above measured times, far below LONG_NS */

#define NUMBER 5u /* the number of a call that numbers itself */

struct rank {
    pthread_t thread;
    int number;
    unsigned char *send, *recv;
    _Atomic uint32_t end, late, done, count;
    _Atomic uint32_t row[MOST];  /* signalled by peers */
    _Atomic uint64_t told[MOST]; /* the progress of calls that number themselves */
    char failure[256];
};

static int n;
static unsigned char *slots[MOST];
static struct rank ranks[MOST];
static uint32_t epoch;    /* number of the next call */
static size_t calls[512]; /* sizes of the calls; each is an all-gather */
static uint32_t ncalls;
static bool is_counted; /* calls number themselves, as captured calls do */
static bool delays;     /* ranks pause at times, which lets others run ahead */

static void *must_alloc(size_t bytes)
{
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

static void open_ranks(int count)
{
    n = count;
    epoch = 1;
    ncalls = 0;
    delays = false;
    for (int r = 0; r < n; r++) {
        slots[r] = must_alloc((size_t)cecl_small_slots_bytes(n, SLOT));
        ranks[r] = (struct rank){.number = r, .send = must_alloc(ROOM), .recv = must_alloc(ROOM)};
    }
}

static void set_epoch(uint32_t next)
{
    epoch = next;
    for (int r = 0; r < n; r++)
        ranks[r].count = next - 1;
}

static int close_ranks(void **state)
{
    for (int r = 0; r < n; r++) {
        free(slots[r]);
        free(ranks[r].send);
        free(ranks[r].recv);
    }
    n = 0;
    return 0;
}

/* Byte i of the block that a rank sends in the call of this epoch. */
static unsigned char byte_of(uint32_t at, int sender, size_t i)
{
    return (unsigned char)((at * 2654435761u + (unsigned)sender * 40503u + (unsigned)i * 7919u) >>
                           9);
}

static struct cecl_meeting meeting_of(struct rank *me, uint32_t at)
{
    return (struct cecl_meeting){.does = CECL_MEET_DONE | (is_counted ? 0 : CECL_MEET_SIGNAL_FIRST),
                                 .first = at + 1000,
                                 .rank = (uint32_t)me->number,
                                 .nranks = (uint32_t)n,
                                 .row = (const uint32_t *)me->row,
                                 .word = (uint32_t *)&ranks[0].row[me->number],
                                 .apart = sizeof(ranks[0]),
                                 .ended = (const uint32_t *)&me->end,
                                 .done = (uint32_t *)&me->done,
                                 .done_value = at + 1};
}

/* A rank's call, with its input filled in. */
static struct cecl_small small_of(struct rank *me, size_t bytes, uint32_t at)
{
    struct cecl_small small = {.kind = CECL_SMALL_ALL_GATHER,
                               .rank = me->number,
                               .nranks = n,
                               .send = me->send,
                               .recv = me->recv,
                               .bytes = bytes,
                               .slot_bytes = SLOT,
                               .epoch = at,
                               .end = (const uint32_t *)&me->end,
                               .late = (uint32_t *)&me->late,
                               .timeout_ns = LONG_NS};
    memcpy(small.slots, slots, sizeof(slots));
    memset(me->recv, 0x5a, ROOM);
    for (size_t i = 0; i < bytes; i++)
        me->send[i] = byte_of(at, me->number, i);
    return small;
}

static void fail_in(struct rank *me, size_t bytes, uint32_t at, const char *what)
{
    snprintf(me->failure, sizeof(me->failure), "rank %d of %d, epoch %u, %zu bytes: %s", me->number,
             n, at, bytes, what);
}

static void look_at_meeting(struct rank *me, size_t bytes, uint32_t at)
{
    if (me->done != at + 1)
        fail_in(me, bytes, at, "the end of the call was not signalled");
    for (int p = 0; p < n; p++)
        if (is_counted ? ranks[p].told[me->number] != ((uint64_t)NUMBER << 32 | at)
                       : p != me->number && ranks[p].row[me->number] != at + 1000)
            fail_in(me, bytes, at, "a peer has not been signalled");
}

static void make_call(struct rank *me, size_t bytes, uint32_t at)
{
    struct cecl_small small = small_of(me, bytes, at);
    const struct cecl_meeting meeting = meeting_of(me, at);
    const struct cecl_counting counting = {.count = (uint32_t *)&me->count,
                                           .number = NUMBER,
                                           .told = (uint64_t *)&ranks[0].told[me->number],
                                           .told_apart = sizeof(ranks[0]),
                                           .begun_value = 0xbe9};
    small.meeting = &meeting;
    small.epoch = is_counted ? 99 : at;
    small.counting = is_counted ? &counting : NULL;
    cecl_small_host(&small);
    if (me->late)
        fail_in(me, bytes, at, "a wait has ended");
    look_at_meeting(me, bytes, at);
    for (size_t i = 0; i < ROOM; i++) {
        const int sender = (int)(i / bytes);
        if (me->recv[i] != (sender < n ? byte_of(at, sender, i % bytes) : 0x5a))
            fail_in(me, bytes, at, "a byte of recv is wrong");
    }
}

static void *live(void *argument)
{
    struct rank *me = argument;
    unsigned seed = (unsigned)me->number + 77;
    for (uint32_t c = 0; c < ncalls && !me->failure[0]; c++) {
        if (delays && rand_r(&seed) % 8 == 0)
            usleep((useconds_t)(rand_r(&seed) % 500));
        make_call(me, calls[c], epoch + c);
    }
    if (me->failure[0]) /* after a failure, no rank must wait for this one */
        for (int r = 0; r < n; r++)
            ranks[r].end = 1;
    return NULL;
}

/* Runs all ranks at the same time. Each makes the `calls` one after the other. */
static void run_calls(void)
{
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, live, &ranks[r]), 0);
    for (int r = 0; r < n; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < n; r++)
        if (ranks[r].failure[0] && !strstr(ranks[r].failure, "a wait has ended"))
            fail_msg("%s", ranks[r].failure);
    for (int r = 0; r < n; r++)
        if (ranks[r].failure[0])
            fail_msg("%s", ranks[r].failure);
    epoch += ncalls;
    ncalls = 0;
}

static void add_call(size_t bytes)
{
    calls[ncalls++] = bytes;
    if (ncalls == sizeof(calls) / sizeof(calls[0]))
        run_calls();
}

TEST_BETWEEN(ranks_may_run_ahead_of_each_other, NULL, close_ranks)
{
    static const int counts[] = {2, 3, 5, 8, 16};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        unsigned seed = (unsigned)time(NULL) + (unsigned)i;
        print_message("seed %u\n", seed);
        open_ranks(counts[i]);
        delays = true;
        for (int c = 0; c < test_share(800) / counts[i]; c++)
            add_call(1 + (size_t)rand_r(&seed) % (SLOT >> rand_r(&seed) % 8));
        run_calls();
        close_ranks(state);
    }
}

/* Ranks learn of the others' progress only through the calls. */
TEST_BETWEEN(a_rank_that_is_always_late_is_waited_for, NULL, close_ranks)
{
    open_ranks(4);
    for (int turn = 0; turn < 8; turn++) {
        pthread_t late;
        for (ncalls = 0; ncalls < 3; ncalls++)
            calls[ncalls] = turn % 2 ? 100 : SLOT;
        for (int r = 0; r < n; r++)
            if (r != turn % n)
                assert_int_equal(pthread_create(&ranks[r].thread, NULL, live, &ranks[r]), 0);
        usleep(3000); /* until naps have grown to full length */
        for (int r = 0; r < n; r++)
            if (r != turn % n)
                assert_int_not_equal(ranks[r].done, epoch + 1);
        assert_int_equal(pthread_create(&late, NULL, live, &ranks[turn % n]), 0);
        ranks[turn % n].thread = late;
        for (int r = 0; r < n; r++) {
            pthread_join(ranks[r].thread, NULL);
            assert_string_equal(ranks[r].failure, "");
        }
        epoch += ncalls;
    }
}

static void slots_set(int byte)
{
    for (int r = 0; r < n; r++)
        memset(slots[r], byte, (size_t)cecl_small_slots_bytes(n, SLOT));
}

/* The epochs include 0, the value of zeroed slots, but by then the slots hold other bytes. */
TEST_BETWEEN(epochs_may_wrap_around, NULL, close_ranks)
{
    open_ranks(3);
    slots_set(0x55);
    set_epoch(0u - 20);
    for (int c = 0; c < 40; c++)
        add_call(c % 3 == 0 ? SLOT : 1000);
    run_calls();
    assert_int_equal(epoch, 20);
}

/* Calls that use almost no lines renew all of them, one row each. */
TEST_BETWEEN(all_lines_are_renewed_by_and_by, NULL, close_ranks)
{
    open_ranks(2);
    slots_set(0x55);
    const size_t half = (size_t)cecl_small_slots_bytes(n, SLOT) / 2;
    const size_t rows = 2 * half / CECL_SMALL_ROW;
    for (size_t c = 0; c < rows; c++)
        add_call(16);
    run_calls();
    for (int r = 0; r < n; r++)
        for (size_t at = 0; at < 2 * half; at += 16) {
            uint32_t last;
            memcpy(&last, slots[r] + at + 12, sizeof(last));
            if (last == 0x55555555 &&
                at % half / (2 * SLOT) != (size_t)r) /* own slots are unused */
                fail_msg("rank %d: the line at %zu has not been renewed", r, at);
        }
}

/* A line that no call has used gets a value that is far from the epochs of the next calls. */
TEST_BETWEEN(a_renewed_line_is_half_a_cycle_away, NULL, close_ranks)
{
    open_ranks(2);
    set_epoch(12); /* the call renews row 6 of its half, which a block of one vector does not use */
    add_call(16);
    run_calls();
    for (int r = 0; r < n; r++)
        for (size_t share = 0; share < CECL_SMALL_SHARES; share++) {
            uint32_t last;
            memcpy(&last, slots[r] + 6 * (size_t)CECL_SMALL_ROW + share * 16 + 12, sizeof(last));
            assert_int_equal(last, 12u + (1u << 31));
        }
}

/* GPU kernels and this code share the layout of slots, and plans describe it. */
TEST_BETWEEN(a_line_is_12_bytes_of_a_shares_vectors_and_the_epoch, NULL, close_ranks)
{
    unsigned char block[SLOT];
    open_ranks(2);
    epoch = 7;
    add_call(3000);
    run_calls();
    memset(block, 0, sizeof(block));
    for (size_t i = 0; i < 3000; i++)
        block[i] = byte_of(7, 1, i);
    /* In rank 0's memory the odd half follows the even half's slots, and rank 1's slot is the second one. */
    const unsigned char *slot = slots[0] + 3 * 2 * SLOT;
    for (size_t group = 0; group < 2; group++)
        for (size_t share = 0; share < 32; share++)
            for (size_t w = 0; w < 12; w++) { /* share 31's third vector begins at byte 3056 */
                const size_t vector = group * 96 + w / 4 * 32 + share;
                const unsigned char *line = slot + group * 2048 + w / 3 * 512 + share * 16;
                uint32_t last;
                memcpy(&last, line + 12, sizeof(last));
                if (vector * 16 >= 3000)
                    continue;
                assert_int_equal(last, 7);
                assert_memory_equal(line + w % 3 * 4, block + vector * 16 + w % 4 * 4, 4);
            }
}

/* ---- waits that end. Rank 0 never comes, except in one test. */

static uint64_t timeout_ns;

static void *wait_in_vain(void *argument)
{
    struct rank *me = argument;
    struct cecl_small small = small_of(me, 1000, epoch);
    const struct cecl_meeting meeting = meeting_of(me, epoch);
    small.timeout_ns = timeout_ns;
    small.meeting = &meeting;
    cecl_small_host(&small);
    return NULL;
}

static void begin_to_wait(uint64_t bound_ns)
{
    open_ranks(3);
    timeout_ns = bound_ns;
    for (int r = 1; r < n; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, wait_in_vain, &ranks[r]), 0);
}

static void waits_ended(int64_t since_ms)
{
    for (int r = 1; r < n; r++)
        pthread_join(ranks[r].thread, NULL);
    assert_true(cecl_now_ms() - since_ms < SOON_MS);
}

static void peers_hear_that_ranks_began(void)
{
    const int64_t start = cecl_now_ms();
    for (int r = 1; r < n; r++)
        for (int p = 0; p < n; p++) {
            while (p != r && ranks[p].row[r] == 0 && cecl_now_ms() - start < SOON_MS)
                usleep(1000);
            assert_int_equal(ranks[p].row[r], p == r ? 0 : epoch + 1000);
        }
}

TEST_BETWEEN(a_wait_ends_by_its_bound_and_sets_late, NULL, close_ranks)
{
    const int64_t start = cecl_now_ms();
    begin_to_wait(50000000);
    waits_ended(start);
    assert_true(cecl_now_ms() - start >= 50);
    for (int r = 1; r < n; r++) {
        assert_int_equal(ranks[r].late, 1);
        assert_int_equal(ranks[r].done, epoch + 1);
    }
    peers_hear_that_ranks_began();
}

/* Whether ranks 0 and 1 report that rank 2 is missing. Each must come within the other's time limit. */
static bool all_tell_who_is_missing_within(uint64_t limit_ns)
{
    const int missing = 2;
    bool told = true;
    open_ranks(3);
    timeout_ns = limit_ns;
    for (int r = 0; r < missing; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, wait_in_vain, &ranks[r]), 0);
    for (int r = 0; r < missing; r++) {
        pthread_join(ranks[r].thread, NULL);
        told = told && ranks[r].late == 1u + (uint32_t)missing;
    }
    return told;
}

TEST_BETWEEN(late_tells_whose_data_is_missing, NULL, close_ranks)
{
    assert_true(all_tell_who_is_missing_within(2000000000) ||
                all_tell_who_is_missing_within(20000000000));
}

/* A timeout of 0 means no time limit. */
TEST_BETWEEN(a_wait_ends_by_its_word_and_not_before, NULL, close_ranks)
{
    begin_to_wait(0);
    peers_hear_that_ranks_began();
    usleep(100000);
    for (int r = 1; r < n; r++)
        assert_int_equal(ranks[r].done, 0);
    const int64_t start = cecl_now_ms();
    for (int r = 1; r < n; r++)
        ranks[r].end = 1;
    waits_ended(start);
    for (int r = 1; r < n; r++) {
        assert_int_equal(ranks[r].late, 1);
        assert_int_equal(ranks[r].done, epoch + 1);
    }
}

TEST_BETWEEN(a_call_that_begins_after_the_end_sends_and_tells_nothing, NULL, close_ranks)
{
    for (int kind = CECL_SMALL_ALL_REDUCE; kind <= CECL_SMALL_ALL_TO_ALL; kind++) {
        open_ranks(2);
        const size_t bytes = (size_t)cecl_small_slots_bytes(n, SLOT);
        unsigned char *before = must_alloc(bytes);
        struct cecl_small small = small_of(&ranks[0], 2000, epoch);
        const struct cecl_meeting meeting = meeting_of(&ranks[0], epoch);
        small.kind = (enum cecl_small_kind)kind;
        small.type = ceclFloat32;
        small.meeting = &meeting;
        ranks[0].end = 1;
        cecl_small_host(&small);
        for (int r = 0; r < n; r++)
            assert_memory_equal(slots[r], before, bytes);
        assert_int_equal(ranks[1].row[0], 0);
        assert_int_equal(ranks[0].late, 1);
        assert_int_equal(ranks[0].done, epoch + 1);
        free(before);
        close_ranks(state);
    }
}

static void refused(const struct cecl_small *small, const char *words)
{
    assert_int_equal(cecl_small_check(small), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), words));
}

TEST(what_cannot_be_is_refused)
{
    struct cecl_small small = {.nranks = 1, .bytes = 16, .slot_bytes = SLOT};
    refused(&small, "rank 0 of 1: 2 to 16 ranks expected");
    small.nranks = 17;
    refused(&small, "2 to 16 ranks expected");
    small.nranks = small.rank = 2;
    refused(&small, "rank 2 of 2");
    small.rank = 1;
    assert_int_equal(cecl_small_check(&small), ceclSuccess);
    small.bytes = 0;
    refused(&small, "0 bytes for slots of 4096");
    small.bytes = SLOT + 16;
    refused(&small, "for slots of 4096");
    small.bytes = 18;
    small.type = ceclFloat32;
    refused(&small, "not whole elements");
    small.type = ceclInt32;
    small.op = ceclAvg;
    refused(&small, "ceclAvg of int32");
    small.kind = CECL_SMALL_ALL_GATHER; /* ignores type and op */
    assert_int_equal(cecl_small_check(&small), ceclSuccess);
}

static int count_calls(void **state)
{
    is_counted = true;
    return 0;
}

static int close_counted(void **state)
{
    is_counted = false;
    return close_ranks(state);
}

TEST_AGAIN(ranks_may_run_ahead_of_each_other, count_calls, close_counted)
TEST_AGAIN(a_rank_that_is_always_late_is_waited_for, count_calls, close_counted)
TEST_AGAIN(epochs_may_wrap_around, count_calls, close_counted)
TEST_AGAIN(all_lines_are_renewed_by_and_by, count_calls, close_counted)
TEST_AGAIN(a_renewed_line_is_half_a_cycle_away, count_calls, close_counted)
