/* The network's operations on the host, by plain loops: embedding, layer norm, gelu, softmax, loss.
 * Statistics are summed in double. */
#include "host_network.h"

#include <math.h>
#include <string.h>

#include "random.h"

static size_t rows_of(struct dims d)
{
    return (size_t)d.samples * (size_t)d.sequence;
}

void host_batch(struct compute *c, unsigned char *tokens, const unsigned char *text, size_t bytes,
                uint64_t seed, uint64_t first, struct dims d)
{
    (void)c;
    const size_t each = (size_t)d.sequence + 1;
    for (size_t s = 0; s < (size_t)d.samples; s++)
        memcpy(tokens + s * each, text + sample_start(seed, first + s, bytes, d.sequence), each);
}

void host_embed(struct compute *c, void *x, const void *table, const void *places,
                const unsigned char *tokens, struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width, sequence = (size_t)d.sequence;
    for (size_t r = 0; r < rows_of(d); r++) {
        const size_t sample = r / sequence, t = r % sequence;
        const real *a = (const real *)table + tokens[sample * (sequence + 1) + t] * width;
        const real *b = (const real *)places + t * width;
        real *y = (real *)x + r * width;
        for (size_t i = 0; i < width; i++)
            y[i] = a[i] + b[i];
    }
}

void host_embed_back(struct compute *c, void *dtable, void *dplaces, const void *dx,
                     const unsigned char *tokens, struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width, sequence = (size_t)d.sequence;
    memset(dtable, 0, SYMBOLS * width * sizeof(real));
    memset(dplaces, 0, sequence * width * sizeof(real));
    for (size_t r = 0; r < rows_of(d); r++) {
        const size_t sample = r / sequence, t = r % sequence;
        real *a = (real *)dtable + tokens[sample * (sequence + 1) + t] * width;
        real *b = (real *)dplaces + t * width;
        const real *y = (const real *)dx + r * width;
        for (size_t i = 0; i < width; i++) {
            a[i] += y[i];
            b[i] += y[i];
        }
    }
}

void host_norm(struct compute *c, void *y, void *mean, void *rstd, const void *x, const void *gain,
               const void *bias, struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width;
    const real *g = gain, *b = bias;
    for (size_t r = 0; r < rows_of(d); r++) {
        const real *in = (const real *)x + r * width;
        real *out = (real *)y + r * width;
        double sum = 0, squares = 0;
        for (size_t i = 0; i < width; i++)
            sum += in[i];
        const double m = sum / (double)width;
        for (size_t i = 0; i < width; i++)
            squares += (in[i] - m) * (in[i] - m);
        const double s = 1 / sqrt(squares / (double)width + NORM_EPSILON);
        for (size_t i = 0; i < width; i++)
            out[i] = (real)((in[i] - m) * s) * g[i] + b[i];
        ((real *)mean)[r] = (real)m;
        ((real *)rstd)[r] = (real)s;
    }
}

/* With z = (x - mean) rstd and e = dy gain:  dx += rstd (e - mean(e) - z mean(e z)). */
void host_norm_back(struct compute *c, void *dx, void *dgain, void *dbias, const void *dy,
                    const void *x, const void *mean, const void *rstd, const void *gain,
                    struct dims d)
{
    (void)c;
    const size_t width = (size_t)d.width;
    const real *g = gain;
    real *dg = dgain, *db = dbias;
    memset(dg, 0, width * sizeof(real));
    memset(db, 0, width * sizeof(real));
    for (size_t r = 0; r < rows_of(d); r++) {
        const real *in = (const real *)x + r * width, *e = (const real *)dy + r * width;
        real *out = (real *)dx + r * width;
        const real m = ((const real *)mean)[r], s = ((const real *)rstd)[r];
        double sum = 0, sum_z = 0;
        for (size_t i = 0; i < width; i++) {
            const real z = (in[i] - m) * s;
            dg[i] += e[i] * z;
            db[i] += e[i];
            sum += e[i] * g[i];
            sum_z += e[i] * g[i] * z;
        }
        const real a = (real)(sum / (double)width), b = (real)(sum_z / (double)width);
        for (size_t i = 0; i < width; i++)
            out[i] += s * (e[i] * g[i] - a - (in[i] - m) * s * b);
    }
}

/* gelu(x) = x (1 + tanh u) / 2 with u = GELU_A (x + GELU_B x^3) */
void host_gelu(struct compute *c, void *y, const void *x, size_t count)
{
    (void)c;
    const real *in = x;
    real *out = y;
    for (size_t i = 0; i < count; i++) {
        const real u = (real)GELU_A * (in[i] + (real)GELU_B * in[i] * in[i] * in[i]);
        out[i] = in[i] * (1 + REAL_TANH(u)) / 2;
    }
}

void host_gelu_back(struct compute *c, void *dy, const void *x, size_t count)
{
    (void)c;
    const real *in = x;
    real *d = dy;
    for (size_t i = 0; i < count; i++) {
        const real square = in[i] * in[i];
        const real t = REAL_TANH((real)GELU_A * (in[i] + (real)GELU_B * in[i] * square));
        const real du = (real)GELU_A * (1 + 3 * (real)GELU_B * square);
        d[i] *= (1 + t + in[i] * (1 - t * t) * du) / 2;
    }
}

void host_softmax(struct compute *c, void *p, size_t count, int size)
{
    (void)c;
    const size_t n = (size_t)size;
    for (size_t r = 0; r < count * n; r++) {
        real *row = (real *)p + r * n, most = row[0], sum = 0;
        const size_t seen = r % n + 1;
        for (size_t j = 1; j < seen; j++)
            most = row[j] > most ? row[j] : most;
        for (size_t j = 0; j < seen; j++)
            sum += row[j] = REAL_EXP(row[j] - most);
        for (size_t j = 0; j < n; j++)
            row[j] = j < seen ? row[j] / sum : 0;
    }
}

void host_softmax_back(struct compute *c, void *dp, const void *p, size_t count, int size,
                       float scale)
{
    (void)c;
    const size_t n = (size_t)size;
    for (size_t r = 0; r < count * n; r++) {
        real *d = (real *)dp + r * n, sum = 0;
        const real *row = (const real *)p + r * n;
        for (size_t j = 0; j <= r % n; j++)
            sum += d[j] * row[j];
        for (size_t j = 0; j < n; j++) /* positions that a row does not see have p = 0 */
            d[j] = (real)scale * row[j] * (d[j] - sum);
    }
}

void host_loss(struct compute *c, double *mean, void *dlogits, const void *logits,
               const unsigned char *tokens, struct dims d, float scale)
{
    (void)c;
    const size_t sequence = (size_t)d.sequence;
    double total = 0;
    for (size_t r = 0; r < rows_of(d); r++) {
        const real *l = (const real *)logits + r * SYMBOLS;
        real *g = (real *)dlogits + r * SYMBOLS, most = l[0];
        const size_t sample = r / sequence, t = r % sequence;
        const int next = tokens[sample * (sequence + 1) + t + 1];
        double sum = 0;
        for (int i = 1; i < SYMBOLS; i++)
            most = l[i] > most ? l[i] : most;
        for (int i = 0; i < SYMBOLS; i++)
            sum += g[i] = REAL_EXP(l[i] - most);
        for (int i = 0; i < SYMBOLS; i++)
            g[i] = (real)scale * (g[i] / (real)sum - (i == next ? 1 : 0));
        total += log(sum) + (double)(most - l[next]);
    }
    *mean = total / (double)rows_of(d);
}
