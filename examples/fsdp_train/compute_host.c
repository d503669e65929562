/* Compute on the host: memory, shards, time, and the table of operations. Every operation is done
 * when its call returns. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host_network.h"

struct host {
    double *stamps; /* in ms */
    int used, room;
};

static bool host_open(struct compute *c, int device, int lanes, int ticks)
{
    struct host *h = calloc(1, sizeof(*h));
    (void)device;
    (void)lanes;
    c->state = h;
    if (h)
        h->stamps = calloc((size_t)ticks, sizeof(*h->stamps));
    if (!h || !h->stamps) {
        fprintf(stderr, "compute: no memory for %d time stamps\n", ticks);
        return false;
    }
    h->room = ticks;
    return true;
}

static void host_close(struct compute *c)
{
    struct host *h = c->state;
    if (h)
        free(h->stamps);
    free(h);
    c->state = NULL;
}

static void *host_alloc(struct compute *c, size_t bytes)
{
    const size_t rounded = (bytes + 255) / 256 * 256;
    void *memory = aligned_alloc(256, rounded ? rounded : 256);
    (void)c;
    if (memory)
        memset(memory, 0, rounded);
    else
        fprintf(stderr, "compute: no memory for %zu bytes\n", bytes);
    return memory;
}

static void host_free(struct compute *c, void *memory)
{
    (void)c;
    free(memory);
}

static void host_write(struct compute *c, void *dst, const void *host, size_t bytes)
{
    (void)c;
    memcpy(dst, host, bytes);
}

static bool host_read(struct compute *c, void *host, const void *src, size_t bytes)
{
    (void)c;
    memcpy(host, src, bytes);
    return true;
}

static bool host_wait(struct compute *c)
{
    (void)c;
    return true;
}

static void host_copy(struct compute *c, void *dst, const void *src, size_t elements)
{
    (void)c;
    memcpy(dst, src, elements * sizeof(real));
}

static void host_zero(struct compute *c, void *dst, size_t elements)
{
    (void)c;
    memset(dst, 0, elements * sizeof(real));
}

static void host_to_elements(struct compute *c, void *dst, const float *src, size_t count)
{
    (void)c;
    for (size_t i = 0; i < count; i++)
        ((real *)dst)[i] = (real)src[i];
}

static void host_adam(struct compute *c, float *parameters, float *first, float *second,
                      const void *gradients, size_t count, const struct adam *a)
{
    (void)c;
    for (size_t i = 0; i < count; i++) {
        const float g = (float)((const real *)gradients)[i];
        first[i] = a->beta1 * first[i] + (1 - a->beta1) * g;
        second[i] = a->beta2 * second[i] + (1 - a->beta2) * g * g;
        parameters[i] -=
            a->rate * first[i] * a->correction1 / (sqrtf(second[i] * a->correction2) + a->epsilon);
    }
}

static void host_tick(struct compute *c)
{
    struct host *h = c->state;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (h->used < h->room)
        h->stamps[h->used++] = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static bool host_ticks(struct compute *c, double *ms, int count)
{
    struct host *h = c->state;
    const bool all = !ms || h->used == count;
    if (ms && all)
        memcpy(ms, h->stamps, (size_t)count * sizeof(*ms));
    if (!all)
        fprintf(stderr, "compute: %d time stamps, %d expected\n", h->used, count);
    h->used = 0;
    return all;
}

const struct compute compute_host = {.name = host_matmul_name,
                                     .element = sizeof(real),
                                     .wide = sizeof(real),
                                     .type = sizeof(real) == 8 ? ceclFloat64 : ceclFloat32,
                                     .open = host_open,
                                     .close = host_close,
                                     .alloc = host_alloc,
                                     .free = host_free,
                                     .write = host_write,
                                     .read = host_read,
                                     .wait = host_wait,
                                     .copy = host_copy,
                                     .zero = host_zero,
                                     .matmul = host_matmul,
                                     .batch = host_batch,
                                     .embed = host_embed,
                                     .embed_back = host_embed_back,
                                     .norm = host_norm,
                                     .norm_back = host_norm_back,
                                     .gelu = host_gelu,
                                     .gelu_back = host_gelu_back,
                                     .softmax = host_softmax,
                                     .softmax_back = host_softmax_back,
                                     .loss = host_loss,
                                     .to_elements = host_to_elements,
                                     .adam = host_adam,
                                     .tick = host_tick,
                                     .ticks = host_ticks};
