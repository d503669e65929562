/* What the files of cecl_overlap share. */
#ifndef CECL_OVERLAP_H
#define CECL_OVERLAP_H

#include <cecl/cecl_mpi.h>

#include "bench.h"

#define MAX_CONTENDERS 7
#define END_NO_GPU 77 /* the code of a skipped test */

struct settings {
    int gemm; /* M = N = K */
    bool host_copies;
    bool urgent;        /* the collectives' stream gets the highest priority */
    bool sequential;    /* also measure the collective after the GEMM */
    const char *preset; /* the preset's name, or NULL */
};

/* A side in one placement, with its times for the current size. */
struct contender {
    const char *name;
    struct side *side;
    /* of a side of cecl: its own communicator, which reports failures; of a side of NCCL: the run's */
    ceclComm_t comm;
    bool in_place, on;
    bool yardstick; /* the other contenders are compared with this one */
    /* ms of the slowest rank in each round, set on rank 0 */
    double with[MAX_ROUNDS], alone[MAX_ROUNDS];
    double sequential[MAX_ROUNDS]; /* if the settings ask for it */
    long long errors;              /* wrong bytes on all ranks */
    /* this rank's calls that published places, and those to which a rank came late; always 0 for NCCL */
    uint64_t told, late;
};

/* The measurements of one size. */
struct trial {
    size_t block;
    int ncontenders;
    struct contender contenders[MAX_CONTENDERS];
    double gemm[MAX_ROUNDS]; /* ms of the GEMM alone */
};

/* What runs in one measurement. */
struct load {
    bool gemm, after;  /* after: the collective waits until the GEMM has ended */
    struct side *side; /* NULL: no collective */
    const void *send;
    size_t block;
};

/* options.c. As cecl_perf's options_parse. */
bool overlap_options(struct options *o, struct settings *settings, int argc, char **argv,
                     const struct run *run, int *code);

/* gpu.c. Whether CUDA sees a GPU; if not, `why` has the reason. */
bool gpu_present(char *why, size_t bytes);
/* makes the communicator's GPU current for the calling thread */
bool gpu_make_current(const struct run *run);
struct gpu;
struct gpu *gpu_open(const struct run *run, int gemm); /* NULL after a message on failure */
void gpu_close(struct gpu *gpu);
/* Replaces run->stream by one of the highest priority. */
bool gpu_make_urgent(struct run *run);
/* Enqueues the load, and starts it on all ranks at about the same time. Collective. */
bool gpu_start(struct gpu *gpu, const struct run *run, const struct load *load);
/* Times the load on this rank, from the common start of its streams until all its work has ended. Collective. */
bool gpu_time(struct gpu *gpu, const struct run *run, const struct load *load, double *ms);

/* copies.c: a thread that copies to and from pinned host memory until it is stopped. */
struct copies;
struct copies *copies_start(const struct run *run); /* NULL after a message on failure */
bool copies_fine(struct copies *copies, const struct run *run);
/* stops and frees it; returns GB/s in each direction; 0 for NULL */
double copies_stop(struct copies *copies);

/* contenders.c. The sides, with room for the largest size, and their placements. */
struct contenders {
    struct side sides[4];
    int nsides, nopen;
    ceclComm_t allow; /* cecl's second communicator, with SMs allowed */
    struct contender list[MAX_CONTENDERS];
    int count;
};
bool contenders_open(struct contenders *c, const struct run *run);
bool contenders_close(struct contenders *c, const struct run *run);

/* table.c. Rank 0 prints. */
void table_head(const struct run *run, const struct settings *settings);
void table_size(const struct run *run, const struct settings *settings, const struct trial *t);
bool table_json(const struct run *run, const struct settings *settings, const struct trial *trials,
                int count);

/* limit.c. Ends the process with a message unless it is called again within two minutes, so that a run ends even if
 * it waits for a peer or a GPU that never comes. */
void limit(const struct run *run, const char *what);

#endif
