/* Which operations of the device run while every SM of the GPUs is held. All objects are created
 * before the SMs are held, and freed afterwards. In between there are no assertions, so a failure
 * cannot leave the SMs held. */
#include "cuda_fixture.h"
#include "hold_sms.h"

#define BYTES ((size_t)PATTERN_WORDS * 4)

/* Two GPUs. [i] belongs to GPU i: its memory of two patterns, and its mapping of the other GPU's
 * memory. */
struct pair {
    struct kit kit[2];
    struct memory own[2], view[2];
    struct hold_sms *hold[2];
};

/* Holds each GPU once by itself, so that the kernel is loaded before another GPU is held. */
static int gpus_open_and_hold_once(void **state)
{
    gpus_open(state);
    for (int i = 0; i < 2; i++)
        if (gpu[i]) {
            struct hold_sms *hold = hold_sms_start_on(i, NULL);
            assert_non_null(hold);
            assert_true(hold_sms_held(hold));
            assert_true(hold_sms_stop(hold));
        }
    return 0;
}

static struct pair pair_make(void)
{
    struct pair pair = {0};
    for (int i = 0; i < 2; i++) {
        pair.kit[i] = kit_make(gpu[i]);
        pair.own[i] = memory_make(gpu[i], 2 * BYTES);
        put_pattern(&pair.kit[i], pair.own[i].at, (uint32_t)(20 + i));
        put_pattern(&pair.kit[i], pair.own[i].at + PATTERN_WORDS, 29);
    }
    for (int i = 0; i < 2; i++)
        pair.view[i] = memory_view(gpu[i], &pair.own[1 - i]);
    return pair;
}

static void pair_hold(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        pair->hold[i] = hold_sms_start_on(i, NULL);
}

/* Releases both; returns whether both were held until now. */
static bool pair_let_go(struct pair *pair)
{
    const int first = hold_sms_stop(pair->hold[0]), second = hold_sms_stop(pair->hold[1]);
    return first && second;
}

static void pair_end(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        memory_end(&pair->view[i]);
    for (int i = 0; i < 2; i++) {
        memory_end(&pair->own[i]);
        kit_end(&pair->kit[i]);
    }
}

/* The counter-test: a local copy needs an SM with these drivers. The copy has no driver hint,
 * because a newer driver may run a hinted copy on a copy engine. If this test fails with a new
 * driver, local copies have become free of SMs: see docs/decisions/0003. */
TEST(local_copy_waits_until_the_sms_are_free)
{
    struct kit kit = kit_make(gpu[0]);
    struct memory memory = memory_make(gpu[0], 2 * BYTES);
    put_pattern(&kit, memory.at, 30);
    /* Makes the copy once before, so that nothing has to be loaded while the SMs are held. */
    must(
        OPS(gpu[0])->memcpy_async(gpu[0], memory.at + PATTERN_WORDS, memory.at, BYTES, kit.stream));
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
    put_pattern(&kit, memory.at + PATTERN_WORDS, 31);

    struct hold_sms *hold = hold_sms_start_on(0, NULL);
    ceclResult_t result = ceclInProgress;
    bool early = true;
    if (hold) {
        result = OPS(gpu[0])->memcpy_async(gpu[0], memory.at + PATTERN_WORDS, memory.at, BYTES,
                                           kit.stream);
        early = ends_within(gpu[0], kit.stream, A_WHILE_MS);
    }
    const int held = hold_sms_stop(hold);
    const bool late = ends_within(gpu[0], kit.stream, SOON_MS);

    assert_true(held);
    must(result);
    assert_false(early);
    assert_true(late);
    assert_true(has_pattern(&kit, memory.at + PATTERN_WORDS, 30));
    memory_end(&memory);
    kit_end(&kit);
}

/* Each GPU copies its first pattern to the other's second place, or reads the other's first. */
static void check_peer_copies(bool push)
{
    ceclResult_t result[2] = {ceclInProgress, ceclInProgress};
    bool ended[2] = {false, false};
    struct pair pair = pair_make();

    pair_hold(&pair);
    for (int i = 0; i < 2; i++) {
        uint32_t *own = pair.own[i].at, *view = pair.view[i].at;
        result[i] = push ? copy_one(gpu[i], pair.kit[i].stream, view + PATTERN_WORDS, own, BYTES)
                         : copy_one(gpu[i], pair.kit[i].stream, own + PATTERN_WORDS, view, BYTES);
    }
    for (int i = 0; i < 2; i++)
        ended[i] = ends_within(gpu[i], pair.kit[i].stream, SOON_MS);
    const bool held = pair_let_go(&pair);

    assert_true(held);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(result[i], ceclSuccess);
        assert_true(ended[i]);
        assert_true(has_pattern(&pair.kit[i], pair.own[i].at + PATTERN_WORDS, (uint32_t)(21 - i)));
    }
    pair_end(&pair);
}

TEST(peer_push_needs_no_sm)
{
    need_two();
    check_peer_copies(true);
}

TEST(peer_pull_needs_no_sm)
{
    need_two();
    check_peer_copies(false);
}

/* How flags are written: by a remote stream write, or by a copy of a word that the stream wrote
 * locally. */
static ceclResult_t send_flag(struct pair *pair, int from, bool by_copy, uint32_t value)
{
    ceclStream_t stream = pair->kit[from].stream;
    uint32_t *there = pair->view[from].at, *source = pair->own[from].at + 1;
    if (!by_copy)
        return write_word(gpu[from], stream, there, value);
    CECL_TRY(write_word(gpu[from], stream, source, value));
    return copy_one(gpu[from], stream, there, source, sizeof(*there));
}

