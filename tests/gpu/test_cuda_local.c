/* Whether local copies run on a copy engine: the device's answer is compared with other evidence.
 * The probe takes a bounded time, and leaks nothing. The test works with drivers of either kind. */
#include <pthread.h>

#include "cuda_fixture.h"
#include "hold_sms.h"
#include "sm/hold.h"

#define BYTES ((size_t)PATTERN_WORDS * 4)
#define ROOM ((size_t)4 << 20)
/* Far above the 50 for which the probe may hold SMs, far below its time limit of 10 s */
#define PROBE_MS 1000
#define TIMES 20

static const uint32_t both = CECL_LOCAL_CONTIGUOUS | CECL_LOCAL_ROWS;

/* Runs each kernel and a probe once, so that later runs load nothing. */
static int gpus_open_and_warm_up(void **state)
{
    uint32_t ways;
    gpus_open(state);
    assert_true(hold_sms_stop(hold_sms_start_on(0, NULL)));
    struct memory memory = memory_make(gpu[0], ROOM);
    must(OPS(gpu[0])->local_copies(gpu[0], memory.at, ROOM, true, &ways));
    memory_end(&memory);
    return 0;
}

static uint32_t probe(struct memory *memory, bool always, int64_t *ms)
{
    uint32_t ways = 99;
    const int64_t start = cecl_now_ms();
    must(OPS(gpu[0])->local_copies(gpu[0], memory->at, ROOM, always, &ways));
    *ms = cecl_now_ms() - start;
    assert_int_equal(ways & ~both, 0);
    return ways;
}

/* Copies the first pattern to the second's place with the device's own copy: once without held
 * SMs, so that everything is loaded, and once while all SMs are held. */
static bool copy_ends_while_held(struct kit *kit, struct memory *memory, bool rows)
{
    uint32_t *to = memory->at + PATTERN_WORDS, *from = memory->at;
    const struct cecl_row_copy row_copy = {.dst = to,
                                           .src = from,
                                           .width = 2048,
                                           .rows = BYTES / 2048,
                                           .dst_pitch = 2048,
                                           .src_pitch = 2048};
    struct hold_sms *hold = NULL;
    bool ended = false;
    ceclResult_t result = ceclSuccess;
    for (int pass = 0; pass < 2 && result == ceclSuccess; pass++) {
        put_pattern(kit, from, 40 + (uint32_t)pass);
        put_pattern(kit, to, 44);
        hold = pass == 1 ? hold_sms_start_on(0, NULL) : NULL;
        if (pass == 1 && !hold)
            break;
        result = rows ? OPS(gpu[0])->row_copies(gpu[0], kit->stream, &row_copy, 1)
                      : copy_one(gpu[0], kit->stream, to, from, BYTES);
        ended = ends_within(gpu[0], kit->stream, pass == 1 ? A_WHILE_MS : SOON_MS);
    }
    const int held = hold_sms_stop(hold);
    must(result);
    assert_true(held);
    assert_true(ends_within(gpu[0], kit->stream, SOON_MS));
    assert_true(has_pattern(kit, to, 41));
    return ended;
}

static void what_is_found_is_what_a_held_gpu_shows(void **state)
{
    int64_t ms;
    struct kit kit = kit_make(gpu[0]);
    struct memory memory = memory_make(gpu[0], ROOM);
    const uint32_t ways = probe(&memory, true, &ms);
    const bool contiguous = copy_ends_while_held(&kit, &memory, false),
               rows = copy_ends_while_held(&kit, &memory, true);
    print_message("local copies without an SM: contiguous %s, rows %s; found %u in %d ms\n",
                  contiguous ? "yes" : "no", rows ? "yes" : "no", ways, (int)ms);
    assert_int_equal((ways & CECL_LOCAL_CONTIGUOUS) != 0, contiguous);
    /* rows come after contiguous copies in its stream */
    assert_int_equal((ways & CECL_LOCAL_ROWS) != 0, contiguous && rows);
    memory_end(&memory);
    kit_end(&kit);
}

static void it_is_found_alike_again_and_again_and_soon(void **state)
{
    int64_t ms;
    struct memory memory = memory_make(gpu[0], ROOM);
    const uint32_t first = probe(&memory, true, &ms);
    for (int i = 0; i < TIMES; i++) {
        assert_int_equal(probe(&memory, true, &ms), first);
        assert_true(ms < PROBE_MS);
    }
    memory_end(&memory);
}

/* Drivers up to CUDA 13.0 are known. */
static void unasked_it_is_tried_with_newer_drivers_alone(void **state)
{
    int version = 0;
    int64_t ms;
    struct memory memory = memory_make(gpu[0], ROOM);
    must_cuda(cudaDriverGetVersion(&version));
    const uint32_t unasked = probe(&memory, false, &ms);
    assert_int_equal(unasked, version > 13000 ? probe(&memory, true, &ms) : 0);
    memory_end(&memory);
}

