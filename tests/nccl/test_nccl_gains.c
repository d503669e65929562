/* Which calls CECL_NCCL=auto serves: the smallest and largest size of each op, on plain memory
 * and on NCCL's symmetric windows. */
#include "../with_cmocka.h"

#include "nccl/decide.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GATHER CECL_NCCL_OP_ncclAllGather
#define ALL_TO_ALL CECL_NCCL_OP_ncclAlltoAll
#define SCATTER CECL_NCCL_OP_ncclReduceScatter
#define ALL_REDUCE CECL_NCCL_OP_ncclAllReduce

static struct cecl_nccl_call call_of(enum cecl_nccl_op op, size_t bytes)
{
    return (struct cecl_nccl_call){.op = op,
                                   .reduces = op == SCATTER || op == ALL_REDUCE,
                                   .count = bytes / 2,
                                   .datatype = CECL_NCCL_BFLOAT16,
                                   .redop = ceclSum};
}

static const struct cecl_nccl_group none = {.number = 1}; /* of calls outside a group */

static bool gains(enum cecl_nccl_op op, int nranks, bool on_windows, size_t bytes)
{
    struct cecl_nccl_comm comm = {.nranks = nranks, .windows = on_windows ? 1 : 0};
    const struct cecl_nccl_call call = call_of(op, bytes);
    return cecl_nccl_gains(&call, &comm, &none);
}

/* Sizes from `least` to `most` are served; the sizes next to them are passed. */
struct range {
    enum cecl_nccl_op op;
    int nranks;
    bool on_windows;
    size_t least, most;
};

static const struct range ranges[] = {
    {GATHER, 4, false, MIB(16), MIB(256)},      {GATHER, 2, false, KIB(512), MIB(256)},
    {ALL_TO_ALL, 4, false, KIB(64), KIB(256)},  {ALL_TO_ALL, 2, false, KIB(128), KIB(512)},
    {ALL_TO_ALL, 2, false, MIB(32), MIB(128)},  {SCATTER, 4, false, KIB(512), MIB(256)},
    {SCATTER, 2, false, KIB(512), MIB(256)},    {ALL_REDUCE, 4, false, KIB(256), KIB(512)},
    {ALL_REDUCE, 4, false, MIB(4), MIB(1024)},  {ALL_REDUCE, 2, false, KIB(256), KIB(512)},
    {ALL_REDUCE, 2, false, MIB(4), MIB(1024)},  {GATHER, 2, true, MIB(32), MIB(256)},
    {SCATTER, 4, true, MIB(1), MIB(256)},       {SCATTER, 2, true, MIB(4), MIB(256)},
    {ALL_REDUCE, 4, true, KIB(512), MIB(1024)}, {ALL_REDUCE, 2, true, KIB(512), MIB(1024)},
};

TEST(each_range_begins_and_ends_where_it_was_measured)
{
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct range *r = &ranges[i];
        assert_true(gains(r->op, r->nranks, r->on_windows, r->least));
        assert_true(gains(r->op, r->nranks, r->on_windows, r->most));
        assert_false(gains(r->op, r->nranks, r->on_windows, r->least - 2));
        assert_false(gains(r->op, r->nranks, r->on_windows, r->most + 2));
    }
}

TEST(nothing_else_is_served)
{
    for (int op = 0; op < CECL_NCCL_OPS; op++)
        for (int nranks = 2; nranks <= 8; nranks++)
            for (int on_windows = 0; on_windows < 2; on_windows++) {
                bool is_listed = false;
                for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
                    is_listed =
                        is_listed || ((int)ranges[i].op == op && ranges[i].nranks == nranks &&
                                      ranges[i].on_windows == on_windows);
                for (size_t bytes = 2; !is_listed && bytes <= MIB(4096); bytes *= 2)
                    assert_false(gains((enum cecl_nccl_op)op, nranks, on_windows, bytes));
            }
}

TEST(reductions_are_served_as_they_were_measured)
{
    const struct cecl_nccl_comm comm = {.nranks = 2};
    struct cecl_nccl_call call = call_of(ALL_REDUCE, MIB(4));
    call.redop = ceclAvg;
    assert_true(cecl_nccl_gains(&call, &comm, &none));
    call.redop = ceclMax;
    assert_false(cecl_nccl_gains(&call, &comm, &none));
    call.redop = ceclSum;
    call.datatype = ceclFloat16;
    assert_false(cecl_nccl_gains(&call, &comm, &none));
}

/* The kernels of larger reductions synchronize by flags, which are slow in host memory. */
TEST(flags_on_the_host_leave_no_reductions)
{
    const struct cecl_nccl_comm comm = {.nranks = 2, .limits.hostFlags = 1};
    const struct cecl_nccl_call all_reduce = call_of(ALL_REDUCE, MIB(4)),
                                scatter = call_of(SCATTER, MIB(1)),
                                gather = call_of(GATHER, MIB(1));
    assert_false(cecl_nccl_gains(&all_reduce, &comm, &none));
    assert_false(cecl_nccl_gains(&scatter, &comm, &none));
    assert_true(cecl_nccl_gains(&gather, &comm, &none));
}
