/* Small collectives by one kernel on each GPU (sm/small.h): every type and operation gives the host's bits, blocks
 * arrive whole at any alignment, calls follow each other without a pause, a kernel does everything that its meeting
 * requests, and waits end. One process uses as many GPUs as the first argument says (default 2).
 *
 * CECL_TEST_SHORT=1: only a few sizes, and one kernel at a time, as tools that observe kernels may run them. The kernel
 * of each rank but the last sends, waits in vain for a moment, and is launched again. */
#include "../reduce_inputs.h"
#include "cuda_fixture.h"
#include "sm/small.h"

#define MOST 8
#define SLOT ((size_t)64 << 10)
#define ROOM (MOST * SLOT + 4096) /* bytes of a buffer */
#define MARGIN 256                /* guard bytes before and after recv */
#define GUARD 0x5a
#define SHORT_S 280 /* time limit under a tool that observes kernels */

static int n = 2;
static cudaStream_t streams[MOST];
static unsigned char *slots[MOST], *send[MOST], *recv[MOST];
static unsigned char *inputs[MOST], *result; /* on the host: the ranks' inputs, bytes copied back */
static uint32_t *words[MOST];                /* pinned: end, late */
static uint32_t epoch = 1;
static bool is_counted; /* calls count themselves in a word on the GPU, as captured calls do */
static uint32_t *numbers[MOST];

/* Words that kernels write in a meeting: rows [rank][sender]. */
#define ROW 16
static uint32_t (*rows)[ROW], *done;  /* pinned */
static uint32_t *leaving[MOST];       /* on the GPU */
static uint64_t (*told_numbers)[ROW]; /* pinned: written by counted calls, rows [rank][sender] */
#define NUMBER 7                      /* of a captured call */
static uint32_t told;                 /* the value of a meeting's words; 0: no meeting */

static int all_open(void **state)
{
    for (int g = 0; g < n; g++) {
        must_cuda(cudaSetDevice(g));
        for (int peer = 0; peer < n; peer++)
            if (peer != g)
                must_cuda(cudaDeviceEnablePeerAccess(peer, 0));
        must(cecl_small_cuda_prepare());
        const size_t bytes = (size_t)cecl_small_slots_bytes(n, SLOT);
        must_cuda(cudaStreamCreateWithFlags(&streams[g], cudaStreamNonBlocking));
        must_cuda(cudaMalloc((void **)&slots[g], bytes));
        must_cuda(cudaMemset(slots[g], 0, bytes));
        must_cuda(cudaMalloc((void **)&send[g], ROOM));
        must_cuda(cudaMalloc((void **)&recv[g], ROOM));
        must_cuda(cudaHostAlloc((void **)&words[g], 64, cudaHostAllocPortable));
        memset(words[g], 0, 64);
        must_cuda(cudaMalloc((void **)&numbers[g], sizeof(uint32_t)));
        must_cuda(cudaMalloc((void **)&leaving[g], sizeof(uint32_t)));
        must_cuda(cudaMemset(leaving[g], 0, sizeof(uint32_t)));
        inputs[g] = malloc(ROOM);
        assert_non_null(inputs[g]);
        must_cuda(cudaDeviceSynchronize());
    }
    must_cuda(cudaHostAlloc((void **)&rows, MOST * sizeof(*rows), cudaHostAllocPortable));
    must_cuda(
        cudaHostAlloc((void **)&told_numbers, MOST * sizeof(*told_numbers), cudaHostAllocPortable));
    must_cuda(cudaHostAlloc((void **)&done, MOST * sizeof(*done), cudaHostAllocPortable));
    result = malloc(ROOM);
    assert_non_null(result);
    return 0;
}

/* Sets the number of the next call. No kernel may be running. */
static void set_epoch(uint32_t next)
{
    const uint32_t before = next - 1;
    epoch = next;
    for (int g = 0; g < n; g++)
        must_cuda(cudaMemcpy(numbers[g], &before, sizeof(before), cudaMemcpyDefault));
}

static void fill(ceclDataType_t type, uint64_t seed)
{
    for (int g = 0; g < n; g++) {
        random_fill(inputs[g], type, ROOM / formats[type].bytes, &seed);
        must_cuda(cudaMemcpy(send[g], inputs[g], ROOM, cudaMemcpyDefault));
    }
}

static void synchronize(void)
{
    for (int g = 0; g < n; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamSynchronize(streams[g]));
        if (words[g][1])
            fail_msg("rank %d waited in vain", g);
    }
}

