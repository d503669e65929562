/* ceclReduceScatterTiles: random tiles against plain loops, in the pool and in private memory;
 * all types and reductions; groups; the documented behaviour of PyTorch's multi_root_tile_reduce and reduce_scatter_offset; graphs;
 * refusals. */
#include "multi.h"

#include "../reduce_inputs.h"

#define RANKS 16
#define TILES 3     /* most rows for a rank */
#define MATRIX 4000 /* most elements of a rank's matrix */
#define POISON (-7)

static ceclComm_t comm;
static int32_t *matrix, *result, *private_matrix;
static int32_t host[MATRIX], inputs[RANKS][MATRIX];

static void open_with(const char *staging)
{
    multi_setenv("CECL_STAGING_BYTES", staging);
    comm = multi_comm(NULL);
    multi_setenv("CECL_STAGING_BYTES", NULL);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&matrix, sizeof(host)));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&result, sizeof(host)));
    private_matrix = malloc(sizeof(host));
    assert_non_null(private_matrix);
}

static int set_up(void **state)
{
    open_with(NULL);
    return 0;
}

static int set_up_with_small_staging(void **state)
{
    open_with("4K");
    return 0;
}

static int tear_down(void **state)
{
    free(private_matrix);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

/* Tiles of all ranks; the places where tiles begin may differ between ranks. */
struct tiled {
    ceclTiles_t shape;
    size_t begins[RANKS][RANKS * TILES];
};

static ceclTiles_t tiles_of(const struct tiled *t, int rank)
{
    ceclTiles_t tiles = t->shape;
    tiles.begins = t->begins[rank];
    return tiles;
}

/* All ranks draw the same. */
static void draw(uint64_t *x, struct tiled *t)
{
    ceclTiles_t *s = &t->shape;
    *s = (ceclTiles_t){.count = 1 + multi_draw(x) % TILES,
                       .width = 1 + multi_draw(x) % 40,
                       .rows = 1 + multi_draw(x) % 12};
    s->pitch = s->width + multi_draw(x) % 50;
    const size_t extent = (s->rows - 1) * s->pitch + s->width;
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < (size_t)multi_nranks * s->count; i++)
            t->begins[r][i] = multi_draw(x) % (MATRIX - extent);
}

static void fill(uint64_t seed, bool in_pool)
{
    uint64_t x = seed;
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < MATRIX; i++)
            inputs[r][i] = (int32_t)multi_draw(&x);
    memcpy(private_matrix, inputs[multi_rank], sizeof(host));
    if (in_pool)
        multi_put(comm, matrix, inputs[multi_rank], sizeof(host));
    for (size_t i = 0; i < MATRIX; i++)
        host[i] = POISON;
    multi_put(comm, result, host, sizeof(host));
}

static void check(const struct tiled *t)
{
    const ceclTiles_t *s = &t->shape;
    size_t at = 0;
    multi_get(comm, host, result, sizeof(host));
    for (size_t tile = 0; tile < s->count; tile++)
        for (size_t row = 0; row < s->rows; row++)
            for (size_t column = 0; column < s->width; column++, at++) {
                uint32_t sum = 0;
                for (int r = 0; r < multi_nranks; r++)
                    sum += (uint32_t)inputs[r][t->begins[r][(size_t)multi_rank * s->count + tile] +
                                               row * s->pitch + column];
                if ((uint32_t)host[at] != sum)
                    fail_msg("rank %d: tile %zu, row %zu, column %zu is wrong", multi_rank, tile,
                             row, column);
            }
    for (; at < MATRIX; at++)
        if (host[at] != POISON)
            fail_msg("rank %d: element %zu behind the tiles was written", multi_rank, at);
    MPI_Barrier(MPI_COMM_WORLD);
}

static ceclResult_t call(const struct tiled *t, const int32_t *send, ceclStream_t stream)
{
    const ceclTiles_t tiles = tiles_of(t, multi_rank);
    return ceclReduceScatterTiles(send, result, &tiles, ceclInt32, ceclSum, comm, stream);
}

