/* What the times of a trial say: which arm, if any, makes periods shorter than arm 0.
 *
 * Times of one arm scatter, some are far off, and all times drift as a GPU warms up. First the drift is removed. Its
 * estimate is the median slope over all pairs of periods with the same arm. A gain compares a period of arm 0 with a
 * period of another arm. The median over all such pairs is the estimated gain of that arm. An arm is clearly better if
 * its estimated gain is at least CECL_VERDICT_LEAST and the lower end of the gain's 98 % interval (by the test of Mann
 * and Whitney) is above zero. The test assumes no distribution of the times. */
#ifndef CECL_NCCL_TRIAL_VERDICT_H
#define CECL_NCCL_TRIAL_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#define CECL_VERDICT_ARMS 4
#define CECL_VERDICT_SAMPLES 64 /* the most samples of a verdict */
#define CECL_VERDICT_LEAST 0.01

/* One period's time. */
struct cecl_sample {
    uint32_t arm; /* below CECL_VERDICT_ARMS */
    uint32_t at;  /* the period's number in the trial */
    double ns;    /* above 0 */
};

/* Summary of an arm's times. */
struct cecl_arm_times {
    uint32_t count;
    double median_ns; /* with the drift since the first period removed */
    double spread_ns; /* median of the times' distances from median_ns */
    double gain;      /* by what fraction periods are shorter than with arm 0; 0.1 means 10 % */
};

struct cecl_verdict {
    uint32_t arm; /* the chosen arm; 0: no other arm is clearly better than arm 0 */
    struct cecl_arm_times arms[CECL_VERDICT_ARMS];
};

/* count  at most CECL_VERDICT_SAMPLES */
struct cecl_verdict cecl_verdict_of(const struct cecl_sample *samples, size_t count);

#endif
