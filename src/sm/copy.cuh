/* Copying by the threads of a warp, at any alignment. */
#ifndef CECL_SM_COPY_CUH
#define CECL_SM_COPY_CUH

#include "sm/number.cuh"

#define COPY_VECTORS 8 /* how many vectors a thread loads before it stores the first */

DEVICE void copy_vectors(unsigned char *dst, const unsigned char *src, uint32_t count)
{
    uint32_t i = threadIdx.x % 32;
    for (; i + 32 * (COPY_VECTORS - 1) < count; i += 32 * COPY_VECTORS) {
        vector v[COPY_VECTORS];
#pragma unroll
        for (int k = 0; k < COPY_VECTORS; k++)
            v[k] = vector_load(src + (i + 32 * k) * 16);
#pragma unroll
        for (int k = 0; k < COPY_VECTORS; k++)
            vector_store(dst + (i + 32 * k) * 16, v[k]);
    }
    for (; i < count; i += 32)
        vector_store(dst + i * 16, vector_load(src + i * 16));
}

template <typename Unit>
DEVICE void copy_units(unsigned char *dst, const unsigned char *src, uint32_t bytes)
{
    for (uint32_t i = threadIdx.x % 32; i < bytes / sizeof(Unit); i += 32) {
        Unit value;
        single_load(src + i * sizeof(Unit), &value);
        single_store(dst + i * sizeof(Unit), value);
    }
}

/* A warp copies `bytes` bytes, at any alignment. */
DEVICE void warp_copy(unsigned char *dst, const unsigned char *src, uint32_t bytes)
{
    const uint32_t differs = (uint32_t)((uintptr_t)dst ^ (uintptr_t)src);
    if (differs % 16 == 0) {
        const uint32_t to_line = (uint32_t)(-(uintptr_t)dst & 15),
                       head = to_line < bytes ? to_line : bytes, body = (bytes - head) / 16 * 16;
        copy_units<uint8_t>(dst, src, head);
        copy_vectors(dst + head, src + head, body / 16);
        copy_units<uint8_t>(dst + head + body, src + head + body, bytes - head - body);
    } else if ((differs | (uint32_t)(uintptr_t)dst | bytes) % 4 == 0) {
        copy_units<uint32_t>(dst, src, bytes);
    } else {
        copy_units<uint8_t>(dst, src, bytes);
    }
}

#endif
