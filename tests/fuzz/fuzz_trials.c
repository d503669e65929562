/* Programs with trials of steps (CECL_NCCL=auto, CECL_NCCL_TRIALS=1), on the host device, with a stand-in for NCCL that
 * is as slow as the input says. A program repeats a step, which is a batch of calls, many times. So a trial begins, tries
 * its ways in turn, and decides unless the next batch cancels it. Or two batches come in an order without a period, and
 * the sizes in gains.c decide. Results are the same, whichever library carries a call out. */
#include <dlfcn.h>

#include "nccl_ranks.h"

#define BATCHES_MOST 4
#define MIXED_STEPS 2000

static __typeof__(standin_take_us) *take_us;
static uint8_t first[2][RANKS][MODEL_BYTES]; /* memory before a step of each batch */

/* Whether a call overwrites its input: then the batch can be repeated only after memory was restored. */
static bool is_in_place(void)
{
    bool is = false;
    for (int i = 0; i < batch.ncalls; i++)
        for (int r = 0; r < model.nranks; r++)
            is = is || random_is_in_place(&batch.calls[i][r]);
    return is;
}

/* Keeps memory as it is before the step, so that the step can be made again. */
static void keep_first(int which)
{
    for (int r = 0; r < model.nranks; r++)
        memcpy(first[which][r], model.memory[r], MODEL_BYTES);
}

static void make_again(int which)
{
    for (int r = 0; r < model.nranks; r++) {
        memcpy(model.memory[r], first[which][r], MODEL_BYTES);
        memcpy(model.mirror[r], first[which][r], MODEL_BYTES);
    }
    make_batch();
}

/* Two batches in an order without a period. This takes a second, so an input has it at most once. */
static void run_mixed(void)
{
    static struct batch both[2];
    uint64_t word = take_byte(&in);
    take_us(word & 1 ? 400 : 0);
    for (int i = 0; i < 2; i++) {
        draw_batch(true);
        batch.in_a_row = 1;
        both[i] = batch;
        keep_first(i);
    }
    for (int step = 0; step < MIXED_STEPS; step++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        batch = both[word >> 63];
        if (batch.ncalls > 0)
            make_again((int)(word >> 63));
    }
}

/* Memory is compared after every `batch.in_a_row` steps, so within these a rank may run ahead of others. */
static void run_program(void)
{
    static const int steps_of[] = {2, 100, 160, 30};
    static const unsigned long_us[] = {0, 100, 400, 0};
    const unsigned what = take_byte(&in);
    const int steps = steps_of[what & 3];
    take_us(long_us[what >> 2 & 3]);
    draw_batch(true);
    batch.in_a_row = what & 16 && !is_in_place() ? 1 << (what >> 5 & 3) : 1;
    if (batch.ncalls == 0)
        return;
    keep_first(0);
    for (int step = 0; step < steps; step += batch.in_a_row)
        make_again(0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    setenv("CECL_NCCL_TRIALS", "1", 1);
    begin_process("auto");
    void *standin = dlopen(getenv("CECL_NCCL_PATH"), RTLD_NOW);
    REQUIRE(standin, "%s", dlerror());
    *(void **)&take_us = dlsym(standin, "standin_take_us");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    in = (struct input){data, bytes < 1024 ? bytes : 1024};
    const unsigned how = take_byte(&in);
    model.nranks = 2 + (int)(how % (NCCL_RANKS - 1));
    make_comms(how / (NCCL_RANKS - 1));
    bool has_mixed = false;
    for (int i = 0; i < BATCHES_MOST && in.left > 0; i++) {
        const bool mixes = take_byte(&in) % 16 == 3 && !has_mixed;
        has_mixed = has_mixed || mixes;
        if (mixes)
            run_mixed();
        else
            run_program();
    }
    end_comms();
    return 0;
}
