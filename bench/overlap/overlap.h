/* What the files of cecl_overlap share. */
#ifndef CECL_OVERLAP_H
#define CECL_OVERLAP_H

#include "bench.h"

#define MAX_CONTENDERS 7
#define END_NO_GPU 77 /* as a skipped test */

struct settings {
    int gemm; /* M = N = K */
    bool host_copies;
    bool urgent;        /* the collectives' stream comes first */
    bool sequential;    /* besides: the collective after the GEMM */
    const char *preset; /* its name, or NULL */
};

/* A side in one placement, with its times for the size at hand. */
struct contender {
    const char *name;
    struct side *side;
    ceclComm_t comm; /* cecl's own: tells whether it failed; NCCL: the run's */
    bool in_place, on;
    bool yardstick; /* the one that others are told against */
    /* ms of the slowest rank, round by round; on rank 0 */
    double with[MAX_ROUNDS], alone[MAX_ROUNDS];
    double sequential[MAX_ROUNDS]; /* where settings want it */
    long long errors;              /* bytes wrong on all ranks */
};

/* One size. */
struct trial {
    size_t block;
    int ncontenders;
    struct contender contenders[MAX_CONTENDERS];
    double gemm[MAX_ROUNDS]; /* ms of the GEMM alone */
};

/* What runs in one measurement. */
struct load {
    bool gemm, after;  /* after: the collective waits for the end of the GEMM */
    struct side *side; /* NULL: no collective */
    const void *send;
    size_t block;
};

/* options.c: as options_parse of cecl_perf. */
bool overlap_options(struct options *o, struct settings *settings, int argc, char **argv,
                     const struct run *run, int *code);

/* gpu.c: whether CUDA sees one at all; `why` tells why not. */
bool gpu_present(char *why, size_t bytes);
bool gpu_make_current(const struct run *run); /* the communicator's, for the calling thread */
struct gpu;
struct gpu *gpu_open(const struct run *run, int gemm); /* NULL with words */
void gpu_close(struct gpu *gpu);
/* run->stream becomes one of the highest priority. */
bool gpu_make_urgent(struct run *run);
/* Collective. Enqueues the load and lets it start, on all ranks at about the same time. */
bool gpu_start(struct gpu *gpu, const struct run *run, const struct load *load);
/* Collective. The load's time here, from the start that its streams have in common until all of it
 * is done. */
bool gpu_time(struct gpu *gpu, const struct run *run, const struct load *load, double *ms);

/* copies.c: a thread that copies to and from pinned host memory until it is stopped. */
struct copies;
struct copies *copies_start(const struct run *run); /* NULL with words */
bool copies_fine(struct copies *copies, const struct run *run);
double copies_stop(struct copies *copies); /* GB/s in each direction; frees it; NULL: 0 */

/* contenders.c: the sides, opened with room for the largest size, and their placements. */
struct contenders {
    struct side sides[4];
    int nsides, nopen;
    ceclComm_t allow; /* cecl's second communicator: SMs are allowed */
    struct contender list[MAX_CONTENDERS];
    int count;
};
bool contenders_open(struct contenders *c, const struct run *run);
bool contenders_close(struct contenders *c, const struct run *run);

/* table.c; rank 0 prints */
void table_head(const struct run *run, const struct settings *settings);
void table_size(const struct run *run, const struct settings *settings, const struct trial *t);
bool table_json(const struct run *run, const struct settings *settings, const struct trial *trials,
                int count);

/* limit.c: ends the process, with words, unless called again within two minutes: so that whatever
 * waits in vain, for a peer or for a GPU, ends the run. `what` must stay. */
void limit(const struct run *run, const char *what);

#endif
