/* The calls of NCCL that carry a call over several hosts: functions that stand in for NCCL's note what they are given, and
 * every byte that a rank receives is the one that cecl_call_block says. */
#include "../with_cmocka.h"

#include "net/net.h"
#include "plan/describe.h"

#define RANKS 5
#define ROOM 4096

static char send_of[RANKS][ROOM], recv_of[RANKS][ROOM];
static struct cecl_pool no_pool;
static const struct cecl_windows windows = {.pool = &no_pool};

/* The description of a call of rank `r`, whose arguments all ranks share but for the buffers. */
static struct cecl_call describe(enum cecl_op_index op, struct cecl_args args, int r, bool in_place)
{
    static uint64_t layout[RANKS][CECL_LAYOUT_WORDS_MAX(RANKS)];
    const struct cecl_scope scope = {.rank = r,
                                     .nranks = RANKS,
                                     .windows = &windows,
                                     .layout = layout[r],
                                     .options.sm_policy = CECL_SM_REDUCE_ONLY};
    struct cecl_call call;
    args.recv = recv_of[r];
    args.send = in_place && op == CECL_OP_ALL_GATHER ? recv_of[r] + (size_t)r * args.count * 4
                : in_place                           ? recv_of[r]
                                                     : send_of[r];
    if (in_place && op == CECL_OP_REDUCE_SCATTER) {
        args.send = send_of[r];
        args.recv = send_of[r] + (size_t)r * args.count * 4;
    }
    assert_int_equal(cecl_call_describe(&cecl_ops[op], &scope, &args, &call), ceclSuccess);
    return call;
}

enum kind { ALL_GATHER, BROADCAST, ALL_REDUCE, REDUCE_SCATTER, REDUCE, SEND, RECV };

/* A call of NCCL. */
struct made {
    enum kind kind;
    const void *send, *recv;
    size_t count;
    int type, red_op, peer; /* or the root */
};

static struct made *made;
static uint32_t nmade, fails_at; /* fails_at: the number of the call that NCCL refuses; 0: none */

static nccl_result note(struct made call)
{
    made[nmade++] = call;
    if (nmade == fails_at)
        return 3;
    return nmade % 2 ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

static nccl_result all_gather(NCCL_TWO, NCCL_ON)
{
    return note((struct made){ALL_GATHER, send, recv, count, type, 0, 0});
}

static nccl_result broadcast(NCCL_TWO, int root, NCCL_ON)
{
    return note((struct made){BROADCAST, send, recv, count, type, 0, root});
}

static nccl_result all_reduce(NCCL_TWO, int op, NCCL_ON)
{
    return note((struct made){ALL_REDUCE, send, recv, count, type, op, 0});
}

static nccl_result reduce_scatter(NCCL_TWO, int op, NCCL_ON)
{
    return note((struct made){REDUCE_SCATTER, send, recv, count, type, op, 0});
}

static nccl_result reduce(NCCL_TWO, int op, int root, NCCL_ON)
{
    return note((struct made){REDUCE, send, recv, count, type, op, root});
}

static nccl_result send_to(const void *send, size_t count, int type, int peer, NCCL_ON)
{
    return note((struct made){SEND, send, NULL, count, type, 0, peer});
}

static nccl_result receive(void *recv, size_t count, int type, int peer, NCCL_ON)
{
    return note((struct made){RECV, NULL, recv, count, type, 0, peer});
}

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

TEST(own_functions_get_the_callers_buffers)
{
    static const struct {
        enum cecl_op_index op;
        enum kind kind;
        size_t count; /* of elements of 4 bytes, or of bytes */
    } rows[] = {{CECL_OP_ALL_GATHER, ALL_GATHER, 40},
                {CECL_OP_BROADCAST, BROADCAST, 40},
                {CECL_OP_ALL_REDUCE, ALL_REDUCE, 10},
                {CECL_OP_REDUCE, REDUCE, 10},
                {CECL_OP_REDUCE_SCATTER, REDUCE_SCATTER, 10}};
    const struct cecl_args args = {.count = 10, .type = ceclInt32, .red_op = ceclMax, .root = 2};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int r = 0; r < RANKS; r++)
            for (int in_place = 0; in_place < 2; in_place++) {
                struct made out[2 * RANKS];
                const struct cecl_call call = describe(rows[i].op, args, r, in_place);
                const bool reduces = call.op->family == CECL_FAMILY_REDUCTION,
                           scatters = rows[i].op == CECL_OP_REDUCE_SCATTER;
                assert_int_equal(map_of(&call, out), 1);
                assert_int_equal(out[0].kind, rows[i].kind);
                assert_int_equal(out[0].count, rows[i].count);
                assert_int_equal(out[0].type, reduces ? ceclInt32 : ceclInt8);
                if (reduces)
                    assert_int_equal(out[0].red_op, ceclMax);
                if (call.op->rooted)
                    assert_int_equal(out[0].peer, 2);
                assert_ptr_equal(out[0].recv,
                                 in_place && scatters ? send_of[r] + (size_t)r * 40 : recv_of[r]);
                if (rows[i].op != CECL_OP_BROADCAST || r == 2)
                    assert_ptr_equal(out[0].send, !in_place || scatters ? send_of[r]
                                                  : rows[i].op == CECL_OP_ALL_GATHER
                                                      ? recv_of[r] + (size_t)r * 40
                                                      : recv_of[r]);
            }
}

