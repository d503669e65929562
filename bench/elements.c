/* The numbers 0 to 7, in the types in which reductions are measured. Their sums over ranks are exact in any order
 * and in any accumulator, so the check also holds for libraries that add in another order. */
#include <string.h>

#include "bench.h"

#define LARGEST 7

/* All integers up to this number are exact in the type; 0: the type is not measured. */
static int exact_to(ceclDataType_t type)
{
    switch (type) {
    case ceclFloat8e4m3:
    case ceclFloat8e5m2: return 0;
    case ceclBfloat16: return 256;
    case ceclFloat16: return 2048;
    case ceclInt8: return 127;
    case ceclUint8: return 255;
    default: return 1 << 20;
    }
}

bool elements_can(const struct type *type, int nranks)
{
    return nranks * LARGEST <= exact_to(type->id);
}

/* The bits of an integer that the type has exactly. bf16 and fp16 lack the lowest bits of fp32, which are 0 then. */
static uint64_t bits_of(ceclDataType_t type, unsigned value)
{
    const float f = (float)value;
    const double d = (double)value;
    uint32_t low;
    uint64_t bits;
    memcpy(&low, &f, sizeof(low));
    memcpy(&bits, &d, sizeof(bits));
    switch (type) {
    case ceclFloat64: return bits;
    case ceclFloat32: return low;
    case ceclBfloat16: return low >> 16;
    /* the exponent of fp16 has a bias of 15, not 127 */
    case ceclFloat16: return value ? ((low >> 13) - (112u << 10)) : 0;
    default: return value;
    }
}

/* The word in which number `index` lies; a word has 16 numbers. */
static uint64_t word_of(uint64_t key, size_t index)
{
    uint64_t x = key + index / 16 * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static unsigned number_in(uint64_t word, size_t index)
{
    return (unsigned)(word >> (index % 16 * 4)) & LARGEST;
}

void elements_fill(unsigned char *out, const struct type *type, uint64_t key, size_t bytes)
{
    const size_t size = type->bytes, count = bytes / size;
    uint64_t table[LARGEST + 1], word = 0;
    for (unsigned v = 0; v <= LARGEST; v++)
        table[v] = bits_of(type->id, v);
    for (size_t i = 0; i < count; i++) {
        if (i % 16 == 0)
            word = word_of(key, i);
        memcpy(out + i * size, &table[number_in(word, i)], size);
    }
}

long long elements_wrong(const unsigned char *got, const struct type *type, const uint64_t *keys,
                         int nkeys, size_t bytes)
{
    const size_t size = type->bytes, count = bytes / size;
    unsigned sums[16] = {0};
    long long wrong = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % 16 == 0) {
            memset(sums, 0, sizeof(sums));
            for (int k = 0; k < nkeys; k++)
                for (size_t j = 0; j < 16; j++)
                    sums[j] += number_in(word_of(keys[k], i), j);
        }
        const uint64_t want = bits_of(type->id, sums[i % 16]);
        wrong += memcmp(got + i * size, &want, size) != 0;
    }
    return wrong;
}
