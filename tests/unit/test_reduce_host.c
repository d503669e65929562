/* Reductions and sums of rows on the host, compared with plain loops. The loops compute each element separately, in the
 * type that reduce.h specifies, and round it with reference_number.h. As they accumulate in fp32 where the library
 * does, results must be equal bit for bit. */

#include "../with_cmocka.h"

#include "../reduce_reference.h"
#include "../sums_model.h"

#define SOURCES 9
#define ROOM 16384 /* bytes in each buffer */
#define GUARD 0x5a

static unsigned char *buffers[SOURCES + 1]; /* the last one is dst */

static int start(void **state)
{
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    reference_start();
    for (int b = 0; b <= SOURCES; b++)
        if (!(buffers[b] = malloc(ROOM)))
            return -1;
    return 0;
}

static int end(void **state)
{
    for (int b = 0; b <= SOURCES; b++)
        free(buffers[b]);
    return 0;
}

/* Source s lies shift * (s + 1) modulo 16 bytes off alignment. place: the source that dst is; -1: not in place. */
static void reduces_as_the_reference(struct cecl_reduction r, unsigned shift, int place,
                                     uint64_t seed)
{
    static uint64_t expected[ROOM];
    const void *src[SOURCES];
    const unsigned bytes = formats[r.widens ? ceclFloat32 : r.type].bytes;
    for (int b = 0; b <= SOURCES; b++)
        memset(buffers[b], GUARD, ROOM);
    for (uint32_t s = 0; s < r.nsrc; s++) {
        src[s] = buffers[s] + 64 + (shift * (s + 1)) % 16;
        random_fill((void *)(uintptr_t)src[s], r.type, r.count, &seed);
    }
    r.src = src;
    unsigned char *const home = buffers[place < 0 ? SOURCES : place];
    r.dst = place < 0 ? home + 64 + shift : (void *)(uintptr_t)src[place];
    for (uint64_t i = 0; i < r.count; i++)
        expected[i] = expected_element(&r, i);

    cecl_reduce_host(&r);
    for (uint64_t i = 0; i < r.count; i++) {
        const uint64_t got = read_element((char *)r.dst + i * bytes, bytes);
        if (got != expected[i])
            fail_msg("%s %s of %u, element %d of %d, shift %u, place %d: %#llx, %#llx expected",
                     op_names[r.op], formats[r.type].name, r.nsrc, (int)i, (int)r.count, shift,
                     place, (unsigned long long)got, (unsigned long long)expected[i]);
    }
    const unsigned char *const dst = r.dst, *const past = dst + r.count * bytes;
    for (const unsigned char *p = home; p < home + ROOM; p++)
        if (p < dst || p >= past)
            assert_int_equal(*p, GUARD);
}

static const uint64_t counts[] = {0, 1, 2, 17, 511, 512, 513, 1025, 1600};
#define NCOUNTS (sizeof(counts) / sizeof(*counts))

static void for_every_pair(void (*visit)(struct cecl_reduction))
{
    for (int type = 0; type < CECL_NUM_TYPES; type++)
        for (int op = 0; op < CECL_NUM_RED_OPS; op++)
            if (op != ceclAvg || formats[type].fraction > 0)
                visit((struct cecl_reduction){.type = (ceclDataType_t)type, .op = (ceclRedOp_t)op});
}

static void visit_counts_and_shifts(struct cecl_reduction r)
{
    for (r.nsrc = 1; r.nsrc <= SOURCES; r.nsrc++)
        for (size_t c = 0; c < NCOUNTS; c++) {
            r.count = counts[c];
            r.divisor = r.nsrc;
            reduces_as_the_reference(r, (unsigned)(c * 5 + r.nsrc) % 16, -1, 1 + c + r.nsrc);
        }
}

TEST(every_type_and_operation_is_right)
{
    for_every_pair(visit_counts_and_shifts);
}

