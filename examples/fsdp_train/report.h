/* What a run has measured, and how rank 0 prints it: progress, a table, JSON. */
#ifndef CECL_FSDP_REPORT_H
#define CECL_FSDP_REPORT_H

#include "fsdp.h"
#include "options.h"

struct report {
    int first; /* step that this run began with */
    int steps; /* that it has made, and room for */
    int room;
    double *loss;       /* mean over all ranks' tokens, nats a byte */
    double *step_ms;    /* the slowest rank's */
    double *exposed_ms; /* of it, compute waiting for communication: mean over the ranks */
    double *ticks;
};

bool report_open(struct report *r, const struct shape *s, int first, int steps);
void report_close(struct report *r);
int report_ticks(const struct shape *s); /* that compute->open has to have room for */

/* After `count` steps that each began with a tick: reads their losses and times. Collective, and
 * the host waits. */
bool report_read(struct report *r, struct fsdp *f, int count);

void report_head(const struct fsdp *f, const struct options *o, uint64_t text_bytes);
void report_progress(const struct report *r, const struct fsdp *f, int count);
void report_table(const struct report *r, const struct fsdp *f);
bool report_json(const struct report *r, const struct fsdp *f, const struct options *o);

#endif
