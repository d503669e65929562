/* Shards on a GPU: conversion to bfloat16, and Adam. Counts are multiples of 128. */
#include "cuda_compute.h"

__global__ void to_elements_kernel(pack *dst, const float4 *src, size_t packs)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < packs;
         i += (size_t)gridDim.x * THREADS) {
        const float4 a = src[2 * i], b = src[2 * i + 1];
        const float in[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        pack out;
        for (int k = 0; k < 8; k++)
            out.e[k] = __float2bfloat16(in[k]);
        dst[i] = out;
    }
}

static void to_elements(struct compute *c, void *dst, const float *src, size_t count)
{
    struct gpu *g = gpu_of(c);
    to_elements_kernel<<<blocks_for(count / 8), THREADS, 0, g->stream>>>(
        (pack *)dst, (const float4 *)src, count / 8);
    GPU_CHECK(g, cudaGetLastError());
}

struct alignas(8) four {
    element e[4];
};

__device__ static inline void adam_one(float &p, float &m, float &v, float g, const adam &a)
{
    m = a.beta1 * m + (1 - a.beta1) * g;
    v = a.beta2 * v + (1 - a.beta2) * g * g;
    p -= a.rate * m * a.correction1 / (sqrtf(v * a.correction2) + a.epsilon);
}

__global__ void adam_kernel(float4 *parameters, float4 *first, float4 *second,
                            const four *gradients, size_t fours, adam a)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < fours;
         i += (size_t)gridDim.x * THREADS) {
        float4 p = parameters[i], m = first[i], v = second[i];
        const four g = gradients[i];
        adam_one(p.x, m.x, v.x, __bfloat162float(g.e[0]), a);
        adam_one(p.y, m.y, v.y, __bfloat162float(g.e[1]), a);
        adam_one(p.z, m.z, v.z, __bfloat162float(g.e[2]), a);
        adam_one(p.w, m.w, v.w, __bfloat162float(g.e[3]), a);
        parameters[i] = p;
        first[i] = m;
        second[i] = v;
    }
}

static void update(struct compute *c, float *parameters, float *first, float *second,
                   const void *gradients, size_t count, const struct adam *a)
{
    struct gpu *g = gpu_of(c);
    adam_kernel<<<blocks_for(count / 4), THREADS, 0, g->stream>>>(
        (float4 *)parameters, (float4 *)first, (float4 *)second, (const four *)gradients, count / 4,
        *a);
    GPU_CHECK(g, cudaGetLastError());
}

void cuda_shards(struct compute *table)
{
    table->to_elements = to_elements;
    table->adam = update;
}
