/* cecl_tune's options. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "parse.h"
#include "tuner.h"

static const char usage[] =
    "Usage: mpirun -n RANKS cecl_tune [options]\n"
    "Measures, on this machine and with RANKS ranks, from which size on one way of a collective\n"
    "is faster than another, and writes a file that CECL_TUNING=FILE loads.\n"
    "  --quick           fewer sizes and rounds: some seconds, on GPUs about a minute\n"
    "  --op OP           only all_gather, alltoall, reduce_scatter, all_reduce or broadcast\n"
    "  --output FILE     the file to write; default cecl.tuning, in this folder\n"
    "  --seconds COUNT   begin no size after COUNT seconds; default 600, with --quick 60\n"
    "CECL_DEVICE=host measures the host device. Rows of a file that CECL_TUNING names are kept\n"
    "unless they are measured anew. So run it once for each number of ranks, each time with the\n"
    "previous file. Both ways take turns, round by round; a time is the median over rounds of the\n"
    "slowest rank. A way must win by 2 % to move a threshold. A threshold that cannot be measured\n"
    "here keeps its value, and the file says why.\n"
    "Exit code: 0; 2 if an option was wrong; 3 if a call failed.\n";

static const struct option longs[] = {{"quick", 0, NULL, 'q'},  {"op", 1, NULL, 'p'},
                                      {"output", 1, NULL, 'o'}, {"seconds", 1, NULL, 's'},
                                      {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};

/* Makes the name absolute, because programs may read the file in another folder. */
static bool take_output(struct tuner *tuner, const char *name)
{
    char folder[PATH_MAX] = "";
    if (*name != '/' && !getcwd(folder, sizeof(folder)))
        return false;
    const int length =
        snprintf(tuner->output, sizeof(tuner->output), "%s%s%s", folder, *folder ? "/" : "", name);
    return *name && length >= 0 && (size_t)length < sizeof(tuner->output);
}

/* Returns NULL, or what was expected. */
static const char *take(struct tuner *tuner, int option, const char *value)
{
    switch (option) {
    case 'q': tuner->quick = true; return NULL;
    case 'p':
        tuner->op = crossing_op_named(value);
        return tuner->op ? NULL : "all_gather, alltoall, reduce_scatter, all_reduce or broadcast";
    case 'o': return take_output(tuner, value) ? NULL : "a file's name";
    case 's': return parse_count(value, 1, 86400, &tuner->seconds) ? NULL : "1 to 86400";
    default: return "an option that --help lists, with its value";
    }
}

/* Returns false for --help, or if argv is wrong, with the reason in `words`. */
static bool read_all(struct tuner *tuner, int argc, char **argv, char *words, size_t bytes)
{
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (option == 'h')
            return false;
        const char *expected = take(tuner, option, optarg);
        if (expected) {
            snprintf(words, bytes, "%s: %s expected", argv[optind - 1], expected);
            return false;
        }
    }
    if (optind < argc)
        snprintf(words, bytes, "%s: no option", argv[optind]);
    else if (tuner->run.nranks < 2)
        snprintf(words, bytes, "one rank has nothing to choose: 2 or more expected (mpirun -n)");
    return !*words;
}

bool tuner_options(struct tuner *tuner, int argc, char **argv, int *code)
{
    char words[256] = "";
    bool fine = read_all(tuner, argc, argv, words, sizeof(words));
    if (fine && !*tuner->output)
        fine = take_output(tuner, "cecl.tuning");
    if (!tuner->seconds)
        tuner->seconds = tuner->quick ? 60 : 600;
    if (tuner->run.rank == 0 && *words)
        fprintf(stderr, "cecl_tune: %s (--help lists the options)\n", words);
    else if (tuner->run.rank == 0 && !fine)
        fputs(usage, stdout);
    *code = *words ? END_USAGE : END_FINE;
    return fine;
}
