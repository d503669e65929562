/* Explanations of calls of ranks that share a GPU, as ranks on the host device pretend to do here. */
#include "../with_cmocka.h"

#include <cecl/cecl.h>

#include "comm/comm.h"

#define RANKS 2
#define BLOCK 1000
#include "comms.h"

static char in[RANKS * BLOCK], out[RANKS * BLOCK];

static int open_sharing(void **state)
{
    OK(open_all(state));
    for (int r = 0; r < RANKS; r++) {
        assert_false(comms[r]->shares_gpu);
        comms[r]->shares_gpu = true;
    }
    return 0;
}

static ceclExplanation_t explain_group(void)
{
    ceclExplanation_t e = {.zeroSm = -1};
    OK(ceclGroupExplain(comms[0], &e));
    return e;
}

static void expect_shared(const ceclExplanation_t *e)
{
    assert_int_equal(e->zeroSm, 0);
    assert_string_equal(e->reason, "ranks share a GPU (CECL_SHARE_GPU=1): copies between them stay "
                                   "within it and run on its SMs");
}

TEST_BETWEEN(collectives_that_move_data_are_not_zero_sm, open_sharing, close_all)
{
    ceclExplanation_t e = {.zeroSm = -1};
    OK(ceclExplain(ceclOpAllGather, out, out, BLOCK, ceclInt8, comms[0], &e));
    expect_shared(&e);
    OK(ceclExplain(ceclOpAlltoAll, in, out, BLOCK, ceclInt8, comms[0], &e));
    expect_shared(&e);
}

/* Peers make this rank's copies. */
TEST_BETWEEN(a_call_in_which_this_rank_copies_nothing_is_not_either, open_sharing, close_all)
{
    OK(ceclGroupStart());
    OK(ceclBroadcast(in, out, BLOCK, ceclInt8, 1, comms[0], NULL));
    const ceclExplanation_t e = explain_group();
    expect_shared(&e);
}

TEST_BETWEEN(a_group_is_not_zero_sm, open_sharing, close_all)
{
    OK(ceclGroupStart());
    OK(ceclBarrier(comms[0], NULL));
    OK(ceclAllGather(in, out, BLOCK, ceclInt8, comms[0], NULL));
    const ceclExplanation_t e = explain_group();
    expect_shared(&e);
}

TEST_BETWEEN(messages_are_not_zero_sm, open_sharing, close_all)
{
    for (int receives = 0; receives < 2; receives++) {
        OK(ceclGroupStart());
        OK(receives ? ceclRecv(out, BLOCK, ceclInt8, 1, comms[0], NULL)
                    : ceclSend(in, BLOCK, ceclInt8, 1, comms[0], NULL));
        const ceclExplanation_t e = explain_group();
        expect_shared(&e);
    }
}

TEST_BETWEEN(a_reduction_says_what_needs_sms_in_any_case, open_sharing, close_all)
{
    OK(ceclGroupStart());
    OK(ceclAllReduce(in, out, BLOCK, ceclInt8, ceclSum, comms[0], NULL));
    const ceclExplanation_t e = explain_group();
    assert_int_equal(e.zeroSm, 0);
    assert_non_null(strstr(e.reason, "arithmetic needs SMs"));
}

TEST_BETWEEN(what_has_no_copy_between_ranks_is_zero_sm, open_sharing, close_all)
{
    OK(ceclGroupStart());
    OK(ceclBarrier(comms[0], NULL));
    assert_int_equal(explain_group().zeroSm, 1);
    OK(ceclGroupStart());
    OK(ceclAllGather(in, out, 0, ceclInt8, comms[0], NULL));
    assert_int_equal(explain_group().zeroSm, 1);
    OK(ceclGroupStart());
    OK(ceclSend(in, 0, ceclInt8, 1, comms[0], NULL));
    assert_int_equal(explain_group().zeroSm, 1);
}
