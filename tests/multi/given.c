#include "given.h"

ceclComm_t given_comm;
enum given_mode given_mode;
static unsigned char *pool;

/* Collective. Under the default policy neither call is small: in a small call peers access slots, not the buffers. */
void given_open(enum given_mode how, size_t bytes)
{
    ceclConfig_t config = multi_config();
    given_mode = how;
    config.registerOnUse = how == ON_USE;
    given_comm = multi_comm(&config);
    pool = multi_alloc(given_comm, bytes);
}

void given_close(void)
{
    multi_ok(NULL, ceclCommDestroy(given_comm));
}

/* ---- one call on `bytes` bytes at `at` */

static const char *name_of(enum given_role role)
{
    return role == RECV ? "recvbuff" : "sendbuff";
}

ceclResult_t given_call(enum given_role role, unsigned char *at, size_t bytes)
{
    const size_t block = bytes / (size_t)multi_nranks;
    return role == RECV ? ceclAllGather(at + (size_t)multi_rank * block, at, block, ceclUint8,
                                        given_comm, NULL)
                        : ceclAlltoAll(at, pool, block, ceclUint8, given_comm, NULL);
}

/* The seed of the block that this rank gives to the all-gather (RECV), or sends to rank `to` (SEND). */
static uint64_t seed_of(enum given_role role, uint64_t seed, int to)
{
    return role == RECV ? seed : seed * (uint64_t)multi_nranks + (uint64_t)to;
}

void given_fill(enum given_role role, unsigned char *at, size_t bytes, uint64_t seed)
{
    const size_t block = bytes / (size_t)multi_nranks;
    multi_guard(given_comm, pool, bytes);
    multi_guard(given_comm, at, bytes);
    for (int to = 0; to < multi_nranks; to++)
        if (role == SEND || to == multi_rank)
            multi_fill_device(given_comm, at + (size_t)to * block, seed_of(role, seed, to),
                              multi_rank, block);
}

void given_check(enum given_role role, const unsigned char *at, size_t bytes, uint64_t seed)
{
    const size_t block = bytes / (size_t)multi_nranks;
    multi_ok(given_comm, ceclStreamSynchronize(given_comm, NULL));
    for (int r = 0; r < multi_nranks; r++)
        multi_check_device(given_comm, (role == RECV ? at : pool) + (size_t)r * block,
                           seed_of(role, seed, multi_rank), r, block, block);
}

void given_refused(enum given_role role, unsigned char *at, size_t bytes, const char *words)
{
    char name[64];
    snprintf(name, sizeof(name), "%s %p: ", name_of(role), (void *)at);
    multi_refused(given_comm, given_call(role, at, bytes), ceclInvalidArgument, name);
    if (!strstr(ceclGetLastError(given_comm), words))
        fail_msg("\"%s\" is not in \"%s\"", words, ceclGetLastError(given_comm));
}
