/* What the times of a trial say: which of several arms makes periods shorter than arm 0, if any.
 *
 * Times of one arm scatter, some are far off, and all of them drift as a GPU warms up. So the drift is
 * taken out first (the median of all slopes between two periods of one arm), and arms are compared by
 * the gains of all pairs of periods, one of arm 0 and one of the other. The median of these gains is
 * the estimate. An arm is clearly better if the estimate is at least CECL_VERDICT_LEAST, and the gain
 * is above zero at the lower end of its 98 % interval, as the test of Mann and Whitney has it. No
 * distribution is assumed. Pure arithmetic. */
#ifndef CECL_LEARN_VERDICT_H
#define CECL_LEARN_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#define CECL_VERDICT_ARMS 4
#define CECL_VERDICT_SAMPLES 64 /* the most that are judged */
#define CECL_VERDICT_LEAST 0.01

/* One period's time. */
struct cecl_sample {
    uint32_t arm; /* below CECL_VERDICT_ARMS */
    uint32_t at;  /* its place among the periods of the trial */
    double ns;    /* above 0 */
};

/* What an arm's times came to. */
struct cecl_arm_times {
    uint32_t count;
    double median_ns; /* without drift: as at the first period */
    double spread_ns; /* half of the times are not further than this from the median */
    double gain;      /* by what part periods are shorter than with arm 0; 0.1: 10 % */
};

struct cecl_verdict {
    uint32_t arm; /* 0: no other one is clearly better */
    struct cecl_arm_times arms[CECL_VERDICT_ARMS];
};

/* count  at most CECL_VERDICT_SAMPLES */
struct cecl_verdict cecl_verdict_of(const struct cecl_sample *samples, size_t count);

/* The median of `count` values, which are sorted. 0: there is none. */
double cecl_median(double *values, size_t count);

#endif
