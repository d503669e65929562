/* cecl_zerosm proves zero SM: while a kernel holds every SM of every GPU, each case of a table finishes with the
 * right result. This file has the table, the options and the output; zerosm_run.c runs a case. */
#include "zerosm.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define PATIENCE_MS 5000 /* ms within which a case must end */
#define COUNTER_MS 1000  /* ms within which the counter-check must not end */

enum { END_FINE, END_FAILED, END_USAGE, END_SKIPPED = 77 };

static const char usage[] =
    "Usage: cecl_zerosm [options]\n"
    "  --case N   only case N, after the counter-check\n"
    "  --split    only cases on communicators made by ceclCommSplit, after the counter-check\n"
    "  --list     the cases; needs no GPU\n"
    "  --gpus N   GPUs 0 to N-1, 2 to 16; default all\n"
    "  --help     this\n"
    "Proves that collectives need no SM: one process, with a rank for each GPU, makes them while\n"
    "a kernel holds every SM of every GPU, and checks every byte. A counter-check comes first: a\n"
    "reduce-scatter, which needs SMs, must not finish. \"bytes a rank\" is a block,\n"
    "what one rank gets from another. \"split\": GPUs with even and with odd numbers make the\n"
    "calls at the same time, each group on a communicator of its own. Two GPUs, or an odd number\n"
    "of GPUs, are all on one. Ranks are in the reverse order of GPUs.\n"
    "Each case has its own settings, which replace the variables of the same names.\n"
    "Exit code: 0 if all is well; 1 if anything failed; 2 if an option was wrong; 77 if there are\n"
    "too few GPUs.\n";

/* ---- the cases */

#define IN_PLACE true
#define OUT_OF_PLACE false
#define OWN_STREAM false
#define LEGACY true
#define IN_POOL MEMORY_POOL, false, false /* no rank is late, and nothing is split */

#define AMPLE (32u << 20)  /* staging for a whole block of each rank at a time */
#define SCANT (256u << 10) /* staging for a part of a block, which then goes in chunks */
#define MORE_THAN_SCANT (SCANT + (4u << 10))

/* EACH_WAY(operation, placement, bytes, staging): four cases, with both kinds of flags and both kinds of streams. */
#define CASE(...) \
    { \
        __VA_ARGS__ \
    }
#define EACH_WAY(...) \
    CASE(__VA_ARGS__, "never", "push", "auto", OWN_STREAM, IN_POOL), \
        CASE(__VA_ARGS__, "never", "push", "auto", LEGACY, IN_POOL), \
        CASE(__VA_ARGS__, "never", "push", "host", OWN_STREAM, IN_POOL), \
        CASE(__VA_ARGS__, "never", "push", "host", LEGACY, IN_POOL)

/* 4 KiB, in one go; and, twice, 1 MiB, which goes in chunks if a rank's own block goes through staging. */
#define EACH_SIZE(op, place) \
    {op, place, 4u << 10, AMPLE, "never", "push", "auto", OWN_STREAM, IN_POOL}, \
        {op, place, 1u << 20, SCANT, "never", "push", "auto", OWN_STREAM, IN_POOL}, \
    { \
        op, place, 1u << 20, SCANT, "never", "push", "host", LEGACY, IN_POOL \
    }

/* If ranks are late, the late one of two ranks moves the bytes in both directions. */
#define IN_MEMORY(op, place, bytes, memory, late, split) \
    { \
        op, place, bytes, AMPLE, "never", "push", "auto", OWN_STREAM, memory, late, split \
    }
#define EACH_ORDER(op, place, bytes, memory, split) \
    IN_MEMORY(op, place, bytes, memory, false, split), \
        IN_MEMORY(op, place, bytes, memory, true, split)
#define EACH_MEMORY(op, place) \
    EACH_ORDER(op, place, 1u << 20, MEMORY_MALLOC, false), \
        EACH_ORDER(op, place, 1u << 20, MEMORY_PRIVATE, false)
#define EACH_SPLIT(op, place) \
    EACH_ORDER(op, place, 1u << 20, MEMORY_POOL, true), \
        EACH_ORDER(op, place, 1u << 20, MEMORY_MALLOC, true), \
        EACH_ORDER(op, place, 1u << 20, MEMORY_PRIVATE, true)
