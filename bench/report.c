/* The table on standard output, and the JSON file. */
#include <inttypes.h>
#include <stdio.h>

#include "bench.h"

double algbw_of(const struct run *run, size_t bytes, double us)
{
    const double all = (double)bytes * (run->options.op == ceclOpAllGather ? run->nranks : 1);
    return us > 0 ? all / us * 1e-3 : 0;
}

double busbw_of(const struct run *run, size_t bytes, double us)
{
    return algbw_of(run, bytes, us) * (run->nranks - 1) / run->nranks;
}

static const char *op_name(const struct run *run)
{
    return run->options.op == ceclOpAllGather ? "all_gather" : "alltoall";
}

void report_head(const struct run *run, const struct side *sides, int nsides)
{
    if (run->rank != 0)
        return;
    printf(
        "# cecl_perf: %s, %d ranks on %s, int32, median of %d rounds of %d calls, sides in turn\n",
        op_name(run), run->nranks, run->cuda ? "GPUs" : "the host device", run->options.rounds,
        run->options.iterations);
    printf("# %10s %9s %10s %8s %8s", "bytes/rank", "placement", "cecl us", "algbw", "busbw");
    for (int s = 1; s < nsides; s++)
        printf(" %8s us %8s %6s", sides[s].name, "busbw", "ratio");
    printf(" %7s\n", "errors");
}

void report_row(const struct run *run, const struct result *r)
{
    if (run->rank != 0)
        return;
    printf("%12zu %9s %10.1f %8.1f %8.1f", r->bytes, r->in_place ? "in" : "out", r->us[0],
           algbw_of(run, r->bytes, r->us[0]), busbw_of(run, r->bytes, r->us[0]));
    for (int s = 1; s < r->nsides; s++) {
        if (r->us[s] > 0)
            printf(" %11.1f %8.1f %6.3f", r->us[s], busbw_of(run, r->bytes, r->us[s]),
                   r->us[s] / r->us[0]);
        else
            printf(" %11s %8s %6s", "-", "-", "-");
    }
    if (r->errors < 0)
        printf(" %7s\n", "N/A");
    else
        printf(" %7lld\n", r->errors);
    fflush(stdout);
}

bool report_json(const struct run *run, const struct result *results, int count)
{
    if (run->rank != 0 || !run->options.json)
        return true;
    FILE *out = fopen(run->options.json, "w");
    if (!out)
        return complain(run, run->options.json, "cannot be written");
    fprintf(out,
            "{\"op\": \"%s\", \"ranks\": %d, \"device\": \"%s\", \"rounds\": %d, \"iterations\": "
            "%d, \"rows\": [",
            op_name(run), run->nranks, run->cuda ? "cuda" : "host", run->options.rounds,
            run->options.iterations);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s\n  {\"bytes\": %zu, \"in_place\": %s, \"errors\": %lld, \"us\": {",
                i ? "," : "", results[i].bytes, results[i].in_place ? "true" : "false",
                results[i].errors);
        for (int s = 0; s < results[i].nsides; s++)
            fprintf(out, "%s\"%s\": %.3f", s ? ", " : "", results[i].names[s], results[i].us[s]);
        fprintf(out, "}}");
    }
    fprintf(out, "\n]}\n");
    return fclose(out) == 0;
}
