/* The stand-in's communicators, and its other calls that move no data. Ranks meet in shared memory; the id names it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

#define VERSION "22809"

static size_t shared_bytes(int nranks)
{
    return sizeof(struct shared) + (size_t)(nranks * nranks) * sizeof(struct channel);
}

/* New shared memory is zeroed, so any rank may come first. The last rank unlinks the name. */
static struct shared *map_shared(const char *name, int nranks)
{
    const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    void *memory = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)shared_bytes(nranks)) == 0)
        memory = mmap(NULL, shared_bytes(nranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (memory == MAP_FAILED)
        return NULL;
    struct shared *shared = memory;
    if (atomic_fetch_add(&shared->joined, 1) == nranks - 1)
        shm_unlink(name);
    return shared;
}

ncclResult_t standin_open(ncclComm_t *comm, const char *name, int nranks, int rank)
{
    if (nranks < 1 || nranks > STANDIN_MAX_RANKS || rank < 0 || rank >= nranks)
        return ceclInvalidArgument;
    ncclComm_t made = calloc(1, sizeof(*made));
    snprintf(made->name, sizeof(made->name), "%s", name);
    made->rank = rank;
    made->nranks = nranks;
    made->shared = map_shared(name, nranks);
    if (!made->shared) {
        free(made);
        return ceclSystemError;
    }
    *comm = made;
    return ceclSuccess;
}

/* Names of shared memory that not all ranks joined, because one aborted. Others may still come, so the names stay. */
#define LEFT_MOST 256
static char left[LEFT_MOST][64];
static _Atomic int nleft;

static void leave_name(const char *name)
{
    const int i = atomic_fetch_add(&nleft, 1);
    if (i < LEFT_MOST)
        snprintf(left[i], sizeof(left[i]), "%s", name);
}

__attribute__((destructor)) static void remove_names(void)
{
    for (int i = 0; i < LEFT_MOST && left[i][0]; i++)
        shm_unlink(left[i]);
}

static void close_comm(ncclComm_t comm)
{
    munmap(comm->shared, shared_bytes(comm->nranks));
    free(comm);
}

static ncclResult_t open_and_meet(ncclComm_t *comm, const char *name, int nranks, int rank,
                                  bool is_non_blocking)
{
    const ncclResult_t result = standin_open(comm, name, nranks, rank);
    if (result != (ncclResult_t)ceclSuccess)
        return result;
    (*comm)->is_non_blocking = is_non_blocking;
    struct op *op = standin_op(*comm);
    op->waits_for_all = true;
    const ncclResult_t met = standin_enqueue(op);
    return met == (ncclResult_t)ceclSuccess && is_non_blocking ? (ncclResult_t)ceclInProgress : met;
}

/* Whether a new communicator is non-blocking. A child without a configuration is as its parent. */
static bool is_non_blocking(ncclComm_t parent, const ncclConfig_t *config)
{
    int blocking = !parent || !parent->is_non_blocking;
    const char *variable = getenv("NCCL_COMM_BLOCKING"); /* overrides the configuration */
    if (config)
        memcpy(&blocking, (const char *)config + CONFIG_BLOCKING_AT, sizeof(blocking));
    if (variable)
        blocking = atoi(variable);
    return blocking == 0;
}

static ncclResult_t join(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank,
                         const ncclConfig_t *config)
{
    return open_and_meet(comm, id->internal, nranks, rank, is_non_blocking(NULL, config));
}

static void name_id(ncclUniqueId *id)
{
    static _Atomic unsigned made;
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/cecl-test-nccl-%d-%u", (int)getpid(),
             atomic_fetch_add(&made, 1));
    shm_unlink(id->internal); /* an earlier process with the same id may have left this name */
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    NOTE(WORD(id));
    name_id(id);
    return ceclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    NOTE(WORD(comm), (uint64_t)nranks, (uint64_t)rank);
    return join(comm, nranks, &id, rank, NULL);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    NOTE(WORD(comm), (uint64_t)nranks, (uint64_t)rank, WORD(config));
    return join(comm, nranks, &id, rank, config);
}

/* The ranks meet by the first of the ids. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids,
                                      ncclUniqueId *ids, ncclConfig_t *config)
{
    NOTE(WORD(comm), (uint64_t)nranks, (uint64_t)rank, (uint64_t)nids, WORD(ids), WORD(config));
    return nids > 0 ? join(comm, nranks, ids, rank, config) : (ncclResult_t)ceclInvalidArgument;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices)
{
    NOTE(WORD(comms), (uint64_t)count, WORD(devices));
    ncclUniqueId id;
    name_id(&id);
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == (ncclResult_t)ceclSuccess; i++)
        result = standin_open(&comms[i], id.internal, count, i);
    return result;
}

/* ---- splitting: all ranks exchange their colors and keys */

struct wish {
    int color, key;
};
#define SHRUNK \
    1000000 /* the color of ranks that a shrink keeps, which is a part of their child's name */

static bool is_before(const struct wish *wishes, int a, int b)
{
    return wishes[a].key < wishes[b].key || (wishes[a].key == wishes[b].key && a < b);
}

/* Like NCCL's function, returns ncclSuccess while a child is still being made in the background. */
static ncclResult_t without_progress(ncclResult_t result)
{
    return result == (ncclResult_t)ceclInProgress ? (ncclResult_t)ceclSuccess : result;
}