#define PIECES (12u << 20) /* so large that a buffer of two GPUs has several handles */

/* Each call has so few copies that no stream's queue gets full; see zerosm_run.c. */
static const struct zerosm_case cases[] = {
    EACH_WAY(ZEROSM_ALL_GATHER, IN_PLACE, 4u << 10, AMPLE),
    EACH_WAY(ZEROSM_ALL_GATHER, IN_PLACE, 1u << 20, AMPLE),
    EACH_WAY(ZEROSM_ALL_GATHER, IN_PLACE, MORE_THAN_SCANT, SCANT),
    EACH_WAY(ZEROSM_ALL_GATHER, OUT_OF_PLACE, 4u << 10, AMPLE),
    EACH_WAY(ZEROSM_ALL_GATHER, OUT_OF_PLACE, 1u << 20, AMPLE),
    EACH_WAY(ZEROSM_ALL_GATHER, OUT_OF_PLACE, MORE_THAN_SCANT, SCANT),
    EACH_WAY(ZEROSM_ALL_TO_ALL, IN_PLACE, 4u << 10, AMPLE),
    EACH_WAY(ZEROSM_ALL_TO_ALL, IN_PLACE, 1u << 20, AMPLE),
    EACH_WAY(ZEROSM_ALL_TO_ALL, IN_PLACE, MORE_THAN_SCANT, SCANT),
    EACH_WAY(ZEROSM_ALL_TO_ALL, OUT_OF_PLACE, 4u << 10, AMPLE),
    EACH_WAY(ZEROSM_ALL_TO_ALL, OUT_OF_PLACE, 1u << 20, AMPLE),
    EACH_WAY(ZEROSM_ALL_TO_ALL, OUT_OF_PLACE, MORE_THAN_SCANT, SCANT),
    EACH_SIZE(ZEROSM_ALL_GATHERV, IN_PLACE),
    EACH_SIZE(ZEROSM_ALL_GATHERV, OUT_OF_PLACE),
    EACH_SIZE(ZEROSM_BROADCAST, IN_PLACE), /* with 3 GPUs or more, 1 MiB goes in chunks */
    EACH_SIZE(ZEROSM_BROADCAST, OUT_OF_PLACE),
    EACH_SIZE(ZEROSM_ALL_TO_ALLV, OUT_OF_PLACE),
    EACH_SIZE(ZEROSM_GATHER, IN_PLACE),
    EACH_SIZE(ZEROSM_GATHER, OUT_OF_PLACE),
    EACH_SIZE(ZEROSM_SCATTER, IN_PLACE),
    EACH_SIZE(ZEROSM_SCATTER, OUT_OF_PLACE),
    EACH_SIZE(ZEROSM_ALL_GATHER_STRIDED, IN_PLACE),
    EACH_SIZE(ZEROSM_ALL_GATHER_STRIDED, OUT_OF_PLACE),
    /* through scant staging, 1 MiB would need too many copies */
    EACH_WAY(ZEROSM_ALL_TO_ALL_STRIDED, IN_PLACE, 4u << 10, AMPLE),
    EACH_WAY(ZEROSM_ALL_TO_ALL_STRIDED, IN_PLACE, MORE_THAN_SCANT, SCANT),
    EACH_SIZE(ZEROSM_ALL_TO_ALL_STRIDED, OUT_OF_PLACE),
    EACH_SIZE(ZEROSM_GROUP, IN_PLACE),
    EACH_SIZE(ZEROSM_GROUP, OUT_OF_PLACE),
    /* Pulling is tried in place only, because blocks that peers return to their owner are always pushed. */
    {ZEROSM_ALL_GATHER, IN_PLACE, 1u << 20, AMPLE, "never", "pull", "auto", OWN_STREAM, IN_POOL},
    {ZEROSM_ALL_GATHER, IN_PLACE, 1u << 20, AMPLE, "never", "pull", "host", OWN_STREAM, IN_POOL},
    {ZEROSM_ALL_GATHER, IN_PLACE, 1u << 20, AMPLE, "never", "pull", "auto", LEGACY, IN_POOL},
    EACH_ORDER(ZEROSM_ALL_GATHER, IN_PLACE, 1u << 20, MEMORY_POOL, false),
    EACH_ORDER(ZEROSM_ALL_GATHER, OUT_OF_PLACE, 1u << 20, MEMORY_POOL, false),
    EACH_ORDER(ZEROSM_ALL_TO_ALL, OUT_OF_PLACE, 1u << 20, MEMORY_POOL, false),
    EACH_ORDER(ZEROSM_GROUP, OUT_OF_PLACE, 1u << 20, MEMORY_POOL, false),
    EACH_MEMORY(ZEROSM_ALL_GATHER, IN_PLACE),
    EACH_MEMORY(ZEROSM_ALL_GATHER, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_ALL_TO_ALL, IN_PLACE),
    EACH_MEMORY(ZEROSM_ALL_TO_ALL, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_ALL_GATHERV, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_ALL_TO_ALLV, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_BROADCAST, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_GATHER, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_SCATTER, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_ALL_GATHER_STRIDED, OUT_OF_PLACE),
    EACH_MEMORY(ZEROSM_GROUP, OUT_OF_PLACE),
    EACH_ORDER(ZEROSM_ALL_GATHER, IN_PLACE, PIECES, MEMORY_PIECES, false),
    EACH_ORDER(ZEROSM_ALL_TO_ALL, OUT_OF_PLACE, PIECES, MEMORY_PIECES, false),
    EACH_SPLIT(ZEROSM_ALL_GATHER, IN_PLACE),
    EACH_ORDER(ZEROSM_ALL_GATHER, OUT_OF_PLACE, 1u << 20, MEMORY_POOL, true),
    EACH_ORDER(ZEROSM_ALL_TO_ALL, IN_PLACE, 1u << 20, MEMORY_POOL, true),
    EACH_SPLIT(ZEROSM_ALL_TO_ALL, OUT_OF_PLACE),
    EACH_SPLIT(ZEROSM_GROUP, OUT_OF_PLACE),
    EACH_ORDER(ZEROSM_ALL_GATHER, IN_PLACE, PIECES, MEMORY_PIECES, true),
};
#define CASES ((int)(sizeof(cases) / sizeof(cases[0])))

