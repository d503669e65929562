/* The option parsing that the benchmark programs share. A value is parsed whole or refused. */
#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 40)
#define SIZE_EXPECTED "1 to 1024G bytes, with K, M or G"

bool parse_bytes(const char *text, size_t least, size_t *bytes)
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

bool parse_count(const char *text, int least, int most, int *count)
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

static bool parse_corrupt(const char *text, enum corruption *what)
{
    *what = !text || strcmp(text, "byte") == 0 ? CORRUPT_BYTE : CORRUPT_SKIP;
    return *what == CORRUPT_BYTE || strcmp(text, "skip") == 0;
}

const char *take_shared(struct options *o, int option, const char *value)
{
    switch (option) {
    case OPTION_OP:
        o->op = op_named(value);
        return o->op ? NULL
                     : "all_gather, alltoall, alltoallv_device, dispatch, combine, reduce_scatter, "
                       "reduce_scatter_as, reduce_scatter_tiles, all_reduce, sendrecv, send or put";
    case 'b': return parse_bytes(value, 1, &o->first) ? NULL : SIZE_EXPECTED;
    case 'e': return parse_bytes(value, 1, &o->last) ? NULL : SIZE_EXPECTED;
    case 'f': return parse_factor(value, &o->factor) ? NULL : "a number above 1";
    case OPTION_ROUNDS: return parse_count(value, 1, MAX_ROUNDS, &o->rounds) ? NULL : "1 to 201";
    case OPTION_JSON: o->json = value; return *value ? NULL : "a file's name";
    default: return parse_corrupt(value, &o->corrupt) ? NULL : "byte or skip";
    }
}
_Static_assert(MAX_ROUNDS == 201, "take_shared names it");

/* Checks options that depend on each other. Returns false with a message in `why`. */
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
    else if (o->op->widens && o->type->bytes != 2)
        snprintf(why, bytes, "--type %s: %s takes float16 or bfloat16", o->type->name, o->op->name);
    else if (o->op->reduces && !elements_can(o->type, nranks))
        snprintf(why, bytes, "--type %s: too few numbers to check sums of %d ranks", o->type->name,
                 nranks);
    else if (o->in_place &&
             (o->op->passes_on || (o->op->block_per_rank && o->op->call != ceclAlltoAll)))
        snprintf(why, bytes, "--in-place: %s is measured out of place", o->op->name);
    else if (o->group && o->op->open)
        snprintf(why, bytes, "--group: %s is a one-sided call, which no group takes", o->op->name);
    else if (o->corrupt && !o->check)
        snprintf(why, bytes, "--corrupt: -c 1 expected");
    else
        return true;
    return false;
}

/* Reads argv. Returns false with a message in `why`; `why` is empty for --help. */
static bool read_all(const struct grammar *g, struct options *o, int argc, char **argv, int nranks,
                     char *why, size_t bytes)
{
    int option, index = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, g->shorts, g->longs, &index)) != -1) {
        if (option == OPTION_HELP)
            return false;
        if (option == '?' || option == ':') {
            snprintf(why, bytes, "%s: %s", argv[optind - 1],
                     option == ':' ? "a value expected" : "no such option, or one without a value");
            return false;
        }
        const char *expected = g->take(o, option, optarg);
        if (expected && option < OPTION_HELP)
            snprintf(why, bytes, "-%c %s: %s expected", option, optarg, expected);
        else if (expected)
            snprintf(why, bytes, "--%s %s: %s expected", g->longs[index].name, optarg ? optarg : "",
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

bool grammar_read(const struct grammar *g, struct options *o, int argc, char **argv,
                  const struct run *run, int *code)
{
    char why[512] = "";
    if (read_all(g, o, argc, argv, run->nranks, why, sizeof(why)))
        return true;
    if (run->rank == 0 && *why)
        fprintf(stderr, "%s: %s (--help lists the options)\n", run->program, why);
    else if (run->rank == 0)
        printf("%s%s", g->usage[0], g->usage[1] ? g->usage[1] : "");
    *code = *why ? END_USAGE : END_FINE;
    return false;
}
