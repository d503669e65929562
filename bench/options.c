/* cecl_perf's options: each is parsed whole or refused, with what it may be. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define MOST_BYTES ((size_t)1 << 40)
#define LEAST_ALLOC ((size_t)1 << 20) /* room for the allocations inside the pool */

static const char usage[] =
    "usage: mpirun -n RANKS cecl_perf [options]\n"
    "  --op OP            all_gather (default) or alltoall\n"
    "  --type TYPE        int8, int32 (default), int64, uint8, uint32, uint64, float16, float32,\n"
    "                     float64, bfloat16, float8e4m3, float8e5m2\n"
    "  -b, -e BYTES       first and last size, bytes a rank (K, M, G); default 1M to 256M.\n"
    "                     all_gather: one rank's contribution, a block;\n"
    "                     alltoall: one rank's whole send buffer, ranks x block\n"
    "  -f FACTOR          from one size to the next; default 4\n"
    "  -n, -w COUNT       calls in a round, and calls before it to warm up; default 20 and 5\n"
    "  --rounds COUNT     rounds, the sides in turn in each; the median counts; default 7\n"
    "  -c 0|1             check every byte, before each round and after the last, on random input\n"
    "                     that is new each time; default 1\n"
    "  --in-place, --out-of-place   only that, or both; default both (alltoall: out of place)\n"
    "  --baseline LIST    of nccl and nccl-ce (zero-CTA policy, registered windows), with commas\n"
    "  --enqueue          also: host time to enqueue one call of the first size\n"
    "  --alloc            also: time of a ceclMemAlloc for which a new communicator's pool must\n"
    "                     grow, and of an allocation and its free inside the pool\n"
    "  --alloc-bytes N    size of the former; default 3G\n"
    "  --json FILE        the results as JSON\n"
    "Sizes are rounded down to whole elements; count is what the call is given, elements of a\n"
    "block. time is the slowest rank's. algbw = ranks x block / time, busbw = algbw x\n"
    "(ranks - 1) / ranks, as in nccl-tests; 1 GB = 10^9 bytes. ratio = a rival's time / cecl's:\n"
    "above 1, cecl is faster. One rank has neither: nothing crosses. errors are bytes wrong on\n"
    "all sides and ranks.\n"
    "Ends with 0, 1 where bytes were wrong, 2 where an option was, 3 where a call failed.\n";

static bool parse_bytes(const char *text, size_t least, size_t *bytes)
{
    static const char suffixes[] = "KMG";
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (errno || (*end && (!suffix || end[1])))
        return false;
    const int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (value > MOST_BYTES >> shift || (value << shift) < least)
        return false;
    *bytes = (size_t)value << shift;
    return true;
}

static bool parse_count(const char *text, int least, int most, int *count)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        return false;
    *count = (int)value;
    return true;
}

static bool parse_factor(const char *text, double *factor)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 1)
        return false;
    *factor = value;
    return true;
}

static bool parse_baseline(const char *text, struct options *o)
{
    for (;;) {
        const size_t length = strcspn(text, ",");
        if (length == 4 && memcmp(text, "nccl", length) == 0)
            o->nccl = true;
        else if (length == 7 && memcmp(text, "nccl-ce", length) == 0)
            o->nccl_ce = true;
        else
            return false;
        if (!text[length])
            return true;
        text += length + 1;
    }
}

static bool parse_corrupt(const char *text, enum corruption *what)
{
    *what = !text || strcmp(text, "byte") == 0 ? CORRUPT_BYTE : CORRUPT_SKIP;
    return *what == CORRUPT_BYTE || strcmp(text, "skip") == 0;
}

enum {
    OP = 256,
    TYPE,
    ROUNDS,
    IN_PLACE,
    OUT_OF_PLACE,
    BASELINE,
    ENQUEUE,
    ALLOC,
    ALLOC_BYTES,
    JSON,
    CORRUPT,
    HELP
};

static const struct option longs[] = {
    {"op", 1, NULL, OP},
    {"type", 1, NULL, TYPE},
    {"rounds", 1, NULL, ROUNDS},
    {"in-place", 0, NULL, IN_PLACE},
    {"out-of-place", 0, NULL, OUT_OF_PLACE},
    {"baseline", 1, NULL, BASELINE},
    {"enqueue", 0, NULL, ENQUEUE},
    {"alloc", 0, NULL, ALLOC},
    {"alloc-bytes", 1, NULL, ALLOC_BYTES},
    {"json", 1, NULL, JSON},
    /* For tests: the result of each check is spoilt (byte), or the collective left out (skip). */
    {"corrupt", 2, NULL, CORRUPT},
    {"help", 0, NULL, HELP},
    {NULL, 0, NULL, 0}};

#define SIZE_EXPECTED "1 to 1024G bytes, with K, M or G"

