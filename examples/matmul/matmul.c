/* Multiplies matrices while cecl moves their chunks.
 *
 *     mpirun -n 4 example_matmul [--way gather_matmul|matmul_reduce_scatter] [--rows N] [--depth N]
 *         [--columns N] [--chunks N] [--steps N]
 *
 * Each rank also computes its result alone, from whole matrices. The exit code is 3 if a number differs. */
#include "matmul.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../bfloat16.h"
#include "../sort.h"
#include "model.h"

static void end_with(int code, const char *message)
{
    fprintf(stderr, "%s\n", message);
    MPI_Abort(MPI_COMM_WORLD, code);
}

/* ---- the device */

void compute_after(struct job *j)
{
    struct compute *c = &j->compute;
    if (!c->mark) { /* the host computes synchronously */
        check(ceclStreamSynchronize(j->comm, j->stream));
        return;
    }
    c->mark(c, j->stream, 0);
    c->compute_after_mark(c, 0);
}

void stream_after(struct job *j)
{
    if (j->compute.stream_after_compute)
        j->compute.stream_after_compute(&j->compute, j->stream);
}

void multiply(struct job *j, int from, int to, int rows, int blocks)
{
    const size_t e = j->compute.element;
    const struct matmul m = {.m = rows,
                             .n = j->columns,
                             .k = j->depth,
                             .a = j->a + (size_t)from * (size_t)j->depth * e,
                             .b = j->b,
                             .c = j->c + (size_t)to * (size_t)j->columns * e,
                             .lda = j->depth,
                             .ldb = j->columns,
                             .ldc = j->columns,
                             .stride_a = (long long)j->rows * j->depth,
                             .stride_c = (long long)rows * j->columns,
                             .batch = blocks,
                             .alpha = 1};
    j->compute.matmul(&j->compute, &m);
}

static void wait_compute(struct job *j)
{
    if (!j->compute.wait(&j->compute))
        end_with(1, "computing failed");
}

static char *allocate(struct job *j, int rows, int columns)
{
    void *memory = NULL;
    check(ceclMemAlloc(j->comm, &memory, (size_t)rows * (size_t)columns * j->compute.element));
    return memory;
}

/* ---- the numbers. In each row of A at most about 128 numbers are 1 or -1, all others 0. All numbers of B are 1 or -1.
 * So each sum is an integer between -256 and 256: bfloat16 holds it exactly, whatever the order of addition. */

enum { ENTRIES = 128 };
typedef float number(const struct job *j, int row, int column);

static uint64_t draw(uint64_t matrix, int row, int column)
{
    return scramble(scramble((matrix << 32) + (uint64_t)row) + (uint64_t)column);
}

static float number_a(const struct job *j, int row, int column)
{
    const uint64_t bits = draw(1, row, column), whole_depth = (uint64_t)(j->depth * j->nranks);
    return (bits >> 1) % whole_depth >= ENTRIES ? 0 : bits & 1 ? 1 : -1;
}

static float number_b(const struct job *j, int row, int column)
{
    (void)j;
    return draw(2, row, column) & 1 ? 1 : -1;
}

static float no_number(const struct job *j, int row, int column)
{
    (void)j;
    (void)row;
    (void)column;
    return NAN;
}

/* Writes to `out` the numbers n(row, column) of a part of a matrix that begins at `row` and `column`. */
static void fill(struct job *j, char *out, number *n, int row, int rows, int column, int columns)
{
    const bool narrows = j->compute.element == sizeof(uint16_t);
    const size_t bytes = (size_t)columns * j->compute.element;
    void *line = malloc(bytes);
    if (!line)
        end_with(1, "no memory");
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < columns; i++)
            if (narrows)
                ((uint16_t *)line)[i] = narrow(n(j, row + r, column + i));
            else
                ((float *)line)[i] = n(j, row + r, column + i);
        j->compute.copy(&j->compute, out + (size_t)r * bytes, line, bytes);
        wait_compute(j);
    }
    free(line);
}

static float number_at(const struct job *j, const void *line, int i)
{
    return j->compute.element == sizeof(uint16_t) ? widen(((const uint16_t *)line)[i])
                                                  : ((const float *)line)[i];
}

