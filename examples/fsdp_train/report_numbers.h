/* Numbers that both the table and the JSON show. */
#ifndef CECL_FSDP_REPORT_NUMBERS_H
#define CECL_FSDP_REPORT_NUMBERS_H

#include "report.h"

struct spread {
    double low, median, high; /* quartiles */
};
/* The spread of a run's times, without the first steps, which make plans and warm up. */
struct spread spread_of(const struct report *r, const double *values);
int steps_left_out(const struct report *r); /* 0 if there are too few steps */

double step_tokens(const struct fsdp *f); /* of all ranks */
double sent_bytes(const struct fsdp *f);  /* bytes that a rank receives from its peers in a step */

#endif
