/* ceclDispatch and ceclCombine, which bring rows to experts and back, with and without scales; ceclSumRows. */
#include "buffers.h"

#include <sys/mman.h>

#define RANKS 16
#define EXPERTS 4 /* at most, on a rank */
#define ROWS 12   /* at most, in a block */
#define ROW 20    /* bytes, at most */
#define SCALE 6   /* bytes of a row's scales, at most */
#define ALIGN 8   /* rows; the largest align: an expert's room is a multiple of it */
#define BLOCKS (RANKS * EXPERTS)

/* [0]: what a rank sends; [1]: what its experts receive; [2]: what comes back. */
static unsigned char *rows[3], *scales[3];
static uint64_t *splits[3];
static size_t capacity; /* rows of each buffer */

static int set_up(void **state)
{
    capacity = (size_t)multi_nranks * EXPERTS * ROWS + EXPERTS * ALIGN;
    buffers_open(capacity * ROW, "16K", "allow");
    rows[0] = send_buffer;
    rows[1] = recv_buffer;
    rows[2] = multi_alloc(comm, room);
    for (int i = 0; i < 3; i++) {
        scales[i] = multi_alloc(comm, capacity * SCALE);
        splits[i] = multi_alloc(comm, 2 * BLOCKS * sizeof(uint64_t));
    }
    return 0;
}

/* Splits of all ranks; all ranks draw the same. */
struct exchange {
    uint64_t rows[RANKS][RANKS][EXPERTS]; /* [from][to][expert] */
    ceclExperts_t experts;
    size_t row, sendrows, recvrows;
};

static void draw(uint64_t *x, struct exchange *e)
{
    *e = (struct exchange){
        .row = 1 + multi_draw(x) % ROW, .sendrows = capacity, .recvrows = capacity};
    e->experts.experts = 1 + multi_draw(x) % EXPERTS;
    e->experts.align = 1 + multi_draw(x) % ALIGN;
    e->experts.scalebytes = multi_draw(x) % 2 ? 1 + multi_draw(x) % SCALE : 0;
    const bool thin = multi_draw(x) % 3 == 0;
    for (int from = 0; from < multi_nranks; from++)
        for (int to = 0; to < multi_nranks; to++)
            for (size_t i = 0; i < e->experts.experts; i++)
                e->rows[from][to][i] = thin && multi_draw(x) % 4 ? 0 : multi_draw(x) % (ROWS + 1);
}

static void put(const struct exchange *e, uint64_t seed)
{
    uint64_t own[BLOCKS];
    size_t count = 0;
    for (int to = 0; to < multi_nranks; to++)
        for (size_t i = 0; i < e->experts.experts; i++)
            own[count++] = e->rows[multi_rank][to][i];
    multi_put(comm, splits[0], own, count * sizeof(*own));
    for (int i = 0; i < 3; i++) {
        memset(host, 0x5A, capacity * ROW);
        if (i == 0)
            model_fill(host, seed, multi_rank, capacity * e->row);
        multi_put(comm, rows[i], host, capacity * ROW);
        if (i == 0)
            model_fill(host, seed + 1, multi_rank, capacity * SCALE);
        multi_put(comm, scales[i], host, capacity * SCALE);
    }
}

/* Makes the call with these arguments: this rank sends from buffers number `at`, and receives in the next ones. */
static ceclResult_t go(struct exchange *e, int at, ceclStream_t stream)
{
    e->experts.sendscales = scales[at];
    e->experts.recvscales = scales[at + 1];
    return (at == 0 ? ceclDispatch : ceclCombine)(rows[at], e->sendrows, splits[at], rows[at + 1],
                                                  e->recvrows, splits[at + 1], &e->experts, e->row,
                                                  ceclUint8, comm, stream);
}

/* The sender's row at which a block begins. */
static size_t begin_of(const struct exchange *e, int from, int to, size_t expert)
{
    size_t before = 0;
    for (int p = 0; p <= to; p++)
        for (size_t i = 0; i < (p == to ? expert : e->experts.experts); i++)
            before += e->rows[from][p][i];
    return before;
}

