/* --rows: times collectives of strided blocks and of contiguous ones, in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define REPEATS 20

struct rows {
    unsigned char *send, *recv;
    size_t width, rows;
    bool gathers;
};

/* Makes one call. `way`: 0 contiguous, 1 rows. All-gathers are in place, all-to-alls are not. */
static bool call_one(const struct run *run, void *context, int way)
{
    const struct rows *r = context;
    const size_t block = r->width * r->rows, me = (size_t)run->rank;
    const ceclStrided_t strided = {
        .width = r->width, .rows = r->rows, .sendPitch = (size_t)run->nranks * r->width};
    if (way == 0 && r->gathers)
        BENCH_TRY(run, ceclAllGather(r->recv + me * block, r->recv, block, ceclUint8, run->comm,
                                     run->stream));
    else if (way == 0)
        BENCH_TRY(run, ceclAlltoAll(r->send, r->recv, block, ceclUint8, run->comm, run->stream));
    else if (r->gathers)
        BENCH_TRY(run, ceclAllGatherStrided(r->recv + me * r->width, r->recv, &strided, ceclUint8,
                                            run->comm, run->stream));
    else
        BENCH_TRY(run, ceclAlltoAllStrided(r->send, r->recv, &strided, ceclUint8, run->comm,
                                           run->stream));
    return true;
}

/* Byte `at` of rank `rank`'s input. All rows differ, so a row in the place of another one shows. */
static unsigned char byte_of(int rank, size_t at)
{
    uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)rank << 32;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (unsigned char)(x >> 56);
}

/* Where byte `i` of rank `from`'s contribution arrives (*at), and which byte of its sendbuff it is (*source). */
static void trace(const struct run *run, const struct rows *r, int from, size_t i, size_t *at,
                  size_t *source)
{
    const size_t n = (size_t)run->nranks, row = i / r->width, column = i % r->width;
    const size_t pitch = n * r->width;
    *at = r->gathers ? row * pitch + (size_t)from * r->width + column
                     : (size_t)from * r->width * r->rows + i;
    *source = r->gathers ? *at : row * pitch + (size_t)run->rank * r->width + column;
}

static bool move(const struct run *run, void *dst, const void *src, size_t bytes)
{
    BENCH_TRY(run, ceclMemcpyAsync(run->comm, dst, src, bytes, run->stream));
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    return true;
}

/* Fills both buffers: recvbuff still has the result of earlier calls, and an all-gather has overwritten the other
 * ranks' blocks in its input. */
static bool prepare(const struct run *run, const struct rows *r, unsigned char *host, size_t all)
{
    memset(host, 0xA5, all);
    if (!move(run, r->recv, host, all))
        return false;
    for (size_t b = 0; b < all; b++)
        host[b] = byte_of(run->rank, b);
    return move(run, r->gathers ? r->recv : r->send, host, all);
}

/* Adds this rank's wrong bytes to *wrong. */
static bool check_in(const struct run *run, struct rows *r, unsigned char *host, long long *wrong)
{
    const size_t block = r->width * r->rows, all = (size_t)run->nranks * block;
    if (!prepare(run, r, host, all))
        return false;
    run->team->barrier();
    if (run->options.corrupt != CORRUPT_SKIP && !call_one(run, r, 1))
        return false;
    if (!move(run, host, r->recv, all))
        return false;
    host[all / 2] ^= run->options.corrupt == CORRUPT_BYTE && run->rank == 0;
    for (int from = 0; from < run->nranks; from++)
        for (size_t i = 0; i < block; i++) {
            size_t at, source;
            trace(run, r, from, i, &at, &source);
            *wrong += host[at] != byte_of(from, source);
        }
    return true;
}

/* Adds the wrong bytes of all ranks to *wrong. */
static bool check(const struct run *run, struct rows *r, long long *wrong)
{
    unsigned char *host = malloc((size_t)run->nranks * r->width * r->rows);
    long long found = 0;
    const bool fine =
        host ? check_in(run, r, host, &found) : complain(run, "--rows", "no host memory");
    free(host);
    if (!fine)
        return false;
    run->team->sum(&found);
    if (found > 0 && run->rank == 0)
        printf("# --rows, %s: %lld wrong bytes\n", r->gathers ? "all-gather" : "all-to-all", found);
    *wrong += found;
    return true;
}

static bool measure(const struct run *run, struct rows *r, long long *wrong)
{
    double us[2];
    if (!check(run, r, wrong) || !turn_medians(run, call_one, r, REPEATS, us))
        return false;
    if (run->rank == 0)
        printf("# %s of %zu bytes a block, %s: %.1f us contiguous, %.1f us in rows of %zu (%.3f of "
               "the rate)\n",
               r->gathers ? "all-gather" : "all-to-all", r->width * r->rows,
               r->gathers ? "in place" : "out of place", us[0], us[1], r->width, us[0] / us[1]);
    return true;
}

bool extra_rows(const struct run *run, long long *wrong)
{
    const size_t block = block_of(&run->options, run->nranks, run->options.last);
    struct rows r = {.width = run->options.row_bytes, .rows = block / run->options.row_bytes};
    const size_t all = (size_t)run->nranks * r.width * r.rows;
    if (r.rows == 0)
        return complain(run, "--rows", "more bytes than a block has");
    BENCH_TRY(run, ceclMemAlloc(run->comm, (void **)&r.recv, all));
    BENCH_TRY(run, ceclMemAlloc(run->comm, (void **)&r.send, all));
    bool fine = true;
    for (int gathers = 1; gathers >= 0 && fine; gathers--) {
        r.gathers = gathers;
        fine = measure(run, &r, wrong);
    }
    return fine && ceclMemFree(run->comm, r.send) == ceclSuccess &&
           ceclMemFree(run->comm, r.recv) == ceclSuccess;
}
