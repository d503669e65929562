/* FSDP-style training of a small language model on a real text, as a complete program: sharded
 * parameters, gradients and Adam state (fsdp.c), gathers before the compute that needs them and
 * reductions after it (comm.h), checkpoints (checkpoint.c). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "report.h"
#include "sample.h"
#include "text.h"

enum end {
    END_WELL = 0,
    END_FAILED = 1, /* all ranks know, and end together */
    END_USAGE = 2,
    END_BROKEN = 3 /* others may wait for this rank */
};

struct job {
    struct options options;
    struct comm comm;
    struct compute compute;
    struct fsdp fsdp;
    struct text text;
    unsigned char *device_text;
    struct report report;
    int done; /* steps, including those before a checkpoint */
};

static bool is_rank_0(const struct job *j)
{
    return j->comm.rank == 0;
}

/* ---- setup */

static enum end take_device(struct job *j)
{
    char words[256];
    if (!all_agree(comm_open(&j->comm, j->options.comm, !j->options.no_overlap)))
        return END_FAILED;
    const struct compute *gpu = j->comm.device >= 0 ? compute_cuda() : NULL;
    if (j->comm.device >= 0 && !gpu) {
        if (is_rank_0(j))
            fprintf(stderr, "fsdp_train: this program was built without CUDA: CECL_DEVICE=host "
                            "expected\n");
        return END_FAILED;
    }
    if (!options_default(&j->options, gpu != NULL, words, sizeof(words))) {
        if (is_rank_0(j))
            fprintf(stderr, "fsdp_train: %s\n", words);
        return END_USAGE;
    }
    j->compute = gpu ? *gpu : compute_host;
    j->comm.compute = &j->compute;
    return END_WELL;
}

static struct shape shape_of(const struct job *j)
{
    const struct options *o = &j->options;
    return (struct shape){.layers = o->layers,
                          .width = o->width,
                          .heads = o->heads,
                          .sequence = o->sequence,
                          .batch = o->batch,
                          .nranks = j->comm.nranks};
}

static struct identity identity_of(const struct job *j)
{
    const struct options *o = &j->options;
    return (struct identity){.layers = (uint64_t)o->layers,
                             .width = (uint64_t)o->width,
                             .heads = (uint64_t)o->heads,
                             .sequence = (uint64_t)o->sequence,
                             .batch = (uint64_t)o->batch,
                             .ranks = (uint64_t)j->comm.nranks,
                             .rank = (uint64_t)j->comm.rank,
                             .seed = o->seed,
                             .text_bytes = j->text.count,
                             .text_hash = j->text.hash};
}

static bool load_text(struct job *j)
{
    const struct options *o = &j->options;
    /* long enough for a batch whose samples all begin at different places */
    const size_t least = (size_t)o->sequence + (size_t)o->batch * (size_t)j->comm.nranks;
    if (!text_load(&j->text, o->data, least))
        return false;
    j->device_text = j->compute.alloc(&j->compute, j->text.count);
    if (!j->device_text)
        return false;
    j->compute.write(&j->compute, j->device_text, j->text.bytes, j->text.count);
    return j->compute.wait(&j->compute);
}

static bool make(struct job *j)
{
    struct options *o = &j->options;
    const struct shape shape = shape_of(j);
    const int prefetch = o->no_overlap ? 0 : o->prefetch;
    if (!all_agree(j->compute.open(&j->compute, j->comm.device, fsdp_lanes(prefetch),
                                   report_ticks(&shape))))
        return false;
    if (!all_agree(load_text(j)))
        return false;
    if (!all_agree(fsdp_open(&j->fsdp, &shape, &j->compute, &j->comm, prefetch, o->seed)))
        return false;
    const struct identity identity = identity_of(j); /* the text is part of the identity */
    uint64_t step = 0;
    if (o->resume && !checkpoint_load(&j->fsdp, o->checkpoint, &identity, &step))
        return false;
    if (step > (uint64_t)o->steps) {
        if (is_rank_0(j))
            fprintf(stderr,
                    "fsdp_train: --steps %d: the checkpoint has done %llu steps; at least as "
                    "many expected\n",
                    o->steps, (unsigned long long)step);
        return false;
    }
    j->done = (int)step;
    return all_agree(report_open(&j->report, &shape, j->done, o->steps - j->done));
}

