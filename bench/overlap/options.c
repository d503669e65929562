/* cecl_overlap's options. */
#include "overlap.h"
#include "parse.h"

static const char usage[] =
    "usage: mpirun -n RANKS cecl_overlap [options]      (a GPU for each rank)\n"
    "Times a GEMM (cuBLAS, half precision, float accumulation) alone and beside one collective:\n"
    "cecl's in place, out of place, and out of place where SMs are allowed (CECL_SM_ALLOW);\n"
    "NCCL's as it comes, and on copy engines (zero-CTA policy, registered windows).\n"
    "  --op OP          all_gather (default) or alltoall\n"
    "  -b, -e BYTES     first and last size, bytes a rank (K, M, G), as in cecl_perf; default\n"
    "                   32M to 64M\n"
    "  -f FACTOR        from one size to the next; default 2\n"
    "  --size N         the GEMM's M = N = K; default 8192\n"
    "  --rounds COUNT   rounds that count; default 15\n"
    "  -w COUNT         rounds before them, to warm up; default 3\n"
    "  --hostcopies     besides, pinned copies from and to the host run throughout, on two more\n"
    "                   streams, for all sides alike\n"
    "  --json FILE      the results as JSON, each round's times among them\n"
    "Every side's bytes are checked before it is timed, alone and beside the GEMM. A round times\n"
    "the GEMM alone, then each side beside the GEMM and alone, from another side on each time.\n"
    "GEMM and collective wait on their streams for one event on the GPU; a time is from there\n"
    "until both are done, the slowest rank's. Before each, a GEMM that is not timed brings clocks\n"
    "and caches to the same state. Medians over rounds:\n"
    "  with gemm ms    both together\n"
    "  x gemm alone    the same over the GEMM alone, of the same round\n"
    "  alone ms        the collective alone\n"
    "  x nccl-ce out   with gemm ms over that of NCCL's copy engines out of place, of the same\n"
    "                  round: below 1, this side is faster\n"
    "  errors          bytes wrong, both checks, all ranks\n"
    "CUDA_DEVICE_MAX_CONNECTIONS is set to 32 unless it is set: streams that share one of fewer\n"
    "queues would wait for each other.\n"
    "Ends with 0, 1 where bytes were wrong, 2 where an option was, 3 where a call failed, 77\n"
    "where a rank has no GPU.\n";

enum { SIZE = OPTION_OWN, HOST_COPIES };

static const struct option longs[] = {OPTIONS_SHARED,
                                      {"size", 1, NULL, SIZE},
                                      {"hostcopies", 0, NULL, HOST_COPIES},
                                      {NULL, 0, NULL, 0}};

static struct settings taken;

static const char *take(struct options *o, int option, const char *value)
{
    switch (option) {
    case SIZE: return parse_count(value, 16, 65536, &taken.gemm) ? NULL : "16 to 65536";
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
    *settings = taken;
    return true;
}