/* Checks that `count` rows from row `first` of rank `from` are at row `at` of those received, and overwrites them. */
static void check_rows(uint64_t seed, size_t row, int from, size_t first, size_t count, size_t at)
{
    for (size_t i = 0; i < count * row; i++) {
        if (host[at * row + i] != model_byte(seed, from, first * row + i))
            fail_msg("rank %d: byte %zu of a block from rank %d is wrong", multi_rank, i, from);
        host[at * row + i] = 0x5A;
    }
}

static void check_untouched(size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != 0x5A)
            fail_msg("rank %d: byte %zu beside the rows was written", multi_rank, i);
}

/* Checks the rows, or the scales, that the experts received. told: the counts and places that the call wrote. */
static void check_out(const struct exchange *e, uint64_t seed, size_t row, const uint64_t *told)
{
    const size_t blocks = (size_t)multi_nranks * e->experts.experts;
    size_t at = 0, block = 0;
    for (size_t i = 0; i < e->experts.experts; i++) {
        const size_t first = at;
        for (int from = 0; from < multi_nranks; from++, block++) {
            const size_t count = e->rows[from][multi_rank][i];
            assert_int_equal(told[block], count);
            assert_int_equal(told[blocks + block], at);
            check_rows(seed, row, from, begin_of(e, from, multi_rank, i), count, at);
            at += count;
        }
        if (at == first && e->experts.align > 1)
            at++;
        while (at % e->experts.align != 0)
            at++;
    }
}

/* Checks that all rows that this rank sent are back in their order. */
static void check_back(const struct exchange *e, uint64_t seed, size_t row, const uint64_t *told)
{
    const size_t blocks = (size_t)multi_nranks * e->experts.experts;
    size_t at = 0, block = 0;
    for (int to = 0; to < multi_nranks; to++)
        for (size_t i = 0; i < e->experts.experts; i++, block++) {
            assert_int_equal(told[block], e->rows[multi_rank][to][i]);
            assert_int_equal(told[blocks + block], at);
            at += e->rows[multi_rank][to][i];
        }
    check_rows(seed, row, multi_rank, 0, at, 0);
}

static void check(const struct exchange *e, uint64_t seed, int at)
{
    uint64_t told[2 * BLOCKS];
    void (*const each)(const struct exchange *, uint64_t, size_t, const uint64_t *) =
        at == 1 ? check_out : check_back;
    multi_get(comm, told, splits[at], sizeof(told));
    multi_get(comm, host, rows[at], capacity * ROW);
    each(e, seed, e->row, told);
    check_untouched(capacity * ROW);
    multi_get(comm, host, scales[at], capacity * SCALE);
    each(e, seed + 1, e->experts.scalebytes, told);
    check_untouched(capacity * SCALE);
}