static void little_room_is_enough_and_less_is_no(void **state)
{
    int64_t ms;
    uint32_t ways = 99;
    struct memory memory = memory_make(gpu[0], ROOM);
    const uint32_t found = probe(&memory, true, &ms);
    must(OPS(gpu[0])->local_copies(gpu[0], memory.at, CECL_LOCAL_ROOM, true, &ways));
    assert_int_equal(ways, found);
    must(OPS(gpu[0])->local_copies(gpu[0], memory.at, CECL_LOCAL_ROOM - 1, true, &ways));
    assert_int_equal(ways, 0);
    memory_end(&memory);
}

/* Two blocks of another kernel hold an SM. So not all SMs can be held, and the probe proves
 * nothing. */
static void work_beside_it_comes_to_no_and_goes_on(void **state)
{
    int64_t ms;
    struct cecl_hold_size size;
    struct kit kit = kit_make(gpu[0]);
    struct memory memory = memory_make(gpu[0], ROOM);
    struct cecl_hold_words *words = (struct cecl_hold_words *)(void *)kit.host;
    memset(words, 0, sizeof(*words));
    must(cecl_hold_prepare(&size));
    size.blocks = 2;
    must(cecl_hold_launch(kit.stream, size, words, UINT64_C(3000000000)));
    for (int i = 0; i < SOON_MS && !cecl_hold_all_run(words, size); i++)
        pause_ms(1);
    const uint32_t ways = probe(&memory, true, &ms);
    const bool held = cecl_hold_holds(words, size);
    words->let_go = 1;
    assert_true(ends_within(gpu[0], kit.stream, SOON_MS));
    assert_true(held);
    assert_int_equal(ways, 0);
    assert_true(ms < PROBE_MS);
    memory_end(&memory);
    kit_end(&kit);
}

static void *let_go_soon(void *hold)
{
    pause_ms(A_WHILE_MS);
    hold_sms_stop(hold);
    return NULL;
}

static void it_outlasts_a_kernel_that_holds_all_sms_for_a_while(void **state)
{
    int64_t ms;
    pthread_t thread;
    struct memory memory = memory_make(gpu[0], ROOM);
    const uint32_t before = probe(&memory, true, &ms);
    struct hold_sms *hold = hold_sms_start_on(0, NULL);
    assert_non_null(hold);
    assert_int_equal(pthread_create(&thread, NULL, let_go_soon, hold), 0);
    uint32_t ways = 99;
    const ceclResult_t result = OPS(gpu[0])->local_copies(gpu[0], memory.at, ROOM, true, &ways);
    pthread_join(thread, NULL);
    must(result);
    assert_true(ways == before || ways == 0); /* false if the probe ran before the SMs were free */
    assert_int_equal(probe(&memory, true, &ms), before);
    memory_end(&memory);
}

static void it_leaves_no_error_no_work_and_no_memory_behind(void **state)
{
    int64_t ms;
    size_t before = 0, after = 0, all = 0;
    struct kit kit = kit_make(gpu[0]);
    struct memory memory = memory_make(gpu[0], ROOM + BYTES);
    uint32_t *beyond = memory.at + ROOM / 4;
    put_pattern(&kit, beyond, 50);
    must_cuda(cudaMemGetInfo(&before, &all));
    for (int i = 0; i < TIMES; i++)
        probe(&memory, true, &ms);
    must_cuda(cudaMemGetInfo(&after, &all));
    must_cuda(cudaGetLastError());
    must(OPS(gpu[0])->streams_drain(gpu[0], cecl_deadline(SOON_MS)));
    must_cuda(cudaDeviceSynchronize());
    assert_true(has_pattern(&kit, beyond, 50));
    assert_true(after + ((size_t)1 << 20) > before);
    memory_end(&memory);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_is_what_a_held_gpu_shows),
        cmocka_unit_test(it_is_found_alike_again_and_again_and_soon),
        cmocka_unit_test(unasked_it_is_tried_with_newer_drivers_alone),
        cmocka_unit_test(little_room_is_enough_and_less_is_no),
        cmocka_unit_test(work_beside_it_comes_to_no_and_goes_on),
        cmocka_unit_test(it_outlasts_a_kernel_that_holds_all_sms_for_a_while),
        cmocka_unit_test(it_leaves_no_error_no_work_and_no_memory_behind),
    };
    const int skipped = fixture_start();
    return skipped ? skipped : cmocka_run_group_tests(tests, gpus_open_and_warm_up, gpus_close);
}
