/* One table describes all options: name, range, and where the value goes. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"

const char options_usage[] =
    "usage: mpirun -n RANKS example_fsdp_train [OPTION ...]\n"
    "Trains a byte-level language model whose parameters, gradients and Adam state are sharded\n"
    "over the ranks. Defaults: on GPUs / on the host.\n"
    "  --layers N       blocks (20 / 4)\n"
    "  --width N        of a layer, a multiple of 8 (2048 / 128)\n"
    "  --heads N        of attention, divides the width (16 / 4)\n"
    "  --batch N        samples of one rank and step (4 / 4)\n"
    "  --sequence N     bytes of a sample (1024 / 64)\n"
    "  --steps N        in all, those before a checkpoint included (100 / 300)\n"
    "  --lr X           learning rate (0.0003 / 0.003)\n"
    "  --seed N         of parameters and the order of the data (1)\n"
    "  --data FILE      the text (one that comes with the example)\n"
    "  --prefetch N     layers gathered ahead, 1 .. layers (1)\n"
    "  --no-overlap     gather when needed, and wait for each call\n"
    "  --comm KIND      cecl; nccl, nccl-ce: NCCL as it comes, or on copy engines; none: no\n"
    "                   communication after the first step, to see what a step takes without any:\n"
    "                   a rank trains its own share, on what the others had at first (cecl)\n"
    "  --checkpoint DIR keep the training there: at the end, and each --save-every N steps\n"
    "  --resume         go on from the checkpoint\n"
    "  --sample N       write N bytes at the end\n"
    "  --json FILE      losses and times as JSON\n";

struct number {
    const char *name;
    size_t place;
    int least, most;
};
#define NUMBER(name, field, least, most)                                                           \
    {                                                                                              \
        name, offsetof(struct options, field), least, most                                         \
    }
static const struct number numbers[] = {
    NUMBER("layers", layers, 1, 1000),
    NUMBER("width", width, 8, 65536),
    NUMBER("heads", heads, 1, 1024),
    NUMBER("batch", batch, 1, 65536),
    NUMBER("sequence", sequence, 2, 65536),
    NUMBER("steps", steps, 1, 100000000),
    NUMBER("prefetch", prefetch, 1, 1000),
    NUMBER("sample", sample, 1, 1000000),
    NUMBER("save-every", save_every, 1, 100000000),
};
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static bool take_number(struct options *o, const struct number *n, const char *text, char *words,
                        int size)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < n->least || value > n->most) {
        snprintf(words, (size_t)size, "--%s %s: %d to %d expected", n->name, text, n->least,
                 n->most);
        return false;
    }
    *(int *)((char *)o + n->place) = (int)value;
    return true;
}

static bool take_rate(struct options *o, const char *text, char *words, int size)
{
    char *end;
    o->rate = strtod(text, &end);
    if (end != text && !*end && o->rate > 0 && o->rate <= 1)
        return true;
    snprintf(words, (size_t)size, "--lr %s: above 0, at most 1 expected", text);
    return false;
}

static bool take_seed(struct options *o, const char *text, char *words, int size)
{
    char *end;
    errno = 0;
    o->seed = strtoull(text, &end, 10);
    if (!errno && end != text && !*end && text[0] >= '0' && text[0] <= '9')
        return true;
    snprintf(words, (size_t)size, "--seed %s: 0 to 18446744073709551615 expected", text);
    return false;
}

static bool take_comm(struct options *o, const char *text, char *words, int size)
{
    static const char *const kinds[] = {"cecl", "nccl", "nccl-ce", "none"};
    const char *why = "cecl, nccl, nccl-ce or none expected";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(text, kinds[i]) == 0)
            why = comm_missing(text);
    if (why)
        snprintf(words, (size_t)size, "--comm %s: %s", text, why);
    o->comm = text;
    return !why;
}

enum { LR = NUMBERS, SEED, COMM, DATA, CHECKPOINT, JSON, NO_OVERLAP, RESUME, HELP };
static const struct option others[] = {{"lr", 1, NULL, LR},
                                       {"seed", 1, NULL, SEED},
                                       {"comm", 1, NULL, COMM},
                                       {"data", 1, NULL, DATA},
                                       {"checkpoint", 1, NULL, CHECKPOINT},
                                       {"json", 1, NULL, JSON},
                                       {"no-overlap", 0, NULL, NO_OVERLAP},
                                       {"resume", 0, NULL, RESUME},
                                       {"help", 0, NULL, HELP},
                                       {NULL, 0, NULL, 0}};

static bool take(struct options *o, int which, const char *value, char *words, int size)
{
    if (which < NUMBERS)
        return take_number(o, &numbers[which], value, words, size);
    switch (which) {
    case LR: return take_rate(o, value, words, size);
    case SEED: return take_seed(o, value, words, size);
    case COMM: return take_comm(o, value, words, size);
    case DATA: o->data = value; break;
    case CHECKPOINT: o->checkpoint = value; break;
    case JSON: o->json = value; break;
    case NO_OVERLAP: o->no_overlap = true; break;
    case RESUME: o->resume = true; break;
    default: o->help = true;
    }
    return true;
}

bool options_parse(struct options *o, int argc, char **argv, char *words, int size)
{
    struct option all[NUMBERS + sizeof(others) / sizeof(others[0])];
    int which;
    for (int i = 0; i < NUMBERS; i++)
        all[i] = (struct option){numbers[i].name, 1, NULL, i};
    memcpy(all + NUMBERS, others, sizeof(others));
    *o = (struct options){.comm = "cecl", .data = FSDP_TEXT, .seed = 1};
    opterr = 0;
    /* ":" distinguishes a missing value from an unknown option. */
    while ((which = getopt_long(argc, argv, ":", all, NULL)) != -1) {
        if (which == ':' || which == '?') {
            snprintf(words, (size_t)size, "%s: %s", argv[optind - 1],
                     which == ':' ? "a value expected" : "no option, or one without a value");
            return false;
        }
        if (!take(o, which, optarg, words, size))
            return false;
    }
    if (optind < argc)
        snprintf(words, (size_t)size, "%s: only options expected", argv[optind]);
    return optind == argc;
}

