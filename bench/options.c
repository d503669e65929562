/* cecl_perf's options. A value that is wrong in any way is refused with a message that says what is expected. */
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "parse.h"

#define LEAST_ALLOC ((size_t)1 << 20) /* bytes: room for the allocations inside the pool */

static const char usage[] =
    "Usage: cecl_perf --ranks RANKS [options], which starts its ranks, or\n"
    "       mpirun -n RANKS cecl_perf [options], if it was built with MPI\n"
    "  --ranks RANKS      ranks on this machine; default, in a build without MPI: 2\n"
    "  --op OP            all_gather (default), alltoall, reduce_scatter, all_reduce (sums);\n"
    "                     alltoallv_device, dispatch, combine, reduce_scatter_tiles;\n"
    "                     reduce_scatter_as: sums of 16-bit elements arrive as fp32;\n"
    "                     sendrecv: ceclSend to the next rank, ceclRecv from the one before;\n"
    "                     send: rank 0 sends to 1, 2 to 3 and so on; put: sendrecv by\n"
    "                     ceclPutSignal\n"
    "  --type TYPE        int8, int32 (default), int64, uint8, uint32, uint64, float16, float32,\n"
    "                     float64, bfloat16, float8e4m3, float8e5m2\n"
    "  -b, -e BYTES       first and last size, bytes a rank (K, M, G); default 1M to 256M.\n"
    "                     all_gather: one rank's contribution, a block;\n"
    "                     alltoall: one rank's whole send buffer, ranks x block;\n"
    "                     reduce_scatter: one rank's result, as sent; all_reduce: the whole "
    "buffer;\n"
    "                     sendrecv, send, put: one message\n"
    "  -f FACTOR          from one size to the next; default 4\n"
    "  -n, -w COUNT       calls in a round, and calls before it to warm up; default 20 and 5.\n"
    "                     On GPUs unchecked calls of the first size precede all, for 0.3 s,\n"
    "                     unless -w is 0\n"
    "  --rounds COUNT     rounds, each with all baselines; the median counts; default 7\n"
    "  -c 0|1             check every byte, before each round and after the last, on new random\n"
    "                     input; default 1\n"
    "  --in-place, --out-of-place   only that placement, or both; default both for\n"
    "                     all_gather and all_reduce, else out of place; of the others\n"
    "                     only alltoall can be in place\n"
    "  --baseline LIST    times in turn with cecl, with commas: nccl, nccl-ce (zero-CTA policy,\n"
    "                     registered windows; for reductions symmetric kernels, on windows)\n"
    "  --memory LIST      also: cecl on other memory than ceclMemAlloc's, with commas:\n"
    "                     malloc (cudaMalloc; on the host device a shared mapping), pieces\n"
    "                     (mapped handles of 20 MiB), private (cudaMallocAsync; malloc)\n"
    "  --first-use        also: host time of a first all-gather on new memory\n"
    "  --late US          also: what a call costs if the last rank is US microseconds late\n"
    "  --beside BYTES     also: times of single calls, and of 4 bulk calls of BYTES bytes a rank\n"
    "                     on another communicator, each alone and beside the other. On the host\n"
    "                     device small calls count also after the bulk calls have ended, and the\n"
    "                     time of bulk calls is until both have ended\n"
    "  --bulk OP          what these bulk calls do, as --op; default all_gather (in place);\n"
    "                     copies: a copy to the host and one from there, at the same time\n"
    "  --urgent           cecl's communicator is urgent, not that of the bulk calls\n"
    "  --enqueue          also: host time to enqueue one call of the first size\n"
    "  --graph COUNT      also: graphs of COUNT calls; time: of a launch / COUNT\n"
    "  --group COUNT      also: COUNT calls of the first size, one by one and in a group\n"
    "  --rows BYTES       also: strided blocks of the last size, in rows of BYTES bytes\n"
    "  --alloc            also: time of a ceclMemAlloc that grows a new communicator's pool, and\n"
    "                     of an allocation and its free inside the pool\n"
    "  --alloc-bytes N    size of the first of these; default 3G\n"
    "  --json FILE        the results as JSON\n";
static const char usage_of_output[] =
    "Sizes are rounded down to whole elements. count is the argument of the call: elements of a\n"
    "block. time is the slowest rank's. algbw = ranks x block / time, busbw = algbw x\n"
    "(ranks - 1) / ranks; for all_reduce bytes / time, and 2 x algbw x (ranks - 1) / ranks; for\n"
    "sendrecv, send and put both are bytes / time; as in nccl-tests. 1 GB = 10^9 bytes.\n"
    "ratio = a baseline's time / cecl's: above 1, cecl is faster. With one rank there is no\n"
    "bandwidth and no ratio. errors: wrong bytes (of reductions: elements).\n"
    "Exit code: 0; 1 if bytes were wrong; 2 if an option was wrong; 3 if a call failed.\n";

static bool parse_baseline(const char *text, struct options *o)
{
    for (;;) {
        const size_t length = strcspn(text, ",");
        if (length == 4 && memcmp(text, "nccl", length) == 0)
            o->nccl = true;
        else if (length == 7 && memcmp(text, "nccl-ce", length) == 0)
            o->nccl_ce = true;
        else
            return false;
        if (!text[length])
            return true;
        text += length + 1;
    }
}

