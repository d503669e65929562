/* Options of the benchmark programs: shared options, and how a program adds its own. */
#ifndef CECL_BENCH_PARSE_H
#define CECL_BENCH_PARSE_H

#include <getopt.h>

#include "bench.h"

/* Long options that the programs share; they also share -b, -e and -f. */
enum {
    OPTION_HELP = 256,
    OPTION_OP,
    OPTION_ROUNDS,
    OPTION_JSON,
    OPTION_CORRUPT,
    OPTION_OWN /* the first of a program's own options */
};

/* --corrupt is for tests: `byte` spoils the result of each check, `skip` leaves the collective out. */
#define OPTIONS_SHARED \
    {"op", 1, NULL, OPTION_OP}, {"rounds", 1, NULL, OPTION_ROUNDS}, \
        {"json", 1, NULL, OPTION_JSON}, {"corrupt", 2, NULL, OPTION_CORRUPT}, \
    { \
        "help", 0, NULL, OPTION_HELP \
    }

/* A program's options. */
struct grammar {
    /* Two strings, because C promises only 4,095 characters for one. The second may be NULL. */
    const char *usage[2];
    const char *shorts;         /* getopt's, with a leading colon */
    const struct option *longs; /* with OPTIONS_SHARED among them */
    /* Stores one option. Returns NULL, or what was expected. Gives options that are not its own to take_shared. */
    const char *(*take)(struct options *o, int option, const char *value);
};

const char *take_shared(struct options *o, int option, const char *value);
bool parse_bytes(const char *text, size_t least, size_t *bytes);
bool parse_count(const char *text, int least, int most, int *count);

/* Reads argv; `o` has the defaults. Returns false if the program should end with *code: --help was printed, or rank
 * 0 has printed what is wrong. */
bool grammar_read(const struct grammar *g, struct options *o, int argc, char **argv,
                  const struct run *run, int *code);

#endif
