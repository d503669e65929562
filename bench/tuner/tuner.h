/* What the files of cecl_tune share. */
#ifndef CECL_BENCH_TUNER_H
#define CECL_BENCH_TUNER_H

#include <cecl/cecl_mpi.h>
#include <limits.h>

#include "bench.h"
#include "plan/tuning.h"
#include "split.h"

#define MAX_POINTS 32

/* A threshold between two ways, and the calls that can go both ways. */
struct crossing {
    enum cecl_threshold which;
    const struct op *op;
    /* whether calls of exactly the threshold's bytes take the second way; larger ones always do */
    bool is_min;
    bool in_place; /* the timed calls are in place */
    bool of_block; /* in an all-reduce, the threshold counts the bytes of a block */
    int least_ranks;
    struct {
        uint64_t first, last;
    } sizes[CECL_TUNING_DEVICES]; /* bytes */
    ceclSmPolicy_t policy;
    /* Values of other thresholds, with which no third way is chosen. CECL_TUNE_COUNT ends a list of fewer than two. */
    struct forced {
        enum cecl_threshold which;
        uint64_t value;
    } also[2];
};
extern const struct crossing crossings[];
extern const int ncrossings;
/* The table's own string for an operation's name; NULL: no crossing has this operation. */
const char *crossing_op_named(const char *name);

/* The result for a crossing. */
struct finding {
    const char *kept; /* why the crossing was not measured; NULL: it was */
    uint64_t was, value;
    struct point points[MAX_POINTS];
    int npoints;
};

struct tuner {
    struct run run; /* for all measurements; ranks meet by its comm and stream */
    bool quick;
    int seconds; /* how long to measure; afterwards no size is begun */
    const char *op;
    char output[PATH_MAX];        /* a name that is valid in every folder */
    struct cecl_tuning_file base; /* the file that CECL_TUNING names; empty without one */
    enum cecl_tuning_device device;
    double began;    /* us */
    int done, total; /* sizes */
};

/* options.c: false when the program should end with *code. */
bool tuner_options(struct tuner *tuner, int argc, char **argv, int *code);

/* ways.c: times both ways at each size. False: a call failed, and a message was printed. */
bool crossing_measure(struct tuner *tuner, const struct crossing *crossing,
                      struct finding *finding);
/* The i-th size of a crossing; 0: `i` is past the last size. */
uint64_t crossing_size(const struct tuner *tuner, const struct crossing *crossing, int i);

/* progress.c: prints on rank 0's stderr. */
void progress_size(const struct tuner *tuner, const struct crossing *crossing, uint64_t bytes);
void progress_finding(const struct tuner *tuner, const struct crossing *crossing,
                      const struct finding *finding);

/* write.c: the file, by rank 0. */
bool tuner_write(const struct tuner *tuner, const struct finding *findings);

#endif