static void finish_split(struct op *op)
{
    const struct wish *wishes = (const void *)op->staging;
    const int me = op->comm->rank, color = wishes[me].color;
    int nranks = 0, rank = 0;
    char name[64];
    for (int i = 0; i < op->comm->nranks; i++) {
        nranks += wishes[i].color == color;
        rank += wishes[i].color == color && is_before(wishes, i, me);
    }
    snprintf(name, sizeof(name), "%.40s.%d.%d", op->comm->name, op->comm->splits++, color);
    ncclComm_t made = NULL;
    if (color >= 0 && standin_open(&made, name, nranks, rank) == (ncclResult_t)ceclSuccess)
        made->is_non_blocking = op->splits_non_blocking;
    __atomic_store_n(op->split, made, __ATOMIC_RELEASE);
}

static bool is_in(const int *list, int count, int rank)
{
    bool is = false;
    for (int i = 0; i < count; i++)
        is = is || list[i] == rank;
    return is;
}

/* The `count` excluded ranks take no part, and get no child. */
static ncclResult_t make_child(ncclComm_t comm, struct wish wish, const int *excluded, int count,
                               ncclComm_t *split, const ncclConfig_t *config)
{
    struct op *op = standin_op(comm);
    struct wish *wishes = calloc((size_t)comm->nranks + 1, sizeof(*wishes));
    struct wish *mine = &wishes[comm->nranks];
    *mine = wish;
    for (int peer = 0; peer < comm->nranks; peer++) {
        wishes[peer].color = -1;
        if (is_in(excluded, count, peer))
            continue;
        standin_send(op, peer, mine, sizeof(*mine));
        standin_receive(op, peer, &wishes[peer], sizeof(*mine));
    }
    op->staging = (unsigned char *)wishes;
    op->split = split;
    op->splits_non_blocking = is_non_blocking(comm, config);
    *split = NULL;
    op->finish = finish_split;
    return without_progress(standin_enqueue(op));
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *split,
                           ncclConfig_t *config)
{
    NOTE(WORD(comm), (uint64_t)color, (uint64_t)key, WORD(split), WORD(config));
    return make_child(comm, (struct wish){color, key}, NULL, 0, split, config);
}

/* ---- shrinking and growing */

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *shrunk,
                            ncclConfig_t *config, int flags)
{
    NOTE(WORD(comm), WORD(excluded), (uint64_t)count, WORD(shrunk), WORD(config), (uint64_t)flags);
    return make_child(comm, (struct wish){.color = SHRUNK}, excluded, count, shrunk, config);
}

/* The ranks of `comm` compute the name by themselves, and need no id. */
static void name_grown(ncclComm_t comm, ncclUniqueId *id)
{
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "%.40s.grown", comm->name);
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
    NOTE(WORD(comm), WORD(id));
    name_grown(comm, id);
    return ceclSuccess;
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                          ncclComm_t *grown, ncclConfig_t *config)
{
    NOTE(WORD(comm), (uint64_t)nranks, WORD(id), (uint64_t)rank, WORD(grown), WORD(config));
    ncclUniqueId own;
    if (comm)
        name_grown(comm, &own);
    else
        own = *id;
    return without_progress(open_and_meet(grown, own.internal, nranks, comm ? comm->rank : rank,
                                          is_non_blocking(comm, config)));
}

/* ---- other calls on a communicator */

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    NOTE(WORD(comm), (uint64_t)flags);
    if (flags == 1) /* as if it knew other flags */
        return ceclInvalidArgument;
    atomic_store(&comm->shared->is_revoked, 1);
    return ceclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    NOTE(WORD(comm));
    return standin_enqueue(standin_op(comm)); /* a call without transfers */
}

/* NULL is no error, as in NCCL. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    NOTE(WORD(comm));
    if (comm && !standin_is_ready(comm))
        return ceclInvalidArgument;
    if (comm)
        close_comm(comm);
    return ceclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    NOTE(WORD(comm));
    atomic_store(&comm->shared->is_aborted, 1);
    if (atomic_load(&comm->shared->joined) < comm->nranks)
        leave_name(comm->name);
    standin_give_up(comm);
    close_comm(comm);
    return ceclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    NOTE(WORD(comm), WORD(error));
    *error = standin_look(comm);
    if (*error == (ncclResult_t)ceclSuccess &&
        (atomic_load(&comm->shared->is_aborted) || atomic_load(&comm->shared->is_revoked)))
        *error = ceclRemoteError;
    return ceclSuccess;
}

#define GIVES(name, member) \
    ncclResult_t name(const ncclComm_t comm, int *value) \
    { \
        NOTE(WORD(comm), WORD(value)); \
        *value = comm->member; \
        return standin_is_ready(comm) ? ceclSuccess : ceclInvalidArgument; \
    }
GIVES(ncclCommCount, nranks)
GIVES(ncclCommUserRank, rank)
GIVES(ncclCommCuDevice, rank)

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags)
{
    NOTE(WORD(comm), WORD(buff), size, WORD(win), (uint64_t)winFlags);
    *win = size > 0 ? buff : NULL; /* NULL: as from NCCL without symmetric memory */
    return ceclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
    const char *lowered = getenv("CECL_TEST_NCCL_VERSION");
    NOTE(WORD(version));
    *version = atoi(lowered ? lowered : VERSION);
    return ceclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    NOTE((uint64_t)result);
    return "a result of the stand-in";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    NOTE(WORD(comm));
    return "the stand-in's last error";
}

/* Tells cecl that calls over several hosts may use this NCCL on the host device. */
__attribute__((visibility("default"))) const int cecl_nccl_works_on_host_memory = 1;
