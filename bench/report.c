/* Prints the table on standard output and writes the JSON file. */
#include <stdio.h>

#include "bench.h"

/* algbw in GB/s, as nccl-tests counts it: all blocks count that a rank sends or receives. An all-reduce and a message
 * have one block. */
static double algbw_of(const struct run *run, const struct result *r, int side)
{
    const struct op *op = run->options.op;
    const bool whole = op->block_per_rank || op->block_of_each;
    const double all = (double)r->block * (whole ? run->nranks : 1);
    return r->us[side] > 0 ? all / r->us[side] * 1e-3 : 0;
}

static double busbw_of(const struct run *run, const struct result *r, int side)
{
    const struct op *op = run->options.op;
    const double share = op->passes_on ? 1 : (double)(run->nranks - 1) / run->nranks;
    return op->bus * algbw_of(run, r, side) * share;
}

void report_head(const struct run *run, const struct side *sides, int nsides)
{
    const struct options *o = &run->options;
    if (run->rank != 0)
        return;
    printf("# cecl_perf: %s, %d ranks on %s, median of %d rounds of %d calls, sides in turn\n",
           o->op->name, run->nranks, run->cuda ? "GPUs" : "the host device", o->rounds,
           o->iterations);
    if (o->nccl || o->nccl_ce)
        printf("# NCCL %s\n", side_nccl_version());
    printf("# %10s %12s %10s %5s %10s %8s %8s", "bytes/rank", "count", "type", "place", "cecl us",
           "algbw", "busbw");
    for (int s = 1; s < nsides; s++)
        printf(" %8s us %8s %6s", sides[s].name, "busbw", "ratio");
    printf(" %7s\n", "errors");
}

static void print_or_dash(bool known, int width, int digits, double value)
{
    if (known)
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

void report_row(const struct run *run, const struct result *r)
{
    const struct type *type = run->options.type;
    /* With one rank nothing crosses a link, so there is no bandwidth, and a ratio would only compare overheads. */
    const bool crosses = run->nranks > 1 && r->us[0] > 0;
    if (run->rank != 0)
        return;
    printf("%12zu %12zu %10s %5s %10.1f", size_of(run, r->block), r->block / type->bytes,
           type->name, r->in_place ? "in" : "out", r->us[0]);
    print_or_dash(crosses, 8, 1, algbw_of(run, r, 0));
    print_or_dash(crosses, 8, 1, busbw_of(run, r, 0));
    for (int s = 1; s < r->nsides; s++) {
        const bool measured = r->us[s] > 0;
        print_or_dash(measured, 11, 1, r->us[s]);
        print_or_dash(measured && crosses, 8, 1, busbw_of(run, r, s));
        print_or_dash(measured && crosses, 6, 3, crosses ? r->us[s] / r->us[0] : 0);
    }
    if (r->errors < 0)
        printf(" %7s\n", "N/A");
    else
        printf(" %7lld\n", r->errors);
    fflush(stdout);
}

static void json_row(FILE *out, const struct run *run, const struct result *r)
{
    fprintf(out, "  {\"bytes\": %zu, \"count\": %zu, \"in_place\": %s, \"errors\": ",
            size_of(run, r->block), r->block / run->options.type->bytes,
            r->in_place ? "true" : "false");
    if (r->errors < 0)
        fprintf(out, "null");
    else
        fprintf(out, "%lld", r->errors);
    fprintf(out, ", \"us\": {");
    for (int s = 0, written = 0; s < r->nsides; s++)
        if (r->us[s] > 0)
            fprintf(out, "%s\"%s\": %.3f", written++ ? ", " : "", r->names[s], r->us[s]);
    fprintf(out, "}}");
}

bool report_json(const struct run *run, const struct result *results, int count)
{
    const struct options *o = &run->options;
    if (run->rank != 0 || !o->json)
        return true;
    FILE *out = fopen(o->json, "w");
    if (!out)
        return complain(run, o->json, "cannot be written");
    fprintf(out,
            "{\"op\": \"%s\", \"type\": \"%s\", \"ranks\": %d, \"device\": \"%s\", "
            "\"rounds\": %d, \"iterations\": %d, \"rows\": [",
            o->op->name, o->type->name, run->nranks, run->cuda ? "cuda" : "host", o->rounds,
            o->iterations);
    for (int i = 0; i < count; i++) {
        fputs(i ? ",\n" : "\n", out);
        json_row(out, run, &results[i]);
    }
    fprintf(out, "\n]}\n");
    const bool written = !ferror(out);
    return (fclose(out) == 0 && written) || complain(run, o->json, "not wholly written");
}
