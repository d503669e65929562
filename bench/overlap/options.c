/* cecl_overlap's options. */
#include <string.h>

#include "overlap.h"
#include "parse.h"

static const char usage[] =
    "Usage: mpirun -n RANKS cecl_overlap [options]      (a GPU for each rank)\n"
    "Times a GEMM (cuBLAS, half precision, float accumulation) alone and beside one collective:\n"
    "cecl's in place, out of place, and out of place with SMs allowed (CECL_SM_ALLOW); NCCL's\n"
    "with its defaults, and on copy engines (zero-CTA policy, registered windows). For reductions\n"
    "(sums of bfloat16): cecl's out of place from symmetric memory, NCCL's with its defaults and\n"
    "with registered windows.\n"
    "  --op OP          all_gather (default), alltoall, reduce_scatter or all_reduce\n"
    "  --preset NAME    published: a benchmark for which others have published numbers: a GEMM of\n"
    "                   8192, an all-gather of 64M a rank (float16), 200 rounds after 50, one\n"
    "                   after the other and overlapped. Options after it change it\n"
    "  --sequential     also: the collective after the GEMM\n"
    "  -b, -e BYTES     first and last size, bytes a rank (K, M, G), as in cecl_perf; default\n"
    "                   32M to 64M\n"
    "  -f FACTOR        from one size to the next; default 2\n"
    "  --size N         the GEMM's M = N = K; default 8192\n"
    "  --rounds COUNT   rounds that count; default 15\n"
    "  -w COUNT         rounds before them, to warm up; default 3\n"
    "  --hostcopies     also: copies from and to pinned host memory run throughout, on two more\n"
    "                   streams, for all sides alike\n"
    "  --urgent         the collectives' stream has the highest priority, for all sides alike\n"
    "  --json FILE      the results as JSON, with the times of each round\n"
    "Every side's bytes are checked before and after the rounds, alone and beside the GEMM.\n"
    "A round times the GEMM alone, then each side beside it and alone. Each round begins with\n"
    "another side. GEMM and collective wait on their streams for one event on the GPU. A time\n"
    "runs from this event until both are done, on the slowest rank. Before each measurement a\n"
    "GEMM that is not timed brings clocks and caches to the same state. Columns are medians over\n"
    "rounds, with quartiles in brackets:\n"
    "  with gemm ms    both together\n"
    "  x gemm alone    the same, divided by the GEMM alone in the same round\n"
    "  in sequence ms  the collective after the GEMM (--sequential)\n"
    "  alone ms        the collective alone\n"
    "  x nccl-ce out   with gemm ms, divided by that of NCCL's copy engines out of place (for\n"
    "                  reductions: of NCCL with windows) in the same round: below 1, this side is\n"
    "                  faster\n"
    "  errors          wrong bytes, all checks, all ranks\n"
    "If CUDA_DEVICE_MAX_CONNECTIONS is not set, the program sets it to 32: with fewer queues,\n"
    "streams would share a queue and wait for each other.\n"
    "Exit code: 0; 1 if bytes were wrong; 2 if an option was wrong; 3 if a call failed; 77 if a\n"
    "rank has no GPU.\n";

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
    static const char *const ops[] = {"all_gather", "alltoall", "reduce_scatter", "all_reduce"};
    switch (option) {
    case SIZE: return parse_count(value, 16, 65536, &taken.gemm) ? NULL : "16 to 65536";
    case PRESET: return take_preset(o, value) ? NULL : "published";
    case SEQUENTIAL: taken.sequential = true; return NULL;
    case URGENT: taken.urgent = true; return NULL;
    case OPTION_OP:
        o->op = op_named(value);
        for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
            if (strcmp(value, ops[i]) == 0)
                return NULL;
        return "all_gather, alltoall, reduce_scatter or all_reduce";
    case HOST_COPIES: taken.host_copies = true; return NULL;
    case 'w': return parse_count(value, 0, 1000000, &o->warmup) ? NULL : "0 to 1000000";
    default: return take_shared(o, option, value);
    }
}

static const struct grammar grammar = {{usage}, ":b:e:f:w:", longs, take};

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