/* The counter-check: a reduction needs SMs, so it ends only if they are not held. */
static const struct zerosm_case counter_case =
    CASE(ZEROSM_REDUCE_SCATTER, OUT_OF_PLACE, 1u << 20, AMPLE, "allow", "push", "auto", OWN_STREAM,
         IN_POOL);

static const char *const op_names[] = {"all-gather",
                                       "all-to-all",
                                       "variable all-gather",
                                       "broadcast",
                                       "variable all-to-all",
                                       "gather",
                                       "scatter",
                                       "strided all-gather",
                                       "strided all-to-all",
                                       "group of one call each",
                                       "reduce-scatter"};

static const char *name_of(const struct zerosm_case *c)
{
    static char name[200];
    const bool pool = c->memory == MEMORY_POOL;
    snprintf(name, sizeof(name), "%s %s, %zu bytes a rank%s, CECL_FLAGS=%s, %s%s%s%s%s",
             op_names[c->op], c->in_place ? "in place" : "out of place", c->bytes,
             strcmp(c->direction, "pull") == 0 ? ", pulled" : "", c->flags,
             c->legacy ? "legacy default stream" : "own stream", pool ? "" : ", ",
             pool ? "" : memory_on_gpus[c->memory].what, c->late ? ", late" : "",
             c->split ? ", split" : "");
    return name;
}

static void list(void)
{
    for (int i = 0; i < CASES; i++)
        printf("%2d  %s\n", i + 1, name_of(&cases[i]));
}

/* ---- options */

struct options {
    int only;   /* number of the only case to run, from 1; 0: all */
    int gpus;   /* number of GPUs to use; 0: all */
    bool split; /* only cases that split */
};

static bool parse_count(const char *name, const char *text, int least, int most, int *count)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most) {
        fprintf(stderr, "cecl_zerosm: --%s %s: %d to %d expected\n", name, text, least, most);
        return false;
    }
    *count = (int)value;
    return true;
}

