/* The network's operations between the matrix products, on a GPU: samples, embedding, layer norm,
 * gelu, softmax, loss. Elements are bfloat16, sums are float. */
#include "cuda_compute.h"

/* ---- samples out of the text */

__global__ void batch_kernel(unsigned char *tokens, const unsigned char *text, size_t bytes,
                             uint64_t seed, uint64_t first, int sequence)
{
    const size_t start = sample_start(seed, first + blockIdx.x, bytes, sequence);
    for (int t = threadIdx.x; t <= sequence; t += THREADS)
        tokens[(size_t)blockIdx.x * (sequence + 1) + t] = text[start + t];
}

static void batch(struct compute *c, unsigned char *tokens, const unsigned char *text, size_t bytes,
                  uint64_t seed, uint64_t first, struct dims d)
{
    batch_kernel<<<(unsigned)d.samples, THREADS, 0, gpu_of(c)->stream>>>(tokens, text, bytes, seed,
                                                                         first, d.sequence);
}

/* ---- embedding; one block for each row */

__global__ void embed_kernel(element *x, const element *table, const element *places,
                             const unsigned char *tokens, int sequence, int width)
{
    const size_t row = blockIdx.x, sample = row / sequence, t = row % sequence;
    const element *a = table + tokens[sample * (sequence + 1) + t] * (size_t)width;
    const element *b = places + t * width;
    for (int i = threadIdx.x; i < width; i += THREADS)
        x[row * width + i] = __float2bfloat16(__bfloat162float(a[i]) + __bfloat162float(b[i]));
}

/* The gradient of a symbol's row: the sum over all places where the symbol occurs, in their order. */
__global__ void table_back_kernel(element *dtable, const element *dx, const unsigned char *tokens,
                                  int samples, int sequence, int width)
{
    const int i = blockIdx.y * THREADS + threadIdx.x, symbol = blockIdx.x;
    if (i >= width)
        return;
    float sum = 0;
    for (int s = 0; s < samples; s++) {
        const unsigned char *token = tokens + (size_t)s * (sequence + 1);
        const element *d = dx + (size_t)s * sequence * width + i;
        for (int t = 0; t < sequence; t++)
            if (token[t] == symbol)
                sum += __bfloat162float(d[(size_t)t * width]);
    }
    dtable[(size_t)symbol * width + i] = __float2bfloat16(sum);
}

__global__ void places_back_kernel(element *dplaces, const element *dx, int samples, int sequence,
                                   int width)
{
    const int i = blockIdx.y * THREADS + threadIdx.x;
    const size_t t = blockIdx.x;
    if (i >= width)
        return;
    float sum = 0;
    for (int s = 0; s < samples; s++)
        sum += __bfloat162float(dx[((size_t)s * sequence + t) * width + i]);
    dplaces[t * width + i] = __float2bfloat16(sum);
}

static void embed(struct compute *c, void *x, const void *table, const void *places,
                  const unsigned char *tokens, struct dims d)
{
    embed_kernel<<<(unsigned)rows_of(d), THREADS, 0, gpu_of(c)->stream>>>(
        (element *)x, (const element *)table, (const element *)places, tokens, d.sequence, d.width);
}

static void embed_back(struct compute *c, void *dtable, void *dplaces, const void *dx,
                       const unsigned char *tokens, struct dims d)
{
    struct gpu *g = gpu_of(c);
    const unsigned columns = (unsigned)((d.width + THREADS - 1) / THREADS);
    table_back_kernel<<<dim3(SYMBOLS, columns), THREADS, 0, g->stream>>>(
        (element *)dtable, (const element *)dx, tokens, d.samples, d.sequence, d.width);
    places_back_kernel<<<dim3((unsigned)d.sequence, columns), THREADS, 0, g->stream>>>(
        (element *)dplaces, (const element *)dx, d.samples, d.sequence, d.width);
}

/* ---- layer norm; one block for each row */

__global__ void norm_kernel(element *y, float *mean, float *rstd, const element *x,
                            const element *gain, const element *bias, int width)
{
    const size_t row = blockIdx.x;
    const element *in = x + row * width;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < width; i += THREADS)
        sum += __bfloat162float(in[i]);
    const float m = block_sum(sum) / (float)width;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        const float z = __bfloat162float(in[i]) - m;
        squares += z * z;
    }
    const float s = rsqrtf(block_sum(squares) / (float)width + (float)NORM_EPSILON);
    for (int i = threadIdx.x; i < width; i += THREADS)
        y[row * width + i] =
            __float2bfloat16((__bfloat162float(in[i]) - m) * s * __bfloat162float(gain[i]) +
                             __bfloat162float(bias[i]));
    if (threadIdx.x == 0) {
        mean[row] = m;
        rstd[row] = s;
    }
}

