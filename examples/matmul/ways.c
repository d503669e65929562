/* The two ways: A is gathered, or C is reduced and scattered. */
#include "matmul.h"

static size_t bytes_of(const struct job *j, int rows, int columns)
{
    return (size_t)rows * (size_t)columns * j->compute.element;
}

/* ---- A is gathered. gather_at_once makes one strided gather for each chunk of all ranks' rows.
 *
 *     calls:    | chunk 0 | chunk 1 | chunk 2 | chunk 3 |
 *     compute:  | own rows | 0      | 1       | 2       | 3 | */

static void gather_in_order(struct job *j)
{
    const size_t count = (size_t)j->rows * (size_t)j->depth;
    const char *own = j->a + bytes_of(j, j->rank * j->rows, j->depth);
    stream_after(j); /* the gather overwrites `a`, which the last product reads */
    check(ceclAllGather(own, j->a, count, j->compute.type, j->comm, j->stream));
    compute_after(j);
    multiply(j, 0, 0, j->nranks * j->rows, 1);
}

static void gather_chunk(struct job *j, int chunk)
{
    const int rows = j->rows / j->chunks;
    const size_t count = (size_t)rows * (size_t)j->depth;
    const ceclStrided_t strided = {.width = count,
                                   .rows = 1,
                                   .recvPitch = count,
                                   .recvStride = (size_t)j->rows * (size_t)j->depth};
    char *first = j->a + bytes_of(j, chunk * rows, j->depth);
    check(ceclAllGatherStrided(first + bytes_of(j, j->rank * j->rows, j->depth), first, &strided,
                               j->compute.type, j->comm, j->stream));
    compute_after(j);
}

static void gather_at_once(struct job *j)
{
    const int rows = j->rows / j->chunks;
    stream_after(j);
    multiply(j, j->rank * j->rows, j->rank * j->rows, j->rows, 1);
    for (int chunk = 0; chunk < j->chunks; chunk++) {
        gather_chunk(j, chunk);
        for (int i = 1; i < j->nranks; i++) {
            const int row = (j->rank + i) % j->nranks * j->rows + chunk * rows;
            multiply(j, row, row, rows, 1);
        }
    }
}

const struct way way_gather = {
    .name = "gather_matmul",
    .order = "first gather, then multiply",
    .gathers = true,
    .in_order = gather_in_order,
    .at_once = gather_at_once,
};

/* ---- C is reduced and scattered. If it is cut in chunks, C is [chunks][nranks][rows / chunks][columns].
 *
 *     compute:  | chunk 0 | chunk 1 | chunk 2 | chunk 3 |
 *     calls:              | 0       | 1       | 2       | 3 | */

static void reduce_rows(struct job *j, int row, int rows)
{
    stream_after(j);
    check(ceclReduceScatter(
        j->c + bytes_of(j, j->nranks * row, j->columns), j->sums + bytes_of(j, row, j->columns),
        (size_t)rows * (size_t)j->columns, j->compute.type, ceclSum, j->comm, j->stream));
}

static void reduce_in_order(struct job *j)
{
    multiply(j, 0, 0, j->nranks * j->rows, 1);
    reduce_rows(j, 0, j->rows);
    compute_after(j); /* the next product overwrites `c`, which the reduction reads */
}

static void reduce_at_once(struct job *j)
{
    const int rows = j->rows / j->chunks;
    for (int chunk = 0; chunk < j->chunks; chunk++) {
        multiply(j, chunk * rows, j->nranks * chunk * rows, rows, j->nranks);
        reduce_rows(j, chunk * rows, rows);
    }
    compute_after(j);
}

const struct way way_reduce = {.name = "matmul_reduce_scatter",
                               .order = "first multiply, then reduce",
                               .in_order = reduce_in_order,
                               .at_once = reduce_at_once};