TEST(every_type_that_widens_is_right)
{
    static const ceclDataType_t types[] = {ceclFloat16, ceclBfloat16};
    for (int i = 0; i < 4; i++)
        visit_counts_and_shifts((struct cecl_reduction){
            .type = types[i % 2], .op = i < 2 ? ceclSum : ceclAvg, .widens = true, .divisor = 3});
}

static void visit_places(struct cecl_reduction r)
{
    r.count = 1025;
    for (r.nsrc = 1; r.nsrc <= SOURCES; r.nsrc += 2)
        for (int place = 0; place < (int)r.nsrc; place++)
            reduces_as_the_reference(r, (unsigned)place % 3, place, 100 + (uint64_t)place);
}

TEST(in_place_is_right_at_any_source)
{
    for_every_pair(visit_places);
}

TEST(average_divides_once_by_its_divisor)
{
    for (int type = 0; type < CECL_NUM_TYPES; type++)
        for (uint32_t divisor = 0; divisor < 20 && formats[type].fraction; divisor++)
            reduces_as_the_reference((struct cecl_reduction){.type = (ceclDataType_t)type,
                                                             .op = ceclAvg,
                                                             .nsrc = 3,
                                                             .count = 1000,
                                                             .divisor = divisor},
                                     0, -1, 200 + divisor);
}

TEST(an_average_of_the_largest_numbers_is_finite)
{
    static unsigned char in[SOURCES][512 * 8], out[512 * 8];
    const void *src[SOURCES];
    for (int type = 0; type < CECL_NUM_TYPES; type++)
        for (uint32_t n = 2; n <= SOURCES && formats[type].fraction; n++) {
            struct cecl_reduction r = {
                .dst = out, .src = src, .nsrc = n, .count = 512, .divisor = n};
            uint64_t seed = n;
            r.type = (ceclDataType_t)type;
            r.op = ceclAvg;
            for (uint32_t s = 0; s < n; s++)
                large_fill(in[s], r.type, r.count, &seed), src[s] = in[s];
            cecl_reduce_host(&r);
            for (uint64_t i = 0; i < r.count; i++) {
                const unsigned bytes = formats[type].bytes;
                const uint64_t got = read_element(out + i * bytes, bytes);
                assert_int_equal(got, expected_element(&r, i));
                assert_false(type != ceclFloat8e4m3 && not_finite(r.type, got));
            }
        }
}

TEST(as_many_sources_as_are_promised)
{
    static const void *src[CECL_REDUCE_SOURCES_MAX];
    const uint8_t one = 1;
    uint8_t got = 9;
    for (int s = 0; s < CECL_REDUCE_SOURCES_MAX; s++)
        src[s] = &one;
    cecl_reduce_host(&(struct cecl_reduction){.dst = &got,
                                              .src = src,
                                              .nsrc = CECL_REDUCE_SOURCES_MAX - 1,
                                              .count = 1,
                                              .type = ceclUint8,
                                              .op = ceclSum});
    assert_int_equal(got, 255);
}

static void check_refuses(int type, int op, const char *words)
{
    assert_int_equal(cecl_reduction_check((ceclDataType_t)type, (ceclRedOp_t)op),
                     ceclInvalidArgument);
    if (!strstr(cecl_message(), words))
        fail_msg("\"%s\" is not in \"%s\"", words, cecl_message());
}

TEST(check_refuses_averages_of_integers_and_unknown_numbers)
{
    check_refuses(ceclInt32, ceclAvg, "ceclAvg of int32");
    check_refuses(ceclUint8, ceclAvg, "ceclAvg of uint8");
    check_refuses(ceclFloat32, 5, "op 5: 0 to 4 expected");
    check_refuses(ceclFloat32, -1, "op -1: ");
    check_refuses(CECL_NUM_TYPES, ceclSum, "datatype 12: ");
    for (int type = 0; type < CECL_NUM_TYPES; type++) {
        assert_int_equal(cecl_reduction_check((ceclDataType_t)type, ceclMin), ceclSuccess);
        assert_int_equal(cecl_reduction_element_bytes((ceclDataType_t)type), formats[type].bytes);
    }
}