static long count_wrong(struct job *j, const char *got, const char *want, int rows)
{
    const size_t bytes = (size_t)j->columns * j->compute.element;
    char *lines = malloc(2 * bytes);
    long wrong = 0;
    if (!lines)
        end_with(1, "no memory");
    for (int r = 0; r < rows; r++) {
        j->compute.copy(&j->compute, lines, got + (size_t)r * bytes, bytes);
        j->compute.copy(&j->compute, lines + bytes, want + (size_t)r * bytes, bytes);
        wait_compute(j);
        for (int i = 0; i < j->columns; i++) /* NaN is unequal to every number */
            wrong += number_at(j, lines, i) != number_at(j, lines + bytes, i);
    }
    free(lines);
    return wrong;
}

/* ---- the check */

static void make_numbers(struct job *j, const struct way *way)
{
    const int rank = j->rank, all = j->nranks * j->rows;
    j->a = allocate(j, all, j->depth);
    j->b = allocate(j, j->depth, j->columns);
    j->c = allocate(j, all, j->columns);
    j->sums = way->gathers ? NULL : allocate(j, j->rows, j->columns);
    fill(j, j->a, number_a, 0, all, way->gathers ? 0 : rank * j->depth, j->depth);
    fill(j, j->b, number_b, way->gathers ? 0 : rank * j->depth, j->depth,
         way->gathers ? rank * j->columns : 0, j->columns);
}

/* Computes this rank's result without communication, from whole matrices. */
static char *compute_alone(struct job *j, const struct way *way)
{
    struct job alone = *j;
    if (!way->gathers) {
        const int depth = j->nranks * j->depth;
        alone.a = allocate(j, j->rows, depth);
        alone.b = allocate(j, depth, j->columns);
        fill(j, alone.a, number_a, j->rank * j->rows, j->rows, 0, depth);
        fill(j, alone.b, number_b, 0, depth, 0, j->columns);
        alone.depth = depth;
    }
    const int rows = way->gathers ? j->nranks * j->rows : j->rows;
    alone.c = allocate(j, rows, j->columns);
    multiply(&alone, 0, 0, rows, 1);
    return alone.c;
}

/* Makes one step, and counts the wrong numbers in its result. Before that sets all results to NaN, and also
 * peers' blocks of A if the step gathers these. */
static long check_step(struct job *j, const struct way *way, void (*step)(struct job *),
                       const char *want)
{
    const int all = j->nranks * j->rows, own = j->rank * j->rows;
    const size_t a_row = (size_t)j->depth * j->compute.element;
    if (way->gathers) {
        fill(j, j->a, no_number, 0, own, 0, j->depth);
        fill(j, j->a + (size_t)(own + j->rows) * a_row, no_number, 0, all - own - j->rows, 0,
             j->depth);
    } else {
        fill(j, j->sums, no_number, 0, j->rows, 0, j->columns);
    }
    fill(j, j->c, no_number, 0, all, 0, j->columns);
    wait_compute(j);
    MPI_Barrier(MPI_COMM_WORLD);
    step(j);
    wait_compute(j);
    return count_wrong(j, way->gathers ? j->c : j->sums, want, way->gathers ? all : j->rows);
}

/* ---- times */

static void multiply_alone(struct job *j)
{
    multiply(j, 0, 0, j->nranks * j->rows, 1);
}

/* Prints the median ms of the slowest rank for each order. The orders take turns; the first round warms up. */
static void print_times(struct job *j, const struct way *way, int steps)
{
    void (*const orders[])(struct job *) = {way->in_order, way->at_once, multiply_alone};
    enum { ORDERS = sizeof(orders) / sizeof(orders[0]) };
    double *ms = calloc((size_t)(steps * ORDERS), sizeof(*ms));
    for (int i = -ORDERS; i < steps * ORDERS && ms; i++) {
        const int order = (i + ORDERS) % ORDERS;
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        orders[order](j);
        wait_compute(j);
        const double mine = (MPI_Wtime() - start) * 1e3;
        if (i >= 0)
            MPI_Allreduce(&mine, &ms[order * steps + i / ORDERS], 1, MPI_DOUBLE, MPI_MAX,
                          MPI_COMM_WORLD);
    }
    for (int order = 0; order < ORDERS && ms; order++)
        sort_numbers(ms + order * steps, (size_t)steps);
    if (j->rank == 0 && ms) {
        printf("  %-32s %10s\n", "order", "ms");
        printf("  %-32s %10.3f\n", way->order, ms[steps / 2]);
        printf("  at once, in %2d chunks %21.3f\n", j->chunks, ms[steps + steps / 2]);
        printf("  %-32s %10.3f\n", "multiply alone", ms[2 * steps + steps / 2]);
        printf("Medians of %d. Times mean something only where each rank has a GPU of its own.\n",
               steps);
    }
    free(ms);
}

