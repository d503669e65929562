/* What a run measured, and how rank 0 prints it: progress, a table, JSON. */
#ifndef CECL_FSDP_REPORT_H
#define CECL_FSDP_REPORT_H

#include "fsdp.h"
#include "options.h"

struct report {
    int first; /* the step with which this run began */
    int steps; /* steps: how many this run made; room: how many fit */
    int room;
    double *loss;    /* mean over the tokens of all ranks, in nats for each byte */
    double *step_ms; /* of the slowest rank */
    /* the part of a step in which compute waits for communication, in ms: mean over the ranks */
    double *exposed_ms;
    double *ticks;
};

bool report_open(struct report *r, const struct shape *s, int first, int steps);
void report_close(struct report *r);
int report_ticks(const struct shape *s); /* for how many ticks compute->open needs room */

/* Collective. Reads the losses and times of `count` steps, each of which began with a tick. The
 * host waits. */
bool report_read(struct report *r, struct fsdp *f, int count);

void report_head(const struct fsdp *f, const struct options *o, uint64_t text_bytes);
void report_progress(const struct report *r, const struct fsdp *f, int count);
void report_table(const struct report *r, const struct fsdp *f);
bool report_json(const struct report *r, const struct fsdp *f, const struct options *o);

#endif