/* compute_host.c has the formula. */
__global__ void norm_back_kernel(element *dx, const element *dy, const element *x,
                                 const float *mean, const float *rstd, const element *gain,
                                 int width)
{
    const size_t row = blockIdx.x, from = row * width;
    const float m = mean[row], s = rstd[row];
    float sum = 0, sum_z = 0;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        const float e = __bfloat162float(dy[from + i]) * __bfloat162float(gain[i]);
        sum += e;
        sum_z += e * (__bfloat162float(x[from + i]) - m) * s;
    }
    const float a = block_sum(sum) / (float)width, b = block_sum(sum_z) / (float)width;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        const float e = __bfloat162float(dy[from + i]) * __bfloat162float(gain[i]);
        const float z = (__bfloat162float(x[from + i]) - m) * s;
        dx[from + i] = __float2bfloat16(__bfloat162float(dx[from + i]) + s * (e - a - z * b));
    }
}

/* The gradients of gain and bias are sums over rows: here each thread sums one column over a chunk of
 * the rows, and norm_chunks_kernel adds the chunks. */
__global__ void norm_columns_kernel(float *sums, const element *dy, const element *x,
                                    const float *mean, const float *rstd, size_t rows, int width)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const size_t each = (rows + CHUNKS - 1) / CHUNKS, from = blockIdx.y * each;
    float gain = 0, bias = 0;
    if (i >= width)
        return;
    for (size_t r = from; r < from + each && r < rows; r++) {
        const float d = __bfloat162float(dy[r * width + i]);
        gain += d * (__bfloat162float(x[r * width + i]) - mean[r]) * rstd[r];
        bias += d;
    }
    sums[((size_t)blockIdx.y * 2) * width + i] = gain;
    sums[((size_t)blockIdx.y * 2 + 1) * width + i] = bias;
}

__global__ void norm_chunks_kernel(element *dgain, element *dbias, const float *sums, int width)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    float gain = 0, bias = 0;
    if (i >= width)
        return;
    for (int c = 0; c < CHUNKS; c++) {
        gain += sums[((size_t)c * 2) * width + i];
        bias += sums[((size_t)c * 2 + 1) * width + i];
    }
    dgain[i] = __float2bfloat16(gain);
    dbias[i] = __float2bfloat16(bias);
}

static void norm(struct compute *c, void *y, void *mean, void *rstd, const void *x,
                 const void *gain, const void *bias, struct dims d)
{
    norm_kernel<<<(unsigned)rows_of(d), THREADS, 0, gpu_of(c)->stream>>>(
        (element *)y, (float *)mean, (float *)rstd, (const element *)x, (const element *)gain,
        (const element *)bias, d.width);
}

static void norm_back(struct compute *c, void *dx, void *dgain, void *dbias, const void *dy,
                      const void *x, const void *mean, const void *rstd, const void *gain,
                      struct dims d)
{
    struct gpu *g = gpu_of(c);
    const unsigned columns = (unsigned)((d.width + THREADS - 1) / THREADS);
    norm_columns_kernel<<<dim3(columns, CHUNKS), THREADS, 0, g->stream>>>(
        g->scratch, (const element *)dy, (const element *)x, (const float *)mean,
        (const float *)rstd, rows_of(d), d.width);
    norm_chunks_kernel<<<columns, THREADS, 0, g->stream>>>((element *)dgain, (element *)dbias,
                                                           g->scratch, d.width);
    norm_back_kernel<<<(unsigned)rows_of(d), THREADS, 0, g->stream>>>(
        (element *)dx, (const element *)dy, (const element *)x, (const float *)mean,
        (const float *)rstd, (const element *)gain, d.width);
}

/* ---- gelu, by packs: counts are multiples of the width, which is a multiple of 8 */

__global__ void gelu_kernel(pack *y, const pack *x, size_t packs)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < packs;
         i += (size_t)gridDim.x * THREADS) {
        pack in = x[i];
        for (element &e : in.e) {
            const float v = __bfloat162float(e);
            const float u = (float)GELU_A * (v + (float)GELU_B * v * v * v);
            e = __float2bfloat16(0.5f * v * (1 + tanhf(u)));
        }
        y[i] = in;
    }
}

__global__ void gelu_back_kernel(pack *dy, const pack *x, size_t packs)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < packs;
         i += (size_t)gridDim.x * THREADS) {
        const pack in = x[i];
        pack d = dy[i];
        for (int k = 0; k < 8; k++) {
            const float v = __bfloat162float(in.e[k]);
            const float t = tanhf((float)GELU_A * (v + (float)GELU_B * v * v * v));
            const float du = (float)GELU_A * (1 + 3 * (float)GELU_B * v * v);
            d.e[k] =
                __float2bfloat16(__bfloat162float(d.e[k]) * 0.5f * (1 + t + v * (1 - t * t) * du));
        }
        dy[i] = d;
    }
}

