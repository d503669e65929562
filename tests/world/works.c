#include "works.h"
#include "../try.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT 4000 /* too large for a small call */
#define FEW 1000   /* ints of which a small call finds the largest */
#define BLOCK (COUNT * sizeof(int))

struct buffers {
    int *in, *gathered, *sum; /* memory of the communicator */
    int *host;                /* gets a copy of each result */
};

static int value(int member, int i)
{
    return member * 1000003 + i * 7 + 3;
}

static ceclResult_t allocate(ceclComm_t comm, int count, struct buffers *b)
{
    TRY(ceclMemAlloc(comm, (void **)&b->in, BLOCK));
    TRY(ceclMemAlloc(comm, (void **)&b->gathered, (size_t)count * BLOCK));
    return ceclMemAlloc(comm, (void **)&b->sum, BLOCK);
}

static ceclResult_t call(ceclComm_t comm, int count, const struct buffers *b)
{
    const size_t all = (size_t)count * COUNT;
    ceclResult_t async = ceclSuccess;
    TRY(ceclMemcpyAsync(comm, b->in, b->host, BLOCK, 0));
    TRY(ceclAllGather(b->in, b->gathered, COUNT, ceclInt32, comm, 0));
    TRY(ceclAllReduce(b->in, b->sum, COUNT, ceclInt32, ceclSum, comm, 0));
    TRY(ceclAllReduce(b->in, b->sum, FEW, ceclInt32, ceclMax, comm, 0));
    TRY(ceclMemcpyAsync(comm, b->host, b->gathered, all * sizeof(int), 0));
    TRY(ceclMemcpyAsync(comm, b->host + all, b->sum, BLOCK, 0));
    TRY(ceclStreamSynchronize(comm, 0));
    TRY(ceclCommGetAsyncError(comm, &async));
    return async;
}

static void check(const int *members, int count, const int *host, char *wrong, size_t bytes)
{
    for (int i = 0; i < COUNT; i++) {
        int sum = 0;
        for (int r = 0; r < count; r++) {
            const int got = host[r * COUNT + i], want = value(members ? members[r] : r, i);
            sum = i >= FEW ? sum + want : want > sum ? want : sum;
            if (got != want)
                snprintf(wrong, bytes, "int %d of rank %d is %#x, not %#x", i, r, (unsigned)got,
                         (unsigned)want);
        }
        if (host[count * COUNT + i] != sum)
            snprintf(wrong, bytes, "sum %d is %#x, not %#x", i, (unsigned)host[count * COUNT + i],
                     (unsigned)sum);
    }
}

ceclResult_t comm_works(ceclComm_t comm, const int *members, int count, char *wrong, size_t bytes)
{
    int rank = 0, n = 0;
    struct buffers b = {.host = malloc((size_t)(count + 1) * BLOCK)};
    wrong[0] = '\0';
    ceclResult_t result = b.host ? ceclCommUserRank(comm, &rank) : ceclSystemError;
    if (result == ceclSuccess)
        result = ceclCommCount(comm, &n);
    if (result == ceclSuccess && n != count)
        snprintf(wrong, bytes, "%d ranks, not %d", n, count);
    if (result == ceclSuccess && n == count) {
        for (int i = 0; i < COUNT; i++)
            b.host[i] = value(members ? members[rank] : rank, i);
        result = allocate(comm, count, &b);
        result = result == ceclSuccess ? call(comm, count, &b) : result;
        if (result == ceclSuccess)
            check(members, count, b.host, wrong, bytes);
    }
    free(b.host);
    return result;
}
