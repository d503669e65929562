/* What cecl_tune prints while it measures. */
#include <stdio.h>
#include <unistd.h>

#include "clock_wall.h"
#include "tuner.h"

static int seconds_left(const struct tuner *tuner)
{
    const double spent = (wall_us() - tuner->began) * 1e-6, bound = tuner->seconds - spent;
    const double left =
        tuner->done > 0 ? spent / tuner->done * (tuner->total - tuner->done) : bound;
    const double least = left < bound ? left : bound;
    return least > 0 ? (int)least + 1 : 0;
}

static bool on_terminal(void)
{
    return isatty(STDERR_FILENO);
}

void progress_size(const struct tuner *tuner, const struct crossing *crossing, uint64_t bytes)
{
    char size[CECL_TUNING_TEXT];
    if (tuner->run.rank != 0 || !on_terminal())
        return;
    cecl_tuning_value_text(crossing->which, bytes, size);
    fprintf(stderr, "\r\033[K%3d %%  %s: %s at %s, about %d s left",
            tuner->total > 0 ? 100 * tuner->done / tuner->total : 0,
            cecl_thresholds[crossing->which].name, crossing->op->name, size, seconds_left(tuner));
    fflush(stderr);
}

void progress_finding(const struct tuner *tuner, const struct crossing *crossing,
                      const struct finding *finding)
{
    char was[CECL_TUNING_TEXT], value[CECL_TUNING_TEXT];
    if (tuner->run.rank != 0)
        return;
    cecl_tuning_value_text(crossing->which, finding->was, was);
    cecl_tuning_value_text(crossing->which, finding->value, value);
    fprintf(stderr, "%s%3d %%  %-42s ", on_terminal() ? "\r\033[K" : "",
            tuner->total > 0 ? 100 * tuner->done / tuner->total : 100,
            cecl_thresholds[crossing->which].name);
    if (finding->kept)
        fprintf(stderr, "%s, kept: %s\n", was, finding->kept);
    else if (finding->value == finding->was)
        fprintf(stderr, "%s, as before; about %d s left\n", was, seconds_left(tuner));
    else
        fprintf(stderr, "%s, was %s; about %d s left\n", value, was, seconds_left(tuner));
}
