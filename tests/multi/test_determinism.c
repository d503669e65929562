/* A sum of floats depends on the order of the additions. cecl gives the bits of a plain loop in rank order: on every
 * rank, in every run, on any number of SMs, in any direction, by every path. (NaNs, and memory of all kinds:
 * test_collectives.c, test_mixed.c.)
 *
 * With a GPU for each rank, or with CECL_TEST_BIG=1, every path and type runs 1,000 times. Otherwise each path runs about
 * 100 times, fewer with more than 4 ranks or CECL_TEST_SHARE. (Large pushed sums have a test of their own.) */
#include "multi.h"

#include "../reduce_reference.h"

#define POISON 0x5A
#define ROOM ((size_t)2 << 20) /* bytes of a buffer */
#define LARGE \
    ((size_t)33 << 20) /* so large that copy engines push sums, after SMs have read at the peers */

static const ceclDataType_t types[] = {ceclBfloat16, ceclFloat16,    ceclFloat32,
                                       ceclFloat64,  ceclFloat8e4m3, ceclFloat8e5m2};
#define TYPES (sizeof(types) / sizeof(types[0]))

/* Exponents of inputs: with these, many sums are rounded, and none overflows. */
static const struct {
    int least, most;
} exponents[CECL_NUM_TYPES] = {
    [ceclFloat16] = {-14, 10}, [ceclBfloat16] = {-20, 20}, [ceclFloat32] = {-20, 20},
    [ceclFloat64] = {-50, 50}, [ceclFloat8e4m3] = {-6, 3}, [ceclFloat8e5m2] = {-14, 10},
};

struct path {
    const char *words; /* the path that ceclExplain reports */
    ceclOp_t op;
    size_t bytes[2]; /* result sizes on the host device and on GPUs */
    ceclDirection_t direction;
    int64_t staging;
};
#define AUTO CECL_DIRECTION_AUTO
#define PUSH CECL_DIRECTION_PUSH
static const struct path paths[] = {
    {"small, one exchange", ceclOpAllReduce, {4080, 200000}, AUTO, CECL_UNDEF},
    {"small, one exchange", ceclOpReduceScatter, {4088, 60008}, AUTO, CECL_UNDEF},
    {"SMs read at the peers and write to all", ceclOpAllReduce, {40008, 1 << 20}, AUTO, CECL_UNDEF},
    {"SMs read at the peers", ceclOpReduceScatter, {8200, 600008}, AUTO, CECL_UNDEF},
    {"everyone reduces", ceclOpAllReduce, {20008, 20008}, PUSH, CECL_UNDEF},
    {"push to staging, 1 chunk", ceclOpAllReduce, {278528, 278528}, PUSH, CECL_UNDEF},
    {"chunks, pushed to all", ceclOpAllReduce, {278528, 278528}, PUSH, 65536},
    {"chunks", ceclOpReduceScatter, {70008, 200008}, PUSH, 65536},
};
#define PATHS (sizeof(paths) / sizeof(paths[0]))
static const struct path pushed = {
    "SMs read at the peers, pushed to all", ceclOpAllReduce, {LARGE, LARGE}, AUTO, CECL_UNDEF};

static ceclComm_t comm;
static unsigned char *send_buffer, *recv_buffer, *poison_buffer; /* on the device */
static unsigned char *inputs[64], *result, *first;               /* on the host */
static size_t room;

static void open_comm(size_t bytes, int64_t staging)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = staging;
    comm = multi_comm(&config);
    room = bytes;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&poison_buffer, room));
    for (int r = 0; r < multi_nranks; r++)
        assert_non_null(inputs[r] = malloc(room));
    result = malloc(room);
    first = malloc(room);
    assert_true(result && first);
    memset(result, POISON, room);
    multi_put(comm, poison_buffer, result, room);
    reference_start();
}

static void close_comm(void)
{
    for (int r = 0; r < multi_nranks; r++)
        free(inputs[r]);
    free(result);
    free(first);
    multi_ok(NULL, ceclCommDestroy(comm));
}

