/* Tables of the options: name, place of the value, and range. */
#include "train.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char options_usage[] =
    "usage: mpirun -n RANKS example_fsdp_train [OPTION ...]\n"
    "Trains a byte-level language model whose parameters, gradients and Adam state are sharded\n"
    "over the ranks. Numbers, with their defaults:\n"
    "  --layers 4       blocks\n"
    "  --width 128      of a layer, a multiple of 8\n"
    "  --heads 4        of attention, divides the width\n"
    "  --batch 4        samples of one rank and step\n"
    "  --sequence 64    bytes of a sample\n"
    "  --steps 100\n"
    "  --rate 3000      of learning, in millionths\n"
    "  --seed 1         of parameters and the order of the data\n"
    "  --prefetch 1     layers gathered ahead, at most all\n"
    "Others:\n"
    "  --no-overlap     gather when needed, and wait for each call\n"
    "  --comm KIND      cecl; nccl, nccl-ce: NCCL as it comes, or on copy engines; none: no\n"
    "                   communication after the first step, to see what a step takes without any:\n"
    "                   a rank trains its own share, on what the others had at first (cecl)\n"
    "  --json FILE      losses and times as JSON\n";

static const struct number {
    const char *name;
    size_t place;
    int least, most;
} numbers[] = {
    {"--layers", offsetof(struct options, layers), 1, 1000},
    {"--width", offsetof(struct options, width), 8, 65536},
    {"--heads", offsetof(struct options, heads), 1, 1024},
    {"--batch", offsetof(struct options, batch), 1, 65536},
    {"--sequence", offsetof(struct options, sequence), 2, 65536},
    {"--steps", offsetof(struct options, steps), 1, 100000000},
    {"--prefetch", offsetof(struct options, prefetch), 1, 1000},
    {"--rate", offsetof(struct options, rate), 1, 1000000},
    {"--seed", offsetof(struct options, seed), 0, 2147483647},
};
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static bool take_number(struct options *o, const struct number *n, const char *value, char *words,
                        int size)
{
    char *end;
    errno = 0;
    const long number = strtol(value, &end, 10);
    *(int *)((char *)o + n->place) = (int)number;
    if (!errno && end != value && !*end && number >= n->least && number <= n->most)
        return true;
    snprintf(words, (size_t)size, "%s %s: %d to %d expected", n->name, value, n->least, n->most);
    return false;
}

static bool take(struct options *o, const char *name, const char *value, char *words, int size)
{
    const bool comm = strcmp(name, "--comm") == 0, json = strcmp(name, "--json") == 0;
    const struct number *n = numbers;
    while (n < numbers + NUMBERS && strcmp(name, n->name) != 0)
        n++;
    if (n == numbers + NUMBERS && !comm && !json)
        snprintf(words, (size_t)size, "%s: no option", name);
    else if (!value)
        snprintf(words, (size_t)size, "%s: a value expected", name);
    else if (comm)
        o->comm = value;
    else if (json)
        o->json = value;
    else
        return take_number(o, n, value, words, size);
    return value && (comm || json);
}

/* Checks that the options fit together. */
static bool check(const struct options *o, char *words, int size)
{
    const bool nccl = strcmp(o->comm, "nccl") == 0 || strcmp(o->comm, "nccl-ce") == 0;
    if (o->width % 8)
        snprintf(words, (size_t)size, "--width %d: a multiple of 8 expected", o->width);
    else if (o->width % o->heads)
        snprintf(words, (size_t)size, "--heads %d: a divisor of --width %d expected", o->heads,
                 o->width);
    else if (o->prefetch > o->layers)
        snprintf(words, (size_t)size, "--prefetch %d: at most --layers %d expected", o->prefetch,
                 o->layers);
    else if ((double)o->batch * o->sequence * o->width * 4 > 2e9) /* 32-bit indices */
        snprintf(words, (size_t)size,
                 "--batch %d: batch x sequence x width up to 500000000 expected", o->batch);
    else if (nccl && !FSDP_NCCL)
        snprintf(words, (size_t)size, "--comm %s: a build with CUDA and NCCL expected", o->comm);
    else if (!nccl && strcmp(o->comm, "cecl") != 0 && strcmp(o->comm, "none") != 0)
        snprintf(words, (size_t)size, "--comm %s: cecl, nccl, nccl-ce or none expected", o->comm);
    else
        return true;
    return false;
}

bool options_parse(struct options *o, char **argv, char *words, int size)
{
    *o = (struct options){.layers = 4,
                          .width = 128,
                          .heads = 4,
                          .batch = 4,
                          .sequence = 64,
                          .steps = 100,
                          .rate = 3000,
                          .seed = 1,
                          .prefetch = 1,
                          .comm = "cecl"};
    while (*++argv)
        if (strcmp(*argv, "--help") == 0)
            o->help = true;
        else if (strcmp(*argv, "--no-overlap") == 0)
            o->no_overlap = true;
        else if (take(o, argv[0], argv[1], words, size))
            argv++;
        else
            return false;
    return check(o, words, size);
}
