#ifndef CECL_TESTS_WORLD_OPTIONS_H
#define CECL_TESTS_WORLD_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define OPTIONS_MOST_JOBS 256

struct options {
    const char *only; /* NULL: all cases */
    int part, parts, jobs, runs;
    uint64_t seed;
    bool lists, selects;
};

/* Reads options into `out`, which has their defaults. False: they were wrong, and the usage was printed. */
static inline bool options_read(int argc, char **argv, const char *usage, struct options *out)
{
    static const struct option names[] = {
        {"list", no_argument, NULL, 'l'},       {"case", required_argument, NULL, 'c'},
        {"part", required_argument, NULL, 'p'}, {"jobs", required_argument, NULL, 'j'},
        {"seed", required_argument, NULL, 's'}, {"runs", required_argument, NULL, 'n'},
        {"selected", no_argument, NULL, 'S'},   {NULL, 0, NULL, 0}};
    bool good = true;
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (o) {
        case 'l': out->lists = true; break;
        case 'c': out->only = optarg; break;
        case 'p': good = good && sscanf(optarg, "%d/%d", &out->part, &out->parts) == 2; break;
        case 'j': out->jobs = atoi(optarg); break;
        case 's': out->seed = strtoull(optarg, NULL, 10); break;
        case 'n': out->runs = atoi(optarg); break;
        case 'S': out->selects = true; break;
        default: good = false;
        }
    good = good && optind == argc && out->parts >= 1 && out->part >= 0 && out->part < out->parts &&
           out->jobs >= 1 && out->jobs <= OPTIONS_MOST_JOBS && out->runs >= 1;
    if (!good)
        fprintf(stderr, "usage: %s %s\n", argv[0], usage);
    return good;
}

#endif
