/* Measures how fast the reduction kernels read, by kernel, type and number of SMs, with all sources on this GPU. If
 * there are peers, a second table has only the first source here, and the others spread over the peers. The thresholds in
 * src/plan/thresholds.h come from these tables.
 *
 * cecl_reduce_perf [--kib N] [--sources N] [--avg]
 *     --kib      KiB of each source (32768)
 *     --sources  1 to 16 (4)
 *     --avg      averages instead of sums, with a divisor that is no power of two
 *
 * GB/s count the bytes that are read from sources, and not those that are written, 1 / sources as many. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sm/reduce.h"

#define SOURCES_MAX 16
#define GPUS_MAX 16
#define CALLS 10 /* calls that are timed together */
#define ROUNDS 3 /* the best one counts */

static const struct {
    const char *name;
    ceclDataType_t type;
    uint32_t bytes;
} types[] = {{"bf16", ceclBfloat16, 2}, {"fp32", ceclFloat32, 4}, {"e4m3", ceclFloat8e4m3, 1}};
#define NTYPES 3
static const char *const kernels[] = {"", "wide", "bulk"};

struct bench {
    size_t bytes;
    uint32_t nsrc;
    ceclRedOp_t op;
    void *dst;
    void *own[SOURCES_MAX], *spread[SOURCES_MAX];
    cudaStream_t stream;
    cudaEvent_t start, end;
};

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "cecl_reduce_perf: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
#define MUST(function, ...) must(function(__VA_ARGS__), #function)

static void reduce(const struct bench *bench, const struct cecl_reduction *r)
{
    if (cecl_reduce_cuda(bench->stream, r) == ceclSuccess)
        return;
    fprintf(stderr, "cecl_reduce_perf: %s\n", cecl_message());
    exit(1);
}

/* GB read in one second. */
static double measure(const struct bench *bench, void *const *src, int type, int kernel,
                      uint32_t sms)
{
    const struct cecl_reduction r = {.dst = bench->dst,
                                     .src = (const void *const *)src,
                                     .nsrc = bench->nsrc,
                                     .max_sms = sms,
                                     .count = bench->bytes / types[type].bytes,
                                     .type = types[type].type,
                                     .op = bench->op,
                                     .divisor = 3,
                                     .kernel = (uint8_t)kernel};
    float best = 0;
    reduce(bench, &r);
    for (int round = 0; round < ROUNDS; round++) {
        float ms = 0;
        MUST(cudaEventRecord, bench->start, bench->stream);
        for (int call = 0; call < CALLS; call++)
            reduce(bench, &r);
        MUST(cudaEventRecord, bench->end, bench->stream);
        MUST(cudaEventSynchronize, bench->end);
        MUST(cudaEventElapsedTime, &ms, bench->start, bench->end);
        best = round == 0 || ms < best ? ms : best;
    }
    return (double)bench->bytes * bench->nsrc * CALLS / (double)best / 1e6;
}

static void table(const struct bench *bench, const char *title, void *const *src)
{
    static const uint32_t sms[] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 132};
    printf("\n%s: %u sources of %zu KiB, GB/s read (of each SM)\n%5s", title, bench->nsrc,
           bench->bytes >> 10, "SMs");
    for (int kernel = CECL_REDUCE_WIDE; kernel <= CECL_REDUCE_BULK; kernel++)
        for (int type = 0; type < NTYPES; type++)
            printf("   %s %-8s", kernels[kernel], types[type].name);
    printf("\n");
    for (size_t i = 0; i < sizeof(sms) / sizeof(*sms); i++) {
        printf("%5u", sms[i]);
        for (int kernel = CECL_REDUCE_WIDE; kernel <= CECL_REDUCE_BULK; kernel++)
            for (int type = 0; type < NTYPES; type++) {
                const double gbs = measure(bench, src, type, kernel, sms[i]);
                printf("   %6.0f (%4.0f)", gbs, gbs / sms[i]);
            }
        printf("\n");
        fflush(stdout);
    }
}

/* Memory of GPU `ordinal`, zeroed. Adding zeros takes as long as adding other numbers. */
static void *memory_of(int ordinal, size_t bytes)
{
    void *at = NULL;
    MUST(cudaSetDevice, ordinal);
    MUST(cudaMalloc, &at, bytes);
    MUST(cudaMemset, at, 0, bytes);
    MUST(cudaDeviceSynchronize);
    MUST(cudaSetDevice, 0);
    return at;
}

/* Lists the GPUs that GPU 0 can access, itself first. */
static int reachable(int gpus[GPUS_MAX])
{
    int all = 0, found = 1, reaches = 0;
    MUST(cudaGetDeviceCount, &all);
    gpus[0] = 0;
    for (int g = 1; g < all && found < GPUS_MAX; g++) {
        MUST(cudaDeviceCanAccessPeer, &reaches, 0, g);
        if (!reaches)
            continue;
        MUST(cudaDeviceEnablePeerAccess, g, 0);
        gpus[found++] = g;
    }
    return found;
}

static long number(const char *option, const char *words, long least, long most)
{
    char *end = NULL;
    const long value = words ? strtol(words, &end, 10) : 0;
    if (!words || end == words || *end || value < least || value > most) {
        fprintf(stderr, "cecl_reduce_perf: %s %s: %ld to %ld expected\n", option,
                words ? words : "", least, most);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    struct bench bench = {.bytes = 32 << 20, .nsrc = 4, .op = ceclSum};
    int gpus[GPUS_MAX], count = 0;
    bool bulk = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--kib"))
            bench.bytes = (size_t)number(argv[i], argv[i + 1], 1, 4 << 20) << 10, i++;
        else if (!strcmp(argv[i], "--sources"))
            bench.nsrc = (uint32_t)number(argv[i], argv[i + 1], 1, SOURCES_MAX), i++;
        else if (!strcmp(argv[i], "--avg"))
            bench.op = ceclAvg;
        else {
            fprintf(stderr, "usage: cecl_reduce_perf [--kib N] [--sources N] [--avg]\n");
            return 2;
        }
    }
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) {
        printf("cecl_reduce_perf: skipped: there is no GPU\n");
        return 77;
    }
    MUST(cudaSetDevice, 0);
    MUST(cudaStreamCreateWithFlags, &bench.stream, cudaStreamNonBlocking);
    MUST(cudaEventCreate, &bench.start);
    MUST(cudaEventCreate, &bench.end);
    if (cecl_reduce_cuda_has_bulk(&bulk) != ceclSuccess) {
        fprintf(stderr, "cecl_reduce_perf: %s\n", cecl_message());
        return 1;
    }
    if (!bulk)
        printf("this GPU has no bulk copies, so the bulk columns show the wide kernel, too\n");

    const int ngpus = reachable(gpus);
    bench.dst = memory_of(0, bench.bytes);
    for (uint32_t s = 0; s < bench.nsrc; s++)
        bench.own[s] = memory_of(0, bench.bytes);
    table(&bench, "all on this GPU", bench.own);
    if (ngpus > 1) {
        for (uint32_t s = 0; s < bench.nsrc; s++)
            bench.spread[s] = s == 0 ? bench.own[0]
                                     : memory_of(gpus[1 + (int)(s - 1) % (ngpus - 1)], bench.bytes);
        char title[80];
        snprintf(title, sizeof(title), "one on this GPU, the others on %d peers", ngpus - 1);
        table(&bench, title, bench.spread);
    }
    return 0;
}
