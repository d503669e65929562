/* Random sums of rows (sm/sums.h) of all kinds of numbers. The including file owns the memory. */
#ifndef CECL_TEST_SUMS_MODEL_H
#define CECL_TEST_SUMS_MODEL_H

#include "reduce_inputs.h"
#include "sm/sums.h"

#define SUMS_BYTES ((size_t)64 << 10) /* most bytes of rows, and of sums */
#define SUMS_PLACES 1024
#define SUMS_UNTOUCHED 0x5A

struct sums_memory {
    unsigned char rows[SUMS_BYTES + 64], sums[SUMS_BYTES + 64];
    uint64_t places[SUMS_PLACES];
    float weights[SUMS_PLACES];
};

static const ceclDataType_t sums_types[] = {ceclFloat32, ceclFloat16, ceclBfloat16, ceclFloat8e4m3,
                                            ceclFloat8e5m2};

/* A random call on this memory. In half of the calls a row has whole vectors; in more than half it is aligned. */
static inline struct cecl_row_sums sums_draw(uint64_t *seed, struct sums_memory *at)
{
    const ceclDataType_t type = sums_types[random_bits(seed) % 5];
    const unsigned bytes = formats[type].bytes, per = 16 / bytes;
    const size_t shift = random_bits(seed) % 2 * bytes * (random_bits(seed) % 5);
    struct cecl_row_sums s = {.rows = at->rows + shift,
                              .places = at->places,
                              .weights = random_bits(seed) % 3 ? at->weights : NULL,
                              .sums = at->sums + shift,
                              .nrows = 1 + random_bits(seed) % 40,
                              .count = 1 + random_bits(seed) % 70,
                              .tokens = 1 + random_bits(seed) % 60,
                              .each = (uint32_t)(random_bits(seed) % 9),
                              .type = type};
    if (random_bits(seed) % 2)
        s.count = per * (1 + random_bits(seed) % 12);
    random_fill(at->rows, type, SUMS_BYTES / bytes, seed);
    for (size_t i = 0; i < SUMS_PLACES; i++) {
        at->places[i] = random_bits(seed) % 8 ? random_bits(seed) % s.nrows
                                              : UINT64_MAX - random_bits(seed) % 9;
        at->weights[i] = (float)(int)(random_bits(seed) % 2001) / 1000.0f - 1;
    }
    memset(at->sums, SUMS_UNTOUCHED, sizeof(at->sums));
    return s;
}

#endif
