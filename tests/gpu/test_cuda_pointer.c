/* Pointers that the CUDA device accepts as a user's buffer: its GPU's memory, up to the last
 * byte. */
#include "cuda_fixture.h"

#define BYTES ((size_t)8 << 20) /* large enough for an allocation of its own */

static ceclResult_t check(const void *ptr, size_t bytes)
{
    return OPS(gpu[0])->check_pointer(gpu[0], ptr, bytes, "sendbuff");
}

TEST(memory_of_cuda_malloc_is_taken_whole_and_in_part)
{
    char *memory = NULL;
    must_cuda(cudaMalloc((void **)&memory, BYTES));
    must(check(memory, BYTES));
    must(check(memory + 4096, BYTES - 4096));
    must(check(memory + BYTES - 1, 1));
    must(check(memory + 1, 0));
    must_cuda(cudaFree(memory));
}

TEST(range_past_the_end_of_its_allocation_is_refused_with_what_is_left)
{
    char *memory = NULL;
    must_cuda(cudaMalloc((void **)&memory, BYTES));
    refused(ceclInvalidArgument, "8388609 bytes needed, 8388608 left", check(memory, BYTES + 1));
    refused(ceclInvalidArgument, "2 bytes needed, 1 left", check(memory + BYTES - 1, 2));
    refused(ceclInvalidArgument, "left in its allocation", check(memory, SIZE_MAX));
    must_cuda(cudaFree(memory));
}

TEST(memory_of_a_stream_ordered_pool_is_taken)
{
    void *memory = NULL;
    must_cuda(cudaMallocAsync(&memory, BYTES, NULL));
    must_cuda(cudaStreamSynchronize(NULL));
    ceclResult_t result = check(memory, BYTES);
    must_cuda(cudaFreeAsync(memory, NULL));
    must_cuda(cudaStreamSynchronize(NULL));
    must(result);
}

TEST(mapped_memory_of_the_pool_is_taken)
{
    struct memory memory = memory_make(gpu[0], BYTES);
    must(check(memory.at, memory.bytes));
    must(check((char *)memory.at + memory.bytes - 1, 1));
    memory_end(&memory);
}

/* Two mappings side by side in one reservation, and a third place that stays empty. */
TEST(range_over_two_mappings_is_taken_and_past_them_refused)
{
    const size_t piece = gpu[0]->granularity;
    struct cecl_mem mem[2] = {{0}, {0}};
    void *base = NULL;
    must(OPS(gpu[0])->reserve(gpu[0], 3 * piece, &base));
    for (size_t i = 0; i < 2; i++) {
        must(OPS(gpu[0])->mem_create(gpu[0], piece, &mem[i]));
        must(OPS(gpu[0])->mem_map(gpu[0], (char *)base + i * piece, &mem[i]));
    }
    must(check(base, 2 * piece));
    refused(ceclInvalidArgument, "sendbuff", check(base, 2 * piece + 1));
    refused(ceclInvalidArgument, "sendbuff", check((char *)base + 2 * piece, 1));
    for (size_t i = 0; i < 2; i++) {
        OPS(gpu[0])->mem_unmap(gpu[0], (char *)base + i * piece, piece);
        OPS(gpu[0])->mem_release(gpu[0], &mem[i]);
    }
    refused(ceclInvalidArgument, "sendbuff", check(base, 1));
    OPS(gpu[0])->unreserve(gpu[0], base, 3 * piece);
}

TEST(other_memory_is_refused)
{
    static char plain[4096];
    uint32_t *words = NULL;
    void *managed = NULL, *freed = NULL;
    must(OPS(gpu[0])->words_alloc(gpu[0], 16, &words));
    must_cuda(cudaMallocManaged(&managed, 65536, cudaMemAttachGlobal));
    must_cuda(cudaMalloc(&freed, BYTES));
    must(check(freed, BYTES));
    must_cuda(cudaFree(freed));
    refused(ceclInvalidArgument, "sendbuff: NULL", check(NULL, 1));
    refused(ceclInvalidArgument, "unknown to CUDA", check(plain, sizeof(plain)));
    refused(ceclInvalidArgument, "pinned host memory", check(words, 64));
    refused(ceclInvalidArgument, "managed memory", check(managed, 65536));
    refused(ceclInvalidArgument, "unknown to CUDA", check(freed, BYTES));
    OPS(gpu[0])->words_free(gpu[0], words);
    must_cuda(cudaFree(managed));
}

TEST(memory_of_another_gpu_is_refused_naming_both)
{
    void *memory = NULL;
    need_two();
    must_cuda(cudaSetDevice(1));
    must_cuda(cudaMalloc(&memory, BYTES));
    must_cuda(cudaSetDevice(0));
    refused(ceclInvalidArgument, "memory of GPU 1; memory of GPU 0", check(memory, BYTES));
    must_cuda(cudaFree(memory));
}

TEST(mapped_memory_of_a_peer_is_refused)
{
    need_two();
    struct memory memory = memory_make(gpu[1], 4096);
    struct memory view = memory_view(gpu[0], &memory);
    refused(ceclInvalidArgument, "memory of GPU 1; memory of GPU 0", check(view.at, 4096));
    memory_end(&view);
    memory_end(&memory);
}

int main(void)
{
    const int skipped = fixture_start();
    return skipped ? skipped : tests_run(gpus_open, gpus_close);
}
