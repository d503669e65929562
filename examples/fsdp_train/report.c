/* Collects losses and times, and prints them for people and as JSON. */
#include "train.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sort.h"

bool report_open(struct report *r, const struct shape *s, int steps)
{
    const size_t each = (size_t)steps + 1;
    *r = (struct report){.loss = calloc(3 * each + (size_t)report_ticks(s), sizeof(double))};
    r->step_ms = r->loss + each;
    r->exposed_ms = r->step_ms + each;
    r->ticks = r->exposed_ms + each;
    if (!r->loss)
        fprintf(stderr, "fsdp_train: --steps %d: no memory to note so many\n", steps);
    return r->loss != NULL;
}

void report_close(struct report *r)
{
    free(r->loss);
    r->loss = NULL;
}

/* A step has one tick, and two around each wait. After the steps comes one more tick. */
int report_ticks(const struct shape *s)
{
    return LOSSES * (1 + 2 * fsdp_waits(s)) + 1;
}

/* Tokens of all ranks in a step. */
static double step_tokens(const struct fsdp *f)
{
    return (double)f->comm->nranks * f->shape.batch * f->shape.sequence;
}

static void print_progress(const struct report *r, const struct fsdp *f, int count)
{
    double ms = 0, exposed = 0;
    for (int i = r->steps - count; i < r->steps; i++) {
        ms += r->step_ms[i] / count;
        exposed += r->exposed_ms[i] / count;
    }
    printf("step %5d   loss %.4f   %9.0f tokens/s   %8.2f ms a step, %6.2f of it waiting for "
           "communication\n",
           r->steps, r->loss[r->steps - 1], step_tokens(f) / ms * 1e3, ms, exposed);
    fflush(stdout);
}

bool report_read(struct report *r, struct fsdp *f, int count)
{
    const int each = 1 + 2 * fsdp_waits(&f->shape), from = r->steps;
    double exposed[LOSSES] = {0}, step[LOSSES] = {0};
    f->compute->tick(f->compute);
    if (!fsdp_losses(f, r->loss + from, count) ||
        !f->compute->ticks(f->compute, r->ticks, count * each + 1))
        return false;
    for (int s = 0; s < count; s++) {
        const double *t = r->ticks + s * each;
        step[s] = t[each] - t[0];
        for (int w = 1; w < each; w += 2)
            exposed[s] += (t[w + 1] - t[w]) / f->comm->nranks;
    }
    MPI_Allreduce(step, r->step_ms + from, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(exposed, r->exposed_ms + from, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    r->steps += count;
    if (f->comm->rank == 0)
        print_progress(r, f, count);
    return true;
}

/* ---- numbers */

/* How many first steps do not count, because they make plans and warm up: none in a short run. */
static int steps_left_out(const struct report *r)
{
    enum { WARM_UP = 3 };
    return r->steps > 2 * WARM_UP ? WARM_UP : 0;
}

static double median_of(const struct report *r, const double *values)
{
    const int skip = steps_left_out(r);
    const size_t count = (size_t)(r->steps - skip);
    double *sorted = malloc(count * sizeof(*sorted)), median = 0;
    if (sorted) {
        memcpy(sorted, values + skip, count * sizeof(*sorted));
        sort_numbers(sorted, count);
        median = sorted[count / 2];
    }
    free(sorted);
    return median;
}

/* How many bytes a rank receives from its peers in a step. */
static double received_bytes(const struct fsdp *f)
{
    double elements = 0;
    for (int g = 0; g < group_count(&f->shape) && !f->comm->once; g++) {
        const bool block = g > 0 && g <= f->shape.layers;
        elements += (double)shard_elements(&f->shape, g) * (block ? 3 : 2);
    }
    return elements * (f->comm->nranks - 1) * (double)f->compute->element;
}

/* ---- for people */

void report_head(const struct fsdp *f, size_t text_bytes)
{
    const struct shape *s = &f->shape;
    printf("A byte-level language model of %.2f million parameters: %d blocks, width %d, %d heads, "
           "sequences of %d.\n%d ranks, %d samples each; text of %zu bytes.\n",
           (double)parameter_count(s) * 1e-6, s->layers, s->width, s->heads, s->sequence,
           f->comm->nranks, s->batch, text_bytes);
    printf("Compute: %s. Communication: %s; layers gathered ahead: %d.\n\n", f->compute->name,
           f->comm->name, f->prefetch);
    fflush(stdout);
}

static void row(const char *what, const char *value, const char *remark)
{
    printf("  %-40s %16s   %s\n", what, value, remark);
}

void report_table(const struct report *r, const struct fsdp *f)
{
    const double step = median_of(r, r->step_ms), exposed = median_of(r, r->exposed_ms);
    char value[64], remark[96];
    printf("\n");
    snprintf(value, sizeof(value), "%.3f -> %.3f", r->loss[0], r->loss[r->steps - 1]);
    row("loss, nats a byte: first -> last step", value, "5.545 is guessing; lower is better");
    snprintf(value, sizeof(value), "%.2f ms", step);
    row("one step (median)", value, "of the slowest rank");
    snprintf(value, sizeof(value), "%.2f ms", exposed);
    snprintf(remark, sizeof(remark), "%.1f %% of a step; %s", 100 * exposed / step,
             f->comm->device >= 0 ? "the rest was hidden behind compute"
                                  : "ranks share cores, and wait for these too");
    row("  of it waiting for communication", value, remark);
    snprintf(value, sizeof(value), "%.1f MB", received_bytes(f) * 1e-6);
    row("received by a rank in a step", value, "blocks' parameters twice, gradients once");
}

/* ---- for programs */

static void write_json(FILE *file, const struct report *r, const struct fsdp *f,
                       const struct options *o)
{
    const double step = median_of(r, r->step_ms), exposed = median_of(r, r->exposed_ms);
    fprintf(
        file,
        "{\n  \"compute\": \"%s\", \"device\": \"%s\",\n  \"comm\": \"%s\",\n"
        "  \"ranks\": %d, \"prefetch\": %d,\n"
        "  \"layers\": %d, \"width\": %d, \"heads\": %d, \"sequence\": %d, \"batch\": %d,\n"
        "  \"parameters\": %zu, \"received_bytes\": %.0f,\n"
        "  \"steps\": %d, \"warm_up_steps\": %d, \"tokens_per_second\": %.1f,\n"
        "  \"step_ms\": {\"median\": %.6f}, \"exposed_ms\": {\"median\": %.6f},\n  \"losses\": [",
        f->compute->name, f->comm->device >= 0 ? "cuda" : "host", o->comm, f->comm->nranks,
        f->prefetch, o->layers, o->width, o->heads, o->sequence, o->batch,
        parameter_count(&f->shape), received_bytes(f), r->steps, steps_left_out(r),
        step_tokens(f) / step * 1e3, step, exposed);
    for (int i = 0; i < r->steps; i++) /* 17 digits keep every bit */
        fprintf(file, "%s\n    %.17g", i ? "," : "", r->loss[i]);
    fprintf(file, "\n  ]\n}\n");
}

bool report_json(const struct report *r, const struct fsdp *f, const struct options *o)
{
    FILE *file = fopen(o->json, "w");
    if (file) {
        write_json(file, r, f, o);
        const bool failed = ferror(file);
        if (fclose(file) == 0 && !failed)
            return true;
    }
    fprintf(stderr, "fsdp_train: --json %s: %s\n", o->json, strerror(errno));
    return false;
}
