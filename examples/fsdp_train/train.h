/* The command line, and what a run measured. */
#ifndef CECL_FSDP_TRAIN_H
#define CECL_FSDP_TRAIN_H

#include "fsdp.h"

struct options {
    int layers, width, heads, batch, sequence, steps, prefetch, rate, seed;
    const char *comm, *json;
    bool no_overlap, help;
};

/* Returns false if an option is wrong: `words` names it, its value, and what was expected. All ranks get
 * the same options, so all return the same. */
bool options_parse(struct options *o, char **argv, char *words, int size);
extern const char options_usage[];

struct report {
    int steps;
    double *loss;    /* mean over the tokens of all ranks, in nats for each byte */
    double *step_ms; /* of the slowest rank */
    /* the part of a step in which compute waits for communication, in ms: mean over the ranks */
    double *exposed_ms;
    double *ticks;
};

bool report_open(struct report *r, const struct shape *s, int steps);
void report_close(struct report *r);
int report_ticks(const struct shape *s); /* the number of ticks to pass to compute->open */

/* Collective. Reads the losses and times of the last `count` steps, and prints a line on rank 0. Each of
 * the steps must have begun with a tick. The host waits. */
bool report_read(struct report *r, struct fsdp *f, int count);

void report_head(const struct fsdp *f, size_t text_bytes);
void report_table(const struct report *r, const struct fsdp *f);
bool report_json(const struct report *r, const struct fsdp *f, const struct options *o);

#endif