static void out_and_back(int rounds)
{
    uint64_t x = 37;
    for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
        struct exchange e;
        draw(&x, &e);
        put(&e, 2 * round);
        multi_ok(comm, go(&e, 0, NULL));
        multi_ok(comm, go(&e, 1, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        check(&e, 2 * round, 1);
        check(&e, 2 * round, 2);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

TEST_BETWEEN(rows_go_to_experts_and_come_back, set_up, tear_down)
{
    out_and_back(multi_share(200));
}

TEST_BETWEEN(graphs_take_rows_out_and_back, set_up, tear_down)
{
    uint64_t x = 41;
    struct exchange e;
    ceclGraph_t graph;
    draw(&x, &e);
    ceclStream_t stream = multi_stream(comm);
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_ok(comm, go(&e, 0, stream));
    multi_ok(comm, go(&e, 1, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    for (uint64_t seed = 0; seed < 16; seed += 2) {
        for (int from = 0; from < multi_nranks; from++)
            for (int to = 0; to < multi_nranks; to++)
                for (size_t i = 0; i < e.experts.experts; i++)
                    e.rows[from][to][i] = multi_draw(&x) % ROWS;
        put(&e, seed);
        MPI_Barrier(MPI_COMM_WORLD);
        multi_ok(comm, ceclGraphLaunch(graph, stream));
        multi_ok(comm, ceclStreamSynchronize(comm, stream));
        check(&e, seed, 1);
        check(&e, seed, 2);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, stream));
}

#define TOKENS 30
#define EACH 3
#define COUNT 24 /* elements of a row */

/* Element i of a row that has come back: the experts of this test change nothing. */
static float element_of(int rank, size_t row, size_t i)
{
    return (float)((size_t)rank * 7 + row * 3 + i) * 0.25f;
}

/* Each token has EACH rows, which go to experts and come back. Their weighted sums equal what a single rank would
 * compute. The last token's first row is left out. */
TEST_BETWEEN(tokens_get_the_sums_of_their_rows, set_up, tear_down)
{
    const size_t nrows = TOKENS * EACH, bytes = nrows * COUNT * sizeof(float);
    const ceclExperts_t experts = {.experts = 3, .align = 4};
    const size_t blocks = (size_t)multi_nranks * experts.experts, most = nrows * RANKS + 3 * 4;
    float *from, *there, *back, *sums, *weights, own[TOKENS * EACH * COUNT], given[TOKENS * EACH];
    uint64_t *places, order[TOKENS * EACH], own_splits[BLOCKS] = {0};
    from = multi_alloc(comm, bytes);
    there = multi_alloc(comm, most * COUNT * sizeof(float));
    back = multi_alloc(comm, bytes);
    sums = multi_alloc(comm, bytes);
    weights = multi_alloc(comm, sizeof(given));
    places = multi_alloc(comm, sizeof(order));
    for (size_t i = 0; i < nrows; i++) {
        order[i] = i * 7 % nrows;
        given[i] = (float)(i % 5) * 0.5f - 1;
        own_splits[i * 5 % blocks]++;
        for (size_t c = 0; c < COUNT; c++)
            own[i * COUNT + c] = element_of(multi_rank, i, c);
    }
    order[(TOKENS - 1) * EACH] = UINT64_MAX;
    multi_put(comm, from, own, bytes);
    multi_put(comm, weights, given, sizeof(given));
    multi_put(comm, places, order, sizeof(order));
    multi_put(comm, splits[0], own_splits, sizeof(own_splits));
    multi_ok(comm, ceclDispatch(from, nrows, splits[0], there, most, splits[1], &experts, COUNT,
                                ceclFloat, comm, NULL));
    multi_ok(comm, ceclCombine(there, most, splits[1], back, nrows, splits[2], &experts, COUNT,
                               ceclFloat, comm, NULL));
    multi_ok(comm, ceclSumRows(back, nrows, places, weights, sums, TOKENS, EACH, COUNT, ceclFloat,
                               comm, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, own, sums, TOKENS * COUNT * sizeof(float));
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t c = 0; c < COUNT; c++) {
            float want = 0; /* exact: small multiples of 1/8 */
            for (size_t j = t * EACH; j < (t + 1) * EACH; j++)
                if (order[j] < nrows)
                    want += given[j] * element_of(multi_rank, order[j], c);
            if (own[t * COUNT + c] != want)
                fail_msg("rank %d, token %zu: %g and not %g", multi_rank, t,
                         (double)own[t * COUNT + c], (double)want);
        }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_BETWEEN(refused_sums_do_no_harm, set_up, tear_down)
{
#define REFUSED(words, ...) \
    multi_refused(comm, ceclSumRows(__VA_ARGS__, ceclFloat, comm, NULL), ceclInvalidArgument, words)
    const float *const w = (const float *)(const void *)scales[0];
    REFUSED("rows: NULL", NULL, 4, splits[0], w, rows[1], 4, 1, 1);
    REFUSED("places: NULL", rows[0], 4, NULL, w, rows[1], 4, 1, 1);
    REFUSED("sums: NULL", rows[0], 4, splits[0], w, NULL, 4, 1, 1);
    REFUSED("aligned", rows[0] + 1, 4, splits[0], w, rows[1], 4, 1, 1);
    REFUSED("overlap", rows[0], 4, splits[0], w, rows[0] + 8, 4, 1, 1);
    REFUSED("address space", rows[0], SIZE_MAX / 2, splits[0], w, rows[1], 4, 1, 1);
    REFUSED("each", rows[0], 4, splits[0], w, rows[1], 4, (size_t)1 << 40, 1);
    multi_options(comm, CECL_SM_NEVER, CECL_UNDEF, CECL_UNDEF);
    multi_refused(comm,
                  ceclSumRows(rows[0], 4, splits[0], w, rows[1], 4, 1, 1, ceclFloat, comm, NULL),
                  ceclInvalidUsage, "CECL_SM_NEVER");
#undef REFUSED
    multi_options(comm, CECL_SM_ALLOW, CECL_UNDEF, CECL_UNDEF);
    multi_ok(comm, ceclBarrier(comm, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
}

TEST_BETWEEN(refused_experts_do_no_harm, set_up, tear_down)
{
#define REFUSED(result, words, ...) \
    multi_refused(comm, \
                  ceclDispatch(rows[0], 8, splits[0], rows[1], 8, splits[1], \
                               &(ceclExperts_t){__VA_ARGS__}, 1, ceclUint8, comm, NULL), \
                  result, words)
    REFUSED(ceclInvalidArgument, "experts 0", 0, 2, scales[0], scales[1], 3);
    REFUSED(ceclInvalidArgument, "experts", 513, 2, scales[0], scales[1], 3);
    REFUSED(ceclInvalidArgument, "align 0", 2, 0, scales[0], scales[1], 3);
    REFUSED(ceclInvalidArgument, "recvscales", 2, 2, scales[0], NULL, 3);
    REFUSED(ceclInvalidUsage, "recvscales", 2, 2, scales[0], host, 3);
    REFUSED(ceclInvalidArgument, "sendscales", 2, 2, NULL, scales[1], 3);
    REFUSED(ceclInvalidUsage, "scales", 2, 2, scales[0], scales[1], capacity * SCALE);
#undef REFUSED
    out_and_back(2);
}

/* A call with the same arguments succeeds first, so a later refusal can only be due to the memory. */
TEST_BETWEEN(arrays_that_lose_their_memory_are_refused, set_up, tear_down)
{
    static const char *const names[] = {"sendsplits", "recvsplits", "experts->sendscales"};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (multi_on_gpus(comm))
        skip_because("parts of memory are unmapped, which GPUs cannot do");
    unsigned char *const at =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    uint64_t *const given = (uint64_t *)(void *)at, *const out = given + page / sizeof(*given);
    const ceclExperts_t experts = {1, 1, at + 2 * page, scales[1], SCALE};
#define DISPATCH \
    ceclDispatch(rows[0], 8, given, rows[1], 8, out, &experts, 1, ceclUint8, comm, NULL)
#define SUM(nrows) \
    ceclSumRows(at, nrows, splits[0], NULL, at + page, 1, 1, 1, ceclFloat8e5m2, comm, NULL)
    for (size_t i = 0; i < 3; i++) {
        multi_ok(comm, DISPATCH);
        multi_ok(comm, SUM(page));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        assert_int_equal(mprotect(at + i * page, page, i == 1 ? PROT_READ : PROT_NONE), 0);
        multi_refused(comm, DISPATCH, ceclInvalidArgument, names[i]);
        if (i == 1)
            multi_refused(comm, SUM(page), ceclInvalidArgument, "sums");
        assert_int_equal(mprotect(at + i * page, page, PROT_READ | PROT_WRITE), 0);
    }
    assert_int_equal(mprotect(at + page, page, PROT_NONE), 0); /* a hole in the rows */
    multi_refused(
        comm,
        ceclSumRows(at, 3 * page, splits[0], NULL, rows[1], 1, 1, 1, ceclFloat8e5m2, comm, NULL),
        ceclInvalidArgument, "rows");
#undef SUM
#undef DISPATCH
    munmap(at, 3 * page);
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_BETWEEN(an_expert_without_room_is_named_on_every_rank, set_up, tear_down_failed)
{
    uint64_t x = 43;
    struct exchange e;
    draw(&x, &e);
    e.experts = (ceclExperts_t){.experts = 3, .align = 4};
    memset(e.rows, 0, sizeof(e.rows));
    for (int from = 0; from < multi_nranks; from++)
        e.rows[from][1][0] = e.rows[from][1][2] = 4;
    /* The third expert's rows begin at the end, where no room is left. */
    e.recvrows = 4 * (size_t)multi_nranks + 4 + 2;
    put(&e, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, go(&e, 0, NULL));
    (void)!ceclStreamSynchronize(comm, NULL);
    multi_fails(comm, "expert 2 of rank 1");
    MPI_Barrier(MPI_COMM_WORLD);
}
