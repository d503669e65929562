/* One thread has a rank on each of two GPUs. It sets the current device before each call of ceclCommInitRank, as NCCL
 * programs do, and the ranks join at the end of the group. */
#include "cuda_fixture.h"

static ceclComm_t comms[2];

static void must_be_current(int ordinal)
{
    int current = -1;
    must_cuda(cudaGetDevice(&current));
    assert_int_equal(current, ordinal);
}

static void must_be_on(int rank, int ordinal)
{
    int device = -1;
    must(ceclCommCuDevice(comms[rank], &device));
    assert_int_equal(device, ordinal);
}

static void destroy_both(void)
{
    for (int r = 0; r < 2; r++)
        must(ceclCommDestroy(comms[r]));
}

static void join_on_current_devices(int of_rank_0, int of_rank_1)
{
    ceclUniqueId id;
    must(ceclGetUniqueId(&id));
    must(ceclGroupStart());
    must_cuda(cudaSetDevice(of_rank_0));
    must(ceclCommInitRank(&comms[0], 2, id, 0));
    must_cuda(cudaSetDevice(of_rank_1));
    must(ceclCommInitRank(&comms[1], 2, id, 1));
    must_be_current(of_rank_1);
}

TEST(a_rank_has_the_device_that_was_current_at_its_call)
{
    for (int turned = 0; turned < 2; turned++) {
        join_on_current_devices(turned, 1 - turned);
        must_cuda(cudaSetDevice(turned));
        must(ceclGroupEnd());
        must_be_current(turned);
        must_be_on(0, turned);
        must_be_on(1, 1 - turned);
        destroy_both();
    }
}

TEST(by_rank_leaves_the_device_of_the_last_call_current)
{
    ceclUniqueId id;
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    must_cuda(cudaSetDevice(0));
    must(ceclGetUniqueId(&id));
    must(ceclGroupStart());
    for (int r = 0; r < 2; r++)
        must(ceclCommInitRankConfig(&comms[r], 2, id, r, &config));
    must(ceclGroupEnd());
    must_be_current(1);
    must_be_on(0, 0);
    must_be_on(1, 1);
    destroy_both();
}

TEST(one_device_for_two_ranks_is_refused)
{
    comms[0] = comms[1] = NULL;
    setenv("CECL_DEVICE", "cuda", 1);
    join_on_current_devices(1, 1);
    refused(ceclInvalidUsage, "ranks 0 and 1 are on one GPU (CUDA device 1)", ceclGroupEnd());
    unsetenv("CECL_DEVICE");
    assert_true(!comms[0] && !comms[1]);
}

int main(int argc, char **argv)
{
    return gpus_wanted(argc, argv, 2) > 0 ? tests_run(NULL, NULL) : 77;
}