TEST(a_gpu_that_is_not_there_is_told_in_words)
{
    bool bulk = false;
    float one = 1, two = 2, got = 7;
    const void *src[2] = {&one, &two};
    const struct cecl_reduction r = {
        .dst = &got, .src = src, .nsrc = 2, .count = 1, .type = ceclFloat32};
    const ceclResult_t result = cecl_reduce_cuda(NULL, &r);
    assert_true(result == ceclUnhandledCudaError || result == ceclInvalidUsage);
    assert_non_null(strstr(cecl_message(), "reduction"));
    assert_int_not_equal(cecl_reduce_cuda_prepare(), ceclSuccess);
    (void)cecl_reduce_cuda_has_bulk(&bulk);
    assert_false(bulk);
    assert_true(got == 7);
}

static struct sums_memory memory;

/* A double holds the product or sum of two floats so precisely that rounding it gives the right float. */
static float product_of(const struct cecl_row_sums *s, uint64_t j, float x)
{
    return s->weights ? (float)((double)s->weights[j] * (double)x) : x;
}

static float value_at(const struct cecl_row_sums *s, uint64_t element)
{
    const unsigned bytes = formats[s->type].bytes;
    const uint32_t bits =
        (uint32_t)read_element((const unsigned char *)s->rows + element * bytes, bytes);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return s->type == ceclFloat32 ? value : (float)reference_value(small_format(s->type), bits);
}

static uint32_t bits_of(const struct cecl_row_sums *s, float sum)
{
    uint32_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    return s->type != ceclFloat32 ? reference_narrow(small_format(s->type), sum)
           : sum != sum           ? 0x7fffffffu
                                  : bits;
}

static uint32_t expected(const struct cecl_row_sums *s, uint64_t token, uint64_t i)
{
    float sum = 0;
    bool any = false;
    for (uint64_t j = token * s->each; j < token * s->each + s->each; j++) {
        if (s->places[j] >= s->nrows)
            continue;
        const float product = product_of(s, j, value_at(s, s->places[j] * s->count + i));
        sum = any ? (float)((double)sum + (double)product) : product;
        any = true;
    }
    return bits_of(s, sum);
}

TEST(random_sums_have_the_right_bits)
{
    uint64_t seed = 20261125;
    for (int round = 0; round < 600; round++) {
        const struct cecl_row_sums s = sums_draw(&seed, &memory);
        const unsigned bytes = formats[s.type].bytes;
        cecl_row_sums_host(&s);
        for (uint64_t e = 0; e < s.tokens * s.count; e++) {
            const uint64_t got = read_element((unsigned char *)s.sums + e * bytes, bytes),
                           want = expected(&s, e / s.count, e % s.count);
            if (got != want)
                fail_msg("round %d, %s, element %llu of a row of %llu: %llx and not %llx", round,
                         formats[s.type].name, (unsigned long long)(e % s.count),
                         (unsigned long long)s.count, (unsigned long long)got,
                         (unsigned long long)want);
        }
        for (const unsigned char *p = (unsigned char *)s.sums + s.tokens * s.count * bytes;
             p < memory.sums + sizeof(memory.sums); p++)
            assert_int_equal(*p, SUMS_UNTOUCHED);
    }
}

TEST(only_types_that_are_added_in_fp32_are)
{
    for (int type = 0; type < CECL_NUM_TYPES; type++) {
        bool listed = false;
        for (size_t i = 0; i < sizeof(sums_types) / sizeof(sums_types[0]); i++)
            listed = listed || sums_types[i] == (ceclDataType_t)type;
        assert_int_equal(cecl_row_sums_adds((ceclDataType_t)type), listed);
    }
}

TESTS_BETWEEN(start, end)
