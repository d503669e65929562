/* Sums of rows on the host (sm/sums.h): equal bit for bit to a plain loop that represents number formats as
 * lists of their values. */
#include "../with_cmocka.h"

#include "../reduce_reference.h"
#include "../sums_model.h"

static struct sums_memory memory;

static int format_of(ceclDataType_t type)
{
    return type == ceclFloat16      ? FP16
           : type == ceclBfloat16   ? BF16
           : type == ceclFloat8e4m3 ? E4M3
                                    : E5M2;
}

/* A double holds the product and the sum of two floats so precisely that rounding it gives the right
 * float. */
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
    return s->type == ceclFloat32 ? value : (float)reference_value(format_of(s->type), bits);
}

static uint32_t bits_of(const struct cecl_row_sums *s, float sum)
{
    uint32_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    return s->type != ceclFloat32 ? reference_narrow(format_of(s->type), sum)
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

int main(void)
{
    reference_start();
    return tests_run(NULL, NULL);
}
