/* The number of function calls between a served ncclAllGather and the device. The library in NCCL's place and the files
 * of tests/unit/test_frames.c are compiled without optimization here, so no function is inlined. */
#include "../with_cmocka.h"

#include "../frames.h"
#include "nccl/comms.h"
#include "nccl/library.h"
#include "ranks.h"

enum { RANKS = 2, COUNT = 1000, CALLS = 5 /* only the last is a warm call */ };
#define FRAMES_MOST 13

/* The functions of libcecl.so are linked into this program. */
const struct cecl_nccl_library *cecl_nccl_library(void)
{
    static const struct cecl_nccl_library library = {
#define CALL(name) .name = name,
        CECL_NCCL_LIBRARY_CALLS(CALL)
#undef CALL
    };
    return &library;
}

static bool gather(struct rank *r)
{
    ceclComm_t ours = cecl_nccl_comm_find(r->comm)->ours;
    struct cecl_device *dev = ours->dev;
    int *buffer, caller = 0;
    bool is = ceclMemAlloc(ours, (void **)&buffer, RANKS * COUNT * sizeof(*buffer)) == ceclSuccess;
    for (int i = 0; i < CALLS && is; i++) {
        if (i == CALLS - 1)
            dev->ops = &watched;
        deepest = batches = 0;
        caller = depth();
        is = ncclAllGather(buffer + r->rank * COUNT, buffer, COUNT, ncclInt32, r->comm, NULL) == 0;
    }
    dev->ops = real;
    print_message("%d functions from ncclAllGather to the device\n", deepest - caller);
    return is && batches > 0 && deepest - caller >= 2 && deepest - caller <= FRAMES_MOST;
}

static bool find_functions(struct rank *r)
{
    if (r->rank == 0) /* all ranks have the same functions */
        watch(cecl_nccl_comm_find(r->comm)->ours->dev->ops);
    return true;
}

TEST(a_warm_served_all_gather_is_thirteen_functions_from_the_device)
{
    assert_true(run_ranks(RANKS, find_functions));
    assert_true(run_ranks(RANKS, gather));
}
