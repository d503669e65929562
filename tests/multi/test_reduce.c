/* Reduce-scatter, all-reduce, reduce: every type and operation, in place and out of place; in one
 * chunk, in several chunks, and read at the peers; alone and in groups. Results equal those of
 * plain loops bit for bit. Also: what these calls refuse. */
#include "multi.h"

#include <stdio.h>
#include <unistd.h>

#include "../reduce_reference.h"

#define MOST 3000 /* elements of a block */
#define POISON 0x5A

static ceclComm_t comm;
static unsigned char *recv_buffer, *send_buffer, *host;
static unsigned char *inputs[64]; /* of all ranks */
static size_t room;               /* bytes of each */

static void open_comm(const ceclConfig_t *config)
{
    comm = multi_comm(config);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, room));
}

static int set_up(void **state)
{
    room = (size_t)multi_nranks * MOST * 8 + 256;
    host = malloc(room);
    assert_non_null(host);
    for (int r = 0; r < multi_nranks; r++)
        assert_non_null(inputs[r] = malloc(room));
    reference_start();
    open_comm(NULL);
    return 0;
}

static int tear_down(void **state)
{
    free(host);
    for (int r = 0; r < multi_nranks; r++)
        free(inputs[r]);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

struct test_call {
    ceclOp_t which;
    ceclDataType_t type;
    ceclRedOp_t op;
    size_t count;
    int root;
    bool in_place;
    size_t shift; /* offset of the buffers, in elements */
    bool large;   /* inputs whose sums overflow */
    uint64_t seed;
};

static void draw(uint64_t *x, struct test_call *c)
{
    *c = (struct test_call){.which = (ceclOp_t)(ceclOpReduceScatter + random_bits(x) % 3),
                            .type = (ceclDataType_t)(random_bits(x) % CECL_NUM_TYPES),
                            .op = (ceclRedOp_t)(random_bits(x) % CECL_NUM_RED_OPS),
                            .count =
                                random_bits(x) % 3 ? random_bits(x) % 70 : random_bits(x) % MOST,
                            .root = (int)(random_bits(x) % (uint64_t)multi_nranks),
                            .in_place = random_bits(x) % 2,
                            .shift = random_bits(x) % 3,
                            .seed = random_bits(x)};
    if (c->op == ceclAvg && formats[c->type].fraction == 0)
        c->op = ceclSum;
    if (c->which == ceclOpReduce || random_bits(x) % 2) /* each rank decides by itself */
        c->in_place = c->seed >> multi_rank % 64 & 1;
}

static size_t bytes_of(const struct test_call *c)
{
    return formats[c->type].bytes;
}

/* Elements of sendbuff. */
static size_t sent(const struct test_call *c)
{
    return c->which == ceclOpReduceScatter ? (size_t)multi_nranks * c->count : c->count;
}

static unsigned char *input_of(const struct test_call *c)
{
    return (c->in_place ? recv_buffer : send_buffer) + c->shift * bytes_of(c);
}

static unsigned char *output_of(const struct test_call *c)
{
    const bool inside = c->in_place && c->which == ceclOpReduceScatter;
    return recv_buffer + (c->shift + (inside ? (size_t)multi_rank * c->count : 0)) * bytes_of(c);
}

static void fill(const struct test_call *c)
{
    for (int r = 0; r < multi_nranks; r++) {
        uint64_t seed = c->seed + 77u * (uint64_t)r + 1;
        (c->large ? large_fill : random_fill)(inputs[r], c->type, sent(c), &seed);
    }
    memset(host, POISON, room);
    multi_put(comm, recv_buffer, host, room);
    if (sent(c) > 0)
        multi_put(comm, input_of(c), inputs[multi_rank], sent(c) * bytes_of(c));
}

static ceclResult_t make(const struct test_call *c, ceclStream_t stream)
{
    const void *send = input_of(c);
    void *recv = output_of(c);
    if (c->which == ceclOpReduceScatter)
        return ceclReduceScatter(send, recv, c->count, c->type, c->op, comm, stream);
    if (c->which == ceclOpAllReduce)
        return ceclAllReduce(send, recv, c->count, c->type, c->op, comm, stream);
    return ceclReduce(send, recv, c->count, c->type, c->op, c->root, comm, stream);
}

/* Expects the result at byte `at`; its first element is element `first` of the input. */
static void check_result(const struct test_call *c, size_t at, size_t first)
{
    const void *sources[64];
    const struct cecl_reduction rule = {.src = sources,
                                        .nsrc = (uint32_t)multi_nranks,
                                        .type = c->type,
                                        .op = c->op,
                                        .divisor = (uint32_t)multi_nranks};
    const size_t size = bytes_of(c);
    for (int r = 0; r < multi_nranks; r++)
        sources[r] = inputs[r];
    for (size_t i = 0; i < c->count; i++) {
        const uint64_t want = expected_element(&rule, first + i);
        const uint64_t got = read_element(host + at + i * size, (unsigned)size);
        if (want != got)
            fail_msg("rank %d: %s of %s, call %d, %zu elements%s: element %zu is %#llx, not %#llx",
                     multi_rank, op_names[c->op], formats[c->type].name, (int)c->which, c->count,
                     c->in_place ? " in place" : "", i, (unsigned long long)got,
                     (unsigned long long)want);
        assert_false(c->large && not_finite(c->type, got));
    }
}

/* Checks the result, and that the bytes beside it are unchanged. In place, only blocks in which
 * no rank has a result are checked: in an all-reduce, parts of other ranks' blocks are results
 * too. */
static void check(const struct test_call *c)
{
    const size_t size = bytes_of(c);
    const bool scatters = c->which == ceclOpReduceScatter;
    const bool receives = c->which != ceclOpReduce || c->root == multi_rank;
    const size_t first = scatters ? (size_t)multi_rank * c->count : 0;
    const size_t at = (size_t)(output_of(c) - recv_buffer);
    multi_get(comm, host, recv_buffer, room);
    if (receives) {
        check_result(c, at, first);
        memset(host + at, POISON, c->count * size);
    }
    if (c->in_place && (scatters || !receives)) { /* the rest of the input is unchanged */
        const size_t begin = c->shift * size, own = first * size, end = sent(c) * size;
        for (size_t b = 0; b < end; b++)
            if (!scatters || b < own || b >= own + c->count * size)
                assert_int_equal(host[begin + b], inputs[multi_rank][b]);
        memset(host + begin, POISON, end);
    }
    for (size_t b = 0; b < room; b++)
        if (host[b] != POISON)
            fail_msg("rank %d: byte %zu beside the result was touched", multi_rank, b);
}

static void run_one(const struct test_call *c)
{
    fill(c);
    MPI_Barrier(MPI_COMM_WORLD); /* no peer may write before this rank has poisoned */
    multi_ok(comm, make(c, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    check(c);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void run_random(uint64_t x, int rounds)
{
    for (int round = multi_share(rounds); round > 0; round--) {
        struct test_call c;
        draw(&x, &c);
        run_one(&c);
    }
}

TEST_BETWEEN(random_reductions_are_right, set_up, tear_down)
{
    run_random(8, 250);
}

TEST_BETWEEN(every_type_and_operation_is_right, set_up, tear_down)
{
    for (int type = 0; type < CECL_NUM_TYPES; type++)
        for (int op = 0; op < CECL_NUM_RED_OPS; op++) {
            struct test_call c = {.which = (ceclOp_t)(ceclOpReduceScatter + (type + op) % 3),
                                  .type = (ceclDataType_t)type,
                                  .op = (ceclRedOp_t)op,
                                  .count = 301,
                                  .seed = (uint64_t)(type * 5 + op)};
            if (c.op == ceclAvg && formats[type].fraction == 0)
                continue;
            run_one(&c);
        }
}

/* Of all types in which a sum of two large numbers may overflow, or does so in fp32. */
static void averages_of_the_largest_numbers_are_finite(void **state)
{
    static const ceclDataType_t types[] = {ceclFloat16, ceclBfloat16, ceclFloat32, ceclFloat64};
    for (int i = 0; i < 24; i++)
        run_one(&(struct test_call){.which = (ceclOp_t)(ceclOpReduceScatter + i % 3),
                                    .type = types[i / 3 % 4],
                                    .op = ceclAvg,
                                    .count = i < 12 ? 7 : MOST,
                                    .in_place = i % 2,
                                    .large = true,
                                    .seed = (uint64_t)i});
}

static void reopen(int64_t staging)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = staging;
    multi_ok(NULL, ceclCommDestroy(comm));
    open_comm(&config);
}

/* Staging has room for three chunks: a block takes many rounds. */
TEST_BETWEEN(reductions_in_chunks_are_right, set_up, tear_down)
{
    reopen(4096);
    run_random(15, 200);
    averages_of_the_largest_numbers_are_finite(state);
}

/* Each direction, on 1 SM and on many, gives the reference's bits for the same inputs. */
TEST_BETWEEN(every_way_gives_the_same_bits, set_up, tear_down)
{
    uint64_t x = 23;
    for (int round = 0; round < 30; round++) {
        struct test_call c;
        draw(&x, &c);
        for (int way = 0; way < 4; way++) {
            ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
            options.direction = way % 2 ? CECL_DIRECTION_PULL : CECL_DIRECTION_PUSH;
            options.maxSms = way < 2 ? 1 : 32;
            multi_ok(comm, ceclSetOptions(comm, &options));
            run_one(&c);
        }
    }
}

/* With these thresholds, ranks wait 1 s for late ones, instead of proceeding without them. */
static void reopen_patiently(void)
{
    multi_tuning("late.wait_ns * any 1000000000");
    reopen(1 << 20);
    multi_tuning(NULL);
}

/* Ranks that wait for each other know where all inputs are, and their SMs read the inputs there. */
TEST_BETWEEN(inputs_are_read_at_ranks_that_are_in_place_and_at_others, set_up, tear_down)
{
    uint64_t x = 31;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = CECL_DIRECTION_PULL;
    reopen_patiently();
    multi_ok(comm, ceclSetOptions(comm, &options));
    for (int round = 0; round < 60; round++) {
        struct test_call c;
        draw(&x, &c);
        c.in_place = c.seed >> (multi_rank + round % 3) % 64 & 1;
        run_one(&c);
    }
}

/* Element i of a rank's input in one round. */
static uint32_t large_element(int rank, uint32_t round, size_t i)
{
    return (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + round;
}

/* Checks that this rank has the sum over all ranks. The message names the first and the last
 * wrong element, which tells whose block is wrong. All ranks fail together, and stay in step. */
static void check_large(uint32_t *got, const uint32_t *recv, size_t count, uint32_t round,
                        const char *after)
{
    size_t wrong = 0, first = 0, last = 0;
    int any;
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, got, recv, count * 4);
    for (size_t i = 0; i < count; i++) {
        uint32_t want = 0;
        for (int r = 0; r < multi_nranks; r++)
            want += large_element(r, round, i);
        if (got[i] == want)
            continue;
        first = wrong++ > 0 ? first : i;
        last = i;
    }
    if (wrong > 0)
        print_error("rank %d, round %u, after the %s: %zu of %zu elements are wrong, %zu to %zu; "
                    "the first is %#x, its input %#x\n",
                    multi_rank, round, after, wrong, count, first, last, got[first],
                    large_element(multi_rank, round, first));
    any = wrong > 0;
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    assert_int_equal(any, 0);
}

/* Round 0 is a sum out of place. Round 1 is a sum in place, then a maximum in place, which must
 * leave the sum unchanged: the second call follows at once, so every rank must have finished the
 * first. Round 2 is the same, with a check between the calls. */
static void run_large(const struct multi_crowd *crowd, size_t count)
{
    uint32_t *send, *recv, *plain = malloc(count * 4);
    assert_non_null(plain);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send, count * 4));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv, count * 4));
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t *const input = round ? recv : send;
        for (size_t i = 0; i < count; i++)
            plain[i] = large_element(multi_rank, round, i);
        multi_put(comm, input, plain, count * 4);
        memset(plain, POISON, count * 4);
        if (!round)
            multi_put(comm, recv, plain, count * 4);
        MPI_Barrier(MPI_COMM_WORLD); /* no peer may write before this rank has poisoned */
        if (crowd)
            multi_crowd_come(crowd, 4);
        multi_ok(comm, ceclAllReduce(input, recv, count, ceclUint32, ceclSum, comm, NULL));
        if (round != 1)
            check_large(plain, recv, count, round, "sum");
        if (round) {
            multi_ok(comm, ceclAllReduce(recv, recv, count, ceclUint32, ceclMax, comm, NULL));
            check_large(plain, recv, count, round, "maximum");
        }
    }
    multi_ok(comm, ceclMemFree(comm, recv));
    multi_ok(comm, ceclMemFree(comm, send));
    free(plain);
}

