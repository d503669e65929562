/* See fake_nccl.h. */
#include "fake_nccl.h"

#include <stdio.h>
#include <string.h>

struct id {
    char internal[128];
};
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
};

struct fake_nccl fake_nccl;
static int left; /* polls until the call in progress ends */

static void note(const char *what)
{
    const size_t at = strlen(fake_nccl.log);
    snprintf(fake_nccl.log + at, sizeof(fake_nccl.log) - at, "%s ", what);
}

static int begin(const char *what)
{
    note(what);
    left = fake_nccl.polls;
    return left ? 7 : 0;
}

int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = fake_nccl.version;
    return 0;
}
int ncclGetUniqueId(struct id *id);
int ncclGetUniqueId(struct id *id)
{
    memset(id, 5, sizeof(*id));
    return 0;
}
int ncclCommInitRankConfig(void **comm, int nranks, struct id id, int rank, struct config *config);
int ncclCommInitRankConfig(void **comm, int nranks, struct id id, int rank, struct config *config)
{
    fake_nccl.nranks = nranks;
    (void)rank;
    fake_nccl.blocking = config->blocking;
    fake_nccl.max_ctas = config->max_ctas;
    fake_nccl.config_size = config->size;
    *comm = &fake_nccl;
    return begin(id.internal[127] == 5 ? "init" : "init-with-another-id");
}
int ncclCommFinalize(void *comm);
int ncclCommFinalize(void *comm)
{
    (void)comm;
    return begin("finalize");
}
int ncclCommDestroy(void *comm);
int ncclCommDestroy(void *comm)
{
    (void)comm;
    note("destroy");
    return 0;
}
int ncclCommAbort(void *comm);
int ncclCommAbort(void *comm)
{
    (void)comm;
    note("abort");
    return 0;
}
int ncclCommGetAsyncError(void *comm, int *state);
int ncclCommGetAsyncError(void *comm, int *state)
{
    (void)comm;
    if (!left && fake_nccl.state && fake_nccl.on_error)
        fake_nccl.on_error();
    *state = left ? 7 : fake_nccl.state;
    left -= left > 0;
    return 0;
}
int ncclSend(const void *at, size_t count, int type, int peer, void *comm, void *stream);
int ncclSend(const void *at, size_t count, int type, int peer, void *comm, void *stream)
{
    char words[64];
    (void)comm;
    snprintf(words, sizeof(words), "send(%d,%zu,%d)%s", peer, count, type, at && stream ? "" : "?");
    note(words);
    return 0;
}
int ncclRecv(void *at, size_t count, int type, int peer, void *comm, void *stream);
int ncclRecv(void *at, size_t count, int type, int peer, void *comm, void *stream)
{
    char words[64];
    (void)comm;
    snprintf(words, sizeof(words), "recv(%d,%zu,%d)%s", peer, count, type, at && stream ? "" : "?");
    note(words);
    return 0;
}
int ncclGroupStart(void);
int ncclGroupStart(void)
{
    note("start");
    return 0;
}
int ncclGroupEnd(void);
int ncclGroupEnd(void)
{
    if (fake_nccl.on_group)
        fake_nccl.on_group(fake_nccl.context);
    return fake_nccl.ends ? fake_nccl.ends : begin("end");
}
const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
    return result == 6 ? "remote process exited" : "an error";
}
const char *ncclGetLastError(void *comm);
const char *ncclGetLastError(void *comm)
{
    return comm ? "socket closed" : "";
}
