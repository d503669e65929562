/* ceclReduceScatterTiles: several tiles for each rank at random places against plain loops, in the pool and in private
 * memory, eager and captured; refusals. test_collectives.c has all types and reductions of one tile for each rank. */
#include "multi.h"

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
    const ceclTiles_t three = {1, 3, 1, 0, NULL}, empty = {.count = 1, .rows = 1};
#define BAD(words, recv, tiles, op)                                                                \
    multi_refused(comm, ceclReduceScatterTiles(matrix, recv, tiles, ceclInt32, op, comm, NULL),    \
                  ceclInvalidArgument, words)
#define SHAPE(...) (&(ceclTiles_t){__VA_ARGS__})
    BAD("tiles: NULL", result, NULL, ceclSum);
    BAD("tiles.count: 0", result, SHAPE(.rows = 1, .width = 1), ceclSum);
    BAD("tiles.count 1025", result, SHAPE(.count = 1025, .rows = 1, .width = 1), ceclSum);
    BAD("pitch: 8 bytes; a row has 12", result, SHAPE(1, 3, 2, 2, NULL), ceclSum);
    BAD("pitches up to", result, SHAPE(1, 3, 2, 1u << 30, NULL), ceclSum);
    BAD("address space", result, SHAPE(1, SIZE_MAX / 2, 3, 0, NULL), ceclSum);
    BAD("address space", result, SHAPE(1, 3, 1, 3, far), ceclSum);
    BAD("overlap", matrix, &three, ceclSum);
    BAD("ceclAvg", result, &three, ceclAvg);
    multi_refused(comm,
                  ceclReduceScatterTiles(matrix, result, SHAPE(1, 3, (size_t)1 << 24, 3, NULL),
                                         ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidUsage, "left in its allocation");
    multi_ok(comm, ceclReduceScatterTiles(matrix, result, &empty, ceclInt32, ceclSum, comm, NULL));
    random_tiles(2);
}

TEST_AGAIN(random_tiles_are_reduced, set_up_with_small_staging, tear_down)