TEST(a_barrier_reduces_a_byte)
{
    struct made out[2 * RANKS];
    const struct cecl_call call =
        describe(CECL_OP_BARRIER, (struct cecl_args){.type = ceclInt8}, 0, false);
    assert_int_equal(map_of(&call, out), 1);
    assert_int_equal(out[0].kind, ALL_REDUCE);
    assert_int_equal(out[0].count, 1);
    assert_ptr_equal(out[0].send, out[0].recv);
}

TEST(calls_without_bytes_need_nothing)
{
    struct made out[2 * RANKS];
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                             CECL_OP_ALL_REDUCE, CECL_OP_GATHER, CECL_OP_SEND};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        const struct cecl_call call =
            describe(ops[i], (struct cecl_args){.type = ceclInt32}, 1, false);
        assert_int_equal(map_of(&call, out), 0);
    }
}

/* Each message that a rank sends is received, with equal bytes, and lands where the block belongs. */
TEST(messages_carry_every_block)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_TO_ALL, CECL_OP_GATHER, CECL_OP_SCATTER};
    const struct cecl_args args = {.count = 7, .type = ceclInt32, .root = 3};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        for (int from = 0; from < RANKS; from++)
            for (int to = 0; to < RANKS; to++) {
                struct made sent[2 * RANKS], received[2 * RANKS];
                const struct cecl_call sender = describe(ops[i], args, from, false),
                                       receiver = describe(ops[i], args, to, false);
                const uint32_t nsent = map_of(&sender, sent),
                               nreceived = map_of(&receiver, received);
                const struct cecl_block block = cecl_call_block(&sender, from, to);
                int sends = 0, receives = 0;
                for (uint32_t s = 0; s < nsent; s++)
                    if (sent[s].kind == SEND && sent[s].peer == to) {
                        assert_ptr_equal(sent[s].send, send_of[from] + block.send_offset);
                        assert_int_equal(sent[s].count, block.bytes);
                        sends++;
                    }
                for (uint32_t s = 0; s < nreceived; s++)
                    if (received[s].kind == RECV && received[s].peer == from) {
                        assert_ptr_equal(received[s].recv, recv_of[to] + block.recv_offset);
                        assert_int_equal(received[s].count, block.bytes);
                        receives++;
                    }
                assert_int_equal(sends, block.bytes > 0);
                assert_int_equal(receives, block.bytes > 0);
            }
}

TEST(the_first_message_that_nccl_refuses_is_the_last)
{
    struct made out[2 * RANKS];
    const struct cecl_args args = {.count = 7, .type = ceclInt32};
    const struct cecl_call call = describe(CECL_OP_ALL_TO_ALL, args, 1, false);
    for (fails_at = 1; fails_at <= 2 * RANKS; fails_at++)
        assert_int_equal(map_of(&call, out), fails_at);
    fails_at = 0;
}

TEST(fp8_is_reduced_by_later_versions)
{
    const struct cecl_args args = {.count = 7, .type = ceclFloat8e4m3, .red_op = ceclSum};
    const struct cecl_call call = describe(CECL_OP_ALL_REDUCE, args, 0, false),
                           gather = describe(CECL_OP_ALL_GATHER, args, 0, false);
    assert_int_equal(cecl_net_check(&call, 22399), ceclInvalidUsage);
    assert_int_equal(cecl_net_check(&call, 22400), ceclSuccess);
    assert_int_equal(cecl_net_check(&gather, 21700), ceclSuccess);
}
