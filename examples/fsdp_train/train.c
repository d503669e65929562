/* FSDP-style training of a small language model on a real text: sharded parameters, gradients and
 * Adam state (fsdp.c), gathers before the compute that needs them and reductions after it (comm.h). */
#include <mpi.h>
#include <stdio.h>

#include "train.h"

enum end {
    END_WELL = 0,
    END_FAILED = 1, /* all ranks know of this failure, and end together */
    END_USAGE = 2,
    END_BROKEN = 3 /* other ranks may wait for this one: they must be aborted */
};

struct job {
    struct options options;
    struct comm comm;
    struct compute compute;
    struct fsdp fsdp;
    struct report report;
};

/* ---- setup */

/* Rank 0 alone prints what all ranks have found. */
static enum end say(const struct job *j, enum end end, const char *words)
{
    if (j->comm.rank == 0)
        fprintf(stderr, "fsdp_train: %s\n", words);
    return end;
}

static enum end take_device(struct job *j)
{
    struct options *o = &j->options;
    if (o->no_overlap)
        o->prefetch = 0;
    if (!all_agree(comm_open(&j->comm, o->comm, fsdp_lanes(o->prefetch), o->prefetch > 0)))
        return END_FAILED;
    const struct compute *gpu = j->comm.device >= 0 ? compute_cuda() : NULL;
    if (j->comm.device >= 0 && !gpu)
        return say(j, END_FAILED, "this program was built without CUDA: CECL_DEVICE=host expected");
    j->compute = gpu ? *gpu : compute_host;
    j->comm.compute = &j->compute;
    return END_WELL;
}

/* Loads the whole text that comes with the example into the device's memory. */
static bool load_text(struct job *j)
{
    const struct options *o = &j->options;
    static unsigned char bytes[1 << 20];
    FILE *file = fopen(FSDP_TEXT, "rb");
    j->fsdp.text_bytes = file ? fread(bytes, 1, sizeof(bytes), file) : 0;
    if (file)
        fclose(file);
    /* the samples of a batch of all ranks must be able to begin at different places */
    if (j->fsdp.text_bytes < (size_t)o->sequence + (size_t)o->batch * (size_t)j->comm.nranks)
        return complain(&j->comm, FSDP_TEXT,
                        "not read, or too short for one batch of all ranks: a smaller --batch or "
                        "--sequence expected");
    j->fsdp.text = j->compute.alloc(&j->compute, j->fsdp.text_bytes);
    if (j->fsdp.text)
        j->compute.copy(&j->compute, j->fsdp.text, bytes, j->fsdp.text_bytes);
    return j->fsdp.text && j->compute.wait(&j->compute);
}

static bool make(struct job *j)
{
    const struct options *o = &j->options;
    const struct shape shape = {.layers = o->layers,
                                .width = o->width,
                                .heads = o->heads,
                                .sequence = o->sequence,
                                .batch = o->batch,
                                .nranks = j->comm.nranks};
    struct fsdp *f = &j->fsdp;
    *f = (struct fsdp){.shape = shape,
                       .compute = &j->compute,
                       .comm = &j->comm,
                       .prefetch = o->prefetch,
                       .seed = (uint64_t)o->seed};
    return all_agree(j->compute.open(&j->compute, j->comm.device, fsdp_lanes(o->prefetch),
                                     report_ticks(&shape)) &&
                     load_text(j) && report_open(&j->report, &shape, o->steps)) &&
           fsdp_open(f);
}

static void end_job(struct job *j)
{
    report_close(&j->report);
    if (j->compute.state) {
        fsdp_close(&j->fsdp);
        j->compute.close(&j->compute);
    }
    if (j->comm.state)
        j->comm.close(&j->comm);
}

/* ---- training */

static bool run_step(struct job *j, int number)
{
    enum { RISE = 20 }; /* smaller steps at first, when Adam's averages include few gradients */
    const double rise = number < RISE ? (number + 1.0) / RISE : 1;
    j->compute.tick(&j->compute);
    return fsdp_step(&j->fsdp, number, (float)(j->options.rate * 1e-6 * rise),
                     number + 1 == j->options.steps);
}

/* The host reads losses after every tenth step and at the end. Between these it only enqueues. */
static bool train(struct job *j)
{
    const int steps = j->options.steps;
    for (int done = 1; done <= steps; done++) {
        if (!run_step(j, done - 1))
            return false;
        if ((done % LOSSES == 0 || done == steps) &&
            !report_read(&j->report, &j->fsdp, done - j->report.steps))
            return false;
    }
    return true;
}

static enum end perform(struct job *j)
{
    const struct options *o = &j->options;
    const enum end end = take_device(j);
    bool fine = true;
    if (end != END_WELL)
        return end;
    if (!make(j))
        return END_FAILED;
    if (j->comm.rank == 0)
        report_head(&j->fsdp, j->fsdp.text_bytes);
    if (!train(j))
        return END_BROKEN;
    if (j->comm.rank == 0) {
        report_table(&j->report, &j->fsdp);
        fine = !o->json || report_json(&j->report, &j->fsdp, o);
    }
    return all_agree(fine) ? END_WELL : END_FAILED;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    char words[512];
    enum end end = END_WELL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.comm.rank);
    if (!options_parse(&job.options, argv, words, sizeof(words)))
        end = say(&job, END_USAGE, words);
    else if (!job.options.help)
        end = perform(&job);
    else if (job.comm.rank == 0)
        fputs(options_usage, stdout);
    if (end == END_BROKEN)
        MPI_Abort(MPI_COMM_WORLD, END_BROKEN);
    end_job(&job);
    MPI_Finalize();
    return (int)end;
}