static bool parse_memory(const char *text, struct options *o)
{
    for (;;) {
        const size_t length = strcspn(text, ",");
        const int kind = memory_named(text, length);
        if (kind < 0)
            return false;
        o->memory |= 1u << kind;
        if (!text[length])
            return true;
        text += length + 1;
    }
}

enum {
    TYPE = OPTION_OWN,
    IN_PLACE,
    OUT_OF_PLACE,
    BASELINE,
    ENQUEUE,
    GROUP,
    ROWS,
    ALLOC,
    ALLOC_BYTES,
    MEMORY,
    FIRST_USE,
    LATE,
    BESIDE,
    BULK,
    URGENT,
    GRAPH,
    RANKS
};

static const struct option longs[] = {OPTIONS_SHARED,
                                      {"type", 1, NULL, TYPE},
                                      {"in-place", 0, NULL, IN_PLACE},
                                      {"out-of-place", 0, NULL, OUT_OF_PLACE},
                                      {"baseline", 1, NULL, BASELINE},
                                      {"enqueue", 0, NULL, ENQUEUE},
                                      {"group", 1, NULL, GROUP},
                                      {"rows", 1, NULL, ROWS},
                                      {"alloc", 0, NULL, ALLOC},
                                      {"alloc-bytes", 1, NULL, ALLOC_BYTES},
                                      {"memory", 1, NULL, MEMORY},
                                      {"first-use", 0, NULL, FIRST_USE},
                                      {"late", 1, NULL, LATE},
                                      {"beside", 1, NULL, BESIDE},
                                      {"bulk", 1, NULL, BULK},
                                      {"urgent", 0, NULL, URGENT},
                                      {"graph", 1, NULL, GRAPH},
                                      {"ranks", 1, NULL, RANKS},
                                      {NULL, 0, NULL, 0}};

/* Stores an option about other memory, calls beside the measured ones, or late ranks. Returns NULL, or what was
 * expected. */
static const char *take_setting(struct options *o, int option, const char *value)
{
    switch (option) {
    case MEMORY: return parse_memory(value, o) ? NULL : "malloc, pieces, private, with commas";
    case FIRST_USE: o->first_use = true; return NULL;
    case LATE: return parse_count(value, 1, 1000000, &o->late_us) ? NULL : "1 to 1000000";
    case BESIDE: return parse_bytes(value, 1, &o->beside) ? NULL : "1 to 1024G";
    case BULK:
        o->bulk = op_named(value);
        return o->bulk || strcmp(value, "copies") == 0 ? NULL : "an op that --help names, copies";
    case URGENT: o->urgent = true; return NULL;
    case RANKS: return NULL; /* team_ranks_asked has read it */
    default: return take_shared(o, option, value);
    }
}

/* Stores an option that asks for more than a plain sweep. Returns NULL, or what was expected. */
static const char *take_extra(struct options *o, int option, const char *value)
{
    switch (option) {
    case ENQUEUE: o->enqueue = true; return NULL;
    case GRAPH: return parse_count(value, 1, 1024, &o->graph) ? NULL : "1 to 1024";
    case GROUP: return parse_count(value, 1, 4096, &o->group) ? NULL : "1 to 4096";
    case ROWS: return parse_bytes(value, 1, &o->row_bytes) ? NULL : "1 to 1024G";
    case ALLOC: o->alloc = true; return NULL;
    case ALLOC_BYTES:
        return parse_bytes(value, LEAST_ALLOC, &o->alloc_bytes) ? NULL : "1M to 1024G";
    default: return take_setting(o, option, value);
    }
}

/* Stores an option. Returns NULL, or what was expected. */
static const char *take(struct options *o, int option, const char *value)
{
    int flag = 0;
    switch (option) {
    case TYPE: o->type = type_named(value); return o->type ? NULL : "a type that --help names";
    case 'n': return parse_count(value, 1, 1000000, &o->iterations) ? NULL : "1 to 1000000";
    case 'w': return parse_count(value, 0, 1000000, &o->warmup) ? NULL : "0 to 1000000";
    case 'c':
        if (!parse_count(value, 0, 1, &flag))
            return "0 or 1";
        o->check = flag != 0;
        return NULL;
    case IN_PLACE: o->in_place = true; return NULL;
    case OUT_OF_PLACE: o->out_of_place = true; return NULL;
    case BASELINE:
        if (!side_nccl_version())
            return "a cecl_perf built with NCCL";
        return parse_baseline(value, o) ? NULL : "nccl, nccl-ce, or both with a comma";
    default: return take_extra(o, option, value);
    }
}

static const struct grammar grammar = {{usage, usage_of_output}, ":b:e:f:n:w:c:", longs, take};

bool options_parse(struct options *o, int argc, char **argv, const struct run *run, int *code)
{
    *o = (struct options){.op = op_named("all_gather"),
                          .bulk = op_named("all_gather"),
                          .type = type_named("int32"),
                          .first = 1 << 20,
                          .last = 256 << 20,
                          .factor = 4,
                          .iterations = 20,
                          .warmup = 5,
                          .rounds = 7,
                          .check = true,
                          .alloc_bytes = (size_t)3 << 30};
    if (!grammar_read(&grammar, o, argc, argv, run, code))
        return false;
    if (o->graph && o->beside) {
        if (run->rank == 0)
            fputs("cecl_perf: --graph: without --beside expected\n", stderr);
        *code = END_USAGE;
        return false;
    }
    if (!o->in_place && !o->out_of_place) {
        o->out_of_place = true;
        o->in_place = o->op->in_place_too;
    }
    return true;
}
