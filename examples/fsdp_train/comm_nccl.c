/* Communication by NCCL, for comparison: with NCCL's defaults (on SMs), or with its zero-CTA policy
 * and registered windows. In the second case the all-gather runs on copy engines; the reduce-scatter
 * needs SMs in both cases. */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm.h"

enum { PAGE = 2 << 20 };

struct nccl {
    ncclComm_t comm;
    cudaStream_t stream;
    bool copy_engines;
};

#define NCCL_TRY(c, expr) \
    do { \
        ncclResult_t nccl_result_ = (expr); \
        if (nccl_result_ != ncclSuccess) \
            return complain((c), #expr, ncclGetErrorString(nccl_result_)); \
    } while (0)
#define CUDA_TRY(c, expr) \
    do { \
        cudaError_t cuda_error_ = (expr); \
        if (cuda_error_ != cudaSuccess) \
            return complain((c), #expr, cudaGetErrorString(cuda_error_)); \
    } while (0)

/* cecl's types have the same numbers as NCCL's */
_Static_assert((int)ceclFloat32 == (int)ncclFloat32 && (int)ceclBfloat16 == (int)ncclBfloat16,
               "a type is passed to NCCL as its number");
/* Memory and windows last until the process ends. */
static bool alloc(struct comm *c, void **memory, size_t bytes)
{
    struct nccl *n = c->state;
    ncclWindow_t window;
    bytes = (bytes + PAGE - 1) / PAGE * PAGE; /* a window is a whole number of GPU pages */
    NCCL_TRY(c, ncclMemAlloc(memory, bytes));
    if (!n->copy_engines)
        return true;
    NCCL_TRY(c, ncclCommWindowRegister(n->comm, *memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    return window ||
           complain(c, "ncclCommWindowRegister", "no window: NCCL would not use its copy engines");
}

static ceclStream_t stream(struct comm *c, int lane)
{
    (void)lane;
    return ((struct nccl *)c->state)->stream;
}

static bool start(struct comm *c, int lane, const struct transfer *t)
{
    struct nccl *n = c->state;
    const ncclDataType_t type = (ncclDataType_t)(int)c->compute->type;
    const char *own = (char *)t->to + (size_t)c->rank * t->count * c->compute->element;
    (void)lane;
    if (t->kind == GATHER)
        NCCL_TRY(c, ncclAllGather(own, t->to, t->count, type, n->comm, n->stream));
    else
        NCCL_TRY(c, ncclReduceScatter(t->from, t->to, t->count, type, ncclSum, n->comm, n->stream));
    return true;
}

static bool healthy(struct comm *c)
{
    ncclResult_t failure = ncclSuccess;
    NCCL_TRY(c, ncclCommGetAsyncError(((struct nccl *)c->state)->comm, &failure));
    NCCL_TRY(c, failure);
    return true;
}

static void close_nccl(struct comm *c)
{
    struct nccl *n = c->state;
    if (n->comm)
        ncclCommDestroy(n->comm);
    if (n->stream)
        cudaStreamDestroy(n->stream);
    free(n);
}

static bool take_gpu(struct comm *c)
{
    MPI_Comm host;
    int here = 0, count = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &here);
    MPI_Comm_free(&host);
    if (cudaGetDeviceCount(&count) != cudaSuccess || here >= count)
        return complain(c, "--comm nccl",
                        "a GPU for each rank expected; without, --comm cecl runs");
    c->device = here;
    return true;
}

bool comm_nccl(struct comm *c, bool copy_engines)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct nccl *n = calloc(1, sizeof(*n));
    ncclUniqueId id = {{0}};
    c->name = copy_engines ? "NCCL on copy engines" : "NCCL";
    c->state = n;
    c->close = close_nccl;
    /* If a rank finds no GPU, all ranks stop here: otherwise they would wait for that rank in
     * NCCL's init. */
    if (!all_agree(n && take_gpu(c)))
        return false;
    n->copy_engines = copy_engines;
    if (copy_engines)
        config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    CUDA_TRY(c, cudaSetDevice(c->device));
    CUDA_TRY(c, cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking));
    if (c->rank == 0)
        NCCL_TRY(c, ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    NCCL_TRY(c, ncclCommInitRankConfig(&n->comm, c->nranks, id, c->rank, &config));
    c->alloc = alloc;
    c->stream = stream;
    c->start = start;
    c->healthy = healthy;
    return true;
}
