/* The two ways: A is gathered, or C is reduced and scattered. */
#include "matmul.h"

enum { MOST_CHUNKS = 64 };

static size_t bytes_of(const struct job *j, int rows, int columns)
{
    return (size_t)rows * (size_t)columns * j->compute.element;
}

/* ---- A is gathered
 *
 *     calls:    | chunk 0 | chunk 1 | chunk 2 | chunk 3 |
 *     compute:  | own rows | 0      | 1       | 2       | 3 | */

static ceclRequest_t gather, gather_in_chunks;

static void gather_open(struct job *j)
{
    const size_t count = (size_t)j->rows * (size_t)j->depth;
    const char *own = j->a + bytes_of(j, j->rank * j->rows, j->depth);
    check(ceclAllGatherInit(own, j->a, count, j->compute.type, j->comm, &gather));
    check(ceclAllGatherChunksInit(own, j->a, count, j->chunks, j->compute.type, j->comm,
                                  &gather_in_chunks));
}

static void gather_in_order(struct job *j)
{
    stream_after(j, CALLS); /* the last product has read `a` */
    check(ceclStart(gather, j->streams[CALLS]));
    compute_after(j, CALLS);
    multiply(j, 0, 0, j->nranks * j->rows, 1);
}

static void gather_at_once(struct job *j)
{
    const int rows = j->rows / j->chunks;
    stream_after(j, CALLS);
    check(ceclStart(gather_in_chunks, j->streams[CALLS]));
    multiply(j, j->rank * j->rows, j->rank * j->rows, j->rows, 1);
    for (int chunk = 0; chunk < j->chunks; chunk++)
        for (int i = 1; i < j->nranks; i++) {
            const int peer = (j->rank + i) % j->nranks;
            const int row = peer * j->rows + chunk * rows;
            check(ceclWaitChunk(gather_in_chunks, peer, chunk, j->streams[ARRIVED]));
            compute_after(j, ARRIVED);
            multiply(j, row, row, rows, 1);
        }
    compute_after(j, CALLS); /* all chunks are here; this rank's own may still be on its way */
}

static void gather_close(void)
{
    check(ceclRequestFree(gather));
    check(ceclRequestFree(gather_in_chunks));
}

const struct way way_gather = {.name = "gather_matmul",
                               .order = "first gather, then multiply",
                               .gathers = true,
                               .open = gather_open,
                               .in_order = gather_in_order,
                               .at_once = gather_at_once,
                               .close = gather_close};

/* ---- C is reduced and scattered. In chunks C lies so: [chunks][nranks][rows / chunks][columns].
 *
 *     compute:  | chunk 0 | chunk 1 | chunk 2 | chunk 3 |
 *     calls:              | 0       | 1       | 2       | 3 | */

static ceclRequest_t reduce, reduce_chunk[MOST_CHUNKS];

static void reduce_init(struct job *j, int row, int rows, ceclRequest_t *request)
{
    check(ceclReduceScatterInit(
        j->c + bytes_of(j, j->nranks * row, j->columns), j->sums + bytes_of(j, row, j->columns),
        (size_t)rows * (size_t)j->columns, j->compute.type, ceclSum, j->comm, request));
}

static void reduce_open(struct job *j)
{
    const int rows = j->rows / j->chunks;
    reduce_init(j, 0, j->rows, &reduce);
    for (int chunk = 0; chunk < j->chunks; chunk++)
        reduce_init(j, chunk * rows, rows, &reduce_chunk[chunk]);
}

static void reduce_in_order(struct job *j)
{
    multiply(j, 0, 0, j->nranks * j->rows, 1);
    stream_after(j, CALLS);
    check(ceclStart(reduce, j->streams[CALLS]));
    compute_after(j, CALLS); /* the next product writes `c` */
}

static void reduce_at_once(struct job *j)
{
    const int rows = j->rows / j->chunks;
    for (int chunk = 0; chunk < j->chunks; chunk++) {
        multiply(j, chunk * rows, j->nranks * chunk * rows, rows, j->nranks);
        stream_after(j, CALLS);
        check(ceclStart(reduce_chunk[chunk], j->streams[CALLS]));
    }
    compute_after(j, CALLS);
}

static void reduce_close(void)
{
    check(ceclRequestFree(reduce));
    for (int chunk = 0; chunk < MOST_CHUNKS && reduce_chunk[chunk]; chunk++)
        check(ceclRequestFree(reduce_chunk[chunk]));
}

const struct way way_reduce = {.name = "matmul_reduce_scatter",
                               .order = "first multiply, then reduce",
                               .open = reduce_open,
                               .in_order = reduce_in_order,
                               .at_once = reduce_at_once,
                               .close = reduce_close};
