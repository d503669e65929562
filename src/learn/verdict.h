/* What the times of a trial say: which of several arms makes periods shorter than arm 0, if any.
 *
 * Times of one arm scatter, some are far off, and all of them drift as a GPU warms up. So the drift
 * is removed first. Its estimate is the median slope over all pairs of periods of one arm. Arms are
 * compared by the gains of all pairs of a period of arm 0 and a period of the other arm. The median
 * gain is the estimate. An arm is clearly better if the estimate is at least CECL_VERDICT_LEAST and
 * the lower end of its 98 % interval (by the test of Mann and Whitney) is above zero. No
 * distribution is assumed. */
#ifndef CECL_LEARN_VERDICT_H
#define CECL_LEARN_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#define CECL_VERDICT_ARMS 4
#define CECL_VERDICT_SAMPLES 64 /* most samples that are judged */
#define CECL_VERDICT_LEAST 0.01

/* One period's time. */
struct cecl_sample {
    uint32_t arm; /* below CECL_VERDICT_ARMS */
    uint32_t at;  /* its place among the periods of the trial */
    double ns;    /* above 0 */
};

/* Summary of an arm's times. */
struct cecl_arm_times {
    uint32_t count;
    double median_ns; /* with the drift removed, as at the first period */
    double spread_ns; /* half of the times differ no more than this from the median */
    double gain;      /* by what part periods are shorter than with arm 0; 0.1 means 10 % */
};

struct cecl_verdict {
    uint32_t arm; /* the arm to keep; 0: no other is clearly better */
    struct cecl_arm_times arms[CECL_VERDICT_ARMS];
};

/* count  at most CECL_VERDICT_SAMPLES */
struct cecl_verdict cecl_verdict_of(const struct cecl_sample *samples, size_t count);

/* The median of `count` values, which this sorts. 0 if there is none. */
double cecl_median(double *values, size_t count);

#endif
