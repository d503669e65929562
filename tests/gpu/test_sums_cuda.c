/* Sums of rows by kernels (sm/sums.h): the host's bits, for rows of whole vectors and others,
 * with any number of SMs.
 *
 * CECL_TEST_SHORT=1: fewer calls, for tools that observe kernels. */
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

int main(void)
{
    return tests_run(set_up, tear_down);
}
