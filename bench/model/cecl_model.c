/* cecl_model: plays the plans of a collective on a simulated machine. See docs/scale.md. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"

static const char usage[] =
    "Usage: cecl_model [options]\n"
    "  --op NAME        all_gather, alltoall, reduce_scatter, all_reduce, reduce, broadcast,\n"
    "                   gather, scatter or barrier\n"
    "  --gpus G         GPUs, a rank each; default 8\n"
    "  -b, -e BYTES     first and last size of a block, with K, M or G; default 64M, at most\n"
    "                   1024G. For a reduction over all ranks: of the input. -f N: factor\n"
    "                   between sizes; default 4\n"
    "  --out-of-place   otherwise in place; --sm-allow: as CECL_SM_POLICY=allow\n"
    "  --staging BYTES  instead of the tuning table's value\n"
    "  --group N        a group of N such calls, instead of one call\n"
    "  --late RANK:US   RANK comes US us later than the others, and its peers' hosts do not wait\n"
    "                   for it\n"
    "  --runs N         plays N times, each time with other random delays, and prints means;\n"
    "                   default 20 up to 128 ranks, else 1. --rate jitter=0: without delays\n"
    "  --rates FILE     lines with a rate's name and a number; --rate NAME=NUMBER: one rate\n"
    "  --show-rates     prints the rates, and ends\n"
    "  --plans          also: sizes of plans, and the time to make them\n";

struct options {
    struct model_call call;
    struct model_rates rates;
    uint64_t first, last;
    int factor, late_rank, runs;
    double late_us;
    bool show_rates, plans;
};

/* Reads a number of bytes: at most 1 TiB, so that no sum over 1024 ranks overflows. */
static bool bytes_of(const char *text, uint64_t *bytes)
{
    char *end;
    const double value = strtod(text, &end);
    const char *suffixes = "KMG", *suffix = *end ? strchr(suffixes, *end) : NULL;
    const int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (end == text || (*end && (!suffix || end[1])) || !(value >= 1) ||
        value > (double)(UINT64_C(1) << (40 - shift)))
        return false;
    *bytes = (uint64_t)value << shift;
    return true;
}

static bool number_of(const char *text, int least, int most, int *number)
{
    char *end;
    const long value = strtol(text, &end, 10);
    *number = (int)value;
    return end != text && !*end && value >= least && value <= most;
}

static bool rate_of(struct model_rates *rates, const char *text)
{
    char name[32];
    const char *value = strchr(text, '=');
    if (!value || value - text >= (long)sizeof(name))
        return false;
    memcpy(name, text, (size_t)(value - text));
    name[value - text] = '\0';
    return model_rates_set(rates, name, value + 1);
}

static bool late_of(struct options *o, const char *text)
{
    char tail;
    if (sscanf(text, "%d:%lf%c", &o->late_rank, &o->late_us, &tail) != 2 || o->late_rank < 0 ||
        o->late_rank > 63 || !(o->late_us >= 0) || o->late_us > 1e12)
        return false;
    o->call.late = UINT64_C(1) << o->late_rank;
    return true;
}

enum { OP = 256, GPUS, OUT, ALLOW, STAGING, GROUP, LATE, RUNS, RATES, RATE, SHOW, PLANS, HELP };

static bool read_rates(struct options *o, const char *path)
{
    char trouble[256];
    const bool fine = model_rates_read(&o->rates, path, trouble);
    if (!fine)
        fprintf(stderr, "cecl_model: %s\n", trouble);
    return fine;
}

/* Takes an option of the call. */
static bool take_call(struct model_call *call, int option, const char *value)
{
    switch (option) {
    case OP: return model_calls_named(value, &call->op);
    case OUT: call->in_place = false; return true;
    case ALLOW: call->sm_policy = CECL_SM_ALLOW; return true;
    case STAGING: return bytes_of(value, &call->staging);
    case GPUS: return number_of(value, 1, CECL_MAX_RANKS, &call->nranks);
    case GROUP: return number_of(value, 1, MODEL_GROUP_MAX, &call->group);
    default: return false;
    }
}

static bool take(struct options *o, int option, const char *value)
{
    switch (option) {
    case LATE: return late_of(o, value);
    case RUNS: return number_of(value, 1, 10000, &o->runs);
    case RATE: return rate_of(&o->rates, value);
    case RATES: return read_rates(o, value);
    case 'b': return bytes_of(value, &o->first);
    case 'e': return bytes_of(value, &o->last);
    case 'f': return number_of(value, 2, 1024, &o->factor);
    case SHOW: o->show_rates = true; return true;
    case PLANS: o->plans = true; return true;
    default: return take_call(&o->call, option, value);
    }
}

