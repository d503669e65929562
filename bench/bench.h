/* What the files of the benchmark programs share. */
#ifndef CECL_BENCH_H
#define CECL_BENCH_H

#include <stdint.h>

#include "team.h"

#define MAX_SIDES 12
#define MAX_ROUNDS 201
#define MAX_SIZES 64
#define MAX_RESULTS (2 * MAX_SIZES) /* every size in place and out of place */

/* Exit codes, the same on all ranks. If one rank breaks off, it returns END_BROKEN, and its team ends the others. */
enum { END_FINE = 0, END_WRONG = 1, END_USAGE = 2, END_BROKEN = 3 };

/* A collective, or messages of all ranks, as data. Tables of other libraries' functions have one entry for each entry
 * of `collectives`, in the same order. */
struct op {
    const char *name;
    bool block_per_rank; /* sendbuff holds a block for each rank; false: one block */
    bool block_of_each;  /* recvbuff holds a block from each rank; false: one block */
    bool size_of_all;    /* "bytes a rank" count all blocks of a rank */
    bool reduces;
    bool widens;    /* the elements have 16 bits, and their sums arrive as fp32 */
    bool passes_on; /* recvbuff holds the previous rank's block; bandwidths are one block / time */
    bool one_way; /* passes_on, but only from even ranks to odd ranks; even ranks receive nothing */
    bool in_place_too; /* also measured in place unless an option says otherwise */
    double bus; /* busbw is bus x algbw if passes_on, else bus x algbw x (ranks - 1) / ranks */
    ceclResult_t (*call)(const void *send, void *recv, size_t count, ceclDataType_t type,
                         ceclComm_t comm, ceclStream_t stream);
    /* What a side does with its recvbuff before its first call and after its last one; NULL: nothing. Collective. */
    ceclResult_t (*open)(ceclComm_t comm, void *recv, size_t bytes);
    void (*close)(ceclComm_t comm, const void *recv);
};

/* Indices in `collectives` (ops.c). */
enum {
    OP_ALL_GATHER,
    OP_ALL_TO_ALL,
    OP_ALL_TO_ALLV_DEVICE,
    OP_DISPATCH,
    OP_COMBINE,
    OP_REDUCE_SCATTER,
    OP_REDUCE_SCATTER_AS,
    OP_REDUCE_SCATTER_TILES,
    OP_ALL_REDUCE,
    OP_SEND_RECV,
    OP_SEND,
    OP_PUT,
    OP_COUNT
};
extern const struct op collectives[OP_COUNT];

/* The ranks to which a rank sends and from which it receives, in an op that passes on; -1: none. */
struct neighbors {
    int to, from;
};
struct neighbors neighbors_of(const struct op *op, int rank, int nranks);

struct type {
    const char *name;
    ceclDataType_t id;
    size_t bytes;
};

/* What --corrupt spoils, so that a test sees whether the check finds it. */
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
    int graph;       /* calls that a graph captures; 0: not asked for */
    unsigned memory; /* a bit for each kind of memory (kinds.h) that gets a side of its own */
    bool first_use;
    int late_us;           /* 0: not asked for */
    size_t beside;         /* bytes a rank of bulk calls; 0: not asked for */
    const struct op *bulk; /* what bulk calls do; NULL: copies to and from the host */
    bool urgent;           /* cecl's communicator is urgent; the bulk calls' communicator is not */
    int group;             /* calls in a group; 0: not asked for */
    size_t row_bytes;      /* bytes of a row; 0: not asked for */
    enum corruption corrupt;
    size_t alloc_bytes;
    const char *json;
};

/* A communicator, and what else a run needs. */
struct run {
    const char *program; /* the program's name, for messages */
    const struct team *team;
    int rank, nranks;
    bool cuda;
    ceclComm_t comm;
    ceclStream_t stream;
    unsigned char *host; /* host memory for the check, as large as the largest result */
    struct options options;
};

/* One of the contenders: cecl or another library. Its buffers have room for the largest size, and live as long as
 * the run. */
struct side {
    const char *name;
    void *send, *recv;
    void *state;
    /* memory (kinds.h), send_bytes, recv_bytes and run: set only in a side of cecl */
    int memory;
    size_t send_bytes, recv_bytes;
    const struct run *run;
    bool (*open)(struct side *side, const struct run *run, size_t send_bytes, size_t recv_bytes);
    /* Enqueues one collective with blocks of `block` bytes. */
    bool (*call)(struct side *side, const struct run *run, const void *send, size_t block);
    int calls; /* how many calls one `call` makes; 0: one */
    const struct run
        *own; /* the run, but with a communicator and stream of the side's own; NULL: it has none */
    bool (*supports)(const struct side *side, const struct run *run,
                     bool in_place); /* NULL: it supports everything */
    void (*close)(struct side *side);
};

/* The measurements of one size and placement. */
struct result {
    size_t block; /* bytes */
    bool in_place;
    int nsides;
    const char *names[MAX_SIDES];
    double us[MAX_SIDES]; /* median over rounds of the slowest rank's time; 0: not measured */
    long long errors;     /* wrong bytes of all sides, checks and ranks; -1: not checked */
};

