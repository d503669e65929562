/* The CUDA device: opening, threads, memory and flag words. (The multi-rank tests show that imported memory is the
 * peer's, and that copies of batches arrive and touch nothing else; test_join looks for leaks.) */
#include <fcntl.h>
#include <pthread.h>

#include <cuda.h>

#include "cuda_fixture.h"

/* The main thread must make the first call, which looks up cuCtxGetCurrent, before other threads call. */
static CUcontext current_context(void)
{
    static CUresult (*get)(CUcontext *);
    CUcontext context = NULL;
    if (!get) {
        void *function = driver_function("cuCtxGetCurrent", 4000);
        memcpy(&get, &function, sizeof(function));
    }
    get(&context);
    return context;
}

TEST(open_tells_a_granularity_that_is_a_power_of_two)
{
    assert_true(gpu[0]->granularity >= 4096);
    assert_int_equal(gpu[0]->granularity & (gpu[0]->granularity - 1), 0);
    assert_int_equal(gpu[0]->ordinal, 0);
}

/* ---- threads: the caller's current GPU and context stay the same */

TEST(ops_leave_another_current_gpu_current)
{
    need_two();
    must_cuda(cudaSetDevice(1));
    CUcontext before = current_context();
    struct kit own = kit_make(gpu[0]);
    put_pattern(&own, own.memory.at, 1);
    assert_true(has_pattern(&own, own.memory.at, 1));
    kit_end(&own);
    assert_ptr_equal(current_context(), before);
    must_cuda(cudaSetDevice(0));
}

/* No asserts here: cmocka's longjmp must not leave this thread. */
static void *use_from_a_fresh_thread(void *argument)
{
    struct memory *memory = argument;
    struct cecl_device *dev = memory->dev;
    ceclStream_t stream = NULL;
    uint32_t seen[2] = {0};
    const char *failed = NULL;
    if (current_context() != NULL)
        failed = "a fresh thread has a context";
    else if (OPS(dev)->stream_create(dev, false, &stream) != ceclSuccess ||
             write_word(dev, stream, memory->at, 7) != ceclSuccess ||
             copy_one(dev, stream, memory->at + 1, memory->at, 4) != ceclSuccess ||
             OPS(dev)->stream_synchronize(dev, stream) != ceclSuccess ||
             OPS(dev)->words_read(dev, memory->at, 2, seen) != ceclSuccess ||
             OPS(dev)->stream_destroy(dev, stream) != ceclSuccess)
        failed = "an operation was refused";
    else if (seen[0] != 7 || seen[1] != 7)
        failed = "the words are wrong";
    else if (current_context() != NULL)
        failed = "a context was left behind";
    return (void *)(uintptr_t)failed;
}

TEST_WITH_KIT(ops_work_from_a_thread_without_context)
{
    pthread_t thread;
    void *failed = NULL;
    assert_non_null(current_context());
    assert_int_equal(pthread_create(&thread, NULL, use_from_a_fresh_thread, &kit.memory), 0);
    pthread_join(thread, &failed);
    if (failed)
        fail_msg("%s", (const char *)failed);
}

TEST(mem_create_of_more_than_there_is_tells_what_is_free)
{
    struct cecl_mem mem = {0};
    size_t left, all;
    must_cuda(cudaMemGetInfo(&left, &all));
    const size_t bytes = (all / gpu[0]->granularity + 1) * gpu[0]->granularity;
    refused(ceclOutOfMemory, "are free", OPS(gpu[0])->mem_create(gpu[0], bytes, &mem));
    assert_int_equal(mem.bytes, 0);
}

TEST_WITH_KIT(mem_set_writes_every_byte_of_its_range_alone)
{
    put_pattern(&kit, kit.memory.at, 3);
    must(OPS(gpu[0])->mem_set(gpu[0], kit.memory.at + 1, 0xa5, 8));
    assert_false(has_pattern(&kit, kit.memory.at, 3));
    assert_int_equal(kit.host[0], pattern_word(3, 0));
    assert_int_equal(kit.host[1], 0xa5a5a5a5u);
    assert_int_equal(kit.host[2], 0xa5a5a5a5u);
    assert_int_equal(kit.host[3], pattern_word(3, 3));
}

TEST_WITH_KIT(mapping_outlives_the_release_of_its_handle)
{
    OPS(gpu[0])->mem_release(gpu[0], &kit.memory.mem);
    assert_int_equal(kit.memory.mem.bytes, 0);
    put_pattern(&kit, kit.memory.at, 4);
    assert_true(has_pattern(&kit, kit.memory.at, 4)); /* the kit's end releases again: no effect */
}

TEST(import_of_a_foreign_descriptor_is_refused_and_stays_open)
{
    struct cecl_mem mem = {0};
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    refused(ceclUnhandledCudaError, "cuMemImportFromShareableHandle",
            OPS(gpu[0])->mem_import(gpu[0], fd, gpu[0]->granularity, &mem));
    assert_int_equal(mem.bytes, 0);
    assert_int_equal(close(fd), 0);
}

TEST_WITH_KIT(map_over_a_mapping_is_refused_and_leaves_it)
{
    struct cecl_mem second = {0};
    put_pattern(&kit, kit.memory.at, 8);
    must(OPS(gpu[0])->mem_create(gpu[0], kit.memory.bytes, &second));
    refused(ceclUnhandledCudaError, "cuMemMap",
            OPS(gpu[0])->mem_map(gpu[0], kit.memory.at, &second));
    OPS(gpu[0])->mem_release(gpu[0], &second);
    assert_true(has_pattern(&kit, kit.memory.at, 8));
}

TEST_WITH_KIT(words_read_of_more_than_a_scratch_reads_them_all)
{
    uint32_t *out = calloc(PATTERN_WORDS, sizeof(*out));
    assert_non_null(out);
    put_pattern(&kit, kit.memory.at, 9);
    must(OPS(gpu[0])->words_read(gpu[0], kit.memory.at, PATTERN_WORDS, out));
    const bool right = pattern_is(out, 9);
    free(out);
    assert_true(right);
}

GPU_TESTS(gpus_open, gpus_close)
