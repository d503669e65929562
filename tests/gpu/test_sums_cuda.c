/* Sums of rows by kernels (sm/sums.h): the host's bits, for rows of whole vectors and others,
 * with any number of SMs. The last test prints their speed.
 *
 * CECL_TEST_SHORT=1: fewer calls, and no times, for tools that observe kernels. */
#include "cuda_fixture.h"

#include "../sums_model.h"

static struct sums_memory *memory; /* pinned */
static cudaStream_t stream;

static int set_up(void **state)
{
    must_cuda(cudaSetDevice(0));
    must(cecl_row_sums_cuda_prepare());
    must_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must_cuda(cudaHostAlloc((void **)&memory, sizeof(*memory), cudaHostAllocPortable));
    return 0;
}

static int tear_down(void **state)
{
    must_cuda(cudaFreeHost(memory));
    must_cuda(cudaStreamDestroy(stream));
    return 0;
}

TEST(kernels_give_the_hosts_bits)
{
    static unsigned char got[sizeof(memory->sums)];
    static const uint32_t sms[] = {0, 1, 3, 1000};
    uint64_t seed = 37;
    for (int round = 0; round < (getenv("CECL_TEST_SHORT") ? 30 : 2000); round++) {
        struct cecl_row_sums s = sums_draw(&seed, memory);
        s.max_sms = sms[round % 4];
        must(cecl_row_sums_cuda((ceclStream_t)stream, &s));
        must_cuda(cudaStreamSynchronize(stream));
        memcpy(got, memory->sums, sizeof(got));
        cecl_row_sums_host(&s);
        if (memcmp(got, memory->sums, sizeof(got)) != 0)
            fail_msg("round %d: %s, %u rows each, of %llu", round, formats[s.type].name, s.each,
                     (unsigned long long)s.count);
    }
}

TEST(sums_take_so_long)
{
    enum { TOKENS = 4096, EACH = 8, COUNT = 7168 };
    const size_t nrows = (size_t)TOKENS * EACH, bytes = nrows * COUNT * 2;
    struct cecl_row_sums s = {
        .nrows = nrows, .count = COUNT, .tokens = TOKENS, .each = EACH, .type = ceclBfloat16};
    uint64_t *places = malloc(nrows * sizeof(*places));
    cudaEvent_t begin, end;
    float ms;
    if (getenv("CECL_TEST_SHORT")) {
        free(places);
        return;
    }
    for (size_t i = 0; i < nrows; i++)
        places[i] = i * 2654435761u % nrows;
    must_cuda(cudaMalloc((void **)&s.rows, bytes));
    must_cuda(cudaMemset((void *)(uintptr_t)s.rows, 0, bytes));
    must_cuda(cudaMalloc((void **)&s.places, nrows * sizeof(*places)));
    must_cuda(cudaMemcpy((void *)(uintptr_t)s.places, places, nrows * sizeof(*places),
                         cudaMemcpyHostToDevice));
    must_cuda(cudaMalloc((void **)&s.weights, nrows * sizeof(float)));
    must_cuda(cudaMemset((void *)(uintptr_t)s.weights, 0, nrows * sizeof(float)));
    must_cuda(cudaMalloc(&s.sums, bytes / EACH));
    must_cuda(cudaEventCreate(&begin));
    must_cuda(cudaEventCreate(&end));
    for (s.max_sms = 8; s.max_sms <= 128; s.max_sms *= 2) {
        must(cecl_row_sums_cuda((ceclStream_t)stream, &s));
        must_cuda(cudaEventRecord(begin, stream));
        for (int i = 0; i < 5; i++)
            must(cecl_row_sums_cuda((ceclStream_t)stream, &s));
        must_cuda(cudaEventRecord(end, stream));
        must_cuda(cudaEventSynchronize(end));
        must_cuda(cudaEventElapsedTime(&ms, begin, end));
        print_message("sums of 8 of %d tokens of 7168 bf16: %u SMs %.0f us, %.0f GB/s read\n",
                      TOKENS, s.max_sms, (double)ms * 200, (double)bytes / 1e6 / ((double)ms / 5));
    }
    must_cuda(cudaEventDestroy(begin));
    must_cuda(cudaEventDestroy(end));
    must_cuda(cudaFree((void *)(uintptr_t)s.rows));
    must_cuda(cudaFree((void *)(uintptr_t)s.places));
    must_cuda(cudaFree((void *)(uintptr_t)s.weights));
    must_cuda(cudaFree(s.sums));
    free(places);
}

int main(void)
{
    return tests_run(set_up, tear_down);
}
