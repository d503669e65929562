/* Finding a GPU and opening it. The first test needs a process without any CUDA context. */
#include <cuda.h>

#include "cuda_fixture.h"

static bool primary_context_is_active(int ordinal)
{
    CUresult (*state)(CUdevice, unsigned *, int *);
    void *function = driver_function("cuDevicePrimaryCtxGetState", 7000);
    unsigned flags = 0;
    int active = -1;
    memcpy(&state, &function, sizeof(function));
    assert_int_equal(state(ordinal, &flags, &active), CUDA_SUCCESS);
    return active == 1;
}

TEST(probe_of_the_current_gpu_makes_no_context)
{
    struct cecl_gpu_id id;
    char why[200];
    must(cecl_cuda_probe(CECL_CUDA_DEVICE_CURRENT, 0, &id, why, sizeof(why)));
    assert_int_equal(id.usable, 1);
    assert_int_equal(id.ordinal, 0);
    assert_false(primary_context_is_active(0));
}

TEST(probe_of_a_gpu_tells_its_uuid_and_memory)
{
    struct cecl_gpu_id id;
    struct cudaDeviceProp properties;
    char why[200] = "?";
    int count = 0;
    must_cuda(cudaGetDeviceCount(&count));
    for (int i = 0; i < count; i++) {
        must(cecl_cuda_probe(i, 0, &id, why, sizeof(why)));
        must_cuda(cudaGetDeviceProperties(&properties, i));
        assert_int_equal(id.usable, 1);
        assert_int_equal(id.ordinal, i);
        assert_string_equal(why, "");
        assert_memory_equal(id.uuid, properties.uuid.bytes, sizeof(id.uuid));
        assert_int_equal(id.memory, properties.totalGlobalMem);
    }
}

TEST(probe_of_a_missing_gpu_is_unusable_and_says_which_are_there)
{
    struct cecl_gpu_id id = {.usable = 1};
    char why[200] = "";
    must(cecl_cuda_probe(1000, 0, &id, why, sizeof(why)));
    assert_int_equal(id.usable, 0);
    assert_non_null(strstr(why, "GPU 1000"));
    assert_non_null(strstr(why, "0.."));
}

TEST(probe_by_rank_wraps_and_makes_the_gpu_current)
{
    struct cecl_gpu_id id;
    char why[200];
    int count = 0, current = -1;
    must_cuda(cudaGetDeviceCount(&count));
    must_cuda(cudaSetDevice(0));
    must(cecl_cuda_probe(CECL_CUDA_DEVICE_BY_RANK, 2 * count - 1, &id, why, sizeof(why)));
    must_cuda(cudaGetDevice(&current));
    assert_int_equal(id.ordinal, count - 1);
    assert_int_equal(current, count - 1);
    must(cecl_cuda_probe(CECL_CUDA_DEVICE_CURRENT, 0, &id, why, sizeof(why)));
    assert_int_equal(id.ordinal, count - 1);
    must_cuda(cudaSetDevice(0));
}

TEST(open_of_a_missing_gpu_is_refused)
{
    struct cecl_device *dev = NULL;
    refused(ceclUnhandledCudaError, "cuDeviceGet", cecl_cuda_open(1000, &dev));
    assert_null(dev);
}

TEST_BETWEEN(reaches_itself_its_peer_and_what_it_does_not_see, gpus_open, gpus_close)
{
    struct cecl_gpu_id id;
    char why[200];
    uint8_t elsewhere[16] = {0xec, 0x1c};
    int can = 0;
    must(cecl_cuda_probe(0, 0, &id, why, sizeof(why)));
    assert_true(cecl_cuda_reaches(gpu[0], id.uuid));
    assert_true(cecl_cuda_reaches(gpu[0], elsewhere));
    need_two();
    must(cecl_cuda_probe(1, 0, &id, why, sizeof(why)));
    must_cuda(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(cecl_cuda_reaches(gpu[0], id.uuid), can);
}

GPU_TESTS(NULL, NULL)