static void end_job(struct job *j)
{
    report_close(&j->report);
    fsdp_close(&j->fsdp);
    if (j->device_text)
        j->compute.free(&j->compute, j->device_text);
    text_free(&j->text);
    if (j->compute.state)
        j->compute.close(&j->compute);
    if (j->comm.close && j->comm.state)
        j->comm.close(&j->comm);
}

/* ---- training */

/* The first steps are small, because Adam's averages then include few gradients. */
static float rate_of(const struct options *o, int step)
{
    enum { RISE = 20 };
    return (float)(o->rate * (step < RISE ? (step + 1.0) / RISE : 1));
}

static bool run_step(struct job *j, int loss, bool last)
{
    const struct step step = {.text = j->device_text,
                              .text_bytes = j->text.count,
                              .seed = j->options.seed,
                              .number = (uint64_t)j->done,
                              .rate = rate_of(&j->options, j->done),
                              .last = last,
                              .loss = loss};
    j->compute.tick(&j->compute);
    if (!fsdp_step(&j->fsdp, &step))
        return false;
    j->done++;
    return true;
}

static bool saves_at(const struct options *o, int step)
{
    return o->checkpoint && (step == o->steps || (o->save_every && step % o->save_every == 0));
}

/* The host reads losses after every tenth step, and at the end or at a checkpoint. In between it
 * only enqueues. */
static enum end train(struct job *j)
{
    const struct options *o = &j->options;
    const struct identity identity = identity_of(j);
    const int every = LOSSES * (1 + o->steps / 200); /* no more lines than a screen has */
    int unread = 0, untold = 0;
    while (j->done < o->steps) {
        const bool last = j->done + 1 == o->steps;
        if (!run_step(j, unread, last))
            return END_BROKEN;
        unread++;
        const bool save = saves_at(o, j->done);
        if (j->done % LOSSES != 0 && unread < LOSSES && !last && !save)
            continue;
        if (!report_read(&j->report, &j->fsdp, unread))
            return END_BROKEN;
        untold += unread;
        unread = 0;
        if (last || j->done % every == 0) {
            if (is_rank_0(j))
                report_progress(&j->report, &j->fsdp, untold);
            untold = 0;
        }
        if (save && !checkpoint_save(&j->fsdp, o->checkpoint, &identity, (uint64_t)j->done))
            return END_FAILED;
    }
    return END_WELL;
}

/* What rank 0 prints after a run without errors. */
static bool report(struct job *j)
{
    if (j->report.steps > 0)
        report_table(&j->report, &j->fsdp);
    return !j->options.json || report_json(&j->report, &j->fsdp, &j->options);
}

static enum end perform(struct job *j)
{
    const struct options *o = &j->options;
    enum end end = take_device(j);
    if (end != END_WELL)
        return end;
    if (!make(j))
        return END_FAILED;
    if (is_rank_0(j))
        report_head(&j->fsdp, o, j->text.count);
    if (is_rank_0(j) && o->resume)
        printf("Goes on after step %d.\n", j->done);
    end = train(j);
    if (end == END_WELL && o->sample && !sample_write(&j->fsdp, &j->text, o->sample, o->seed))
        end = END_BROKEN;
    if (end == END_WELL && !all_agree(!is_rank_0(j) || report(j)))
        end = END_FAILED;
    return end;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    char words[512];
    int rank;
    enum end end = END_WELL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!options_parse(&job.options, argc, argv, words, sizeof(words))) {
        if (rank == 0)
            fprintf(stderr, "fsdp_train: %s (--help lists all options)\n", words);
        end = END_USAGE;
    } else if (job.options.help) {
        if (rank == 0)
            fputs(options_usage, stdout);
    } else {
        end = perform(&job);
    }
    if (end == END_BROKEN)
        MPI_Abort(MPI_COMM_WORLD, END_BROKEN);
    end_job(&job);
    MPI_Finalize();
    return (int)end;
}
