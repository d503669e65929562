/* Collects losses and times, and prints them for people. */
#include "report.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report_numbers.h"

bool report_open(struct report *r, const struct shape *s, int first, int steps)
{
    *r = (struct report){.first = first, .room = steps};
    r->loss = calloc((size_t)steps + 1, sizeof(*r->loss));
    r->step_ms = calloc((size_t)steps + 1, sizeof(*r->step_ms));
    r->exposed_ms = calloc((size_t)steps + 1, sizeof(*r->exposed_ms));
    r->ticks = calloc((size_t)report_ticks(s), sizeof(*r->ticks));
    if (r->loss && r->step_ms && r->exposed_ms && r->ticks)
        return true;
    fprintf(stderr, "fsdp_train: --steps %d: no memory to note so many\n", steps);
    return false;
}

void report_close(struct report *r)
{
    free(r->loss);
    free(r->step_ms);
    free(r->exposed_ms);
    free(r->ticks);
    *r = (struct report){0};
}

/* A step has one tick, and two around each wait. After the steps come one more tick, and two around
 * the wait for the losses. */
int report_ticks(const struct shape *s)
{
    return LOSSES * (1 + 2 * fsdp_waits(s)) + 3;
}

bool report_read(struct report *r, struct fsdp *f, int count)
{
    const int each = 1 + 2 * fsdp_waits(&f->shape), from = r->steps;
    double exposed[LOSSES] = {0}, step[LOSSES] = {0};
    f->compute->tick(f->compute);
    if (!fsdp_losses(f, r->loss + from, count) ||
        !f->compute->ticks(f->compute, r->ticks, count * each + 3))
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
    return true;
}

void report_head(const struct fsdp *f, const struct options *o, uint64_t text_bytes)
{
    const struct shape *s = &f->shape;
    printf(
        "A byte-level language model of %.2f million parameters: %d block%s, width %d, %d heads, "
        "sequences of %d.\n",
        (double)parameter_count(s) * 1e-6, s->layers, s->layers > 1 ? "s" : "", s->width, s->heads,
        s->sequence);
    printf("%d rank%s, %d samples each; text: %s, %llu bytes.\n", f->comm->nranks,
           f->comm->nranks > 1 ? "s" : "", s->batch, o->data, (unsigned long long)text_bytes);
    printf("Compute: %s. Communication: %s, ", f->compute->name, f->comm->name);
    if (f->prefetch > 0)
        printf("%d layer%s gathered ahead, gradients reduced behind.\n\n", f->prefetch,
               f->prefetch > 1 ? "s" : "");
    else
        printf("nothing overlaps (--no-overlap).\n\n");
    fflush(stdout);
}

void report_progress(const struct report *r, const struct fsdp *f, int count)
{
    double ms = 0, exposed = 0;
    for (int i = r->steps - count; i < r->steps; i++) {
        ms += r->step_ms[i] / count;
        exposed += r->exposed_ms[i] / count;
    }
    printf("step %5d   loss %.4f   %9.0f tokens/s   %8.2f ms a step, %6.2f of it waiting for "
           "communication\n",
           r->first + r->steps, r->loss[r->steps - 1], step_tokens(f) / ms * 1e3, ms, exposed);
    fflush(stdout);
}

static void row(const char *what, const char *value, const char *remark)
{
    printf("  %-40s %16s   %s\n", what, value, remark);
}

void report_table(const struct report *r, const struct fsdp *f)
{
    const struct spread step = spread_of(r, r->step_ms), exposed = spread_of(r, r->exposed_ms);
    const double state = (double)fsdp_shard_elements(f) * (12 + (double)f->compute->element);
    const double whole = (double)parameter_count(&f->shape) * (12 + (double)f->compute->element);
    char value[64], remark[96];
    printf("\n");
    snprintf(value, sizeof(value), "%.3f -> %.3f", r->loss[0], r->loss[r->steps - 1]);
    row("loss, nats a byte: first -> last step", value, "5.545 is guessing; lower is better");
    snprintf(value, sizeof(value), "%.2f ms", step.median);
    snprintf(remark, sizeof(remark), "half of the steps took %.2f to %.2f", step.low, step.high);
    row("one step (median)", value, remark);
    snprintf(value, sizeof(value), "%.2f ms", exposed.median);
    snprintf(remark, sizeof(remark), "%.1f %% of a step; %s", 100 * exposed.median / step.median,
             f->comm->device >= 0 ? "the rest was hidden behind compute"
                                  : "ranks share cores, and wait for these too");
    row("  of it waiting for communication", value, remark);
    snprintf(value, sizeof(value), "%.0f", step_tokens(f) / step.median * 1e3);
    row("tokens (bytes) a second, all ranks", value, "");
    snprintf(value, sizeof(value), "%.1f MB", sent_bytes(f) * 1e-6);
    row("received by a rank in a step", value, "parameters twice, gradients once");
    snprintf(value, sizeof(value), "%.1f MB", state * 1e-6);
    snprintf(remark, sizeof(remark), "of %.1f MB: parameters, gradients, Adam state", whole * 1e-6);
    row("kept by a rank", value, remark);
    snprintf(value, sizeof(value), "%d", f->prefetch + 1);
    row("layers that are whole at a time", value, "besides two layers' gradients");
}
