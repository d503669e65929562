/* --rows: times collectives of strided blocks and of contiguous ones, in turn. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#define REPEATS 20

struct rows {
    unsigned char *send, *recv;
    size_t width, rows;
    bool gathers;
};

/* way 0: contiguous; 1: rows. All-gathers are in place, all-to-alls are not. */
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

static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)((size_t)rank * 37 + at * 7 + (at >> 11));
}

/* Finds where byte `i` of rank `from`'s contribution arrives (*at), and which byte of its sendbuff
 * it is (*source). */
static void trace(const struct run *run, const struct rows *r, int from, size_t i, size_t *at,
                  size_t *source)
{
    const size_t n = (size_t)run->nranks, row = i / r->width, column = i % r->width;
    const size_t pitch = n * r->width;
    *at = r->gathers ? row * pitch + (size_t)from * r->width + column
                     : (size_t)from * r->width * r->rows + i;
    *source = r->gathers ? *at : row * pitch + (size_t)run->rank * r->width + column;
}

static bool check(const struct run *run, struct rows *r)
{
    const size_t block = r->width * r->rows, all = (size_t)run->nranks * block;
    unsigned char *host = malloc(all), *input = r->gathers ? r->recv : r->send;
    long long wrong = host ? 0 : 1;
    if (host) {
        for (size_t b = 0; b < all; b++)
            /* an all-gather overwrites the blocks of other ranks */
            host[b] = byte_of(run->rank, b);
        BENCH_TRY(run, ceclMemcpyAsync(run->comm, input, host, all, run->stream));
        BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
        run->team->barrier();
        if (!call_one(run, r, 1))
            return false;
        BENCH_TRY(run, ceclMemcpyAsync(run->comm, host, r->recv, all, run->stream));
        BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
        for (int from = 0; from < run->nranks; from++)
            for (size_t i = 0; i < block; i++) {
                size_t at, source;
                trace(run, r, from, i, &at, &source);
                wrong += host[at] != byte_of(from, source);
            }
    }
    free(host);
    return wrong == 0 || complain(run, "--rows", "bytes are wrong, or no host memory");
}

static bool measure(const struct run *run, struct rows *r)
{
    double us[2];
    if (!check(run, r) || !turn_medians(run, call_one, r, REPEATS, us))
        return false;
    if (run->rank == 0)
        printf("# %s of %zu bytes a block, %s: %.1f us contiguous, %.1f us in rows of %zu (%.3f of "
               "the rate)\n",
               r->gathers ? "all-gather" : "all-to-all", r->width * r->rows,
               r->gathers ? "in place" : "out of place", us[0], us[1], r->width, us[0] / us[1]);
    return true;
}

bool extra_rows(const struct run *run)
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
        fine = measure(run, &r);
    }
    return fine && ceclMemFree(run->comm, r.send) == ceclSuccess &&
           ceclMemFree(run->comm, r.recv) == ceclSuccess;
}
