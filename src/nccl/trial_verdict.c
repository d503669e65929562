/* See trial_verdict.h. */
#include "nccl/trial_verdict.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define PAIRS (CECL_VERDICT_SAMPLES * (CECL_VERDICT_SAMPLES - 1) / 2)
#define DEVIATIONS 2.33 /* number of standard deviations for a one-sided test at 1 % */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, size_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(*values), by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* The drift: the fraction by which each period is longer than the one before it. */
static double drift_of(const struct cecl_sample *samples, size_t count)
{
    double slopes[PAIRS];
    size_t nslopes = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (samples[i].arm == samples[j].arm && samples[i].at != samples[j].at)
                slopes[nslopes++] = (samples[i].ns / samples[j].ns - 1) /
                                    ((double)samples[i].at - (double)samples[j].at);
    return median_of(slopes, nslopes);
}

/* An arm's times, with the drift removed. */
static size_t times_of(const struct cecl_sample *samples, size_t count, uint32_t arm, double drift,
                       double *times)
{
    size_t ntimes = 0;
    for (size_t i = 0; i < count; i++) {
        const double factor = 1 + drift * ((double)samples[i].at - (double)samples[0].at);
        if (samples[i].arm == arm)
            times[ntimes++] = factor > 0 ? samples[i].ns / factor : samples[i].ns;
    }
    return ntimes;
}

static double spread_of(const double *times, size_t count, double median)
{
    double far[CECL_VERDICT_SAMPLES];
    for (size_t i = 0; i < count; i++)
        far[i] = times[i] > median ? times[i] - median : median - times[i];
    return median_of(far, count);
}

static double square_root(double value)
{
    double root = value > 1 ? value : 1;
    for (int i = 0; i < 40; i++)
        root = (root + value / root) / 2;
    return root;
}

/* Whether the lower end of the gains' interval is above zero. `gains` are sorted. If both arms have fewer than five
 * measured times, the interval has no lower end, and the result is false. */
static bool is_clear(const double *gains, size_t nbase, size_t ntimes)
{
    const double pairs = (double)nbase * (double)ntimes;
    const double deviation = square_root(pairs * ((double)nbase + (double)ntimes + 1) / 12);
    const double below = pairs / 2 - DEVIATIONS * deviation;
    return below >= 0 && gains[(size_t)below] > 0;
}

struct cecl_verdict cecl_verdict_of(const struct cecl_sample *samples, size_t count)
{
    struct cecl_verdict verdict = {0};
    double base[CECL_VERDICT_SAMPLES], times[CECL_VERDICT_SAMPLES], gains[PAIRS];
    assert(count <= CECL_VERDICT_SAMPLES);
    const double drift = drift_of(samples, count);
    const size_t nbase = times_of(samples, count, 0, drift, base);
    for (uint32_t arm = 0; arm < CECL_VERDICT_ARMS; arm++) {
        struct cecl_arm_times *told = &verdict.arms[arm];
        const size_t ntimes = times_of(samples, count, arm, drift, times);
        size_t npairs = 0;
        for (size_t i = 0; i < nbase && arm > 0; i++)
            for (size_t j = 0; j < ntimes; j++)
                gains[npairs++] = 1 - times[j] / base[i];
        told->count = (uint32_t)ntimes;
        told->median_ns = median_of(times, ntimes);
        told->spread_ns = spread_of(times, ntimes, told->median_ns);
        told->gain = median_of(gains, npairs);
        if (told->gain >= CECL_VERDICT_LEAST && is_clear(gains, nbase, ntimes) &&
            told->gain > verdict.arms[verdict.arm].gain)
            verdict.arm = arm;
    }
    return verdict;
}
