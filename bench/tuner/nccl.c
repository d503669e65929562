/* The real NCCL, opened while cecl_tune runs: no build needs it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "against.h"

/* X(a function of NCCL's) */
#define FUNCTIONS(X)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclAlltoAll)                                                                                \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommInitRank)                                                                            \
    X(ncclReduceScatter)

static struct {
#define FIELD(name) __typeof__(name) *name;
    FUNCTIONS(FIELD)
#undef FIELD
    ncclResult_t (*ncclGetUniqueId)(ncclUniqueId *id);
    const char *(*ncclGetErrorString)(ncclResult_t result);
} theirs;

static bool check(const struct run *run, const char *what, ncclResult_t result)
{
    return result == 0 || complain(run, what, theirs.ncclGetErrorString(result));
}

/* NCCL before 2.28 has no ncclAlltoAll. nccl_call then refuses all-to-alls. */
static bool find(const struct run *run, void *handle)
{
    bool has_all = true;
#define FIND(name) *(void **)&theirs.name = dlsym(handle, #name);
    FUNCTIONS(FIND)
    FIND(ncclGetUniqueId)
    FIND(ncclGetErrorString)
#undef FIND
    has_all = theirs.ncclAllGather && theirs.ncclAllReduce && theirs.ncclReduceScatter &&
              theirs.ncclCommInitRank && theirs.ncclCommDestroy && theirs.ncclGetUniqueId &&
              theirs.ncclGetErrorString;
    return has_all || complain(run, "NCCL", "it lacks a function that every NCCL 2 has");
}

static bool all_are_fine(bool fine)
{
    int mine = fine, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}

bool nccl_open(const struct run *run, int device, struct nccl *nccl)
{
    ncclUniqueId id = {{0}};
    *nccl = (struct nccl){.gpu.ordinal = -1};
    bool fine = cecl_nccl_real_open(&nccl->real) == ceclSuccess;
    fine = fine ? find(run, nccl->real.handle) : complain(run, "NCCL", cecl_message());
    if (fine && device >= 0 && cecl_nccl_gpu_enter(&nccl->gpu, device) != ceclSuccess)
        fine = complain(run, "the GPU", cecl_message());
    if (!all_are_fine(fine))
        return false;
    if (run->rank == 0)
        fine = check(run, "ncclGetUniqueId", theirs.ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    return all_are_fine(fine) &&
           check(run, "ncclCommInitRank",
                 theirs.ncclCommInitRank(&nccl->comm, run->nranks, id, run->rank));
}

bool nccl_close(const struct run *run, struct nccl *nccl)
{
    const bool fine = check(run, "ncclCommDestroy", theirs.ncclCommDestroy(nccl->comm));
    if (nccl->gpu.ordinal >= 0)
        cecl_nccl_gpu_leave(&nccl->gpu);
    return fine;
}

bool nccl_call(const struct run *run, const struct nccl *nccl, const struct op *op,
               const void *send, void *recv, size_t count, ceclDataType_t ours)
{
    const ncclDataType_t type = (ncclDataType_t)ours; /* the two have the same numbers */
    const cudaStream_t on = nccl->gpu.ordinal >= 0 ? (cudaStream_t)run->stream : NULL;
    switch (op_place(op)) {
    case OP_ALL_GATHER:
        return check(run, "ncclAllGather",
                     theirs.ncclAllGather(send, recv, count, type, nccl->comm, on));
    case OP_ALL_REDUCE:
        return check(run, "ncclAllReduce",
                     theirs.ncclAllReduce(send, recv, count, type, ceclSum, nccl->comm, on));
    case OP_REDUCE_SCATTER:
        return check(run, "ncclReduceScatter",
                     theirs.ncclReduceScatter(send, recv, count, type, ceclSum, nccl->comm, on));
    default:
        if (!theirs.ncclAlltoAll)
            return complain(run, "ncclAlltoAll",
                            "NCCL 2.28 or later expected: leave alltoall out by --op");
        return check(run, "ncclAlltoAll",
                     theirs.ncclAlltoAll(send, recv, count, type, nccl->comm, on));
    }
}
