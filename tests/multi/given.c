/* Calls on memory that a test provides; see given.h. */
#include "given.h"

#define POISON 0x77

ceclComm_t given_comm;
enum given_mode given_mode;
static unsigned char *pool, *host;

/* Collective. No call may be small by the default policy: small calls use slots, so peers would
 * not access the buffers. */
void given_open(enum given_mode how, size_t bytes)
{
    ceclConfig_t config = multi_config();
    given_mode = how;
    config.registerOnUse = how == ON_USE;
    given_comm = multi_comm(&config);
    host = malloc(bytes);
    assert_non_null(host);
    pool = multi_alloc(given_comm, bytes);
}

void given_close(void)
{
    multi_ok(NULL, ceclCommDestroy(given_comm));
    free(host);
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

void given_fill(enum given_role role, unsigned char *at, size_t bytes, uint64_t seed)
{
    const size_t block = bytes / (size_t)multi_nranks, mine = (size_t)multi_rank * block;
    memset(host, POISON, bytes);
    multi_put(given_comm, pool, host, bytes);
    if (role == RECV)
        model_fill(host + mine, seed, multi_rank, block);
    else
        model_fill(host, seed, multi_rank, bytes);
    multi_put(given_comm, at, host, bytes);
}

void given_check(enum given_role role, const unsigned char *at, size_t bytes, uint64_t seed)
{
    const size_t block = bytes / (size_t)multi_nranks, mine = (size_t)multi_rank * block;
    multi_ok(given_comm, ceclStreamSynchronize(given_comm, NULL));
    multi_get(given_comm, host, role == RECV ? at : pool, bytes);
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < block; i++)
            if (host[(size_t)r * block + i] != model_byte(seed, r, role == RECV ? i : mine + i))
                fail_msg("rank %d: mode %d, %s: byte %zu of rank %d is %#x", multi_rank,
                         (int)given_mode, name_of(role), i, r, host[(size_t)r * block + i]);
}

void given_refused(enum given_role role, unsigned char *at, size_t bytes, const char *words)
{
    char name[64];
    snprintf(name, sizeof(name), "%s %p: ", name_of(role), (void *)at);
    multi_refused(given_comm, given_call(role, at, bytes), ceclInvalidArgument, name);
    if (!strstr(ceclGetLastError(given_comm), words))
        fail_msg("\"%s\" is not in \"%s\"", words, ceclGetLastError(given_comm));
}