/* One payload and flag from GPU 0, and GPU 1's answer. */
static ceclResult_t ping_pong(struct pair *pair, bool by_copy, uint32_t *payload, uint32_t *taken,
                              uint32_t epoch)
{
    ceclStream_t zero = pair->kit[0].stream, one = pair->kit[1].stream;
    CECL_TRY(copy_one(gpu[0], zero, pair->view[0].at + PATTERN_WORDS, payload, BYTES));
    CECL_TRY(send_flag(pair, 0, by_copy, epoch));
    CECL_TRY(wait_word(gpu[1], one, pair->own[1].at, epoch));
    CECL_TRY(OPS(gpu[1])->memcpy_async(gpu[1], taken, pair->own[1].at + PATTERN_WORDS, BYTES, one));
    CECL_TRY(send_flag(pair, 1, by_copy, epoch));
    return wait_word(gpu[0], zero, pair->own[0].at, epoch);
}

/* GPU 0 sends a payload and then a flag, many times. GPU 1 waits for the flag, copies the payload
 * to pinned memory, and answers with a flag. The copied payload always belongs to the flag. */
static void check_ping_pong(bool by_copy, bool hold)
{
    enum { ROUNDS = 20 };
    static uint32_t *taken[ROUNDS];
    ceclResult_t result = ceclSuccess;
    bool ended = true, held = true;
    struct pair pair = pair_make();
    struct memory payload = memory_make(gpu[0], ROUNDS * BYTES);

    for (uint32_t r = 0; r < ROUNDS; r++) {
        put_pattern(&pair.kit[0], payload.at + r * PATTERN_WORDS, 100 + r);
        must(OPS(gpu[1])->words_alloc(gpu[1], PATTERN_WORDS, &taken[r]));
    }
    for (int i = 0; i < 2; i++) /* just before epoch 0, cyclically */
        must(OPS(gpu[i])->mem_set(gpu[i], pair.own[i].at, 0xff, 8));
    if (hold)
        pair_hold(&pair);
    for (uint32_t r = 0; r < ROUNDS && result == ceclSuccess; r++)
        result = ping_pong(&pair, by_copy, payload.at + r * PATTERN_WORDS, taken[r], r);
    for (int i = 0; i < 2; i++)
        ended = ends_within(gpu[i], pair.kit[i].stream, SOON_MS) && ended;
    if (hold)
        held = pair_let_go(&pair);

    if (!ended) /* release the streams; otherwise freeing would wait for them */
        for (int i = 0; i < 2; i++)
            must(OPS(gpu[i])->words_release(gpu[i], pair.own[i].at, 1, 0x40000000));
    must(result);
    assert_true(held);
    assert_true(ended);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        assert_true(pattern_is(taken[r], 100 + r));
        OPS(gpu[1])->words_free(gpu[1], taken[r]);
    }
    memory_end(&payload);
    pair_end(&pair);
}

TEST(flags_by_remote_write_follow_their_payload)
{
    need_two();
    check_ping_pong(false, false);
}

TEST(flags_by_copy_follow_their_payload)
{
    need_two();
    check_ping_pong(true, false);
}

TEST(flags_by_remote_write_need_no_sm)
{
    need_two();
    check_ping_pong(false, true);
}

TEST(flags_by_copy_need_no_sm)
{
    need_two();
    check_ping_pong(true, true);
}

TEST(peer_copy_from_the_legacy_stream_needs_no_sm)
{
    ceclStream_t work = NULL;
    bool ended = false;
    need_two();
    struct pair pair = pair_make();

    pair_hold(&pair);
    ceclResult_t result = OPS(gpu[0])->stream_fork(gpu[0], NULL, &work);
    if (result == ceclSuccess) {
        result = copy_one(gpu[0], work, pair.view[0].at + PATTERN_WORDS, pair.own[0].at, BYTES);
        const ceclResult_t joined = OPS(gpu[0])->stream_join(gpu[0], NULL, work);
        result = result == ceclSuccess ? joined : result;
        ended = ends_within(gpu[0], NULL, SOON_MS);
    }
    const bool held = pair_let_go(&pair);

    must(result);
    assert_true(held);
    assert_true(ended);
    assert_true(has_pattern(&pair.kit[1], pair.own[1].at + PATTERN_WORDS, 20));
    pair_end(&pair);
}

TEST(watchdogs_words_need_no_sm)
{
    uint32_t own = 0, theirs = 0;
    need_two();
    struct pair pair = pair_make();
    must(OPS(gpu[0])->mem_set(gpu[0], pair.own[0].at, 0, 4));

    pair_hold(&pair);
    const ceclResult_t released = OPS(gpu[0])->words_release(gpu[0], pair.own[0].at, 1, 5);
    const ceclResult_t here = OPS(gpu[0])->words_read(gpu[0], pair.own[0].at, 1, &own);
    const ceclResult_t there = OPS(gpu[1])->words_read(gpu[1], pair.view[1].at, 1, &theirs);
    const bool held = pair_let_go(&pair);

    assert_true(held);
    assert_int_equal(released, ceclSuccess);
    assert_int_equal(here, ceclSuccess);
    assert_int_equal(there, ceclSuccess);
    assert_int_equal(own, 5);
    assert_int_equal(theirs, 5);
    pair_end(&pair);
}

int main(void)
{
    const int skipped = fixture_start();
    return skipped ? skipped : tests_run(gpus_open_and_hold_once, gpus_close);
}
