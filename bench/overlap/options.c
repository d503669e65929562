/* cecl_overlap's options. */
#include <string.h>

#include "overlap.h"
#include "parse.h"

static const char usage[] =
    "Usage: mpirun -n RANKS cecl_overlap [options]      (a GPU for each rank)\n"
    "Times a GEMM (cuBLAS, half precision, float accumulation) alone and beside one collective:\n"
    "cecl's in place, out of place, and out of place where SMs are allowed (CECL_SM_ALLOW);\n"
    "NCCL's as it comes, and on copy engines (zero-CTA policy, registered windows). Of reductions\n"
    "(sums of bfloat16): cecl's out of place from symmetric memory, NCCL's as it comes and with\n"
    "registered windows.\n"
    "  --op OP          all_gather (default), alltoall, reduce_scatter or all_reduce\n"
    "  --preset NAME    published: a benchmark that others have published numbers of: the GEMM of\n"
    "                   8192, an all-gather of 64M a rank (float16), 200 rounds after 50, one\n"
    "                   after the other and overlapped. Options after it change it\n"
    "  --sequential     besides: the collective after the GEMM\n"
    "  -b, -e BYTES     first and last size, bytes a rank (K, M, G), as in cecl_perf; default\n"
    "                   32M to 64M\n"
    "  -f FACTOR        from one size to the next; default 2\n"
    "  --size N         the GEMM's M = N = K; default 8192\n"
    "  --rounds COUNT   rounds that count; default 15\n"
    "  -w COUNT         rounds before them, to warm up; default 3\n"
    "  --hostcopies     besides, pinned copies from and to the host run throughout, on two more\n"
    "                   streams, for all sides alike\n"
    "  --urgent         the collectives' stream has the highest priority, for all sides alike\n"
    "  --json FILE      the results as JSON, each round's times among them\n"
    "Every side's bytes are checked before it is timed, alone and beside the GEMM. A round times\n"
    "the GEMM alone, then each side beside the GEMM and alone, from another side on each time.\n"
    "GEMM and collective wait on their streams for one event on the GPU; a time is from there\n"
    "until both are done, the slowest rank's. Before each, a GEMM that is not timed brings clocks\n"
    "and caches to the same state. Medians over rounds, and in brackets quartiles:\n"
    "  with gemm ms    both together\n"
    "  x gemm alone    the same over the GEMM alone, of the same round\n"
    "  in sequence ms  the collective after the GEMM (--sequential)\n"
    "  alone ms        the collective alone\n"
    "  x nccl-ce out   with gemm ms over that of NCCL's copy engines out of place (of\n"
    "                  reductions: NCCL's with windows), of the same round: below 1, this\n"
    "                  side is faster\n"
    "  errors          bytes wrong, both checks, all ranks\n"
    "CUDA_DEVICE_MAX_CONNECTIONS is set to 32 unless it is set: streams that share one of fewer\n"
    "queues would wait for each other.\n"
    "Ends with 0, 1 where bytes were wrong, 2 where an option was, 3 where a call failed, 77\n"
    "where a rank has no GPU.\n";

enum { SIZE = OPTION_OWN, HOST_COPIES, PRESET, SEQUENTIAL, URGENT };

static const struct option longs[] = {OPTIONS_SHARED,
                                      {"size", 1, NULL, SIZE},
                                      {"hostcopies", 0, NULL, HOST_COPIES},
                                      {"preset", 1, NULL, PRESET},
                                      {"sequential", 0, NULL, SEQUENTIAL},
                                      {"urgent", 0, NULL, URGENT},
                                      {NULL, 0, NULL, 0}};

static struct settings taken;

static const struct preset {
    const char *name, *op, *type;
    size_t bytes; /* for each rank */
    int gemm, rounds, warmup;
    bool sequential;
} presets[] = {
    {"published", "all_gather", "float16", (size_t)64 << 20, 8192, 200, 50, true},
};

static bool take_preset(struct options *o, const char *name)
{
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        const struct preset *p = &presets[i];
        if (strcmp(p->name, name) != 0)
            continue;
        o->op = op_named(p->op);
        o->type = type_named(p->type);
        o->first = o->last = p->bytes;
        o->rounds = p->rounds;
        o->warmup = p->warmup;
        taken.gemm = p->gemm;
        taken.sequential = p->sequential;
        taken.preset = p->name;
        return true;
    }
    return false;
}

static const char *take(struct options *o, int option, const char *value)
{
    switch (option) {
    case SIZE: return parse_count(value, 16, 65536, &taken.gemm) ? NULL : "16 to 65536";
    case PRESET: return take_preset(o, value) ? NULL : "published";
    case SEQUENTIAL: taken.sequential = true; return NULL;
    case URGENT: taken.urgent = true; return NULL;
    case OPTION_OP:
        o->op = op_named(value);
        return o->op && !o->op->passes_on ? NULL
                                          : "all_gather, alltoall, reduce_scatter or all_reduce";
    case HOST_COPIES: taken.host_copies = true; return NULL;
    case 'w': return parse_count(value, 0, 1000000, &o->warmup) ? NULL : "0 to 1000000";
    default: return take_shared(o, option, value);
    }
}

static const struct grammar grammar = {usage, ":b:e:f:w:", longs, take};

bool overlap_options(struct options *o, struct settings *settings, int argc, char **argv,
                     const struct run *run, int *code)
{
    *o = (struct options){.op = op_named("all_gather"),
                          .type = type_named("int32"),
                          .first = 32 << 20,
                          .last = 64 << 20,
                          .factor = 2,
                          .warmup = 3,
                          .rounds = 15,
                          .check = true};
    taken = (struct settings){.gemm = 8192};
    if (!grammar_read(&grammar, o, argc, argv, run, code))
        return false;
    if (o->op->reduces)
        o->type = type_named("bfloat16"); /* the usual type of gradients */
    *settings = taken;
    return true;
}