static bool reduces(const struct cecl_small *s)
{
    return s->kind == CECL_SMALL_ALL_REDUCE || s->kind == CECL_SMALL_REDUCE_SCATTER;
}

/* Whether a rank's input is a block for each rank. */
static bool has_blocks(const struct cecl_small *s)
{
    return s->kind == CECL_SMALL_ALL_TO_ALL || s->kind == CECL_SMALL_REDUCE_SCATTER;
}

/* In place: how far behind the buffer's start a rank's input begins, and its result. */
static size_t input_within(const struct cecl_small *s, int g)
{
    return s->kind == CECL_SMALL_ALL_GATHER ? (size_t)g * s->bytes : 0;
}

static size_t result_within(const struct cecl_small *s, int g, bool in_place)
{
    return in_place && s->kind == CECL_SMALL_REDUCE_SCATTER ? (size_t)g * s->bytes : 0;
}

static struct cecl_meeting meeting_of(int g)
{
    return (struct cecl_meeting){.does = CECL_MEET_DONE | (is_counted ? 0 : CECL_MEET_SIGNAL_FIRST),
                                 .first = told,
                                 .rank = (uint32_t)g,
                                 .nranks = (uint32_t)n,
                                 .row = rows[g],
                                 .word = &rows[0][g],
                                 .apart = sizeof(rows[0]),
                                 .ended = &words[g][0],
                                 .leaving = leaving[g],
                                 .done = &done[g],
                                 .done_value = told + 1};
}

/* Enqueues one rank's part of a call; its buffers begin at offset `lie` bytes. */
static void enqueue(int g, struct cecl_small s, size_t lie, bool in_place)
{
    const struct cecl_meeting meeting = meeting_of(g);
    unsigned char *const begin = recv[g] + MARGIN + lie;
    s.rank = g;
    s.nranks = n;
    s.recv = begin + result_within(&s, g, in_place);
    s.send = in_place ? begin + input_within(&s, g) : send[g] + lie;
    memcpy(s.slots, slots, sizeof(slots[0]) * (size_t)n);
    s.slot_bytes = SLOT;
    const struct cecl_counting counting = {.count = numbers[g],
                                           .number = NUMBER,
                                           .told = &told_numbers[0][g],
                                           .told_apart = sizeof(told_numbers[0]),
                                           .begun_value = 0xbe9};
    s.epoch = is_counted ? 99 : epoch;
    s.counting = is_counted ? &counting : NULL;
    s.end = &words[g][0];
    s.late = &words[g][1];
    s.timeout_ns = s.timeout_ns ? s.timeout_ns : UINT64_C(10000000000);
    s.meeting = told ? &meeting : NULL;
    must_cuda(cudaSetDevice(g));
    must(cecl_small_cuda(streams[g], &s));
}

/* Runs all ranks' parts of a call one after the other. What a rank sends has arrived when its kernel ends, so the last
 * rank finds all data of the others when it starts. */
static void run_one_by_one(struct cecl_small s, size_t lie, bool in_place)
{
    struct cecl_small hasty = s;
    hasty.timeout_ns = 100000;
    for (int g = 0; g < n - 1; g++) {
        enqueue(g, hasty, lie, in_place);
        must_cuda(cudaStreamSynchronize(streams[g]));
        assert_in_range(words[g][1], 2 + g, n); /* 1 + a missing rank; all after g are */
        words[g][1] = 0;
    }
    for (int k = 0; k < n; k++) {
        const int g = (k + n - 1) % n;
        enqueue(g, s, lie, in_place);
        must_cuda(cudaStreamSynchronize(streams[g]));
    }
}

static void run_all(struct cecl_small s, size_t lie, bool in_place)
{
    if (is_short())
        run_one_by_one(s, lie, in_place);
    else
        for (int g = 0; g < n; g++)
            enqueue(g, s, lie, in_place);
    epoch++;
    synchronize();
}

