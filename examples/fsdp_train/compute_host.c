/* Compute on the host: every operation is done when its call returns. Statistics are summed in
 * double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compute.h"
#include "model.h"

struct host {
    int used, room;
    double stamps[]; /* in ms */
};

static bool host_open(struct compute *c, int device, int lanes, int ticks)
{
    struct host *h = calloc(1, sizeof(*h) + (size_t)ticks * sizeof(double));
    (void)device;
    (void)lanes;
    c->state = h;
    if (h)
        h->room = ticks;
    else
        fprintf(stderr, "compute: no memory for %d time stamps\n", ticks);
    return h != NULL;
}

static void host_close(struct compute *c)
{
    free(c->state);
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

static void host_copy(struct compute *c, void *dst, const void *src, size_t bytes)
{
    (void)c;
    memcpy(dst, src, bytes);
}

static void host_zero(struct compute *c, void *dst, size_t bytes)
{
    (void)c;
    memset(dst, 0, bytes);
}

static bool host_wait(struct compute *c)
{
    (void)c;
    return true;
}

static void host_to_elements(struct compute *c, void *dst, const float *src, size_t count)
{
    (void)c;
    for (size_t i = 0; i < count; i++)
        ((float *)dst)[i] = src[i];
}

static void host_adam(struct compute *c, float *parameters, float *first, float *second,
                      const void *gradients, size_t count, const struct adam *a)
{
    (void)c;
    for (size_t i = 0; i < count; i++) {
        const float g = ((const float *)gradients)[i];
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
    const bool all = h->used == count;
    if (all)
        memcpy(ms, h->stamps, (size_t)count * sizeof(*ms));
    else
        fprintf(stderr, "compute: %d time stamps, %d expected\n", h->used, count);
    h->used = 0;
    return all;
}

/* ---- matrix products */

/* Computes row i of C. No caller transposes both A and B. */
static void product_row(const struct matmul *m, const float *a, const float *b, float *c, int i)
{
    float *row = c + (long long)i * m->ldc;
    for (int j = 0; j < m->n; j++) /* with beta = 0, C must not be read: it may hold anything */
        row[j] = m->beta != 0 ? m->beta * row[j] : 0;
    for (int p = 0; p < m->k && !m->b_turned; p++) {
        const float x = m->a_turned ? a[(long long)p * m->lda + i] : a[(long long)i * m->lda + p];
        const float *y = b + (long long)p * m->ldb;
        for (int j = 0; j < m->n; j++)
            row[j] += m->alpha * x * y[j];
    }
    for (int j = 0; j < m->n && m->b_turned; j++) {
        const float *x = a + (long long)i * m->lda, *y = b + (long long)j * m->ldb;
        float sum = 0;
        for (int p = 0; p < m->k; p++)
            sum += x[p] * y[p];
        row[j] += m->alpha * sum;
    }
}

static void host_matmul(struct compute *c, const struct matmul *m)
{
    (void)c;
    for (int b = 0; b < m->batch; b++)
        for (int i = 0; i < m->m; i++)
            product_row(m, (const float *)m->a + b * m->stride_a,
                        (const float *)m->b + b * m->stride_b, (float *)m->c + b * m->stride_c, i);
}

/* ---- the network */

static void host_batch(struct compute *c, unsigned char *tokens, const unsigned char *text,
                       size_t bytes, uint64_t seed, uint64_t first, struct dims d)
{
    (void)c;
    const size_t each = (size_t)d.sequence + 1;
    for (size_t s = 0; s < (size_t)d.samples; s++)
        memcpy(tokens + s * each, text + sample_start(seed, first + s, bytes, d.sequence), each);
}

static void host_embed(struct compute *c, void *x, const void *table, const void *places,
                       const unsigned char *tokens, struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width, sequence = (size_t)d.sequence;
    for (size_t r = 0; r < rows_of(d); r++) {
        const size_t sample = r / sequence, t = r % sequence;
        const float *a = (const float *)table + tokens[sample * (sequence + 1) + t] * width;
        const float *b = (const float *)places + t * width;
        float *y = (float *)x + r * width;
        for (size_t i = 0; i < width; i++)
            y[i] = a[i] + b[i];
    }
}

static void host_embed_back(struct compute *c, void *dtable, void *dplaces, const void *dx,
                            const unsigned char *tokens, struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width, sequence = (size_t)d.sequence;
    memset(dtable, 0, SYMBOLS * width * sizeof(float));
    memset(dplaces, 0, sequence * width * sizeof(float));
    for (size_t r = 0; r < rows_of(d); r++) {
        const size_t sample = r / sequence, t = r % sequence;
        float *a = (float *)dtable + tokens[sample * (sequence + 1) + t] * width;
        float *b = (float *)dplaces + t * width;
        const float *y = (const float *)dx + r * width;
        for (size_t i = 0; i < width; i++) {
            a[i] += y[i];
            b[i] += y[i];
        }
    }
}

static void host_norm(struct compute *c, void *y, void *mean, void *rstd, const void *x,
                      const void *gain, const void *bias, struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width;
    const float *g = gain, *b = bias;
    for (size_t r = 0; r < rows_of(d); r++) {
        const float *in = (const float *)x + r * width;
        float *out = (float *)y + r * width;
        double sum = 0, squares = 0;
        for (size_t i = 0; i < width; i++)
            sum += in[i];
        const double m = sum / (double)width;
        for (size_t i = 0; i < width; i++)
            squares += (in[i] - m) * (in[i] - m);
        const double s = 1 / sqrt(squares / (double)width + NORM_EPSILON);
        for (size_t i = 0; i < width; i++)
            out[i] = (float)((in[i] - m) * s) * g[i] + b[i];
        ((float *)mean)[r] = (float)m;
        ((float *)rstd)[r] = (float)s;
    }
}

/* With z = (x - mean) rstd and e = dy gain:  dx += rstd (e - mean(e) - z mean(e z)). */
static void host_norm_back(struct compute *c, void *dx, void *dgain, void *dbias, const void *dy,
                           const void *x, const void *mean, const void *rstd, const void *gain,
                           struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width;
    const float *g = gain;
    float *dg = dgain, *db = dbias;
    memset(dg, 0, width * sizeof(float));
    memset(db, 0, width * sizeof(float));
    for (size_t r = 0; r < rows_of(d); r++) {
        const float *in = (const float *)x + r * width, *e = (const float *)dy + r * width;
        float *out = (float *)dx + r * width;
        const float m = ((const float *)mean)[r], s = ((const float *)rstd)[r];
        double sum = 0, sum_z = 0;
        for (size_t i = 0; i < width; i++) {
            const float z = (in[i] - m) * s;
            dg[i] += e[i] * z;
            db[i] += e[i];
            sum += e[i] * g[i];
            sum_z += e[i] * g[i] * z;
        }
        const float a = (float)(sum / (double)width), b = (float)(sum_z / (double)width);
        for (size_t i = 0; i < width; i++)
            out[i] += s * (e[i] * g[i] - a - (in[i] - m) * s * b);
    }
}

static void host_gelu(struct compute *c, void *y, const void *x, size_t count)
{
    (void)c;
    const float *in = x;
    float *out = y;
    for (size_t i = 0; i < count; i++) {
        const float u = (float)GELU_A * (in[i] + (float)GELU_B * in[i] * in[i] * in[i]);
        out[i] = in[i] * (1 + tanhf(u)) / 2;
    }
}

static void host_gelu_back(struct compute *c, void *dy, const void *x, size_t count)
{
    (void)c;
    const float *in = x;
    float *d = dy;
    for (size_t i = 0; i < count; i++) {
        const float square = in[i] * in[i];
        const float t = tanhf((float)GELU_A * (in[i] + (float)GELU_B * in[i] * square));
        const float du = (float)GELU_A * (1 + 3 * (float)GELU_B * square);
        d[i] *= (1 + t + in[i] * (1 - t * t) * du) / 2;
    }
}

static void host_softmax(struct compute *c, void *p, size_t count, int size)
{
    (void)c;
    const size_t n = (size_t)size;
    for (size_t r = 0; r < count * n; r++) {
        float *row = (float *)p + r * n, most = row[0], sum = 0;
        const size_t seen = r % n + 1;
        for (size_t j = 1; j < seen; j++)
            most = row[j] > most ? row[j] : most;
        for (size_t j = 0; j < seen; j++)
            sum += row[j] = expf(row[j] - most);
        for (size_t j = 0; j < n; j++)
            row[j] = j < seen ? row[j] / sum : 0;
    }
}

static void host_softmax_back(struct compute *c, void *dp, const void *p, size_t count, int size,
                              float scale)
{
    (void)c;
    const size_t n = (size_t)size;
    for (size_t r = 0; r < count * n; r++) {
        float *d = (float *)dp + r * n, sum = 0;
        const float *row = (const float *)p + r * n;
        for (size_t j = 0; j <= r % n; j++)
            sum += d[j] * row[j];
        for (size_t j = 0; j < n; j++) /* positions that a row does not see have p = 0 */
            d[j] = scale * row[j] * (d[j] - sum);
    }
}

static void host_loss(struct compute *c, double *mean, void *dlogits, const void *logits,
                      const unsigned char *tokens, struct dims d, float scale)
{
    (void)c;
    const size_t sequence = (size_t)d.sequence;
    double total = 0;
    for (size_t r = 0; r < rows_of(d); r++) {
        const float *l = (const float *)logits + r * SYMBOLS;
        float *g = (float *)dlogits + r * SYMBOLS, most = l[0];
        const size_t sample = r / sequence, t = r % sequence;
        const int next = tokens[sample * (sequence + 1) + t + 1];
        double sum = 0;
        for (int i = 1; i < SYMBOLS; i++)
            most = l[i] > most ? l[i] : most;
        for (int i = 0; i < SYMBOLS; i++)
            sum += g[i] = expf(l[i] - most);
        for (int i = 0; i < SYMBOLS; i++)
            g[i] = scale * (g[i] / (float)sum - (i == next ? 1 : 0));
        total += log(sum) + (double)(most - l[next]);
    }
    *mean = total / (double)rows_of(d);
}

const struct compute compute_host = {.name = "CPU (plain loops, float)",
                                     .element = sizeof(float),
                                     .type = ceclFloat32,
                                     .open = host_open,
                                     .close = host_close,
                                     .alloc = host_alloc,
                                     .free = host_free,
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