/* Large odd blocks, read at the peers. The SMs that reduced them write the results to all ranks;
 * beyond 32 MiB, all but the end is pushed. By the default number of SMs and by many. Then other
 * copies fill the links, so that data is longer on its way; on GPUs this is repeated. */
TEST_BETWEEN(large_all_reduces_are_right, set_up, tear_down)
{
    const int times = multi_on_gpus(comm) ? 6 : 1;
    struct multi_crowd crowd;
    multi_crowd_open(&crowd, multi_on_gpus(comm) ? 8 << 20 : 64 << 10);
    for (int s = 0; s < 2 + times; s++)
        for (int mib = 5; mib <= 32; mib += 27) {
            ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
            options.maxSms = s == 1 ? 32 : CECL_UNDEF;
            multi_ok(comm, ceclSetOptions(comm, &options));
            run_large(s < 2 ? NULL : &crowd, ((size_t)mib << 20) / 4 + 4321);
        }
    multi_crowd_close(&crowd);
}

/* Each call from unregistered host memory, with the result in host memory. */
TEST_BETWEEN(memory_of_no_pool_will_do, set_up, tear_down)
{
    if (multi_on_gpus(comm))
        skip_because("test_memory has GPU memory of each kind");
    unsigned char *const recv = recv_buffer, *const send = send_buffer;
    recv_buffer = malloc(room);
    send_buffer = malloc(room);
    assert_true(recv_buffer && send_buffer);
    run_random(4, 60);
    free(recv_buffer);
    free(send_buffer);
    recv_buffer = recv;
    send_buffer = send;
}