static void fill_in(struct options *o, bool gpu)
{
    static const struct options on_gpu = {
        .layers = 20, .width = 2048, .heads = 16, .batch = 4, .sequence = 1024, .steps = 100};
    static const struct options on_host = {
        .layers = 4, .width = 128, .heads = 4, .batch = 4, .sequence = 64, .steps = 300};
    const struct options *d = gpu ? &on_gpu : &on_host;
    o->layers = o->layers ? o->layers : d->layers;
    o->width = o->width ? o->width : d->width;
    o->heads = o->heads ? o->heads : d->heads;
    o->batch = o->batch ? o->batch : d->batch;
    o->sequence = o->sequence ? o->sequence : d->sequence;
    o->steps = o->steps ? o->steps : d->steps;
    o->prefetch = o->prefetch ? o->prefetch : 1;
    if (o->rate == 0)
        o->rate = gpu ? 0.0003 : 0.003;
}

bool options_default(struct options *o, bool gpu, char *words, int size)
{
    fill_in(o, gpu);
    const char *why = NULL;
    if (o->width % 8)
        snprintf(words, (size_t)size, "--width %d: a multiple of 8 expected", o->width);
    else if (o->width % o->heads)
        snprintf(words, (size_t)size, "--heads %d: a divisor of --width %d expected", o->heads,
                 o->width);
    else if (o->prefetch > o->layers)
        snprintf(words, (size_t)size, "--prefetch %d: at most --layers %d expected", o->prefetch,
                 o->layers);
    /* indices in kernels and BLAS are 32-bit */
    else if ((double)o->batch * o->sequence * o->width * 4 > 2e9)
        snprintf(words, (size_t)size,
                 "--batch %d: batch x sequence x width up to 500000000 expected", o->batch);
    else if (o->resume && !o->checkpoint)
        why = "--resume: --checkpoint DIR expected, which says from where";
    else if (o->save_every && !o->checkpoint)
        why = "--save-every: --checkpoint DIR expected, which says where to";
    else if (strcmp(o->comm, "none") == 0 && (o->checkpoint || o->sample))
        why = "--comm none: no --checkpoint and no --sample expected: its model is no result";
    else
        return true;
    if (why)
        snprintf(words, (size_t)size, "%s", why);
    return false;
}
