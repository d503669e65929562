/* NCCL as a baseline: with its defaults, and with its copy engines (zero-CTA policy, symmetric windows). */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 0)
#error "the copy-engine baseline needs NCCL 2.28"
#endif

const char *side_nccl_version(void)
{
    static char text[16];
    int v = 0;
    ncclGetVersion(&v);
    snprintf(text, sizeof(text), "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return text;
}

struct nccl {
    ncclComm_t comm;
    ncclWindow_t send_window, recv_window;
    void *send, *recv;
    bool copy_engine;
};

#define NCCL_TRY(run, expr) \
    do { \
        ncclResult_t nccl_result_ = (expr); \
        if (nccl_result_ != ncclSuccess) \
            return complain((run), #expr, ncclGetErrorString(nccl_result_)); \
    } while (0)

static bool nccl_open(struct side *side, const struct run *run, size_t send_bytes,
                      size_t recv_bytes)
{
    struct nccl *n = side->state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    if (run->rank == 0)
        NCCL_TRY(run, ncclGetUniqueId(&id));
    run->team->bcast(&id, sizeof(id), 0);
    if (n->copy_engine && !run->options.op->reduces)
        config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    NCCL_TRY(run, ncclCommInitRankConfig(&n->comm, run->nranks, id, run->rank, &config));
    NCCL_TRY(run, ncclMemAlloc(&n->send, send_bytes));
    NCCL_TRY(run, ncclMemAlloc(&n->recv, recv_bytes));
    if (n->copy_engine) {
        NCCL_TRY(run, ncclCommWindowRegister(n->comm, n->send, send_bytes, &n->send_window,
                                             NCCL_WIN_COLL_SYMMETRIC));
        NCCL_TRY(run, ncclCommWindowRegister(n->comm, n->recv, recv_bytes, &n->recv_window,
                                             NCCL_WIN_COLL_SYMMETRIC));
        if (!n->send_window || !n->recv_window)
            return complain(run, "ncclCommWindowRegister",
                            "no window: NCCL would not use its copy engines");
    }
    side->send = n->send;
    side->recv = n->recv;
    return true;
}

static ncclResult_t sum_and_scatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                    ncclComm_t comm, cudaStream_t stream)
{
    return ncclReduceScatter(send, recv, count, type, ncclSum, comm, stream);
}

static ncclResult_t sum_to_all(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream)
{
    return ncclAllReduce(send, recv, count, type, ncclSum, comm, stream);
}

static ncclResult_t pass(const struct op *op, const void *send, void *recv, size_t count,
                         ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    int rank = 0, nranks = 1;
    ncclResult_t result = ncclCommUserRank(comm, &rank);
    if (result == ncclSuccess)
        result = ncclCommCount(comm, &nranks);
    if (result == ncclSuccess)
        result = ncclGroupStart();
    if (result != ncclSuccess)
        return result;
    const struct neighbors peers = neighbors_of(op, rank, nranks);
    if (peers.to >= 0)
        result = ncclSend(send, count, type, peers.to, comm, stream);
    if (result == ncclSuccess && peers.from >= 0)
        result = ncclRecv(recv, count, type, peers.from, comm, stream);
    const ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess ? end : result;
}

static ncclResult_t pass_on(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream)
{
    return pass(&collectives[OP_SEND_RECV], send, recv, count, type, comm, stream);
}

static ncclResult_t pass_one_way(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream)
{
    return pass(&collectives[OP_SEND], send, recv, count, type, comm, stream);
}

typedef ncclResult_t nccl_function(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                                   cudaStream_t);
static nccl_function *const functions[OP_COUNT] = {
    [OP_ALL_GATHER] = ncclAllGather,
    [OP_ALL_TO_ALL] = ncclAlltoAll,
    [OP_ALL_TO_ALLV_DEVICE] = ncclAlltoAll,
    [OP_DISPATCH] = ncclAlltoAll,
    [OP_COMBINE] = ncclAlltoAll,
    [OP_REDUCE_SCATTER] = sum_and_scatter,
    [OP_REDUCE_SCATTER_TILES] = sum_and_scatter,
    [OP_ALL_REDUCE] = sum_to_all,
    [OP_SEND_RECV] = pass_on,
    [OP_SEND] = pass_one_way,
    [OP_PUT] = pass_on, /* the same exchange by messages */
};
/* cecl's types have NCCL's numbers: checked for the first, a middle and the last one. */
_Static_assert((int)ceclInt8 == (int)ncclInt8 && (int)ceclFloat32 == (int)ncclFloat32 &&
                   (int)ceclFloat8e5m2 == (int)ncclFloat8e5m2,
               "a type is passed to NCCL as its number");

static bool nccl_call(struct side *side, const struct run *run, const void *send, size_t block)
{
    struct nccl *n = side->state;
    const struct options *o = &run->options;
    NCCL_TRY(run,
             functions[op_place(o->op)](send, side->recv, block / o->type->bytes,
                                        (ncclDataType_t)(int)o->type->id, n->comm, run->stream));
    return true;
}

static bool nccl_supports(const struct side *side, const struct run *run, bool in_place)
{
    (void)side;
    const struct op *op = run->options.op;
    return functions[op_place(op)] && /* NCCL has no in-place all-to-all */
           (!op->block_per_rank || !in_place);
}

static void nccl_close(struct side *side)
{
    struct nccl *n = side->state;
    if (n->send_window)
        ncclCommWindowDeregister(n->comm, n->send_window);
    if (n->recv_window)
        ncclCommWindowDeregister(n->comm, n->recv_window);
    ncclMemFree(n->send);
    ncclMemFree(n->recv);
    ncclCommDestroy(n->comm);
    free(n);
}

bool side_nccl_make(struct side *side, bool copy_engine)
{
    struct nccl *n = calloc(1, sizeof(*n));
    if (!n)
        return false;
    n->copy_engine = copy_engine;
    *side = (struct side){.name = copy_engine ? "nccl-ce" : "nccl",
                          .state = n,
                          .open = nccl_open,
                          .call = nccl_call,
                          .supports = nccl_supports,
                          .close = nccl_close};
    return true;
}