/* An all-gather, reductions and an all-to-all in one group, on one stream. */
TEST_BETWEEN(reductions_in_groups_are_right, set_up, tear_down)
{
    unsigned char *other = NULL, *back = NULL;
    uint64_t x = 61;
    const size_t block = 600;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&other, (size_t)multi_nranks * block));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&back, (size_t)multi_nranks * block));
    for (int round = 0; round < 20; round++) {
        struct test_call c;
        draw(&x, &c);
        fill(&c);
        multi_fill(host, (uint64_t)round, multi_rank, block);
        multi_put(comm, other + (size_t)multi_rank * block, host, block);
        MPI_Barrier(MPI_COMM_WORLD);
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, make(&c, NULL));
        multi_ok(comm, ceclAllGather(other + (size_t)multi_rank * block, other, block, ceclInt8,
                                     comm, NULL));
        multi_ok(comm, ceclAllReduce(back, back, block / 4, ceclInt32, ceclMax, comm, NULL));
        multi_ok(comm, ceclGroupEnd());
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        check(&c);
        multi_get(comm, host, other, (size_t)multi_nranks * block);
        for (size_t i = 0; i < (size_t)multi_nranks * block; i++)
            assert_int_equal(host[i], multi_byte((uint64_t)round, (int)(i / block), i % block));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    multi_ok(comm, ceclMemFree(comm, other));
    multi_ok(comm, ceclMemFree(comm, back));
}