/* Rank g's expected result, from the start of its recv. */
static void expect(const struct cecl_small *s, int g, size_t lie, bool in_place, unsigned char *out)
{
    const void *src[MOST];
    for (int r = 0; r < n; r++) {
        src[r] = inputs[r] + lie + (has_blocks(s) ? (size_t)g * s->bytes : 0);
        if (!reduces(s))
            memcpy(out + (size_t)r * s->bytes, src[r], s->bytes);
    }
    if (!reduces(s))
        return;
    if (in_place && has_blocks(s)) /* the rest of the input stays as it is */
        memcpy(out, inputs[g] + lie, (size_t)n * s->bytes);
    const struct cecl_reduction r = {.dst = out + result_within(s, g, in_place),
                                     .src = src,
                                     .nsrc = (uint32_t)n,
                                     .count = s->bytes / formats[s->type].bytes,
                                     .type = s->type,
                                     .op = s->op,
                                     .widens = s->widens,
                                     .divisor = (uint32_t)n};
    cecl_reduce_host(&r);
}

static void ranks_get_what_they_should(struct cecl_small s, size_t lie, bool in_place)
{
    static unsigned char expected[ROOM];
    const size_t blocks = (size_t)n * s.bytes, in = has_blocks(&s) ? blocks : s.bytes;
    const size_t all = !reduces(&s) || (in_place && has_blocks(&s))
                           ? blocks
                           : cecl_reduction_result_bytes(s.widens, s.bytes);
    for (int g = 0; g < n; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaMemset(recv[g], GUARD, ROOM));
        if (in_place)
            must_cuda(cudaMemcpy(recv[g] + MARGIN + lie + input_within(&s, g), inputs[g] + lie, in,
                                 cudaMemcpyDefault));
        must_cuda(cudaDeviceSynchronize());
    }
    run_all(s, lie, in_place);
    for (int g = 0; g < n; g++) {
        must_cuda(cudaMemcpy(result, recv[g], all + lie + 2 * MARGIN, cudaMemcpyDefault));
        memset(expected, GUARD, all + lie + 2 * MARGIN);
        expect(&s, g, lie, in_place, expected + MARGIN + lie);
        for (size_t i = 0; i < all + lie + 2 * MARGIN; i++)
            if (result[i] != expected[i])
                fail_msg("kind %d, %s %s, %zu bytes, lie %zu, in place %d, rank %d: byte %td of "
                         "recv is %#x, %#x expected",
                         (int)s.kind, op_names[s.op], formats[s.type].name, (size_t)s.bytes, lie,
                         in_place, g, (ptrdiff_t)i - (ptrdiff_t)(MARGIN + lie), result[i],
                         expected[i]);
    }
}

static struct cecl_small small_of(int kind, size_t bytes, ceclDataType_t type, int op, uint32_t sms)
{
    return (struct cecl_small){.kind = (enum cecl_small_kind)kind,
                               .bytes = bytes,
                               .type = type,
                               .op = (ceclRedOp_t)op,
                               .max_sms = sms};
}

static void reductions_give_the_hosts_bits(enum cecl_small_kind kind)
{
    static const size_t counts[] = {1, 13, 1000, 5021};
    for (int type = 0; type < CECL_NUM_TYPES; type++) {
        fill((ceclDataType_t)type, 5 + (uint64_t)type);
        for (int op = 0; op < CECL_NUM_RED_OPS; op++)
            for (int c = is_short() ? 2 - op % 2 : 0; c < (is_short() ? 3 - op % 2 : 4); c++)
                for (int in_place = 0; in_place < 2; in_place++)
                    if (is_counted ? cecl_reduction_counts((ceclDataType_t)type, (ceclRedOp_t)op)
                                   : op != ceclAvg || formats[type].fraction > 0)
                        ranks_get_what_they_should(
                            small_of(kind, counts[c] * formats[type].bytes, (ceclDataType_t)type,
                                     op, c == 3 ? 2 : 0),
                            (size_t)((c + op) % 2) * formats[type].bytes, in_place);
    }
}

TEST(an_all_reduce_of_every_type_and_operation_gives_the_hosts_bits)
{
    reductions_give_the_hosts_bits(CECL_SMALL_ALL_REDUCE);
}

TEST(a_reduce_scatter_of_every_type_and_operation_gives_the_hosts_bits)
{
    reductions_give_the_hosts_bits(CECL_SMALL_REDUCE_SCATTER);
}

/* Sizes around a thread's unit, around one, two and three vectors for each thread of a warp, around blocks of 4 and of
 * 7 warps, and around a slot. All are whole floats. */
static const size_t edges[] = {4,    44,   48,    52,    508,   512,   516,      1020, 1024,
                               1028, 1532, 1536,  1540,  3068,  3072,  3076,     6140, 6144,
                               6148, 8192, 10748, 10752, 10756, 36868, SLOT - 4, SLOT};