static void random_tiles(int rounds)
{
    uint64_t x = 11;
    for (int round = 0; round < rounds; round++) {
        /* malloc's memory is private on the host device, and no GPU memory on GPUs */
        const bool in_pool = round % 3 || multi_on_gpus(comm);
        struct tiled t;
        draw(&x, &t);
        fill((uint64_t)round, in_pool);
        multi_ok(comm, call(&t, in_pool ? matrix : private_matrix, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        check(&t);
    }
}

TEST_BETWEEN(random_tiles_are_reduced, set_up, tear_down)
{
    random_tiles(multi_share(120));
}

/* "Reduce the quadrants of a tensor, each to a different root": here, tiles of 3 rows, in two
 * columns. */
TEST_BETWEEN(tiles_of_a_matrix_go_to_different_roots, set_up, tear_down)
{
    struct tiled t = {.shape = {.count = 1, .width = 10, .rows = 3, .pitch = 20}};
    for (int r = 0; r < multi_nranks; r++)
        for (size_t to = 0; to < (size_t)multi_nranks; to++)
            t.begins[r][to] = to / 2 * 3 * 20 + to % 2 * 10;
    fill(1, true);
    multi_ok(comm, call(&t, matrix, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    check(&t);
}

/* reduce_scatter_offset along dim 1: two column blocks for each rank, in turn. The default is one
 * block for each rank, side by side. */
TEST_BETWEEN(columns_go_to_ranks_in_turn, set_up, tear_down)
{
    const size_t n = (size_t)multi_nranks, width = 7;
    struct tiled t = {.shape = {.count = 2, .width = width, .rows = 5, .pitch = 2 * n * width}};
    ceclTiles_t beside = {.count = 1, .width = width, .rows = 5};
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < 2 * n; i++)
            t.begins[r][i] = (i % 2 * n + i / 2) * width;
    fill(2, true);
    multi_ok(comm, call(&t, matrix, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    check(&t);
    fill(3, true);
    multi_ok(comm, ceclReduceScatterTiles(matrix, result, &beside, ceclInt32, ceclSum, comm, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    t.shape = (ceclTiles_t){.count = 1, .width = width, .rows = 5, .pitch = n * width};
    for (size_t r = 0; r < n; r++)
        for (size_t to = 0; to < n; to++)
            t.begins[r][to] = to * width;
    check(&t);
}

#define WIDTH 12
#define ROWS 3
#define BLOCK (WIDTH * ROWS)
#define ELEMENT_MAX 8

/* Sums of floating-point numbers depend on the order of ranks, but not on the call. All types
 * and reductions, each beside the reduce-scatter of the same blocks in one group. */
TEST_BETWEEN(tiles_have_the_bits_of_a_reduce_scatter, set_up, tear_down)
{
    const size_t n = (size_t)multi_nranks;
    unsigned char tiles[RANKS * BLOCK * ELEMENT_MAX], blocks[RANKS * BLOCK * ELEMENT_MAX];
    unsigned char got[BLOCK * ELEMENT_MAX], want[BLOCK * ELEMENT_MAX];
    const ceclTiles_t beside = {.count = 1, .width = WIDTH, .rows = ROWS};
    void *dense, *other;
    multi_ok(comm, ceclMemAlloc(comm, &dense, sizeof(blocks)));
    multi_ok(comm, ceclMemAlloc(comm, &other, sizeof(want)));
    for (int kind = 0; kind < CECL_NUM_TYPES * CECL_NUM_RED_OPS; kind++) {
        const ceclDataType_t type = (ceclDataType_t)(kind / CECL_NUM_RED_OPS);
        const ceclRedOp_t op = (ceclRedOp_t)(kind % CECL_NUM_RED_OPS);
        const size_t size = multi_type_bytes(type), row = WIDTH * size;
        if (op == ceclAvg && formats[type].fraction == 0)
            continue;
        multi_fill(tiles, (uint64_t)kind, multi_rank, n * BLOCK * size);
        for (size_t i = 0; i < n * ROWS; i++) /* row i % ROWS of block i / ROWS */
            memcpy(blocks + i * row, tiles + (i % ROWS * n + i / ROWS) * row, row);
        multi_put(comm, matrix, tiles, n * BLOCK * size);
        multi_put(comm, dense, blocks, n * BLOCK * size);
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, ceclReduceScatterTiles(matrix, result, &beside, type, op, comm, NULL));
        multi_ok(comm, ceclReduceScatter(dense, other, BLOCK, type, op, comm, NULL));
        multi_ok(comm, ceclGroupEnd());
        multi_get(comm, got, result, BLOCK * size);
        multi_get(comm, want, other, BLOCK * size);
        if (memcmp(got, want, BLOCK * size) != 0)
            fail_msg("rank %d: type %d, op %d: the results differ", multi_rank, (int)type, (int)op);
    }
    multi_ok(comm, ceclMemFree(comm, other));
    multi_ok(comm, ceclMemFree(comm, dense));
}

TEST_BETWEEN(graphs_have_tiles, set_up, tear_down)
{
    uint64_t x = 12;
    struct tiled t;
    ceclStream_t stream;
    ceclGraph_t graph;
    draw(&x, &t);
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_ok(comm, call(&t, matrix, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    for (uint64_t seed = 0; seed < 8; seed++) {
        fill(seed, true);
        MPI_Barrier(MPI_COMM_WORLD);
        multi_ok(comm, ceclGraphLaunch(graph, stream));
        multi_ok(comm, ceclStreamSynchronize(comm, stream));
        check(&t);
    }
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, stream));
}

TEST_BETWEEN(bad_tiles_are_named, set_up, tear_down)
{
    const size_t far[RANKS] = {SIZE_MAX / 8};
#define REFUSED(result_, words, ...)                                                               \
    multi_refused(comm,                                                                            \
                  ceclReduceScatterTiles(matrix, result, &(ceclTiles_t){__VA_ARGS__}, ceclInt32,   \
                                         ceclSum, comm, NULL),                                     \
                  result_, words)
    multi_refused(comm,
                  ceclReduceScatterTiles(matrix, result, NULL, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidArgument, "tiles: NULL");
    REFUSED(ceclInvalidArgument, "tiles.rows: 0", .count = 1, .width = 1);
    REFUSED(ceclInvalidArgument, "tiles.count: 0", .rows = 1, .width = 1);
    REFUSED(ceclInvalidArgument, "tiles.count 1025", .count = 1025, .rows = 1, .width = 1);
    REFUSED(ceclInvalidArgument, "pitch: 8 bytes; a row has 12", 1, 3, 2, 2, NULL);
    REFUSED(ceclInvalidArgument, "pitches up to", 1, 3, 2, 1u << 30, NULL);
    REFUSED(ceclInvalidArgument, "address space", 1, SIZE_MAX / 2, 3, 0, NULL);
    REFUSED(ceclInvalidArgument, "address space", 1, 3, 1, 3, far);
    REFUSED(ceclInvalidUsage, "left in its allocation", 1, 3, (size_t)1 << 24, 3, NULL);
    multi_refused(comm,
                  ceclReduceScatterTiles(matrix, matrix, &(ceclTiles_t){1, 3, 1, 0, NULL},
                                         ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidArgument, "overlap");
    multi_refused(comm,
                  ceclReduceScatterTiles(matrix, result, &(ceclTiles_t){1, 3, 1, 0, NULL},
                                         ceclInt32, ceclAvg, comm, NULL),
                  ceclInvalidArgument, "ceclAvg");
#undef REFUSED
    multi_ok(comm, ceclReduceScatterTiles(matrix, result, &(ceclTiles_t){.count = 1, .rows = 1},
                                          ceclInt32, ceclSum, comm, NULL));
    random_tiles(2);
}

TEST_AGAIN(random_tiles_are_reduced, set_up_with_small_staging, tear_down)