#define GROUPED 6

/* Makes the calls alone or as a group, each on a part of both buffers. Copies all of recv_buffer
 * to `result`. */
static void make_calls(const struct test_call *calls, bool grouped, unsigned char *result)
{
    unsigned char *const recv = recv_buffer, *const send = send_buffer;
    const size_t slot = room / GROUPED / 256 * 256;
    memset(host, POISON, room);
    multi_put(comm, recv, host, room);
    for (int made = 0; made < 2; made++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (made && grouped)
            multi_ok(comm, ceclGroupStart());
        for (size_t i = 0; i < GROUPED; i++) {
            const struct test_call *c = &calls[i];
            uint64_t seed = c->seed + 77u * (uint64_t)multi_rank + 1;
            recv_buffer = recv + i * slot;
            send_buffer = send + i * slot;
            if (made) {
                multi_ok(comm, make(c, NULL));
            } else if (c->count > 0) {
                random_fill(host, c->type, sent(c), &seed);
                multi_put(comm, input_of(c), host, sent(c) * bytes_of(c));
            }
        }
        if (made && grouped)
            multi_ok(comm, ceclGroupEnd());
    }
    recv_buffer = recv;
    send_buffer = send;
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, result, recv_buffer, room);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* `large`: all blocks are about as large as the buffers allow. */
static void compare_groups(uint64_t x, int rounds, bool large)
{
    const size_t limit = room / GROUPED / 8 / (size_t)multi_nranks - 40;
    static const int ways[] = {CECL_DIRECTION_AUTO, CECL_DIRECTION_PUSH, CECL_DIRECTION_PULL};
    unsigned char *alone = malloc(room), *grouped = malloc(room);
    assert_true(alone && grouped);
    for (int round = 0; round < rounds; round++) {
        ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
        struct test_call calls[GROUPED];
        for (int i = 0; i < GROUPED; i++) {
            draw(&x, &calls[i]);
            calls[i].count %= limit;
            if (large)
                calls[i].count = limit - 1 - calls[i].count % 20;
            if (large && calls[i].which != ceclOpReduceScatter)
                calls[i].count *= (size_t)multi_nranks;
        }
        options.direction = ways[round % 3];
        multi_ok(comm, ceclSetOptions(comm, &options));
        make_calls(calls, false, alone);
        make_calls(calls, true, grouped);
        for (size_t b = 0; b < room; b++)
            if (alone[b] != grouped[b])
                fail_msg("rank %d, round %d: byte %zu is %d, and %d in a group", multi_rank, round,
                         b, alone[b], grouped[b]);
    }
    multi_ok(comm, ceclSetOptions(comm, NULL));
    free(alone);
    free(grouped);
}