static bool is_big(void)
{
    const char *big = getenv("CECL_TEST_BIG");
    return multi_on_gpus(comm) ? !multi_shares_gpu(comm) : big && *big == '1';
}

/* The distance between elements that are compared with the reference: comparing takes most of the test's time on the
 * host device. An odd distance reaches every place in a vector. */
static size_t distance(size_t count)
{
    return (count / (size_t)(is_big() ? 300000 : multi_share(20000))) | 1;
}

static uint64_t finite_element(ceclDataType_t type, uint64_t *seed)
{
    const unsigned f = formats[type].fraction, e = formats[type].exponent;
    const int bias = (1 << (e - 1)) - 1;
    const uint64_t x = random_bits(seed), sign = (x >> 40 & 1) << (f + e);
    const uint64_t span = (uint64_t)(exponents[type].most - exponents[type].least + 1);
    const uint64_t exponent = (uint64_t)(exponents[type].least + bias) + (x >> 20) % span;
    return sign | exponent << f | (random_bits(seed) & ((UINT64_C(1) << f) - 1));
}

/* Sometimes a rank's value cancels that of the rank before it. Then small values of other ranks show in the sum, or
 * vanish if the additions are in another order. Rank 0 draws for all. */
static void fill(ceclDataType_t type, size_t count)
{
    const unsigned size = formats[type].bytes;
    const uint64_t sign = UINT64_C(1) << (formats[type].fraction + formats[type].exponent);
    uint64_t seed = 1000u + type;
    for (int r = 0; r < multi_nranks && multi_rank == 0; r++)
        for (size_t i = 0; i < count; i++) {
            uint64_t element = finite_element(type, &seed);
            if (r > 0 && random_bits(&seed) >> 33 & 1)
                element = read_element(inputs[r - 1] + i * size, size) ^ sign;
            memcpy(inputs[r] + i * size, &element, size);
        }
    for (int r = 0; r < multi_nranks; r++)
        MPI_Bcast(inputs[r], (int)(count * size), MPI_BYTE, 0, MPI_COMM_WORLD);
    multi_put(comm, send_buffer, inputs[multi_rank], count * size);
}

struct run {
    const struct path *path;
    ceclDataType_t type;
    size_t count; /* elements of the result */
};

static struct run run_of(const struct path *path, ceclDataType_t type)
{
    return (struct run){path, type, path->bytes[multi_on_gpus(comm)] / formats[type].bytes};
}

static size_t sent(const struct run *run)
{
    return run->path->op == ceclOpReduceScatter ? run->count * (size_t)multi_nranks : run->count;
}

/* Where a rank's result begins, in elements of the inputs. */
static size_t begin(const struct run *run)
{
    return run->path->op == ceclOpReduceScatter ? run->count * (size_t)multi_rank : 0;
}

static void choose(int sms, ceclDirection_t direction)
{
    multi_options(comm, CECL_UNDEF, (int)direction, sms ? sms : CECL_UNDEF);
}

static void enqueue(const struct run *run, const void *send, void *out)
{
    if (run->path->op == ceclOpReduceScatter)
        multi_ok(comm, ceclReduceScatter(send, out, run->count, run->type, ceclSum, comm, NULL));
    else
        multi_ok(comm, ceclAllReduce(send, out, run->count, run->type, ceclSum, comm, NULL));
}

static void make(const struct run *run, bool in_place)
{
    const size_t size = formats[run->type].bytes, bytes = run->count * size;
    unsigned char *out = recv_buffer + (in_place ? begin(run) * size : 0);
    multi_ok(comm, ceclMemcpyAsync(comm, recv_buffer, in_place ? send_buffer : poison_buffer,
                                   in_place ? sent(run) * size : bytes, NULL));
    enqueue(run, in_place ? recv_buffer : send_buffer, out);
    multi_get(comm, result, out, bytes);
}

static void is_by_its_path(const struct run *run)
{
    ceclExplanation_t explanation;
    multi_ok(comm, ceclGroupStart());
    enqueue(run, send_buffer, recv_buffer);
    multi_ok(comm, ceclGroupExplain(comm, &explanation));
    if (!strstr(explanation.path, run->path->words))
        fail_msg("\"%s\" is meant, and it is \"%s\"", run->path->words, explanation.path);
}

