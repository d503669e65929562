/* Small floating-point formats: every bit pattern, and every tie between two patterns. The reference knows a format as
 * the list of its values, made with ldexp, and rounds by a search for the nearest value. */
#include <float.h>
#include <math.h>

#include "../with_cmocka.h"

#include "../reduce_inputs.h"
#include "../reference_number.h"
#include "sm/number.h"

static float from_bits(int format, uint32_t bits)
{
    switch (format) {
    case FP16: return number_from_f16((uint16_t)bits);
    case BF16: return number_from_bf16((uint16_t)bits);
    case E4M3: return number_from_e4m3((uint8_t)bits);
    default: return number_from_e5m2((uint8_t)bits);
    }
}

static uint32_t to_bits(int format, float value)
{
    switch (format) {
    case FP16: return number_to_f16(value);
    case BF16: return number_to_bf16(value);
    case E4M3: return number_to_e4m3(value);
    default: return number_to_e5m2(value);
    }
}

static void rounds_as_the_reference(int format, float value)
{
    const uint32_t expected = reference_narrow(format, value), got = to_bits(format, value);
    if (got != expected)
        fail_msg("%s: %a gives %#x, %#x expected", reference[format].name, (double)value, got,
                 expected);
}

TEST(every_pattern_widens_to_its_value)
{
    for (int f = 0; f < NFORMATS; f++)
        for (uint32_t bits = 0; bits < 2 * reference[f].sign; bits++) {
            const double value = reference_value(f, bits);
            const float got = from_bits(f, bits);
            if (isnan(value) ? !isnan(got)
                             : (double)got != value || !signbit(got) != !signbit(value))
                fail_msg("%s %#x gives %a, %a expected", reference[f].name, bits, (double)got,
                         value);
        }
}

TEST(every_pattern_narrows_back_to_itself)
{
    for (int f = 0; f < NFORMATS; f++)
        for (uint32_t bits = 0; bits < 2 * reference[f].sign; bits++) {
            const uint32_t nan = reference[f].sign - 1;
            const uint32_t expected = isnan(reference_value(f, bits)) ? nan : bits;
            assert_int_equal(to_bits(f, from_bits(f, bits)), expected);
        }
}

/* Includes ties between the largest value and the next one that the format would have. */
TEST(every_tie_goes_to_the_even_pattern_and_its_sides_do_not)
{
    for (int f = 0; f < NFORMATS; f++) {
        assert_int_equal(to_bits(f, FLT_MAX), reference[f].beyond);
        assert_int_equal(to_bits(f, -INFINITY), reference[f].beyond | reference[f].sign);
        for (uint32_t bits = 0; bits <= reference[f].largest; bits++) {
            const double low = reference_value(f, bits), high = reference_next(f, bits);
            const float tie = (float)((low + high) / 2);
            const uint32_t above = bits == reference[f].largest ? reference[f].beyond : bits + 1;
            if (isinf(tie) || (double)tie != (low + high) / 2)
                continue; /* bf16: the tie is no fp32 value */
            assert_int_equal(to_bits(f, nextafterf(tie, 0)), bits);
            assert_int_equal(to_bits(f, tie), bits & 1 ? above : bits);
            assert_int_equal(to_bits(f, nextafterf(tie, INFINITY)), above);
            assert_int_equal(to_bits(f, -tie), to_bits(f, tie) | reference[f].sign);
        }
    }
}

TEST(every_nan_becomes_the_one_nan)
{
    static const uint32_t nans[] = {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u,
                                    0xffffffffu};
    for (size_t i = 0; i < sizeof(nans) / sizeof(*nans); i++)
        for (int f = 0; f < NFORMATS; f++)
            assert_int_equal(to_bits(f, number_from_bits(nans[i])), reference[f].sign - 1);
}

TEST(random_floats_round_to_the_nearest)
{
    uint64_t seed = 7;
    for (int f = 0; f < NFORMATS; f++)
        for (int i = 0; i < 200000; i++) {
            const uint64_t bits = random_bits(&seed);
            rounds_as_the_reference(f, number_from_bits((uint32_t)bits));
            /* Most fp32 values are far too large or small for the other formats; these are not. */
            const float near = (float)ldexp((double)(int32_t)bits, (int)(bits >> 40) % 48 - 54);
            rounds_as_the_reference(f, near);
        }
}

int main(void)
{
    reference_start();
    return tests_run(NULL, NULL);
}