#define EDGES (sizeof(edges) / sizeof(edges[0]))

TEST_IF(!is_short(), reductions_of_any_size_give_the_hosts_bits, NULL, NULL)
{
    fill(ceclFloat32, 3);
    for (int kind = CECL_SMALL_ALL_REDUCE; kind <= CECL_SMALL_REDUCE_SCATTER; kind++)
        for (size_t i = 0; i < EDGES; i++)
            for (uint32_t sms = 0; sms < 4; sms++)
                ranks_get_what_they_should(small_of(kind, edges[i], ceclFloat32, ceclSum, sms),
                                           sms % 2 * 4, sms > 1);
}

TEST_IF(!is_short(), sums_that_widen_give_the_hosts_bits, NULL, NULL)
{
    for (int type = 0; type < 2; type++) {
        fill(type ? ceclFloat16 : ceclBfloat16, 17);
        for (size_t i = 0; i < EDGES; i++)
            for (uint32_t sms = 0; sms < 4; sms++)
                ranks_get_what_they_should(
                    (struct cecl_small){.kind = CECL_SMALL_REDUCE_SCATTER,
                                        .bytes = edges[i] - sms / 2 * 2,
                                        .type = type ? ceclFloat16 : ceclBfloat16,
                                        .op = sms % 2 ? ceclAvg : ceclSum,
                                        .widens = true,
                                        .max_sms = sms},
                    sms % 2 * 4, false);
    }
}

TEST_IF(!is_short(), blocks_of_every_few_bytes_arrive_whole, NULL, NULL)
{
    fill(ceclUint8, 78);
    for (int kind = CECL_SMALL_ALL_REDUCE; kind <= CECL_SMALL_ALL_TO_ALL; kind++)
        for (size_t bytes = 1; bytes <= 64; bytes++)
            for (size_t lie = 0; lie < 16; lie += 13)
                ranks_get_what_they_should(small_of(kind, bytes, ceclUint8, ceclMax, 0), lie,
                                           bytes % 2 != 0);
}

TEST_IF(!is_short(), blocks_around_edges_arrive_whole, NULL, NULL)
{
    fill(ceclUint8, 79);
    for (int kind = CECL_SMALL_ALL_GATHER; kind <= CECL_SMALL_ALL_TO_ALL; kind++)
        for (size_t i = 1; i < EDGES - 1; i++)
            for (size_t more = 0; more < 3; more++) /* one byte less, none, or one byte more */
                ranks_get_what_they_should(
                    small_of(kind, edges[i] - 1 + more, ceclInt8, ceclSum, 0), more, i % 2 != 0);
}

TEST(blocks_arrive_whole_at_any_alignment)
{
    static const size_t sizes[] = {1, 15, 16, 17, 4096, 5000, SLOT - 1, SLOT};
    fill(ceclUint8, 77);
    for (int kind = CECL_SMALL_ALL_GATHER; kind <= CECL_SMALL_ALL_TO_ALL; kind++)
        for (size_t i = is_short(); i < sizeof(sizes) / sizeof(sizes[0]); i += is_short() ? 4 : 1)
            for (size_t lie = 0; lie < 8; lie += 5)
                for (int in_place = 0; in_place < 2; in_place++)
                    ranks_get_what_they_should(small_of(kind, sizes[i], ceclInt8, ceclSum, 0), lie,
                                               in_place != 0);
}

/* In place, so that a call's result is the next call's input. After k sums of ones, all values are n^k; data of an
 * earlier call would show as another number. */
TEST_IF(!is_short(), calls_follow_each_other_without_a_pause, NULL, NULL)
{
    enum { COUNT = 4096, CALLS = 30, TURNS = 300 }; /* doubles are exact up to 8^20 */
    static double host[COUNT];
    for (int turn = 0; turn < TURNS; turn++) {
        double expected = 1;
        for (int i = 0; i < COUNT; i++)
            host[i] = 1;
        for (int g = 0; g < n; g++)
            must_cuda(cudaMemcpy(recv[g] + MARGIN, host, sizeof(host), cudaMemcpyDefault));
        for (int c = 0; c < CALLS; c++, epoch++) {
            struct cecl_small call =
                small_of(CECL_SMALL_ALL_REDUCE, sizeof(host), ceclFloat64, ceclSum, 0);
            if (c % 3 == 1) /* a call that uses fewer lines, and changes no value */
                call = small_of(CECL_SMALL_ALL_GATHER, sizeof(host) / (size_t)n / 16 * 16, ceclInt8,
                                ceclSum, 0);
            for (int k = 0; k < n; k++)
                enqueue((k + c) % n, call, 0, true);
            expected *= c % 3 == 1 ? 1 : n;
        }
        synchronize();
        for (int g = 0; g < n; g++) {
            must_cuda(cudaMemcpy(host, recv[g] + MARGIN, sizeof(host), cudaMemcpyDefault));
            for (int i = 0; i < COUNT; i++)
                if (host[i] != expected)
                    fail_msg("turn %d, rank %d: element %d is %.0f", turn, g, i, host[i]);
        }
    }
}

