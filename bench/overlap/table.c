/* Prints the table on standard output and writes the JSON file. */
#include <stdio.h>
#include <stdlib.h>

#include "overlap.h"

#define NOTHING ((struct spread){0})

/* How a value is spread over the rounds. */
struct spread {
    double first, median, third; /* first and third are quartiles */
    bool known;
};

/* The spread of `values`; if `by` is given, the spread of values[i] / by[i] over the rounds i. */
static struct spread spread_of(const double *values, const double *by, int count)
{
    double sorted[MAX_ROUNDS];
    for (int i = 0; i < count; i++)
        sorted[i] = !by ? values[i] : by[i] > 0 ? values[i] / by[i] : 0;
    const double median = median_of(sorted, count);
    return (struct spread){sorted[count / 4], median, sorted[3 * count / 4], true};
}

/* The contender with which the others are compared; NULL without NCCL, or if NCCL cannot do the call. */
static const struct contender *yardstick(const struct trial *t)
{
    for (int i = 0; i < t->ncontenders; i++)
        if (t->contenders[i].on && t->contenders[i].yardstick)
            return &t->contenders[i];
    return NULL;
}

/* The columns of a side, in the order of the printed table. */
enum { WITH, TO_GEMM, SEQUENTIAL, ALONE, TO_YARDSTICK, COLUMNS };

static void columns_of(const struct run *run, const struct settings *settings,
                       const struct trial *t, const struct contender *c,
                       struct spread columns[COLUMNS])
{
    const int rounds = run->options.rounds;
    const struct contender *y = yardstick(t);
    columns[WITH] = spread_of(c->with, NULL, rounds);
    columns[TO_GEMM] = spread_of(c->with, t->gemm, rounds);
    columns[SEQUENTIAL] = settings->sequential ? spread_of(c->sequential, NULL, rounds) : NOTHING;
    columns[ALONE] = spread_of(c->alone, NULL, rounds);
    columns[TO_YARDSTICK] = y ? spread_of(c->with, y->with, rounds) : NOTHING;
}

void table_head(const struct run *run, const struct settings *settings)
{
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (run->rank != 0)
        return;
    printf("# cecl_overlap: %s (%s) beside a GEMM (half, M = N = K = %d), %d ranks on GPUs\n",
           run->options.op->name, run->options.type->name, settings->gemm, run->nranks);
    if (settings->preset)
        printf("# preset %s\n", settings->preset);
    printf("# medians and quartiles of %d rounds after %d, sides in turn; host copies: %s; "
           "CUDA_DEVICE_MAX_CONNECTIONS=%s\n",
           run->options.rounds, run->options.warmup,
           settings->host_copies ? "both ways throughout" : "none", connections ? connections : "");
    if (side_nccl_version())
        printf("# NCCL %s\n", side_nccl_version());
    else
        puts("# built without NCCL: cecl alone");
    fflush(stdout);
}

static void print_cell(const struct spread *s)
{
    char text[64] = "-";
    if (s->known)
        snprintf(text, sizeof(text), "%.4f (%.4f..%.4f)", s->median, s->first, s->third);
    printf(" %25s", text);
}

/* Prints the column of sequential runs only if these were measured. */
static void print_cells(const struct settings *settings, const struct spread columns[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++)
        if (i != SEQUENTIAL || settings->sequential)
            print_cell(&columns[i]);
}

static void print_titles(const struct settings *settings, const struct trial *t)
{
    const struct contender *y = yardstick(t);
    char against[64];
    const char *const titles[COLUMNS] = {"with gemm ms", "x gemm alone", "in sequence ms",
                                         "alone ms", against};
    snprintf(against, sizeof(against), "x %s", y ? y->name : "nccl");
    printf("%-22s", "# side");
    for (int i = 0; i < COLUMNS; i++)
        if (i != SEQUENTIAL || settings->sequential)
            printf(" %25s", titles[i]);
    printf(" %8s\n", "errors");
}

static void print_row(const struct run *run, const struct settings *settings, const struct trial *t,
                      const struct contender *c)
{
    struct spread columns[COLUMNS] = {NOTHING};
    if (c->on)
        columns_of(run, settings, t, c, columns);
    printf("%-22s", c->name);
    print_cells(settings, columns);
    if (c->on)
        printf(" %8lld\n", c->errors);
    else
        printf(" %8s\n", "-");
}

