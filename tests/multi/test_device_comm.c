/* The device-side communicator, for kernels of the caller, has the right values. On the host device, host code may call
 * the same functions, so barriers and signals are tested, too. tests/gpu tests kernels. */
#include <cecl/cecl_device.h>
#include <sched.h>

#include "multi.h"

#define ROUNDS 1000

static ceclDeviceComm_t device_comm(ceclComm_t comm)
{
    ceclDeviceComm_t dc;
    multi_ok(comm, ceclCommGetDeviceComm(comm, &dc));
    return dc;
}

/* Skips the test on GPUs, where only kernels may call these functions (tests/gpu/test_device_kernels.c). */
static ceclComm_t comm_of_hosts(void)
{
    ceclComm_t comm = multi_comm(NULL);
    if (multi_on_gpus(comm)) {
        multi_ok(NULL, ceclCommDestroy(comm));
        skip_because("for the host device");
    }
    return comm;
}

TEST(it_tells_ranks_memory_and_bound)
{
    ceclConfig_t config = multi_config();
    config.timeoutMs = 1234;
    ceclComm_t comm = multi_comm(&config);
    const ceclDeviceComm_t dc = device_comm(comm);
    void *there = NULL;
    char *own = multi_alloc(comm, 1000);
    assert_int_equal(dc.rank, multi_rank);
    assert_int_equal(dc.nranks, multi_nranks);
    assert_int_equal(dc.blocks, CECL_DEVICE_BLOCKS);
    assert_int_equal(dc.signals, CECL_DEVICE_SIGNALS);
    assert_int_equal(dc.timeoutNs, 1234000000);
    for (int p = 0; p < multi_nranks && !multi_on_gpus(comm); p++) {
        multi_ok(comm, ceclGetPeerPointer(comm, own + 77, p, &there));
        assert_ptr_equal(ceclPeerPointer(dc, own + 77, p), there);
    }
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST_WITH_COMM(pads_and_slices_are_no_memory_of_the_users)
{
    const ceclDeviceComm_t dc = device_comm(comm);
    void *there = NULL;
    multi_refused(comm, ceclGetPeerPointer(comm, dc.pads, 0, &there), ceclInvalidArgument,
                  "not in an allocation");
    multi_refused(comm, ceclMemFree(comm, dc.pads), ceclInvalidArgument, "not allocated");
    multi_refused(comm, ceclGetPeerPointer(comm, dc.slices, 0, &there), ceclInvalidArgument,
                  "not in an allocation");
}

TEST_WITH(comm_of_hosts(), barriers_order_what_ranks_write)
{
    ceclDeviceComm_t dc = device_comm(comm);
    volatile int *own = multi_alloc(comm, (size_t)multi_nranks * sizeof(int));
    for (int round = 0; round < ROUNDS; round++) {
        const int slot = round % 7 * 9; /* at most 54 */
        for (int p = 0; p < multi_nranks; p++)
            ((volatile int *)ceclPeerPointer(dc, (void *)own, p))[multi_rank] =
                round * 100 + multi_rank;
        assert_true(ceclBarrierBlock(dc, slot));
        for (int p = 0; p < multi_nranks; p++)
            assert_int_equal(own[p], round * 100 + p);
        assert_true(ceclBarrierBlock(dc, slot));
        if (round == ROUNDS / 2)
            dc = device_comm(comm); /* as in a later launch, which reads the counts from memory */
    }
    assert_false(ceclBarrierBlock(dc, CECL_DEVICE_BLOCKS));
    assert_false(ceclBarrierBlock(dc, -1));
}

/* Epochs wrap around to 0, so they are compared cyclically. */
TEST_WITH(comm_of_hosts(), barriers_go_on_past_the_wrap)
{
    const ceclDeviceComm_t dc = device_comm(comm);
    for (int r = 0; r < multi_nranks; r++)
        dc.pads[3 * multi_nranks + r] = UINT32_MAX - 5;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 12; round++)
        assert_true(ceclBarrierBlock(dc, 3));
    assert_int_equal(dc.pads[3 * multi_nranks + multi_rank], 6);
}

TEST_WITH(comm_of_hosts(), signals_go_from_rank_to_rank)
{
    const ceclDeviceComm_t dc = device_comm(comm);
    const int left = (multi_rank + multi_nranks - 1) % multi_nranks,
              right = (multi_rank + 1) % multi_nranks, last = CECL_DEVICE_SIGNALS - 1;
    int *own = multi_alloc(comm, sizeof(int));
    for (uint32_t v = 1; v <= 200; v++) {
        if (multi_rank > 0 || v > 1)
            assert_true(ceclDeviceWaitSignal(dc, left, last, multi_rank > 0 ? v : v - 1));
        const int carried = multi_rank > 0 ? *own + 1 : (int)v;
        *(int *)ceclPeerPointer(dc, own, right) = carried;
        ceclDeviceSignal(dc, right, last, v);
        assert_int_equal(carried, (int)v + multi_rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_WITH(comm_of_hosts(), a_wait_ends_by_its_bound_and_ranks_get_in_step_again)
{
    ceclDeviceComm_t dc = device_comm(comm), patient = dc;
    dc.timeoutNs = 100000000;
    const bool late = multi_rank == multi_nranks - 1;
    const double begin = multi_seconds();
    if (!late) {
        assert_false(ceclBarrierBlock(dc, 0));
        assert_false(ceclDeviceWaitSignal(dc, multi_nranks - 1, 0, 1));
        assert_true(multi_seconds() - begin >= 0.19 && multi_seconds() - begin < PROMPT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (late)
        assert_true(ceclBarrierBlock(dc, 0)); /* the other ranks have passed this barrier */
    for (int i = 0; i < 20; i++)
        assert_true(ceclBarrierBlock(patient, 0));
}

TEST(waits_end_when_a_rank_gives_up)
{
    ceclConfig_t config = multi_config();
    config.timeoutMs = 0;
    ceclComm_t comm = multi_comm(&config);
    const ceclDeviceComm_t dc = device_comm(comm);
    assert_int_equal(dc.timeoutNs, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == multi_nranks - 1) {
        multi_ok(NULL, ceclCommAbort(comm));
    } else {
        ceclDeviceComm_t none;
        if (!multi_on_gpus(comm))
            assert_false(ceclBarrierBlock(dc, 0));
        ceclResult_t news = ceclSuccess;
        while (news == ceclSuccess) {
            multi_ok(NULL, ceclCommGetAsyncError(comm, &news));
            sched_yield();
        }
        multi_refused(comm, ceclCommGetDeviceComm(comm, &none), ceclRemoteError, "");
        ceclCommDestroy(comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}
