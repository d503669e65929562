/* Sums of rows on the host, element by element; see sums.h. */
#include <string.h>

#include "sm/number.h"
#include "sm/reduce.h"
#include "sm/sums.h"

bool cecl_row_sums_adds(ceclDataType_t type)
{
    return type == ceclFloat32 || type == ceclFloat16 || type == ceclBfloat16 ||
           type == ceclFloat8e4m3 || type == ceclFloat8e5m2;
}

static float widen(ceclDataType_t type, const unsigned char *at)
{
    uint32_t bits = 0;
    memcpy(&bits, at, cecl_reduction_element_bytes(type)); /* little-endian */
    switch (type) {
    case ceclFloat16: return number_from_f16((uint16_t)bits);
    case ceclBfloat16: return number_from_bf16((uint16_t)bits);
    case ceclFloat8e4m3: return number_from_e4m3((uint8_t)bits);
    case ceclFloat8e5m2: return number_from_e5m2((uint8_t)bits);
    default: return number_from_bits(bits);
    }
}

static void narrow(ceclDataType_t type, float value, unsigned char *at)
{
    uint32_t bits;
    switch (type) {
    case ceclFloat16: bits = number_to_f16(value); break;
    case ceclBfloat16: bits = number_to_bf16(value); break;
    case ceclFloat8e4m3: bits = number_to_e4m3(value); break;
    case ceclFloat8e5m2: bits = number_to_e5m2(value); break;
    default: bits = value != value ? CECL_NAN_F32 : number_bits(value); break;
    }
    memcpy(at, &bits, cecl_reduction_element_bytes(type));
}

static float sum(const struct cecl_row_sums *sums, uint64_t token, uint64_t element)
{
    const uint32_t bytes = cecl_reduction_element_bytes(sums->type);
    bool any = false;
    float total = 0;
    for (uint64_t j = token * sums->each; j < (token + 1) * sums->each; j++) {
        if (sums->places[j] >= sums->nrows)
            continue;
        const float x = widen(sums->type, (const unsigned char *)sums->rows +
                                              (sums->places[j] * sums->count + element) * bytes),
                    product = sums->weights ? sums->weights[j] * x : x;
        total = any ? total + product : product;
        any = true;
    }
    return total;
}

void cecl_row_sums_host(const struct cecl_row_sums *sums)
{
    const uint32_t bytes = cecl_reduction_element_bytes(sums->type);
    for (uint64_t t = 0; t < sums->tokens; t++)
        for (uint64_t i = 0; i < sums->count; i++)
            narrow(sums->type, sum(sums, t, i),
                   (unsigned char *)sums->sums + (t * sums->count + i) * bytes);
}
