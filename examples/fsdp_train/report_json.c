/* Quartiles, and the report as JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sort.h"
#include "report_numbers.h"

enum { WARM_UP = 3 };

int steps_left_out(const struct report *r)
{
    return r->steps > 2 * WARM_UP ? WARM_UP : 0;
}

struct spread spread_of(const struct report *r, const double *values)
{
    const int skip = steps_left_out(r);
    const size_t count = (size_t)(r->steps - skip);
    double *sorted = malloc((count + 1) * sizeof(*sorted));
    struct spread s = {0, 0, 0};
    if (sorted && count > 0) {
        memcpy(sorted, values + skip, count * sizeof(*sorted));
        sort_numbers(sorted, count);
        s = (struct spread){sorted[count / 4], sorted[count / 2], sorted[3 * count / 4]};
    }
    free(sorted);
    return s;
}

double step_tokens(const struct fsdp *f)
{
    return (double)f->comm->nranks * f->shape.batch * f->shape.sequence;
}

double sent_bytes(const struct fsdp *f)
{
    double elements = 0;
    if (f->comm->once)
        return 0;
    for (int g = 0; g < group_count(&f->shape); g++) {
        const int embed = g == 0, head = g > f->shape.layers;
        elements += (double)shard_elements(&f->shape, g) * (embed || head ? 2 : 3);
    }
    return elements * (f->comm->nranks - 1) * (double)f->compute->element;
}

static void json_spread(FILE *file, const char *name, struct spread s)
{
    fprintf(file, "  \"%s\": {\"low\": %.6f, \"median\": %.6f, \"high\": %.6f},\n", name, s.low,
            s.median, s.high);
}

bool report_json(const struct report *r, const struct fsdp *f, const struct options *o)
{
    const struct shape *s = &f->shape;
    FILE *file = fopen(o->json, "w");
    if (!file) {
        fprintf(stderr, "fsdp_train: --json %s: %s\n", o->json, strerror(errno));
        return false;
    }
    fprintf(file,
            "{\n  \"compute\": \"%s\", \"device\": \"%s\",\n  \"comm\": \"%s\",\n"
            "  \"ranks\": %d, \"prefetch\": %d,\n"
            "  \"layers\": %d, \"width\": %d, \"heads\": %d, \"sequence\": %d, \"batch\": %d,\n"
            "  \"parameters\": %zu, \"received_bytes\": %.0f,\n"
            "  \"first_step\": %d, \"steps\": %d, \"warm_up_steps\": %d,\n",
            f->compute->name, f->comm->device >= 0 ? "cuda" : "host", o->comm, f->comm->nranks,
            f->prefetch, s->layers, s->width, s->heads, s->sequence, s->batch, parameter_count(s),
            sent_bytes(f), r->first, r->steps, steps_left_out(r));
    const struct spread step = spread_of(r, r->step_ms), exposed = spread_of(r, r->exposed_ms);
    json_spread(file, "step_ms", step);
    json_spread(file, "exposed_ms", exposed);
    fprintf(file, "  \"exposed_share\": %.6f, \"tokens_per_second\": %.1f,\n  \"losses\": [",
            step.median > 0 ? exposed.median / step.median : 0,
            step.median > 0 ? step_tokens(f) / step.median * 1e3 : 0);
    for (int i = 0; i < r->steps; i++) /* 17 digits keep every bit */
        fprintf(file, "%s\n    %.17g", i ? "," : "", r->loss[i]);
    fprintf(file, "\n  ]\n}\n");
    const bool failed = ferror(file);
    if (fclose(file) == 0 && !failed)
        return true;
    fprintf(stderr, "fsdp_train: --json %s: %s\n", o->json, strerror(errno));
    return false;
}
