/* Calls by splits in device memory, by kernels (sm/splits.h): random splits among 2 to 8 ranks give the results of a
 * plain model, also for large rows, at any alignment, and with the largest number of SMs. The ranks' kernels run one
 * after the other on one GPU: no kernel waits for another. Also sums of rows (sm/sums.h), with any number of SMs.
 *
 * CECL_TEST_SHORT=N: only N random splits of each kind, for tools that observe kernels. */
#include "../splits_model.h"
#include "../sums_model.h"
#include "cuda_fixture.h"

#define TIMES 600

static struct model model;
static struct model_memory *memory; /* pinned: kernels and the host use the same addresses */
static struct sums_memory *rows;    /* pinned */
static cudaStream_t stream;

static int set_up(void **state)
{
    must_cuda(cudaSetDevice(0));
    must(cecl_splits_cuda_prepare());
    must(cecl_row_sums_cuda_prepare());
    must_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must_cuda(cudaHostAlloc((void **)&memory, sizeof(*memory), cudaHostAllocPortable));
    must_cuda(cudaHostAlloc((void **)&rows, sizeof(*rows), cudaHostAllocPortable));
    return 0;
}

static int tear_down(void **state)
{
    must_cuda(cudaFreeHost(memory));
    must_cuda(cudaFreeHost(rows));
    must_cuda(cudaStreamDestroy(stream));
    return 0;
}

static uint32_t sms; /* the most that a step may use */

static void enqueue(const struct cecl_splits *step)
{
    struct cecl_splits call = *step;
    call.max_sms = sms;
    must(cecl_splits_cuda((ceclStream_t)stream, &call));
}

static void meet(void)
{
    must_cuda(cudaStreamSynchronize(stream));
}

static void all_do(enum cecl_splits_step step)
{
    for (uint32_t r = 0; r < model.form.nranks; r++) {
        const struct cecl_splits call = model_step(&model, memory, (int)r, step);
        enqueue(&call);
    }
    meet();
}

static void random_splits(uint64_t row_most, uint64_t seed)
{
    const char *few = getenv("CECL_TEST_SHORT");
    const uint64_t times = few ? strtoull(few, NULL, 10) : TIMES;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < times; i++) {
        static const uint32_t each[] = {0, 1, 5, 1000};
        uint64_t x = seed + i;
        sms = each[i % 4];
        do
            model_draw(&x, 2 + (int)model_below(&x, MODEL_RANKS - 1), row_most, &model, memory);
        while (model.form.recv_rows * model.form.row_bytes > MODEL_BYTES ||
               model.form.send_rows * model.form.row_bytes > MODEL_BYTES);
        model_run(&model, memory, enqueue, meet);
        model_check(&model, memory);
    }
}

TEST(random_splits_give_what_the_model_gives)
{
    random_splits(40, 20261125);
}

TEST(long_rows_arrive_whole)
{
    random_splits(3000, 37);
}

TEST(a_failed_communicators_kernels_touch_nothing)
{
    uint64_t x = 7;
    model_draw(&x, 3, 8, &model, memory);
    memory->end = 1;
    all_do(CECL_SPLITS_TELL);
    all_do(CECL_SPLITS_MOVE);
    for (int r = 0; r < 3; r++)
        for (size_t i = 0; i < MODEL_SLICE; i++)
            assert_int_equal(memory->slices[r][i], MODEL_UNTOUCHED);
}

TEST(no_rows_move_by_a_line_of_an_earlier_call)
{
    model_early_line(&model, memory, enqueue, meet);
}

TEST(no_rows_move_by_a_line_that_has_come_in_part)
{
    model_torn_line(&model, memory, enqueue, meet);
}

TEST(no_rows_move_between_ranks_with_other_sizes)
{
    model_odd_line(&model, memory, enqueue, meet);
}

/* Rows that are whole vectors, and rows that are not. */
TEST(sums_of_rows_have_the_hosts_bits)
{
    static unsigned char got[sizeof(rows->sums)];
    static const uint32_t each[] = {0, 1, 3, 1000};
    uint64_t seed = 37;
    for (int round = 0; round < (getenv("CECL_TEST_SHORT") ? 30 : 2000); round++) {
        struct cecl_row_sums s = sums_draw(&seed, rows);
        s.max_sms = each[round % 4];
        must(cecl_row_sums_cuda((ceclStream_t)stream, &s));
        must_cuda(cudaStreamSynchronize(stream));
        memcpy(got, rows->sums, sizeof(got));
        cecl_row_sums_host(&s);
        if (memcmp(got, rows->sums, sizeof(got)) != 0)
            fail_msg("round %d: %s, %u rows each, of %llu", round, formats[s.type].name, s.each,
                     (unsigned long long)s.count);
    }
}

int main(void)
{
    return tests_run(set_up, tear_down);
}
