/* Compute on the host: float, OpenBLAS, synchronous. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "prefetch.h"

struct host {
    float *x, *y;  /* [batch][width] */
    float *logits; /* [batch][SYMBOLS] */
};

static bool host_open(struct compute *c, const struct shape *s, int device)
{
    (void)device;
    struct host *h = calloc(1, sizeof(*h));
    if (!h)
        return false;
    const size_t cells = (size_t)s->batch * (size_t)s->width;
    h->x = malloc(cells * sizeof(float));
    h->y = malloc(cells * sizeof(float));
    h->logits = malloc((size_t)s->batch * SYMBOLS * sizeof(float));
    c->state = h;
    c->shape = s;
    openblas_set_num_threads(1); /* ranks share the cores */
    return h->x && h->y && h->logits;
}

static void host_close(struct compute *c)
{
    struct host *h = c->state;
    free(h->x);
    free(h->y);
    free(h->logits);
    free(h);
}

static void *host_alloc(struct compute *c, size_t bytes)
{
    (void)c;
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static void host_free(struct compute *c, void *memory)
{
    (void)c;
    free(memory);
}

static bool host_fill(struct compute *c, void *dst, const float *values, size_t count)
{
    (void)c;
    memcpy(dst, values, count * sizeof(float));
    return true;
}

static bool host_embed(struct compute *c, const void *weights, const unsigned char *text)
{
    struct host *h = c->state;
    const size_t width = (size_t)c->shape->width;
    const float *w = weights;
    for (size_t b = 0; b < (size_t)c->shape->batch; b++) {
        float *x = h->x + b * width;
        memset(x, 0, width * sizeof(float));
        for (size_t p = 0; p < CONTEXT; p++) {
            const float *row = w + (p * SYMBOLS + text[b + p]) * width;
            for (size_t i = 0; i < width; i++)
                x[i] += row[i];
        }
    }
    return true;
}

static bool host_layer(struct compute *c, const void *weights)
{
    struct host *h = c->state;
    const int width = c->shape->width, batch = c->shape->batch;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, batch, width, width, 1, h->x, width,
                weights, width, 0, h->y, width);
    for (size_t i = 0; i < (size_t)batch * (size_t)width; i++)
        h->x[i] += h->y[i] > 0 ? h->y[i] : 0;
    return true;
}

static bool host_output(struct compute *c, const void *weights)
{
    struct host *h = c->state;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, c->shape->batch, SYMBOLS,
                c->shape->width, 1, h->x, c->shape->width, weights, SYMBOLS, 0, h->logits, SYMBOLS);
    return true;
}

static bool host_loss(struct compute *c, const unsigned char *text, double *sum, uint64_t *hash)
{
    const struct host *h = c->state;
    logits_loss(c->shape, h->logits, text, sum, hash);
    return true;
}

static bool host_wait(struct compute *c)
{
    (void)c;
    return true;
}

static bool host_after_stream(struct compute *c, ceclComm_t comm, ceclStream_t stream, int slot)
{
    (void)c;
    (void)slot;
    return ceclStreamSynchronize(comm, stream) == ceclSuccess;
}

static bool host_stream_after(struct compute *c, ceclStream_t stream, int slot)
{
    (void)c;
    (void)stream;
    (void)slot;
    return true;
}

const struct compute compute_host = {.name = "host (OpenBLAS, float)",
                                     .element = sizeof(float),
                                     .open = host_open,
                                     .close = host_close,
                                     .alloc = host_alloc,
                                     .free = host_free,
                                     .fill = host_fill,
                                     .embed = host_embed,
                                     .layer = host_layer,
                                     .output = host_output,
                                     .loss = host_loss,
                                     .wait = host_wait,
                                     .after_stream = host_after_stream,
                                     .stream_after = host_stream_after};
