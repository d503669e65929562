/* Which functions of NCCL carry out a call of ranks on several hosts: functions in place of NCCL's note their arguments.
 * tests/multi/test_carried_calls.c shows that every byte arrives. */
#include "../with_cmocka.h"

#include "net/net.h"
#include "plan/describe.h"

#define RANKS 5
#define ROOM 4096

static char send_buffer[ROOM], recv_buffer[ROOM];
static struct cecl_pool no_pool;
static const struct cecl_windows windows = {.pool = &no_pool};

static struct cecl_call describe(enum cecl_op_index op, struct cecl_args args, int r)
{
    static uint64_t layout[CECL_LAYOUT_WORDS_MAX(RANKS)];
    const struct cecl_scope scope = {.rank = r,
                                     .nranks = RANKS,
                                     .windows = &windows,
                                     .layout = layout,
                                     .options.sm_policy = CECL_SM_REDUCE_ONLY};
    struct cecl_call call;
    args.recv = recv_buffer;
    args.send = send_buffer;
    assert_int_equal(cecl_call_describe(&cecl_ops[op], &scope, &args, &call), ceclSuccess);
    return call;
}

enum kind { ALL_GATHER, BROADCAST, ALL_REDUCE, REDUCE_SCATTER, REDUCE, SEND, RECV };

struct made {
    enum kind kind;
    size_t count;
};

static struct made *made;
static uint32_t nmade, fails_at; /* `fails_at`: the number of the call that NCCL refuses; 0: none */

static nccl_result note(struct made call)
{
    made[nmade++] = call;
    if (nmade == fails_at)
        return 3;
    return nmade % 2 ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

/* Defines a function in place of NCCL's, which notes its call. */
#define NOTES(name, kind, ...) \
    static nccl_result name(__VA_ARGS__, NCCL_ON) \
    { \
        return note((struct made){kind, count}); \
    }
NOTES(all_gather, ALL_GATHER, NCCL_TWO)
NOTES(broadcast, BROADCAST, NCCL_TWO, int root)
NOTES(all_reduce, ALL_REDUCE, NCCL_TWO, int op)
NOTES(reduce_scatter, REDUCE_SCATTER, NCCL_TWO, int op)
NOTES(reduce, REDUCE, NCCL_TWO, int op, int root)
NOTES(send_to, SEND, const void *send, size_t count, int type, int peer)
NOTES(receive, RECV, void *recv, size_t count, int type, int peer)

static const char *error_string(nccl_result result)
{
    return result == 3 ? "refused" : "?";
}

static const char *last_error(nccl_comm comm)
{
    return "";
}

static uint32_t map_of(const struct cecl_call *call, struct made out[2 * RANKS])
{
    static const struct nccl nccl = {.AllGather = all_gather,
                                     .Broadcast = broadcast,
                                     .AllReduce = all_reduce,
                                     .ReduceScatter = reduce_scatter,
                                     .Reduce = reduce,
                                     .Send = send_to,
                                     .Recv = receive,
                                     .GetErrorString = error_string,
                                     .GetLastError = last_error};
    static uint32_t word, nobody;
    const struct cecl_net net = {.nccl = &nccl, .comm = (nccl_comm)&nobody, .word = &word};
    made = out;
    nmade = 0;
    assert_int_equal(cecl_net_check(call, 22809), ceclSuccess);
    assert_int_equal(cecl_net_add(&net, call), fails_at > 0 ? ceclRemoteError : ceclSuccess);
    return nmade;
}

TEST(own_functions_are_called_where_there_are_any)
{
    static const struct {
        enum cecl_op_index op;
        enum kind kind;
        size_t count; /* elements of 4 bytes in reductions, else bytes */
    } rows[] = {{CECL_OP_ALL_GATHER, ALL_GATHER, 40},         {CECL_OP_BROADCAST, BROADCAST, 40},
                {CECL_OP_ALL_REDUCE, ALL_REDUCE, 10},         {CECL_OP_REDUCE, REDUCE, 10},
                {CECL_OP_REDUCE_SCATTER, REDUCE_SCATTER, 10}, {CECL_OP_BARRIER, ALL_REDUCE, 1}};
    const struct cecl_args args = {.count = 10, .type = ceclInt32, .red_op = ceclMax, .root = 2};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct made out[2 * RANKS];
        const struct cecl_call call = describe(rows[i].op, args, 1);
        assert_int_equal(map_of(&call, out), 1);
        assert_int_equal(out[0].kind, rows[i].kind);
        assert_int_equal(out[0].count, rows[i].count);
    }
}

TEST(calls_without_bytes_need_nothing)
{
    struct made out[2 * RANKS];
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                             CECL_OP_ALL_REDUCE, CECL_OP_GATHER, CECL_OP_SEND};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        const struct cecl_call call = describe(ops[i], (struct cecl_args){.type = ceclInt32}, 1);
        assert_int_equal(map_of(&call, out), 0);
    }
}

TEST(the_first_message_that_nccl_refuses_is_the_last)
{
    struct made out[2 * RANKS];
    const struct cecl_args args = {.count = 7, .type = ceclInt32};
    const struct cecl_call call = describe(CECL_OP_ALL_TO_ALL, args, 1);
    for (fails_at = 1; fails_at <= 2 * RANKS; fails_at++)
        assert_int_equal(map_of(&call, out), fails_at);
    fails_at = 0;
}

TEST(fp8_is_reduced_by_later_versions)
{
    const struct cecl_args args = {.count = 7, .type = ceclFloat8e4m3, .red_op = ceclSum};
    const struct cecl_call call = describe(CECL_OP_ALL_REDUCE, args, 0),
                           gather = describe(CECL_OP_ALL_GATHER, args, 0);
    assert_int_equal(cecl_net_check(&call, 22399), ceclInvalidUsage);
    assert_int_equal(cecl_net_check(&call, 22400), ceclSuccess);
    assert_int_equal(cecl_net_check(&gather, 21700), ceclSuccess);
}