/* Fills all slots with `byte`. No kernel may be running. */
static void slots_set(int byte)
{
    for (int g = 0; g < n; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaMemset(slots[g], byte, (size_t)cecl_small_slots_bytes(n, SLOT)));
        must_cuda(cudaDeviceSynchronize());
    }
}

/* Epochs wrap to 0, which is the value of zeroed slots, so the slots get other values before. */
TEST_IF(!is_short(), epochs_may_wrap_around, NULL, NULL)
{
    const uint32_t before = epoch;
    fill(ceclUint8, 80);
    slots_set(0x55);
    set_epoch(0u - 20);
    for (int c = 0; c < 40; c++)
        ranks_get_what_they_should(
            (struct cecl_small){.kind = CECL_SMALL_ALL_GATHER, .bytes = c % 3 == 0 ? SLOT : 1000},
            0, false);
    assert_int_equal(epoch, 20);
    slots_set(0);
    set_epoch(before);
}

/* The calls are so small that each uses few of the lines. */
TEST_IF(!is_short(), all_lines_are_renewed_by_and_by, NULL, NULL)
{
    const size_t half = (size_t)cecl_small_slots_bytes(n, SLOT) / 2;
    const size_t calls = 2 * half / 512; /* enough for both halves: a call renews a row of lines */
    uint32_t *const lines = malloc(2 * half);
    assert_non_null(lines);
    slots_set(0x55);
    for (size_t c = 0; c < calls; c++, epoch++)
        for (int g = 0; g < n; g++)
            enqueue(g, (struct cecl_small){.kind = CECL_SMALL_ALL_GATHER, .bytes = 16}, 0, false);
    synchronize();
    for (int g = 0; g < n; g++) {
        must_cuda(cudaMemcpy(lines, slots[g], 2 * half, cudaMemcpyDefault));
        for (size_t l = 0; l < 2 * half / 16; l++) /* no call uses a rank's own slots */
            if (lines[4 * l + 3] == 0x55555555 && l * 16 % half / (2 * SLOT) != (size_t)g)
                fail_msg("rank %d: line %zu has not been renewed", g, l);
    }
    free(lines);
    slots_set(0);
}

/* The next calls have a meeting, whose words have this value. */
static void meet(uint32_t value)
{
    told = value;
    memset(rows, 0, MOST * sizeof(*rows));
    memset(done, 0, MOST * sizeof(*done));
}

/* Ranks [first, n) must have written their words to all peers (or none), and their kernels ended and set `done`. */
static void meetings_ended(int first, bool told_peers)
{
    for (int g = first; g < n; g++) {
        uint32_t left = 1;
        for (int p = 0; p < n; p++)
            if (rows[p][g] != (told_peers && p != g ? told : 0))
                fail_msg("rank %d's word at %d is %u, of %u", g, p, rows[p][g], told);
        assert_int_equal(done[g], told + 1);
        must_cuda(cudaMemcpy(&left, leaving[g], sizeof(left), cudaMemcpyDefault));
        assert_int_equal(left, 0);
    }
}

TEST(a_meeting_is_told_and_its_end_too)
{
    fill(ceclFloat16, 9);
    for (int kind = CECL_SMALL_ALL_REDUCE; kind <= CECL_SMALL_ALL_TO_ALL; kind++)
        for (size_t bytes = 16; bytes <= SLOT; bytes *= 16) /* by one block, and by many */
            for (uint32_t sms = 0; sms < 3; sms++) {
                meet(100 + (uint32_t)kind);
                ranks_get_what_they_should(small_of(kind, bytes, ceclFloat16, ceclSum, sms), 0,
                                           sms == 1);
                meetings_ended(0, true);
            }
    told = 0;
}

static int count_calls(void **state)
{
    is_counted = true;
    meet(50);
    set_epoch(epoch);
    return 0;
}