/* NULL, or what was expected. */
static const char *take(struct options *o, int option, const char *value)
{
    int flag = 0;
    switch (option) {
    case OP: o->op = op_named(value); return o->op ? NULL : "all_gather or alltoall";
    case TYPE: o->type = type_named(value); return o->type ? NULL : "a type that --help names";
    case 'b': return parse_bytes(value, 1, &o->first) ? NULL : SIZE_EXPECTED;
    case 'e': return parse_bytes(value, 1, &o->last) ? NULL : SIZE_EXPECTED;
    case 'f': return parse_factor(value, &o->factor) ? NULL : "a number above 1";
    case 'n': return parse_count(value, 1, 1000000, &o->iterations) ? NULL : "1 to 1000000";
    case 'w': return parse_count(value, 0, 1000000, &o->warmup) ? NULL : "0 to 1000000";
    case ROUNDS: return parse_count(value, 1, MAX_ROUNDS, &o->rounds) ? NULL : "1 to 101";
    case 'c':
        if (!parse_count(value, 0, 1, &flag))
            return "0 or 1";
        o->check = flag != 0;
        return NULL;
    case IN_PLACE: o->in_place = true; return NULL;
    case OUT_OF_PLACE: o->out_of_place = true; return NULL;
    case BASELINE:
        if (!side_nccl_built)
            return "nothing: this cecl_perf was built without NCCL";
        return parse_baseline(value, o) ? NULL : "nccl, nccl-ce, or both with a comma";
    case ENQUEUE: o->enqueue = true; return NULL;
    case ALLOC: o->alloc = true; return NULL;
    case ALLOC_BYTES:
        return parse_bytes(value, LEAST_ALLOC, &o->alloc_bytes) ? NULL : "1M to 1024G";
    case JSON: o->json = value; return *value ? NULL : "a file's name";
    default: return parse_corrupt(value, &o->corrupt) ? NULL : "byte or skip";
    }
}
_Static_assert(MAX_ROUNDS == 101, "take names it");

/* What no option tells alone. False with a message. */
static bool fits(const struct options *o, int nranks, char *why, size_t bytes)
{
    if (o->first > o->last)
        snprintf(why, bytes, "-b %zu: at most -e, %zu, expected", o->first, o->last);
    else if (block_of(o, nranks, o->first) == 0)
        snprintf(why, bytes, "-b %zu: less than one element (%s, %zu bytes)%s", o->first,
                 o->type->name, o->type->bytes, o->op->block_per_rank ? " for each rank" : "");
    else if (size_at(o, MAX_SIZES))
        snprintf(why, bytes, "-f %g: at most %d sizes from -b %zu to -e %zu expected", o->factor,
                 MAX_SIZES, o->first, o->last);
    else if (o->corrupt && !o->check)
        snprintf(why, bytes, "--corrupt: -c 1 expected");
    else
        return true;
    return false;
}

/* Reads argv. False with what is wrong in `why`, or with `why` empty for --help. */
static bool read_options(struct options *o, int argc, char **argv, int nranks, char *why,
                         size_t bytes)
{
    int option, index = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":b:e:f:n:w:c:", longs, &index)) != -1) {
        if (option == HELP)
            return false;
        if (option == '?' || option == ':') {
            snprintf(why, bytes, "%s: %s", argv[optind - 1],
                     option == ':' ? "a value expected" : "no such option, or one without a value");
            return false;
        }
        const char *expected = take(o, option, optarg);
        if (expected && option < OP)
            snprintf(why, bytes, "-%c %s: %s expected", option, optarg, expected);
        else if (expected)
            snprintf(why, bytes, "--%s %s: %s expected", longs[index].name, optarg ? optarg : "",
                     expected);
        if (expected)
            return false;
    }
    if (optind < argc) {
        snprintf(why, bytes, "%s: no option", argv[optind]);
        return false;
    }
    return fits(o, nranks, why, bytes);
}

bool options_parse(struct options *o, int argc, char **argv, const struct run *run, int *code)
{
    char why[512] = "";
    *o = (struct options){.op = op_named("all_gather"),
                          .type = type_named("int32"),
                          .first = 1 << 20,
                          .last = 256 << 20,
                          .factor = 4,
                          .iterations = 20,
                          .warmup = 5,
                          .rounds = 7,
                          .check = true,
                          .alloc_bytes = (size_t)3 << 30};
    if (!read_options(o, argc, argv, run->nranks, why, sizeof(why))) {
        if (run->rank == 0 && *why)
            fprintf(stderr, "cecl_perf: %s (--help lists the options)\n", why);
        else if (run->rank == 0)
            fputs(usage, stdout);
        *code = *why ? END_USAGE : END_FINE;
        return false;
    }
    if (!o->in_place && !o->out_of_place) {
        o->out_of_place = true;
        o->in_place = o->op->in_place_too;
    }
    return true;
}
