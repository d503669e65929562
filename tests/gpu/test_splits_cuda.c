/* Calls by splits in device memory, by kernels (sm/splits.h): random splits between 2 to 8 ranks
 * give the results of a plain model; large rows, at any alignment, and the largest number of SMs.
 * The ranks' kernels run one after the other on one GPU, because no kernel waits for another. The
 * last test prints how fast rows are moved.
 *
 * CECL_TEST_SHORT=N: only N random splits of each kind, and no times, for tools that observe kernels. */
#include "../splits_model.h"
#include "cuda_fixture.h"

#define TIMES 600

static struct model model;
static struct model_memory *memory; /* pinned: kernels and the host use the same addresses */
static cudaStream_t stream;

static int set_up(void **state)
{
    must_cuda(cudaSetDevice(0));
    must(cecl_splits_cuda_prepare());
    must_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must_cuda(cudaHostAlloc((void **)&memory, sizeof(*memory), cudaHostAllocPortable));
    return 0;
}

static int tear_down(void **state)
{
    must_cuda(cudaFreeHost(memory));
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

/* ---- times */

static float us_of(void (*work)(void *context), void *context)
{
    cudaEvent_t begin, end;
    float ms;
    must_cuda(cudaEventCreate(&begin));
    must_cuda(cudaEventCreate(&end));
    for (int i = 0; i < 3; i++)
        work(context);
    must_cuda(cudaEventRecord(begin, stream));
    for (int i = 0; i < 20; i++)
        work(context);
    must_cuda(cudaEventRecord(end, stream));
    must_cuda(cudaEventSynchronize(end));
    must_cuda(cudaEventElapsedTime(&ms, begin, end));
    must_cuda(cudaEventDestroy(begin));
    must_cuda(cudaEventDestroy(end));
    return ms * 1000 / 20;
}

static void move(void *context)
{
    must(cecl_splits_cuda((ceclStream_t)stream, context));
}

struct copy {
    void *dst, *src;
    size_t bytes;
};

static void copy(void *context)
{
    const struct copy *c = context;
    must_cuda(cudaMemcpyAsync(c->dst, c->src, c->bytes, cudaMemcpyDeviceToDevice, stream));
}

/* Rank 0 of 4 sends equal blocks within this GPU. A copy of the same number of bytes is measured
 * for comparison. */
TEST(rows_move_at_these_rates)
{
    enum { RANKS = 4, ROW = 14336 };
    const size_t slice = (size_t)80 << 20;
    unsigned char *slices, *send;
    uint64_t *words, rows[2 * RANKS];
    struct cecl_splits_trouble *trouble;
    if (getenv("CECL_TEST_SHORT"))
        return;
    must_cuda(cudaMalloc((void **)&slices, RANKS * slice));
    must_cuda(cudaMalloc((void **)&send, slice));
    must_cuda(cudaMalloc((void **)&words, 4096));
    must_cuda(cudaHostAlloc((void **)&trouble, sizeof(*trouble), cudaHostAllocPortable));
    for (size_t bytes = (size_t)1 << 20; bytes <= (size_t)64 << 20; bytes *= 8) {
        const uint64_t each = bytes / RANKS / ROW;
        struct copy whole = {slices, send, each * ROW * RANKS};
        for (int r = 0; r < RANKS; r++)
            rows[r] = each;
        must_cuda(cudaMemcpy(words, rows, sizeof(rows), cudaMemcpyHostToDevice));
        must_cuda(cudaMemset(words + 256, 0, 1024)); /* no calls yet, and no end */
        *trouble = (struct cecl_splits_trouble){0};
        uint32_t *const numbers = (uint32_t *)(words + 256);
        const float copied = us_of(copy, &whole);
        print_message("%zu KiB: a copy %.1f us", bytes >> 10, (double)copied);
        for (uint32_t most = 8; most <= 32; most *= 2) {
            struct cecl_splits call = {.form = {.nranks = RANKS,
                                                .experts = 1,
                                                .align = 1,
                                                .send_rows = RANKS * each,
                                                .recv_rows = RANKS * each,
                                                .row_bytes = ROW},
                                       .rows = send,
                                       .splits = words,
                                       .out = words + 64,
                                       .slices = slices,
                                       .slice = slice,
                                       .recv_offset = 1 << 20,
                                       .end = (uint32_t *)(words + 320),
                                       .trouble = trouble,
                                       .max_sms = most};
            for (uint32_t r = 0; r < RANKS; r++) {
                call.rank = r;
                call.number = numbers + r;
                call.step = CECL_SPLITS_TELL;
                move(&call);
            }
            call.rank = 0;
            call.number = numbers;
            call.step = CECL_SPLITS_MOVE;
            const float moved = us_of(move, &call);
            print_message("; %u SMs %.1f us, %.0f GB/s, %.2f of a copy", most, (double)moved,
                          (double)whole.bytes / 1e3 / (double)moved, (double)(copied / moved));
            assert_int_equal(trouble->what, CECL_SPLITS_FINE);
        }
        print_message("\n");
    }
    must_cuda(cudaFreeHost(trouble));
    must_cuda(cudaFree(words));
    must_cuda(cudaFree(send));
    must_cuda(cudaFree(slices));
}

int main(void)
{
    return tests_run(set_up, tear_down);
}
