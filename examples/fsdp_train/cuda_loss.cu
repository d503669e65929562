/* Both ends of the network on a GPU: cutting samples out of the text, and the loss. */
#include "cuda_compute.h"
#include "random.h"

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
    struct gpu *g = gpu_of(c);
    batch_kernel<<<(unsigned)d.samples, THREADS, 0, g->stream>>>(tokens, text, bytes, seed, first,
                                                                 d.sequence);
    GPU_CHECK(g, cudaGetLastError());
}

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
    /* one thread adds the few numbers, always in this order */
    for (int b = 0; b < LOSS_BLOCKS; b++)
        total += sums[b];
    *mean = total / (double)rows;
}

static void loss(struct compute *c, double *mean, void *dlogits, const void *logits,
                 const unsigned char *tokens, struct dims d, float scale)
{
    struct gpu *g = gpu_of(c);
    const size_t rows = (size_t)d.samples * (size_t)d.sequence;
    double *sums = (double *)g->scratch;
    loss_kernel<<<LOSS_BLOCKS, THREADS, 0, g->stream>>>(
        sums, (element *)dlogits, (const float *)logits, tokens, rows, d.sequence, scale);
    GPU_CHECK(g, cudaGetLastError());
    mean_kernel<<<1, 1, 0, g->stream>>>(mean, sums, rows);
    GPU_CHECK(g, cudaGetLastError());
}

void cuda_loss(struct compute *table)
{
    table->batch = batch;
    table->loss = loss;
}