static void gelu(struct compute *c, void *y, const void *x, size_t count)
{
    gelu_kernel<<<blocks_for(count / 8), THREADS, 0, gpu_of(c)->stream>>>(
        (pack *)y, (const pack *)x, count / 8);
}

static void gelu_back(struct compute *c, void *dy, const void *x, size_t count)
{
    gelu_back_kernel<<<blocks_for(count / 8), THREADS, 0, gpu_of(c)->stream>>>(
        (pack *)dy, (const pack *)x, count / 8);
}

/* ---- softmax of attention weights; one block for each row */

__global__ void softmax_kernel(element *p, int size)
{
    element *row = p + (size_t)blockIdx.x * size;
    const int seen = (int)(blockIdx.x % size) + 1;
    float most = -INFINITY, sum = 0;
    for (int j = threadIdx.x; j < seen; j += THREADS)
        most = fmaxf(most, __bfloat162float(row[j]));
    most = block_max(most);
    for (int j = threadIdx.x; j < seen; j += THREADS)
        sum += __expf(__bfloat162float(row[j]) - most);
    const float scale = 1 / block_sum(sum);
    for (int j = threadIdx.x; j < size; j += THREADS)
        row[j] = __float2bfloat16(j < seen ? __expf(__bfloat162float(row[j]) - most) * scale : 0);
}

__global__ void softmax_back_kernel(element *dp, const element *p, int size, float scale)
{
    element *d = dp + (size_t)blockIdx.x * size;
    const element *row = p + (size_t)blockIdx.x * size;
    const int seen = (int)(blockIdx.x % size) + 1;
    float sum = 0;
    for (int j = threadIdx.x; j < seen; j += THREADS)
        sum += __bfloat162float(d[j]) * __bfloat162float(row[j]);
    sum = block_sum(sum);
    for (int j = threadIdx.x; j < size; j += THREADS) {
        const float e = scale * __bfloat162float(row[j]) * (__bfloat162float(d[j]) - sum);
        d[j] = __float2bfloat16(j < seen ? e : 0);
    }
}

static void softmax(struct compute *c, void *p, size_t count, int size)
{
    softmax_kernel<<<(unsigned)(count * (size_t)size), THREADS, 0, gpu_of(c)->stream>>>(
        (element *)p, size);
}

static void softmax_back(struct compute *c, void *dp, const void *p, size_t count, int size,
                         float scale)
{
    softmax_back_kernel<<<(unsigned)(count * (size_t)size), THREADS, 0, gpu_of(c)->stream>>>(
        (element *)dp, (const element *)p, size, scale);
}

/* ---- the loss */

static_assert(THREADS == SYMBOLS, "a thread takes a symbol");

/* Block b works on the rows b, b + LOSS_BLOCKS, ..., with one thread for each symbol. */
__global__ void loss_kernel(double *sums, element *dlogits, const float *logits,
                            const unsigned char *tokens, size_t rows, int sequence, float scale)
{
    const int symbol = threadIdx.x;
    double total = 0;
    for (size_t row = blockIdx.x; row < rows; row += LOSS_BLOCKS) {
        const size_t sample = row / sequence, t = row % sequence;
        const int next = tokens[sample * (sequence + 1) + t + 1];
        const float l = logits[row * SYMBOLS + symbol];
        const float most = block_max(l), e = __expf(l - most), sum = block_sum(e);
        dlogits[row * SYMBOLS + symbol] =
            __float2bfloat16(scale * (e / sum - (symbol == next ? 1.0f : 0.0f)));
        total += logf(sum) + most - logits[row * SYMBOLS + next];
    }
    if (symbol == 0)
        sums[blockIdx.x] = total;
}

__global__ void mean_kernel(double *mean, const double *sums, size_t rows)
{
    double total = 0;
    /* one thread adds the blocks' sums in order, so that results repeat */
    for (int b = 0; b < LOSS_BLOCKS; b++)
        total += sums[b];
    *mean = total / (double)rows;
}

static void loss(struct compute *c, double *mean, void *dlogits, const void *logits,
                 const unsigned char *tokens, struct dims d, float scale)
{
    struct gpu *g = gpu_of(c);
    double *sums = (double *)g->scratch;
    loss_kernel<<<LOSS_BLOCKS, THREADS, 0, g->stream>>>(
        sums, (element *)dlogits, (const float *)logits, tokens, rows_of(d), d.sequence, scale);
    mean_kernel<<<1, 1, 0, g->stream>>>(mean, sums, rows_of(d));
}

void cuda_network(struct compute *table)
{
    table->batch = batch;
    table->loss = loss;
    table->embed = embed;
    table->embed_back = embed_back;
    table->norm = norm;
    table->norm_back = norm_back;
    table->gelu = gelu;
    table->gelu_back = gelu_back;
    table->softmax = softmax;
    table->softmax_back = softmax_back;
}