/* Prints how many calls were late, because those take longer. */
static void print_late(const struct trial *t)
{
    const char *before = "# calls to which a rank came late:";
    for (int i = 0; i < t->ncontenders; i++) {
        const struct contender *c = &t->contenders[i];
        if (c->told == 0)
            continue;
        printf("%s %s %.0f %%", before, c->name, 100 * (double)c->late / (double)c->told);
        before = ";";
    }
    if (*before == ';')
        puts("");
}

void table_size(const struct run *run, const struct settings *settings, const struct trial *t)
{
    if (run->rank != 0)
        return;
    const double n = settings->gemm;
    const struct spread gemm = spread_of(t->gemm, NULL, run->options.rounds);
    struct spread columns[COLUMNS] = {NOTHING};
    printf("\n# %zu bytes a rank; the GEMM alone: %.0f TFLOPS\n", size_of(run, t->block),
           gemm.median > 0 ? 2 * n * n * n / gemm.median * 1e-9 : 0);
    print_titles(settings, t);
    columns[WITH] = gemm;
    printf("%-22s", "gemm alone");
    print_cells(settings, columns);
    printf(" %8s\n", "-");
    for (int i = 0; i < t->ncontenders; i++)
        print_row(run, settings, t, &t->contenders[i]);
    print_late(t);
    fflush(stdout);
}

static void json_spread(FILE *out, const char *name, const struct spread *s)
{
    if (s->known)
        fprintf(out, "\"%s\": %.5f, \"%s_quartiles\": [%.5f, %.5f]", name, s->median, name,
                s->first, s->third);
    else
        fprintf(out, "\"%s\": null", name);
}

static void json_times(FILE *out, const char *name, const double *ms, int count)
{
    fprintf(out, ",\n     \"%s\": [", name);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%.5f", i ? ", " : "", ms[i]);
    fprintf(out, "]");
}

static void json_side(FILE *out, const struct run *run, const struct settings *settings,
                      const struct trial *t, const struct contender *c)
{
    static const char *const names[COLUMNS] = {"with_gemm_ms", "to_gemm_alone", "sequential_ms",
                                               "alone_ms", "to_yardstick"};
    const int rounds = run->options.rounds;
    struct spread columns[COLUMNS];
    columns_of(run, settings, t, c, columns);
    fprintf(out, "    {\"side\": \"%s\", \"errors\": %lld, \"calls\": %llu, \"late_calls\": %llu",
            c->name, c->errors, (unsigned long long)c->told, (unsigned long long)c->late);
    for (int i = 0; i < COLUMNS; i++) {
        fputs(",\n     ", out);
        json_spread(out, names[i], &columns[i]);
    }
    json_times(out, "rounds_with_gemm_ms", c->with, rounds);
    if (settings->sequential)
        json_times(out, "rounds_sequential_ms", c->sequential, rounds);
    json_times(out, "rounds_alone_ms", c->alone, rounds);
    fprintf(out, "}");
}

static void json_size(FILE *out, const struct run *run, const struct settings *settings,
                      const struct trial *t)
{
    const struct contender *y = yardstick(t);
    const struct spread gemm = spread_of(t->gemm, NULL, run->options.rounds);
    fprintf(out, "  {\"bytes\": %zu, ", size_of(run, t->block));
    if (y)
        fprintf(out, "\"yardstick\": \"%s\", ", y->name);
    else
        fprintf(out, "\"yardstick\": null, ");
    json_spread(out, "gemm_alone_ms", &gemm);
    json_times(out, "rounds_gemm_alone_ms", t->gemm, run->options.rounds);
    fprintf(out, ",\n   \"sides\": [");
    for (int i = 0, written = 0; i < t->ncontenders; i++)
        if (t->contenders[i].on) {
            fputs(written++ ? ",\n" : "\n", out);
            json_side(out, run, settings, t, &t->contenders[i]);
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
            "{\"op\": \"%s\", \"type\": \"%s\", \"ranks\": %d, \"gemm\": %d, \"preset\": \"%s\", "
            "\"host_copies\": %s, \"rounds\": %d, \"warmup\": %d, \"sizes\": [",
            o->op->name, o->type->name, run->nranks, settings->gemm,
            settings->preset ? settings->preset : "", settings->host_copies ? "true" : "false",
            o->rounds, o->warmup);
    for (int i = 0; i < count; i++) {
        fputs(i ? ",\n" : "\n", out);
        json_size(out, run, settings, &trials[i]);
    }
    fprintf(out, "\n]}\n");
    const bool written = !ferror(out);
    return (fclose(out) == 0 && written) || complain(run, o->json, "not wholly written");
}