/* ops.c. op_named and type_named return NULL if nothing has this name. */
const struct op *op_named(const char *name);
const struct type *type_named(const char *name);
/* The type of an op's results. It may differ from o->type, the type of its input. */
const struct type *result_type(const struct options *o);
/* bytes of a block, which has whole elements */
size_t block_of(const struct options *o, int nranks, size_t bytes);
size_t send_bytes_of(const struct run *run, size_t block);
size_t recv_bytes_of(const struct run *run, size_t block);
size_t size_of(const struct run *run, size_t block); /* "bytes a rank" */
size_t size_at(const struct options *o, int index);  /* 0 beyond the last size */
int op_place(const struct op *op);                   /* OP_... */
const void *send_place(const struct side *side, const struct run *run, size_t block, bool in_place);

/* options.c. Returns false, after a message, if the program should end with *code. */
bool options_parse(struct options *options, int argc, char **argv, const struct run *run,
                   int *code);

/* sides.c. Makes a side that calls cecl, with buffers of one kind of memory (kinds.h). */
struct side side_cecl_make(const char *name, ceclComm_t comm, int memory);
/* The side's own run, or `run` if it has none. */
static inline const struct run *side_run(const struct side *side, const struct run *run)
{
    return side->own ? side->own : run;
}

/* Makes all sides of cecl_perf. Returns 0 if a side that was asked for is not available. */
int sides_make(const struct run *run, struct side sides[MAX_SIDES]);
/* side_nccl.c or side_nccl_absent.c. side_nccl_version returns the version of the loaded NCCL, such as 2.28.9, or NULL
 * in builds without NCCL. side_nccl_make returns false if there is no memory. */
const char *side_nccl_version(void);
bool side_nccl_make(struct side *side, bool copy_engine);

/* side_graph.c. Makes a side that captures the calls of `inner` (--graph), a side that is made and not yet open.
 * Returns false if there is no memory. */
bool side_graph_make(struct side *side, const struct run *run, const struct side *inner);

/* clock_cuda.c or clock_absent.c. The time of `iterations` calls on the stream, in us; negative on failure. */
double clock_time(struct side *side, const struct run *run, const void *send, size_t block,
                  int iterations);
/* A mark on the run's stream: with CUDA an event. clock_between takes two marks that the stream has passed, frees
 * both, and returns the us between them; negative on failure. The host device has no events that measure time:
 * there clock_between returns the us from the first mark until now. */
struct clock_mark {
    void *event;
    double us;
};
bool clock_mark(const struct run *run, struct clock_mark *mark);
double clock_between(const struct run *run, struct clock_mark *from, struct clock_mark *to);
/* Whether the stream has passed the mark. Always false on the host device. */
bool clock_passed(const struct run *run, const struct clock_mark *mark);
/* Makes a stream, of the highest priority if the device has priorities. */
bool clock_urgent_stream(const struct run *run, ceclStream_t *stream);
void clock_free_stream(const struct run *run, ceclStream_t stream);

/* check.c. Fills the output, then makes one call on new random input. Returns how many bytes are wrong on this
 * rank, or -1. */
long long check_side(struct side *side, const struct run *run, size_t block, bool in_place,
                     uint64_t seed);

/* elements.c. Small numbers, whose sums are exact in any order, in the types in which reductions are measured.
 * elements_can tells whether the sums of `nranks` such numbers are exact in the type. */
bool elements_can(const struct type *type, int nranks);
/* elements_fill writes the elements that follow from a key. elements_wrong returns how many elements differ from the
 * sums of the elements of all keys. */
void elements_fill(unsigned char *out, const struct type *type, uint64_t key, size_t bytes);
long long elements_wrong(const unsigned char *got, const struct type *type, const uint64_t *keys,
                         int nkeys, size_t bytes);

/* report.c */
void report_head(const struct run *run, const struct side *sides, int nsides);
void report_row(const struct run *run, const struct result *result);
bool report_json(const struct run *run, const struct result *results, int count);

/* extras.c. --enqueue returns false on failure, --alloc one of END_... */
bool extra_enqueue(const struct run *run, struct side *side);
int extra_alloc(const struct run *run);

/* beside.c. Does --beside for one side. False on failure. */
bool extra_beside(const struct run *run, struct side *small);

/* groups.c does --group, rows.c does --rows. Both add all ranks' wrong bytes to *wrong, and return false on
 * failure. */
bool extra_group(const struct run *run, long long *wrong);
bool extra_rows(const struct run *run, long long *wrong);
/* turn.c. `call` does one repeat of way 0 or 1. `medians`: for each way the time of a repeat on the slowest rank, in us:
 * the median over the run's rounds. */
typedef bool (*turn_call)(const struct run *run, void *context, int way);
bool turn_medians(const struct run *run, turn_call call, void *context, int repeats,
                  double medians[2]);

/* run.c */
/* Makes cecl's communicator and stream, and host memory if results are checked. */
bool run_join(struct run *run);
/* Undoes run_join. Returns false, after a message, if that fails. If `end` is END_BROKEN, the communicator stays until
 * the process ends, because peers may be gone already. */
bool run_leave(struct run *run, int end);
/* Whether the file that an option names can be written; true if path is NULL. Leaves no new file behind. Collective.
 * Called first, so that a long run does not end without its results. */
bool output_opens(const struct run *run, const char *option, const char *path);
double median_of(double *values, int count); /* sorts `values` */
/* Prints a failed call and its reason. Returns false. */
bool complain(const struct run *run, const char *what, const char *why);
#define BENCH_TRY(run, expr) \
    do { \
        if ((expr) != ceclSuccess) \
            return complain((run), #expr, ceclGetLastError((run)->comm)); \
    } while (0)

int compare_doubles(const void *a, const void *b);

#endif