/* Checks that the last call has ended, and that its words came to all ranks. */
static int stop_counting(void **state)
{
    for (int g = 0; g < n; g++) {
        uint32_t count = 0;
        must_cuda(cudaMemcpy(&count, numbers[g], sizeof(count), cudaMemcpyDefault));
        assert_int_equal(count, epoch - 1);
        assert_int_equal(done[g], told + 1);
        for (int p = 0; p < n; p++)
            assert_true(told_numbers[p][g] ==
                        ((uint64_t)NUMBER << 32 | (uint32_t)told_numbers[g][g]));
        assert_int_not_equal((uint32_t)told_numbers[g][g], 0);
    }
    is_counted = false;
    told = 0;
    return 0;
}

TEST_AGAIN_IF(!is_short(), reductions_of_any_size_give_the_hosts_bits, count_calls, stop_counting)
TEST_AGAIN_IF(!is_short(), sums_that_widen_give_the_hosts_bits, count_calls, stop_counting)
TEST_AGAIN_IF(!is_short(), blocks_arrive_whole_at_any_alignment, count_calls, stop_counting)
TEST_AGAIN_IF(!is_short(), epochs_may_wrap_around, count_calls, stop_counting)
TEST_AGAIN_IF(!is_short(), all_lines_are_renewed_by_and_by, count_calls, stop_counting)
TEST_AGAIN_IF(!is_short(), calls_follow_each_other_without_a_pause, count_calls, stop_counting)

/* The end word is set before the kernels begin: they send nothing, write no words, and end. */
TEST(kernels_that_begin_after_the_end_tell_nothing)
{
    for (int kind = CECL_SMALL_ALL_REDUCE; kind <= CECL_SMALL_ALL_TO_ALL; kind++) {
        meet(30);
        for (int g = 0; g < n; g++) {
            words[g][0] = 1;
            enqueue(g, small_of(kind, 20000, ceclFloat32, ceclSum, 0), 0, false);
        }
        epoch++;
        for (int g = 0; g < n; g++) {
            must_cuda(cudaStreamSynchronize(streams[g]));
            assert_int_equal(words[g][1], 1 + g);
            words[g][0] = words[g][1] = 0;
        }
        meetings_ended(0, false);
    }
    told = 0;
}

/* Checks that waits end if rank 0 does not come. The slots are unusable afterwards. */
static void waits_end(uint64_t timeout_ns, size_t bytes)
{
    const bool long_wait = timeout_ns > UINT64_C(1000000000);
    meet(7);
    for (int g = 1; g < n; g++)
        enqueue(g,
                (struct cecl_small){
                    .kind = CECL_SMALL_ALL_GATHER, .bytes = bytes, .timeout_ns = timeout_ns},
                0, false);
    epoch++;
    pause_ms(A_WHILE_MS);
    for (int g = 1; g < n && long_wait; g++) {
        const bool waits = cudaStreamQuery(streams[g]) == cudaErrorNotReady;
        const uint32_t said = *(volatile uint32_t *)&done[g];
        /* before any assertion, because nothing else would end the kernels */
        host_writes(&words[g][0], 1);
        assert_true(waits);
        assert_int_equal(said, 0);
    }
    for (int g = 1; g < n; g++) {
        must_cuda(cudaStreamSynchronize(streams[g]));
        assert_int_equal(words[g][1], 1);
        words[g][0] = words[g][1] = 0;
    }
    meetings_ended(1, true);
    told = 0;
}

TEST(a_wait_ends_by_its_bound)
{
    waits_end(50000000, 1000);
    waits_end(50000000, SLOT);
}

TEST_IF(!is_short(), a_wait_ends_by_its_word, NULL, NULL)
{
    waits_end(UINT64_C(100000000000), 1000);
    waits_end(UINT64_C(100000000000), SLOT);
}

/* tests/unit/test_small_host.c has the other refusals. */
TEST_IF(!is_short(), what_cannot_be_is_refused, NULL, NULL)
{
    const struct cecl_small s = {.nranks = 2, .bytes = SLOT + 16, .slot_bytes = SLOT};
    refused(ceclInvalidArgument, "for slots of 65536", cecl_small_cuda(streams[0], &s));
}

int main(int argc, char **argv)
{
    n = gpus_wanted(argc, argv, MOST);
    if (is_short())
        alarm(SHORT_S);
    return n > 0 ? tests_run(all_open, NULL) : 77;
}