/* Checks `result`. Returns how many elements would differ if the additions were in another order. */
static size_t is_as_the_loop_has_it(const struct run *run)
{
    const void *sources[64], *backwards[64];
    struct cecl_reduction rule = {
        .src = sources, .nsrc = (uint32_t)multi_nranks, .type = run->type, .op = ceclSum};
    struct cecl_reduction other = rule;
    const unsigned size = formats[run->type].bytes;
    size_t differ = 0;
    other.src = backwards;
    for (int r = 0; r < multi_nranks; r++)
        sources[r] = backwards[multi_nranks - 1 - r] = inputs[r];
    const size_t step = distance(run->count);
    for (size_t k = 0; k < run->count; k += step) {
        const size_t i = begin(run) + k;
        const uint64_t want = expected_element(&rule, i),
                       got = read_element(result + k * size, size);
        if (got != want)
            fail_msg("rank %d: %s, %s, element %zu is %#llx, not %#llx", multi_rank,
                     run->path->words, formats[run->type].name, k, (unsigned long long)got,
                     (unsigned long long)want);
        differ += expected_element(&other, i) != want;
    }
    return differ;
}

static void is_the_same_in_many_runs(const struct path *path, ceclDataType_t type, int runs)
{
    static const int sms[] = {1, 2, 3, 8, 16, 0};
    const struct run run = run_of(path, type);
    const size_t bytes = run.count * formats[type].bytes;
    fill(type, sent(&run));
    choose(0, path->direction);
    is_by_its_path(&run);
    make(&run, false);
    const size_t differ = is_as_the_loop_has_it(&run);
    if (multi_nranks > 2 && (type == ceclFloat32 || type == ceclFloat64 || type == ceclBfloat16))
        assert_true(differ > 0); /* otherwise the test would show nothing */
    memcpy(first, result, bytes);
    if (path->op == ceclOpAllReduce) /* gives all ranks rank 0's result */
        MPI_Bcast(first, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (memcmp(result, first, bytes) != 0)
        fail_msg("rank %d: %s: the result differs from rank 0's", multi_rank, path->words);
    for (int i = 0; i < runs; i++) {
        const ceclDirection_t direction = i % 10 == 8   ? CECL_DIRECTION_PUSH
                                          : i % 10 == 9 ? CECL_DIRECTION_PULL
                                                        : path->direction;
        choose(sms[i % 6], direction);
        make(&run, i % 5 == 4);
        if (memcmp(result, first, bytes) != 0)
            fail_msg("rank %d: %s, %s: run %d, maxSms %d, direction %d gave other bits", multi_rank,
                     path->words, formats[type].name, i, sms[i % 6], (int)direction);
    }
}

static size_t room_of(const struct path *path)
{
    const size_t all = (size_t)multi_nranks * path->bytes[1];
    return all > ROOM ? all : ROOM;
}

/* Beyond 4 ranks, ranks that share few processors are slow: only 6 runs, one for each number of SMs. */
static int runs_of_each(void)
{
    const int some = multi_nranks > 4 ? 6 : multi_share(100 / (int)TYPES);
    return is_big() ? 1000 : some > 6 ? some : 6;
}

TEST(every_run_by_every_path_gives_the_same_bits)
{
    for (size_t p = 0; p < PATHS; p++) {
        open_comm(room_of(&paths[p]), paths[p].staging);
        for (size_t t = 0; t < TYPES; t++)
            is_the_same_in_many_runs(&paths[p], types[t], runs_of_each());
        close_comm();
    }
}

TEST(what_is_read_and_pushed_is_the_same_in_every_run)
{
    open_comm(LARGE, CECL_UNDEF);
    const bool skipped = !multi_on_gpus(comm) && !is_big() && multi_nranks > 3;
    if (!skipped)
        is_the_same_in_many_runs(&pushed, ceclFloat32, multi_on_gpus(comm) && is_big() ? 1000 : 6);
    close_comm();
    if (skipped)
        skip_because("this many processes would fill the memory of a small machine");
}
