/* The table on standard output, and the JSON file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "overlap.h"

static double median(const double *values, int count)
{
    double copy[MAX_ROUNDS];
    memcpy(copy, values, (size_t)count * sizeof(*values));
    return median_of(copy, count);
}

/* Median of the quotients of the same rounds. */
static double ratio(const double *values, const double *by, int count)
{
    double quotients[MAX_ROUNDS];
    for (int i = 0; i < count; i++)
        quotients[i] = by[i] > 0 ? values[i] / by[i] : 0;
    return median_of(quotients, count);
}

/* Where there is no NCCL, and for what it cannot do: NULL. */
static const struct contender *yardstick(const struct trial *t)
{
    for (int i = 0; i < t->ncontenders; i++)
        if (t->contenders[i].on && strcmp(t->contenders[i].name, YARDSTICK) == 0)
            return &t->contenders[i];
    return NULL;
}

void table_head(const struct run *run, const struct settings *settings)
{
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (run->rank != 0)
        return;
    printf("# cecl_overlap: %s beside a GEMM (half, M = N = K = %d), %d ranks on GPUs\n",
           run->options.op->name, settings->gemm, run->nranks);
    printf("# medians of %d rounds after %d, sides in turn; host copies: %s; "
           "CUDA_DEVICE_MAX_CONNECTIONS=%s\n",
           run->options.rounds, run->options.warmup,
           settings->host_copies ? "both ways throughout" : "none", connections ? connections : "");
    if (!side_nccl_built)
        puts("# built without NCCL: cecl alone");
    fflush(stdout);
}

static void print_row(const struct trial *t, const struct contender *c, int rounds)
{
    const struct contender *y = yardstick(t);
    if (!c->on) {
        printf("%-22s %12s %12s %12s %13s %8s\n", c->name, "-", "-", "-", "-", "-");
        return;
    }
    printf("%-22s %12.4f %12.4f %12.4f", c->name, median(c->with, rounds),
           ratio(c->with, t->gemm, rounds), median(c->alone, rounds));
    if (y)
        printf(" %13.4f", ratio(c->with, y->with, rounds));
    else
        printf(" %13s", "-");
    printf(" %8lld\n", c->errors);
}

void table_size(const struct run *run, const struct settings *settings, const struct trial *t)
{
    const int rounds = run->options.rounds;
    if (run->rank != 0)
        return;
    const double n = settings->gemm, gemm = median(t->gemm, rounds);
    printf("\n# %zu bytes a rank; the GEMM alone: %.0f TFLOPS\n", send_bytes_of(run, t->block),
           gemm > 0 ? 2 * n * n * n / gemm * 1e-9 : 0);
    printf("%-22s %12s %12s %12s %13s %8s\n", "# side", "with gemm ms", "x gemm alone", "alone ms",
           "x nccl-ce out", "errors");
    printf("%-22s %12.4f %12.4f %12s %13s %8s\n", "gemm alone", gemm, 1.0, "-", "-", "-");
    for (int i = 0; i < t->ncontenders; i++)
        print_row(t, &t->contenders[i], rounds);
    fflush(stdout);
}

static void json_times(FILE *out, const char *name, const double *ms, int count)
{
    fprintf(out, "\"%s\": [", name);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%.5f", i ? ", " : "", ms[i]);
    fprintf(out, "]");
}

static void json_side(FILE *out, const struct trial *t, const struct contender *c, int rounds)
{
    const struct contender *y = yardstick(t);
    fprintf(out,
            "    {\"side\": \"%s\", \"errors\": %lld, \"with_gemm_ms\": %.5f, "
            "\"to_gemm_alone\": %.5f, \"alone_ms\": %.5f, \"to_nccl_ce_out\": ",
            c->name, c->errors, median(c->with, rounds), ratio(c->with, t->gemm, rounds),
            median(c->alone, rounds));
    if (y)
        fprintf(out, "%.5f,\n     ", ratio(c->with, y->with, rounds));
    else
        fprintf(out, "null,\n     ");
    json_times(out, "rounds_with_gemm_ms", c->with, rounds);
    fprintf(out, ",\n     ");
    json_times(out, "rounds_alone_ms", c->alone, rounds);
    fprintf(out, "}");
}

static void json_size(FILE *out, const struct run *run, const struct trial *t)
{
    const int rounds = run->options.rounds;
    fprintf(out, "  {\"bytes\": %zu, \"gemm_alone_ms\": %.5f,\n   ", send_bytes_of(run, t->block),
            median(t->gemm, rounds));
    json_times(out, "rounds_gemm_alone_ms", t->gemm, rounds);
    fprintf(out, ",\n   \"sides\": [");
    for (int i = 0, written = 0; i < t->ncontenders; i++)
        if (t->contenders[i].on) {
            fputs(written++ ? ",\n" : "\n", out);
            json_side(out, t, &t->contenders[i], rounds);
        }
    fprintf(out, "\n   ]}");
}

bool table_json(const struct run *run, const struct settings *settings, const struct trial *trials,
                int count)
{
    const struct options *o = &run->options;
    if (run->rank != 0 || !o->json)
        return true;
    FILE *out = fopen(o->json, "w");
    if (!out)
        return complain(run, o->json, "cannot be written");
    fprintf(out,
            "{\"op\": \"%s\", \"ranks\": %d, \"gemm\": %d, \"host_copies\": %s, \"rounds\": %d, "
            "\"warmup\": %d, \"sizes\": [",
            o->op->name, run->nranks, settings->gemm, settings->host_copies ? "true" : "false",
            o->rounds, o->warmup);
    for (int i = 0; i < count; i++) {
        fputs(i ? ",\n" : "\n", out);
        json_size(out, run, &trials[i]);
    }
    fprintf(out, "\n]}\n");
    const bool written = !ferror(out);
    return (fclose(out) == 0 && written) || complain(run, o->json, "not wholly written");
}
