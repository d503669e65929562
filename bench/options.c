/* cecl_perf's options. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char usage[] =
    "usage: mpirun -n RANKS cecl_perf [options]\n"
    "  --op OP            all_gather (default) or alltoall\n"
    "  -b, -e BYTES       first and last size, bytes a rank (K, M, G); default 1M to 256M\n"
    "                     all_gather: one rank's contribution; alltoall: one rank's whole send "
    "buffer\n"
    "  -f FACTOR          from one size to the next; default 4\n"
    "  -n, -w COUNT       calls in a round, and calls to warm up; default 20 and 5\n"
    "  --rounds COUNT     rounds, the sides in turn in each; the median counts; default 7\n"
    "  -c 0|1             check every byte on random input; default 1\n"
    "  --in-place, --out-of-place   only that; default both (alltoall: out of place)\n"
    "  --baseline LIST    nccl, nccl-ce (zero-CTA policy, registered windows), or both: "
    "nccl,nccl-ce\n"
    "  --enqueue          also: host time to enqueue one call\n"
    "  --alloc            also: time of a rendezvous, and of an allocation inside the pool\n"
    "  --alloc-bytes N    size of that rendezvous; default 3G\n"
    "  --json FILE        the results as JSON\n"
    "algbw is the bytes of the result per second (all_gather: ranks x size; alltoall: size), busbw "
    "= algbw x\n"
    "(ranks - 1) / ranks, as in nccl-tests. 1 GB = 10^9 bytes. Ratio: a rival's time / cecl's; "
    "above 1, cecl is faster.\n";

static bool parse_bytes(const char *text, size_t *bytes)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr("KMG", *end) : NULL;
    if (end == text || *text == '-' || (*end && (!suffix || end[1])))
        return false;
    *bytes = (size_t)value << (suffix ? 10 * (suffix - "KMG" + 1) : 0);
    return *bytes >= 4 && *bytes <= (size_t)1 << 40;
}

static bool parse_count(const char *text, int least, int most, int *count)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        return false;
    *count = (int)value;
    return true;
}

static bool parse_baseline(const char *text, struct options *o)
{
    o->nccl = strcmp(text, "nccl") == 0 || strcmp(text, "nccl,nccl-ce") == 0;
    o->nccl_ce = strcmp(text, "nccl-ce") == 0 || strcmp(text, "nccl,nccl-ce") == 0;
    return o->nccl || o->nccl_ce;
}

static bool parse_op(const char *text, struct options *o)
{
    o->op = strcmp(text, "alltoall") == 0 ? ceclOpAlltoAll : ceclOpAllGather;
    return o->op == ceclOpAlltoAll || strcmp(text, "all_gather") == 0;
}

enum {
    OP = 256,
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
    {"rounds", 1, NULL, ROUNDS},
    {"in-place", 0, NULL, IN_PLACE},
    {"out-of-place", 0, NULL, OUT_OF_PLACE},
    {"baseline", 1, NULL, BASELINE},
    {"enqueue", 0, NULL, ENQUEUE},
    {"alloc", 0, NULL, ALLOC},
    {"alloc-bytes", 1, NULL, ALLOC_BYTES},
    {"json", 1, NULL, JSON},
    {"corrupt", 0, NULL, CORRUPT}, /* spoils a byte, so that a test sees the check fail */
    {"help", 0, NULL, HELP},
    {NULL, 0, NULL, 0}};

static bool take(struct options *o, int option, const char *value)
{
    int flag;
    switch (option) {
    case OP: return parse_op(value, o);
    case 'b': return parse_bytes(value, &o->first);
    case 'e': return parse_bytes(value, &o->last);
    case 'f': o->factor = atof(value); return o->factor > 1.0 && o->factor < 1e6;
    case 'n': return parse_count(value, 1, 1000000, &o->iterations);
    case 'w': return parse_count(value, 0, 1000000, &o->warmup);
    case ROUNDS: return parse_count(value, 1, MAX_ROUNDS, &o->rounds);
    case 'c':
        if (!parse_count(value, 0, 1, &flag))
            return false;
        o->check = flag != 0;
        return true;
    case IN_PLACE: o->in_place = true; return true;
    case OUT_OF_PLACE: o->out_of_place = true; return true;
    case BASELINE: return parse_baseline(value, o);
    case ENQUEUE: o->enqueue = true; return true;
    case ALLOC: o->alloc = true; return true;
    case ALLOC_BYTES: return parse_bytes(value, &o->alloc_bytes);
    case JSON: o->json = value; return true;
    case CORRUPT: o->corrupt = true; return true;
    default: return false;
    }
}

bool options_parse(struct options *o, int argc, char **argv, bool quiet, int *code)
{
    int option;
    *o = (struct options){.op = ceclOpAllGather,
                          .first = 1 << 20,
                          .last = 256 << 20,
                          .factor = 4,
                          .iterations = 20,
                          .warmup = 5,
                          .rounds = 7,
                          .check = true,
                          .alloc_bytes = (size_t)3 << 30};
    opterr = 0;
    while ((option = getopt_long(argc, argv, "b:e:f:n:w:c:", longs, NULL)) != -1) {
        if (option == HELP) {
            if (!quiet)
                fputs(usage, stdout);
            *code = 0;
            return false;
        }
        if (!take(o, option, optarg)) {
            if (!quiet)
                fprintf(stderr, "cecl_perf: %s%s%s: not an option, or a value it cannot have\n\n%s",
                        argv[optind - 1], optarg ? " in " : "", optarg ? optarg : "", usage);
            *code = 2;
            return false;
        }
    }
    if (optind < argc || o->first > o->last) {
        if (!quiet)
            fprintf(stderr, "cecl_perf: %s\n\n%s",
                    optind < argc ? argv[optind] : "-b is larger than -e", usage);
        *code = 2;
        return false;
    }
    if (!o->in_place && !o->out_of_place) {
        o->out_of_place = true;
        o->in_place = o->op == ceclOpAllGather;
    }
    return true;
}
