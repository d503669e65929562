/* Small collectives by one kernel on each GPU (sm/small.h): every type and operation gives the host's
 * bits, blocks arrive whole at any alignment, calls follow each other without a pause, waits end. One
 * process, as many GPUs as the first argument says (default 2). */
#include "../reduce_inputs.h"
#include "cuda_fixture.h"
#include "sm/small.h"

#define MOST 8
#define SLOT ((size_t)64 << 10)
#define ROOM (MOST * SLOT + 4096) /* bytes of a buffer */
#define MARGIN 256                /* before and behind recv, looked at */
#define GUARD 0x5a

static int n = 2;
static cudaStream_t streams[MOST];
static unsigned char *slots[MOST], *send[MOST], *recv[MOST];
static unsigned char *inputs[MOST], *result; /* the same bytes here, and what came back */
static uint32_t *words[MOST];                /* pinned: end, late */
static uint32_t epoch = 1;

static int all_open(void **state)
{
    (void)state;
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
        inputs[g] = malloc(ROOM);
        assert_non_null(inputs[g]);
        must_cuda(cudaDeviceSynchronize());
    }
    result = malloc(ROOM);
    assert_non_null(result);
    return 0;
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

/* One rank's part of a call; its buffers begin `lie` bytes off. */
static void enqueue(int g, struct cecl_small s, size_t lie, bool in_place)
{
    const size_t own = s.kind == CECL_SMALL_ALL_GATHER ? (size_t)g * s.bytes : 0;
    s.rank = g;
    s.nranks = n;
    s.recv = recv[g] + MARGIN + lie;
    s.send = in_place ? recv[g] + MARGIN + lie + own : send[g] + lie;
    memcpy(s.slots, slots, sizeof(slots[0]) * (size_t)n);
    s.slot_bytes = SLOT;
    s.epoch = epoch;
    s.end = &words[g][0];
    s.late = &words[g][1];
    s.timeout_ns = s.timeout_ns ? s.timeout_ns : UINT64_C(10000000000);
    must_cuda(cudaSetDevice(g));
    must(cecl_small_cuda(streams[g], &s));
}

/* What rank g should have in recv. */
static void expect(const struct cecl_small *s, int g, size_t lie, unsigned char *out)
{
    const void *src[MOST];
    for (int r = 0; r < n; r++) {
        const size_t block = s->kind == CECL_SMALL_ALL_TO_ALL ? (size_t)g * s->bytes : 0;
        src[r] = inputs[r] + lie + block;
        if (s->kind != CECL_SMALL_ALL_REDUCE)
            memcpy(out + (size_t)r * s->bytes, src[r], s->bytes);
    }
    if (s->kind == CECL_SMALL_ALL_REDUCE) {
        const struct cecl_reduction r = {.dst = out,
                                         .src = src,
                                         .nsrc = (uint32_t)n,
                                         .count = s->bytes / formats[s->type].bytes,
                                         .type = s->type,
                                         .op = s->op,
                                         .divisor = (uint32_t)n};
        cecl_reduce_host(&r);
    }
}

static void ranks_get_what_they_should(struct cecl_small s, size_t lie, bool in_place)
{
    static unsigned char expected[ROOM];
    const size_t all = (s.kind == CECL_SMALL_ALL_REDUCE ? 1 : (size_t)n) * s.bytes;
    const size_t in = s.kind == CECL_SMALL_ALL_TO_ALL ? all : s.bytes;
    for (int g = 0; g < n; g++) {
        const size_t own = s.kind == CECL_SMALL_ALL_GATHER ? (size_t)g * s.bytes : 0;
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaMemset(recv[g], GUARD, ROOM));
        if (in_place)
            must_cuda(
                cudaMemcpy(recv[g] + MARGIN + lie + own, inputs[g] + lie, in, cudaMemcpyDefault));
        must_cuda(cudaDeviceSynchronize());
    }
    for (int g = 0; g < n; g++)
        enqueue(g, s, lie, in_place);
    epoch++;
    synchronize();
    for (int g = 0; g < n; g++) {
        must_cuda(cudaMemcpy(result, recv[g], all + lie + 2 * MARGIN, cudaMemcpyDefault));
        memset(expected, GUARD, all + lie + 2 * MARGIN);
        expect(&s, g, lie, expected + MARGIN + lie);
        for (size_t i = 0; i < all + lie + 2 * MARGIN; i++)
            if (result[i] != expected[i])
                fail_msg("kind %d, %s %s, %zu bytes, lie %zu, in place %d, rank %d: byte %td of "
                         "recv is %#x, %#x expected",
                         (int)s.kind, op_names[s.op], formats[s.type].name, (size_t)s.bytes, lie,
                         in_place, g, (ptrdiff_t)i - (ptrdiff_t)(MARGIN + lie), result[i],
                         expected[i]);
    }
}

static void every_type_and_operation_gives_the_hosts_bits(void **state)
{
    static const size_t counts[] = {1, 13, 1000, 5021};
    (void)state;
    for (int type = 0; type < CECL_NUM_TYPES; type++) {
        fill((ceclDataType_t)type, 5 + (uint64_t)type);
        for (int op = 0; op < CECL_NUM_RED_OPS; op++)
            for (int c = 0; c < 4 && (op != ceclAvg || formats[type].fraction > 0); c++)
                ranks_get_what_they_should(
                    (struct cecl_small){.kind = CECL_SMALL_ALL_REDUCE,
                                        .bytes = counts[c] * formats[type].bytes,
                                        .type = (ceclDataType_t)type,
                                        .op = (ceclRedOp_t)op,
                                        .max_sms = c == 3 ? 2 : 0},
                    (size_t)(c % 2) * formats[type].bytes, (op + c) % 2 == 0);
    }
}