static int read_options(struct options *o, int argc, char **argv)
{
    static const struct option longs[] = {{"op", 1, NULL, OP},
                                          {"gpus", 1, NULL, GPUS},
                                          {"out-of-place", 0, NULL, OUT},
                                          {"sm-allow", 0, NULL, ALLOW},
                                          {"staging", 1, NULL, STAGING},
                                          {"group", 1, NULL, GROUP},
                                          {"late", 1, NULL, LATE},
                                          {"runs", 1, NULL, RUNS},
                                          {"rates", 1, NULL, RATES},
                                          {"rate", 1, NULL, RATE},
                                          {"show-rates", 0, NULL, SHOW},
                                          {"plans", 0, NULL, PLANS},
                                          {"help", 0, NULL, HELP},
                                          {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "b:e:f:", longs, NULL)) >= 0;) {
        if (option == HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if (!take(o, option, optarg)) {
            fprintf(stderr, "cecl_model: bad option or value%s%s\n%s", optarg ? ": " : "",
                    optarg ? optarg : "", usage);
            return 2;
        }
    }
    if (optind < argc || o->late_rank >= o->call.nranks) {
        fprintf(stderr, "cecl_model: %d GPUs, and no rank %d\n%s", o->call.nranks, o->late_rank,
                usage);
        return 2;
    }
    if (o->last < o->first)
        o->last = o->first;
    if (o->runs == 0)
        o->runs = o->call.nranks > 128 ? 1 : 20;
    return -1;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_plans(const struct cecl_plan *plans, int nranks, double made)
{
    const struct cecl_plan *most = &plans[0];
    for (int r = 1; r < nranks; r++)
        if (plans[r].nsteps > most->nsteps)
            most = &plans[r];
    const double kib =
        (double)(most->nsteps * sizeof(*most->steps) + most->ncopies * sizeof(*most->copies) +
                 most->nreductions * sizeof(*most->reductions) +
                 most->nsources * sizeof(*most->sources)) /
        1024;
    printf(
        "%10s a plan: %u steps, %u copies, %u reductions, %u barriers; %.0f KiB, %.0f us to make\n",
        "", most->nsteps, most->ncopies, most->nreductions, most->phases[CECL_LANE_MAIN], kib,
        made / nranks * 1e6);
}

static ceclResult_t play(struct options *o, struct cecl_plan *plans, double *start)
{
    const struct model_call *call = &o->call;
    const int n = call->nranks;
    struct model_outcome out;
    const double before = seconds();
    CECL_TRY(model_calls_lower(call, plans));
    const double made = seconds() - before;
    for (int r = 0; r < n; r++)
        start[r] = call->late && r == o->late_rank ? o->late_us : 0;
    const ceclResult_t result = model_play(plans, n, &o->rates, start, o->runs, &out);
    if (result == ceclSuccess) {
        const double us = out.us - (call->late ? o->late_us : 0),
                     closed = model_closed(call, &o->rates);
        printf("%10" PRIu64 " %11.1f %8.1f", call->bytes, us, model_bus_bandwidth(call, us));
        if (closed > 0)
            printf(" %11.1f %8.1f %6.3f", closed, model_bus_bandwidth(call, closed), closed / us);
        else
            printf(" %11s %8s %6s", "-", "-", "-");
        printf("  %-10s %4d %5.2f %7d  %s\n", out.link ? out.link : "-", out.link_of, out.busiest,
               out.incast, plans[0].path);
        if (o->plans)
            print_plans(plans, n, made);
    }
    model_calls_free(plans, n);
    return result;
}

static ceclResult_t play_all(struct options *o)
{
    const int n = o->call.nranks;
    struct cecl_plan *plans = calloc((size_t)n, sizeof(*plans));
    double *start = calloc((size_t)n, sizeof(*start));
    ceclResult_t result = plans && start ? ceclSuccess : ceclOutOfMemory;
    printf("# %s %s, %d GPUs\n", cecl_ops[o->call.op].noun,
           o->call.in_place ? "in place" : "out of place", n);
    printf("#    bytes          us   bus GB/s   closed us bus GB/s  share  busiest link      full "
           "incast  way\n");
    for (uint64_t bytes = o->first; bytes <= o->last && result == ceclSuccess;
         bytes *= (uint64_t)o->factor) {
        o->call.bytes = o->call.op == CECL_OP_BARRIER ? 0 : bytes;
        result = play(o, plans, start);
    }
    free(plans);
    free(start);
    return result;
}

int main(int argc, char **argv)
{
    static struct options o;
    o.call = (struct model_call){.op = CECL_OP_ALL_GATHER, .in_place = true, .nranks = 8};
    o.rates = model_rates_default();
    o.first = 64u << 20;
    o.factor = 4;
    const int code = read_options(&o, argc, argv);
    if (code >= 0)
        return code;
    if (o.show_rates) {
#define RATE(name, value, words) printf("%-8s %8g  # %s\n", #name, o.rates.name, words);
        MODEL_RATES
#undef RATE
        return 0;
    }
    if (play_all(&o) == ceclSuccess)
        return 0;
    fprintf(stderr, "cecl_model: %s\n", cecl_message());
    return 1;
}
