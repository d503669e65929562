/* What the files of cecl_perf share. */
#ifndef CECL_BENCH_H
#define CECL_BENCH_H

#include <cecl/cecl_mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_SIDES 3
#define MAX_ROUNDS 101

struct options {
    ceclOp_t op;
    size_t first, last; /* bytes a rank */
    double factor;
    int iterations, warmup, rounds;
    bool check, in_place, out_of_place;
    bool nccl, nccl_ce;
    bool enqueue, alloc, corrupt;
    size_t alloc_bytes;
    const char *json;
};

/* A communicator and what belongs to a run. */
struct run {
    int rank, nranks;
    bool cuda;
    ceclComm_t comm;
    ceclStream_t stream;
    struct options options;
};

/* One of those that are measured: cecl, or a rival. Buffers hold the largest size and stay. */
struct side {
    const char *name;
    void *send, *recv;
    void *state;
    bool (*open)(struct side *side, const struct run *run, size_t send_bytes, size_t recv_bytes);
    /* Enqueues one collective; `block` bytes are a rank's contribution, or a block of an
     * all-to-all. */
    bool (*call)(struct side *side, const struct run *run, const void *send, size_t block);
    bool (*supports)(const struct run *run, bool in_place); /* NULL: everything */
    void (*close)(struct side *side);
};

/* What was measured for one size and placement. */
struct result {
    size_t bytes; /* a rank */
    bool in_place;
    int nsides;
    const char *names[MAX_SIDES];
    double us[MAX_SIDES]; /* median over rounds of the slowest rank; 0: not measured */
    long long errors;     /* bytes wrong over all sides and ranks; -1: not checked */
};

/* options.c: false with a message (and exit code in *code) when the program should end. */
bool options_parse(struct options *options, int argc, char **argv, bool quiet, int *code);

/* sides.c */
int sides_make(const struct run *run, struct side sides[MAX_SIDES]);
extern const struct side side_cecl;
/* side_nccl.c or its absent twin: false when this build has no NCCL. */
bool side_nccl_make(struct side *side, bool copy_engine);

/* clock_cuda.c or its absent twin: time of `iterations` calls on the stream, in us; negative:
 * failed. */
double clock_time(struct side *side, const struct run *run, const void *send, size_t block,
                  int iterations);

/* check.c: runs one call on fresh random input and a poisoned output; bytes that are wrong here, or
 * -1. */
long long check_side(struct side *side, const struct run *run, size_t bytes, bool in_place,
                     uint64_t seed);

/* report.c */
void report_head(const struct run *run, const struct side *sides, int nsides);
void report_row(const struct run *run, const struct result *result);
bool report_json(const struct run *run, const struct result *results, int count);
double algbw_of(const struct run *run, size_t bytes, double us); /* GB/s */
double busbw_of(const struct run *run, size_t bytes, double us);

/* extras.c: --enqueue and --alloc. False on failure. */
bool extra_enqueue(const struct run *run, struct side *side);
bool extra_alloc(const struct run *run);

/* A failed call in words; returns false. */
bool complain(const struct run *run, const char *what, const char *why);
#define BENCH_TRY(run, expr)                                                                       \
    do {                                                                                           \
        if ((expr) != ceclSuccess)                                                                 \
            return complain((run), #expr, ceclGetLastError((run)->comm));                          \
    } while (0)

int compare_doubles(const void *a, const void *b);
const void *send_place(const struct side *side, const struct run *run, size_t block, bool in_place);
size_t block_of(const struct run *run, size_t bytes); /* rounded down to whole 4-byte elements */

#endif