static void blocks_arrive_whole_at_any_alignment(void **state)
{
    static const size_t sizes[] = {1, 15, 16, 17, 4096, 5000, SLOT - 1, SLOT};
    (void)state;
    fill(ceclUint8, 77);
    for (int kind = CECL_SMALL_ALL_GATHER; kind <= CECL_SMALL_ALL_TO_ALL; kind++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            for (size_t lie = 0; lie < 8; lie += 5)
                for (int in_place = 0; in_place < 2; in_place++)
                    ranks_get_what_they_should(
                        (struct cecl_small){.kind = (enum cecl_small_kind)kind, .bytes = sizes[i]},
                        lie, in_place != 0);
}

/* In place, so that a call's result is the next one's input: after k sums of ones there are n^k, and
 * what is left of an earlier call is another number. */
static void calls_follow_each_other_without_a_pause(void **state)
{
    enum { COUNT = 4096, CALLS = 30, TURNS = 300 }; /* 8^20 fits into 64 bits */
    static uint64_t host[COUNT];
    const struct cecl_small s = {.kind = CECL_SMALL_ALL_REDUCE, .type = ceclUint64, .op = ceclSum};
    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t expected = 1;
        for (int i = 0; i < COUNT; i++)
            host[i] = 1;
        for (int g = 0; g < n; g++)
            must_cuda(cudaMemcpy(recv[g] + MARGIN, host, sizeof(host), cudaMemcpyDefault));
        for (int c = 0; c < CALLS; c++, epoch++) {
            struct cecl_small call = s;
            call.bytes = sizeof(host);
            if (c % 3 == 1) /* fewer lines, and no change */
                call = (struct cecl_small){.kind = CECL_SMALL_ALL_GATHER,
                                           .bytes = sizeof(host) / (size_t)n / 16 * 16};
            for (int k = 0; k < n; k++)
                enqueue((k + c) % n, call, 0, true);
            expected *= c % 3 == 1 ? 1 : (uint64_t)n;
        }
        synchronize();
        for (int g = 0; g < n; g++) {
            must_cuda(cudaMemcpy(host, recv[g] + MARGIN, sizeof(host), cudaMemcpyDefault));
            for (int i = 0; i < COUNT; i++)
                if (host[i] != expected)
                    fail_msg("turn %d, rank %d: element %d is %llu", turn, g, i,
                             (unsigned long long)host[i]);
        }
    }
}

/* The last two: slots are of no use afterwards. Rank 0 does not come. */
static void waits_end(uint64_t timeout_ns)
{
    for (int g = 1; g < n; g++)
        enqueue(g,
                (struct cecl_small){
                    .kind = CECL_SMALL_ALL_GATHER, .bytes = 1000, .timeout_ns = timeout_ns},
                0, false);
    epoch++;
    pause_ms(A_WHILE_MS);
    for (int g = 1; g < n && timeout_ns > UINT64_C(1000000000); g++) {
        assert_int_equal(cudaStreamQuery(streams[g]), cudaErrorNotReady);
        host_writes(&words[g][0], 1);
    }
    for (int g = 1; g < n; g++) {
        must_cuda(cudaStreamSynchronize(streams[g]));
        assert_int_equal(words[g][1], 1);
        words[g][0] = words[g][1] = 0;
    }
}

static void a_wait_ends_by_its_bound(void **state)
{
    (void)state;
    waits_end(50000000);
}

static void a_wait_ends_by_its_word(void **state)
{
    (void)state;
    waits_end(UINT64_C(100000000000));
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct cecl_small s = {.nranks = 1, .bytes = 16, .slot_bytes = SLOT};
    refused(ceclInvalidArgument, "2 to 16 ranks expected", cecl_small_cuda(streams[0], &s));
    s.nranks = 2;
    s.bytes = SLOT + 16;
    refused(ceclInvalidArgument, "for slots of 65536", cecl_small_cuda(streams[0], &s));
    s.bytes = 18;
    s.type = ceclFloat32;
    refused(ceclInvalidArgument, "no whole elements", cecl_small_cuda(streams[0], &s));
    s.type = ceclInt32;
    s.op = ceclAvg;
    refused(ceclInvalidArgument, "ceclAvg of int32", cecl_small_cuda(streams[0], &s));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(every_type_and_operation_gives_the_hosts_bits),
        cmocka_unit_test(blocks_arrive_whole_at_any_alignment),
        cmocka_unit_test(calls_follow_each_other_without_a_pause),
        cmocka_unit_test(a_wait_ends_by_its_bound),
        cmocka_unit_test(a_wait_ends_by_its_word),
    };
    int count = 0;
    const int skipped = fixture_start();
    if (skipped)
        return skipped;
    n = argc > 1 ? atoi(argv[1]) : 2;
    if (cudaGetDeviceCount(&count) != cudaSuccess || n < 2 || n > MOST || count < n) {
        printf("skipped: %d GPUs are needed, %d are here\n", n, count);
        return 77;
    }
    return cmocka_run_group_tests(tests, all_open, NULL);
}