/* Inputs are read at the peers; staging has room for all calls, then for some of them at a time, and then
 * only for chunks of most of them. */
TEST_BETWEEN(a_group_gives_the_bits_of_its_calls_alone, set_up, tear_down)
{
    compare_groups(71, multi_share(24), false);
    reopen(4096 * (int64_t)multi_nranks);
    compare_groups(72, multi_share(24), false);
    reopen(4096);
    compare_groups(73, multi_share(24), true);
}

TEST_BETWEEN(a_group_says_which_reductions_share_barriers, set_up, tear_down)
{
    const size_t block = 500;
    ceclExplanation_t e;
    multi_ok(comm, ceclGroupStart());
    for (size_t i = 0; i < 4; i++)
        multi_ok(comm, ceclReduceScatter(send_buffer, recv_buffer + i * block, block, ceclInt8,
                                         ceclSum, comm, NULL));
    multi_ok(comm, ceclGroupExplain(comm, &e));
    if (!strstr(e.path, "group of 4 calls, 0 copies, 4 reductions in 1 bundle"))
        fail_msg("\"%s\"", e.path);
    assert_int_equal(e.barriers, 2);
    assert_int_equal(e.reductions, 4);
}

/* The gradients of a sharded training: reduced and scattered in place, and gathered again in place. */
static ceclResult_t scatter(void *buffer, size_t count)
{
    int32_t *const all = buffer;
    return ceclReduceScatter(all, all + (size_t)multi_rank * count, count, ceclInt32, ceclSum, comm,
                             NULL);
}
static ceclResult_t gather(void *buffer, size_t count)
{
    int32_t *const all = buffer;
    return ceclAllGather(all + (size_t)multi_rank * count, all, count, ceclInt32, comm, NULL);
}

/* Calls of a group have no order, so in one group the two are refused, in place and not. Calls of
 * successive groups have an order. */
