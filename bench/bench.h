/* What the files of the benchmark programs share. */
#ifndef CECL_BENCH_H
#define CECL_BENCH_H

#include <cecl/cecl_mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_SIDES 3
#define MAX_ROUNDS 201
#define MAX_SIZES 64
#define MAX_RESULTS (2 * MAX_SIZES) /* each size in place and out of place */

/* How the program ends. All ranks end alike, except that a broken one takes the others with it. */
enum { END_FINE = 0, END_WRONG = 1, END_USAGE = 2, END_BROKEN = 3 };

/* A collective, as data. Rivals keep their own functions, by `id`. */
struct op {
    const char *name;
    ceclOp_t id;
    bool block_per_rank; /* the send buffer holds a block for each rank, not one block, */
    bool block_of_each;  /* and so does recvbuff, one of each */
    bool size_of_all;    /* "bytes a rank" are all of its blocks */
    bool reduces;
    bool in_place_too; /* measured in place unless told otherwise */
    double bus;        /* busbw of nccl-tests: so many times blocks x (ranks - 1) / time */
    ceclResult_t (*call)(const void *send, void *recv, size_t count, ceclDataType_t type,
                         ceclComm_t comm, ceclStream_t stream);
};

struct type {
    const char *name;
    ceclDataType_t id;
    size_t bytes;
};

/* What --corrupt spoils, so that a test sees the check fail. */
enum corruption { CORRUPT_NOTHING, CORRUPT_BYTE, CORRUPT_SKIP };

struct options {
    const struct op *op;
    const struct type *type;
    size_t first, last; /* bytes a rank */
    double factor;
    int iterations, warmup, rounds;
    bool check, in_place, out_of_place;
    bool nccl, nccl_ce;
    bool enqueue, alloc;
    int group;        /* calls; 0: not asked for */
    size_t row_bytes; /* likewise */
    enum corruption corrupt;
    size_t alloc_bytes;
    const char *json;
};

/* A communicator and what belongs to a run. */
struct run {
    const char *program; /* for messages */
    int rank, nranks;
    bool cuda;
    ceclComm_t comm;
    ceclStream_t stream;
    unsigned char *host; /* for the check: as large as the largest result */
    struct options options;
};

/* One of those that are measured: cecl, or a rival. Buffers hold the largest size and stay. */
struct side {
    const char *name;
    void *send, *recv;
    void *state;
    bool (*open)(struct side *side, const struct run *run, size_t send_bytes, size_t recv_bytes);
    /* Enqueues one collective of blocks of `block` bytes. */
    bool (*call)(struct side *side, const struct run *run, const void *send, size_t block);
    bool (*supports)(const struct run *run, bool in_place); /* NULL: everything */
    void (*close)(struct side *side);
};

/* What was measured for one size and placement. */
struct result {
    size_t block; /* bytes */
    bool in_place;
    int nsides;
    const char *names[MAX_SIDES];
    double us[MAX_SIDES]; /* median over rounds of the slowest rank; 0: not measured */
    long long errors;     /* bytes wrong over all sides, checks and ranks; -1: not checked */
};

/* ops.c: NULL where there is none of this name; names: all, for a message. */
const struct op *op_named(const char *name);
const struct type *type_named(const char *name);
size_t block_of(const struct options *o, int nranks, size_t bytes); /* whole elements */
size_t send_bytes_of(const struct run *run, size_t block);
size_t recv_bytes_of(const struct run *run, size_t block);
size_t size_of(const struct run *run, size_t block); /* "bytes a rank" */
size_t size_at(const struct options *o, int index);  /* 0: past the last */
const void *send_place(const struct side *side, const struct run *run, size_t block, bool in_place);

/* options.c: false with a message (and exit code in *code) when the program should end. */
bool options_parse(struct options *options, int argc, char **argv, const struct run *run,
                   int *code);

/* sides.c: cecl's side on a communicator, which is its state. */
struct side side_cecl_make(const char *name, ceclComm_t comm);
/* All sides of cecl_perf: 0 where a wanted one cannot be had. */
int sides_make(const struct run *run, struct side sides[MAX_SIDES]);
/* side_nccl.c or its absent twin: whether this build has NCCL; false where memory ran out. */
extern const bool side_nccl_built;
bool side_nccl_make(struct side *side, bool copy_engine);

/* clock_cuda.c or its absent twin: time of `iterations` calls on the stream, in us; negative:
 * failed. */
double clock_time(struct side *side, const struct run *run, const void *send, size_t block,
                  int iterations);

/* check.c: runs one call on fresh random input and a poisoned output; bytes that are wrong here, or
 * -1. */
long long check_side(struct side *side, const struct run *run, size_t block, bool in_place,
                     uint64_t seed);

/* elements.c: small numbers in any type that reductions are measured in, whose sums are exact in any
 * order; false where a type has too few. */
bool elements_can(const struct type *type, int nranks);
/* Element `index` of what a key names, or the sum over all ranks' keys. */
void elements_fill(unsigned char *out, const struct type *type, uint64_t key, size_t bytes);
long long elements_wrong(const unsigned char *got, const struct type *type, const uint64_t *keys,
                         int nkeys, size_t bytes);

/* report.c */
void report_head(const struct run *run, const struct side *sides, int nsides);
void report_row(const struct run *run, const struct result *result);
bool report_json(const struct run *run, const struct result *results, int count);

/* extras.c: --enqueue, false on failure; --alloc, one of END_... */
bool extra_enqueue(const struct run *run, struct side *side);
int extra_alloc(const struct run *run);

/* groups.c: --group; rows.c: --rows; false on failure. */
bool extra_group(const struct run *run);
bool extra_rows(const struct run *run);
/* turn.c: `call` does one repeat of way 0 or 1; medians over the run's rounds, of the slowest rank, in
 * us a repeat. */
typedef bool (*turn_call)(const struct run *run, void *context, int way);
bool turn_medians(const struct run *run, turn_call call, void *context, int repeats,
                  double medians[2]);

/* run.c */
/* Joins: cecl's communicator and stream, and host memory for the check where one is wanted. */
bool run_join(struct run *run);
/* Leaves it: false with words where that fails. A broken communicator is left to the end of the
 * process: peers may be gone already. */
bool run_leave(struct run *run, int end);
bool report_json_opens(const struct run *run); /* collective; so that no long run ends in vain */
double median_of(double *values, int count);   /* sorts them */
/* A failed call in words; returns false. */
bool complain(const struct run *run, const char *what, const char *why);
#define BENCH_TRY(run, expr)                                                                       \
    do {                                                                                           \
        if ((expr) != ceclSuccess)                                                                 \
            return complain((run), #expr, ceclGetLastError((run)->comm));                          \
    } while (0)

int compare_doubles(const void *a, const void *b);

#endif