/* Returns false if the program should end with *code. */
static bool parse_options(struct options *o, int argc, char **argv, int *code)
{
    static const struct option longs[] = {{"case", 1, NULL, 'c'}, {"split", 0, NULL, 's'},
                                          {"list", 0, NULL, 'l'}, {"gpus", 1, NULL, 'g'},
                                          {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool fine = true;
    int option;
    *code = END_FINE;
    while (fine && (option = getopt_long(argc, argv, "", longs, NULL)) != -1)
        switch (option) {
        case 'c': fine = parse_count("case", optarg, 1, CASES, &o->only); break;
        case 'g': fine = parse_count("gpus", optarg, 2, ZEROSM_MAX_GPUS, &o->gpus); break;
        case 's': o->split = true; break;
        case 'l': list(); return false;
        case 'h': fputs(usage, stdout); return false;
        default: fine = false; /* getopt has printed the reason */
        }
    if (fine && optind < argc) {
        fprintf(stderr, "cecl_zerosm: %s: no option (--help lists them)\n", argv[optind]);
        fine = false;
    }
    *code = fine ? END_FINE : END_USAGE;
    return fine;
}
_Static_assert(ZEROSM_MAX_GPUS == 16, "the usage names it");

/* ---- output */

static bool run_counter_check(int gpus)
{
    struct zerosm_outcome out;
    const bool fine = zerosm_run(&counter_case, gpus, 0, COUNTER_MS, &out);
    const char *name = name_of(&counter_case);
    if (!fine)
        printf("FAIL counter-check: %s: %s\n", name, out.why);
    else if (out.finished)
        printf("FAIL counter-check: %s: finished in %.1f ms (%s), although it needs SMs: they were "
               "not all held, so this machine proves nothing\n",
               name, out.ms, out.path);
    else
        printf("ok  counter-check: %s: not finished after %.1f ms while every SM was held, "
               "finished once SMs were free (%s)\n",
               name, out.ms, out.path);
    return fine && !out.finished;
}

static bool run_case(int number, int gpus)
{
    const struct zerosm_case *c = &cases[number - 1];
    struct zerosm_outcome out;
    const bool fine = zerosm_run(c, gpus, (unsigned)number, PATIENCE_MS, &out);
    const char *name = name_of(c);
    if (!fine)
        printf("FAIL %s: %s (--case %d)\n", name, out.why, number);
    else if (!out.finished)
        printf("FAIL %s: not finished after %.1f ms while every SM was held, finished once SMs "
               "were free: it needs an SM (%s) (--case %d)\n",
               name, out.ms, out.path, number);
    else
        printf("ok  %s: finished in %.1f ms while every SM was held (%s)\n", name, out.ms,
               out.path);
    return fine && out.finished;
}

static int run_all(const struct options *o, int gpus)
{
    int failed = !run_counter_check(gpus), ran = 1;
    for (int number = 1; number <= CASES; number++)
        if ((!o->only || o->only == number) && (!o->split || cases[number - 1].split)) {
            failed += !run_case(number, gpus);
            ran++;
        }
    printf("%d GPUs: %d of %d failed, counter-check included\n", gpus, failed, ran);
    return failed ? END_FAILED : END_FINE;
}

/* How many GPUs to use; 0, after a message, if there are too few. */
static int find_gpus(const struct options *o)
{
    const int wanted = o->gpus ? o->gpus : 2;
    int count = 0;
    const struct gpu *const gpu = gpu_get();
    if (gpu->cu && gpu->cu->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    if (count < wanted) {
        printf("skipped: %d GPUs are needed, %d are here%s%s\n", wanted, count, gpu->cu ? "" : ": ",
               gpu->cu ? "" : gpu->why);
        return 0;
    }
    if (o->gpus)
        return o->gpus;
    return count < ZEROSM_MAX_GPUS ? count : ZEROSM_MAX_GPUS;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    int code, unheld;
    if (!parse_options(&o, argc, argv, &code))
        return code;
    /* prints each line at once, because a later case may never end */
    setvbuf(stdout, NULL, _IOLBF, 0);
    const int gpus = find_gpus(&o);
    if (gpus == 0)
        return END_SKIPPED;
    if (!zerosm_hold_each_once(gpus, &unheld)) {
        printf("FAIL GPU %d: its SMs could not be held, so nothing can be shown\n", unheld);
        return END_FAILED;
    }
    return run_all(&o, gpus);
}