TEST_BETWEEN(what_a_call_reduces_is_gathered_in_the_next_group, set_up, tear_down)
{
    const size_t count = 300, all = count * (size_t)multi_nranks;
    int32_t *values = (int32_t *)(void *)host;
    unsigned char *const buffers[] = {recv_buffer, send_buffer};
    for (size_t i = 0; i < all; i++)
        values[i] = (int32_t)i + multi_rank;
    for (int b = 0; b < 2; b++)
        multi_put(comm, buffers[b], values, all * 4);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, scatter(recv_buffer, count));
    multi_ok(comm, gather(recv_buffer, count));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidArgument, "share memory");
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllReduce(send_buffer, recv_buffer, count, ceclInt32, ceclSum, comm, NULL));
    multi_ok(comm, ceclAllGather(recv_buffer, send_buffer + all * 4, count, ceclInt32, comm, NULL));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidArgument, "share memory");
    for (int turn = 0; turn < 3; turn++)
        for (int gathers = 0; gathers < 2; gathers++) {
            multi_ok(comm, ceclGroupStart());
            for (int b = 0; b < 2; b++)
                multi_ok(comm, (gathers ? gather : scatter)(buffers[b], count));
            multi_ok(comm, ceclGroupEnd());
        }
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    const int32_t n = multi_nranks, ranks = n * (n - 1) / 2;
    for (int b = 0; b < 2; b++) {
        multi_get(comm, values, buffers[b], all * 4);
        for (size_t i = 0; i < all; i++)
            assert_int_equal(values[i], (n * (int32_t)i + ranks) * n * n);
    }
}

/* Chunked calls enqueued one after the other, on two streams. */
TEST_BETWEEN(calls_that_follow_each_other_keep_their_order, set_up, tear_down)
{
    const size_t count = 2000;
    int32_t *values = (int32_t *)(void *)host;
    ceclStream_t streams[2] = {NULL, NULL};
    reopen(4096);
    multi_ok(comm, ceclStreamCreate(comm, &streams[1]));
    for (size_t i = 0; i < count; i++)
        values[i] = 1;
    multi_put(comm, recv_buffer, values, count * 4);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < 6; turn++)
        multi_ok(comm, ceclAllReduce(recv_buffer, recv_buffer, count, ceclInt32, ceclSum, comm,
                                     streams[turn % 2]));
    for (int s = 0; s < 2; s++)
        multi_ok(comm, ceclStreamSynchronize(comm, streams[s]));
    multi_get(comm, values, recv_buffer, count * 4);
    int32_t want = 1;
    for (int turn = 0; turn < 6; turn++)
        want *= multi_nranks;
    for (size_t i = 0; i < count; i++)
        assert_int_equal(values[i], want);
    multi_ok(comm, ceclStreamDestroy(comm, streams[1]));
}