/* ---- the program */

static const struct way *read_options(int argc, char **argv, struct job *j, int *steps)
{
    const struct way *ways[] = {&way_gather, &way_reduce}, *way = ways[0];
    const struct {
        const char *name;
        int *value;
    } numbers[] = {{"--rows", &j->rows},
                   {"--depth", &j->depth},
                   {"--columns", &j->columns},
                   {"--chunks", &j->chunks},
                   {"--steps", steps}};
    bool fine = argc % 2 == 1;
    for (int i = 1; i + 1 < argc && fine; i += 2) {
        fine = false;
        for (int w = 0; w < 2 && strcmp(argv[i], "--way") == 0; w++)
            if (strcmp(argv[i + 1], ways[w]->name) == 0) {
                way = ways[w];
                fine = true;
            }
        for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
            if (strcmp(argv[i], numbers[n].name) == 0) {
                *numbers[n].value = atoi(argv[i + 1]);
                fine = *numbers[n].value > 0 && *numbers[n].value <= 65536;
            }
    }
    if (!fine)
        end_with(2, "usage: example_matmul [--way gather_matmul|matmul_reduce_scatter] [--rows N] "
                    "[--depth N] [--columns N] [--chunks N] [--steps N]\n"
                    "Rows are a rank's, and a multiple of chunks.");
    return way;
}

static void open_job(struct job *j)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    int device = -1;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    check(ceclCommInitMpi(&j->comm, MPI_COMM_WORLD, &config));
    check(ceclCommUserRank(j->comm, &j->rank));
    check(ceclCommCount(j->comm, &j->nranks));
    check(ceclCommCuDevice(j->comm, &device));
    check(ceclStreamCreate(j->comm, &j->stream));
    const struct compute *gpu = device >= 0 ? compute_cuda() : NULL;
    if (device >= 0 && !gpu)
        end_with(1, "built without CUDA: CECL_DEVICE=host expected");
    j->compute = gpu ? *gpu : compute_host;
    if (!j->compute.open(&j->compute, device, 1, 1))
        end_with(1, "the device does not open");
    if (j->rows == 0)
        j->rows = gpu ? 4096 : 48;
    if (j->depth == 0)
        j->depth = gpu ? 8192 : 80;
    if (j->columns == 0)
        j->columns = gpu ? 8192 : 64;
    if (j->chunks > 64 || j->rows % j->chunks != 0)
        end_with(2, "--chunks: up to 64, and a divisor of --rows, expected");
}

int main(int argc, char **argv)
{
    struct job j = {.chunks = 4};
    int steps = 20;
    MPI_Init(&argc, &argv);
    const struct way *way = read_options(argc, argv, &j, &steps);
    open_job(&j);
    make_numbers(&j, way);
    const char *want = compute_alone(&j, way);
    const long in_order = check_step(&j, way, way->in_order, want),
               at_once = check_step(&j, way, way->at_once, want);
    printf("rank %d of %d, %s: of [%d][%d] x [%d][%d] %ld numbers wrong in order, %ld at once\n",
           j.rank, j.nranks, way->name, j.nranks * j.rows, j.depth, j.depth, j.columns, in_order,
           at_once);
    print_times(&j, way, steps);
    j.compute.close(&j.compute);
    check(ceclStreamDestroy(j.comm, j.stream));
    check(ceclCommDestroy(j.comm));
    MPI_Finalize();
    return in_order + at_once ? 3 : 0;
}