TEST_BETWEEN(bad_arguments_are_named, set_up, tear_down)
{
    char *send = (char *)send_buffer, *recv = (char *)recv_buffer;
    multi_refused(comm, ceclAllReduce(NULL, recv, 1, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidArgument, "sendbuff: NULL");
    multi_refused(comm, ceclReduceScatter(send, NULL, 1, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidArgument, "recvbuff: NULL");
    multi_refused(comm, ceclAllReduce(send, recv, 1, (ceclDataType_t)12, ceclSum, comm, NULL),
                  ceclInvalidArgument, "12");
    multi_refused(comm, ceclAllReduce(send, recv, 1, ceclInt32, (ceclRedOp_t)5, comm, NULL),
                  ceclInvalidArgument, "5");
    multi_refused(comm, ceclReduceScatter(send, recv, 1, ceclInt32, ceclAvg, comm, NULL),
                  ceclInvalidArgument, "vg");
    multi_refused(comm, ceclAllReduce(send + 2, recv, 1, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidArgument, "not aligned to its elements of 4 bytes");
    multi_refused(comm, ceclAllReduce(send, recv + 1, 1, ceclHalf, ceclSum, comm, NULL),
                  ceclInvalidArgument, "recvbuff");
    /* a call without effect takes any addresses */
    multi_ok(comm, ceclAllReduce(send + 2, recv + 1, 0, ceclInt32, ceclSum, comm, NULL));
    multi_refused(comm, ceclAllReduce(recv + 4, recv, 4, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidArgument, "overlap");
    /* Every rank refuses, not only the root: otherwise the others would wait for the root. */
    multi_refused(comm, ceclReduce(recv + 4, recv, 4, ceclInt32, ceclSum, 0, comm, NULL),
                  ceclInvalidArgument, "overlap");
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclReduce(send, recv, 4, ceclInt32, ceclSum, 0, comm, NULL));
    multi_ok(comm, ceclReduce(send, recv, 4, ceclInt32, ceclSum, 0, comm, NULL));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidArgument, "share memory");
    char words[64];
    snprintf(words, sizeof(words), "in place, sendbuff is %p", (void *)(recv + 64));
    multi_refused(comm,
                  ceclReduceScatter(recv + 60, recv + 64 + (size_t)multi_rank * 32, 8, ceclInt32,
                                    ceclSum, comm, NULL),
                  ceclInvalidArgument, words);
    multi_refused(comm,
                  ceclReduceScatter(send, recv, SIZE_MAX / 16, ceclInt64, ceclSum, comm, NULL),
                  ceclInvalidArgument, "address space");
    multi_refused(comm, ceclAllReduce(send, recv, 2 * room, ceclInt8, ceclSum, comm, NULL),
                  ceclInvalidUsage, "left in its allocation");
    multi_refused(comm, ceclReduce(send, recv, 1, ceclInt8, ceclSum, multi_nranks, comm, NULL),
                  ceclInvalidArgument, "root");
    multi_refused(comm, ceclReduce(send, recv, 1, ceclInt8, ceclSum, -1, comm, NULL),
                  ceclInvalidArgument, "root -1");
    multi_ok(comm, ceclAllReduce(send, recv, 0, ceclInt8, ceclSum, comm, NULL));
    run_random(3, 5);
}

TEST_BETWEEN(without_sms_they_are_refused, set_up, tear_down)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_NEVER;
    multi_ok(comm, ceclSetOptions(comm, &options));
    multi_refused(comm,
                  ceclAllReduce(send_buffer, recv_buffer, 900, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidUsage, "CECL_SM_NEVER");
    /* A single element is reduced by one rank; all the others refuse with that rank. */
    multi_refused(comm, ceclReduce(send_buffer, recv_buffer, 1, ceclInt32, ceclSum, 0, comm, NULL),
                  ceclInvalidUsage, "CECL_SM_NEVER");
    multi_ok(comm, ceclSetOptions(comm, NULL));
    run_random(4, 3);
}

TEST_BETWEEN(ranks_that_differ_are_told_where_calls_are_compared, set_up, tear_down)
{
    const bool odd = multi_rank == multi_nranks - 1;
    multi_setenv("CECL_CHECK", "1");
    ceclComm_t checked = multi_comm(NULL);
    multi_setenv("CECL_CHECK", NULL);
    char *recv = NULL, *send = NULL;
    multi_ok(checked, ceclMemAlloc(checked, (void **)&recv, 4096));
    multi_ok(checked, ceclMemAlloc(checked, (void **)&send, 4096));
    multi_refused(checked,
                  ceclAllReduce(send, recv, 8, ceclInt32, odd ? ceclMax : ceclMin, checked, NULL),
                  ceclInvalidUsage, "ranks differ in op: ceclMin on rank 0, ceclMax on rank");
    multi_refused(checked, ceclReduce(send, recv, 8, ceclInt32, ceclSum, odd, checked, NULL),
                  ceclInvalidUsage, "ranks differ in root");
    /* buffers at different places are no difference */
    multi_ok(checked, ceclReduceScatter(send + (odd ? 256 : 0), recv + (odd ? 0 : 512), 8,
                                        ceclInt32, ceclSum, checked, NULL));
    multi_ok(checked,
             ceclReduce(send + (odd ? 256 : 0), recv, 8, ceclInt32, ceclSum, 0, checked, NULL));
    multi_ok(checked, ceclReduce(odd ? recv : send, recv, 8, ceclInt32, ceclSum, 0, checked, NULL));
    multi_ok(checked, ceclAllReduce(send, recv, 8, ceclInt32, ceclSum, checked, NULL));
    multi_ok(checked, ceclStreamSynchronize(checked, NULL));
    multi_ok(NULL, ceclCommDestroy(checked));
}
