/* The file that cecl_tune writes: measured rows with their times, and rows that stay, with the reason. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tuner.h"

static struct cecl_tuning_row row_of(const struct tuner *tuner, const struct crossing *crossing,
                                     uint64_t value)
{
    return (struct cecl_tuning_row){.which = crossing->which,
                                    .first = (uint16_t)tuner->run.nranks,
                                    .last = (uint16_t)tuner->run.nranks,
                                    .device = tuner->device,
                                    .value = value};
}

static void write_head(const struct tuner *tuner, FILE *out)
{
    char host[64] = "?", date[32] = "?";
    const time_t now = time(NULL);
    struct tm parts;
    if (gethostname(host, sizeof(host) - 1) != 0)
        snprintf(host, sizeof(host), "?");
    if (gmtime_r(&now, &parts))
        strftime(date, sizeof(date), "%Y-%m-%d", &parts);
    fprintf(out,
            "%s\n# Measured by cecl_tune%s on %s, %s: %d ranks on the %s device, cecl %d.%d.%d.\n"
            "# Times are medians of the slowest rank, in us: below the threshold / above it.\n",
            CECL_TUNING_HEADER, tuner->quick ? " --quick" : "", host, date, tuner->run.nranks,
            cecl_tuning_device_text(tuner->device), CECL_MAJOR, CECL_MINOR, CECL_PATCH);
}

static void write_points(FILE *out, const struct crossing *crossing, const struct finding *finding)
{
    for (int i = 0; i < finding->npoints; i++) {
        const struct point *point = &finding->points[i];
        char size[CECL_TUNING_TEXT];
        cecl_tuning_value_text(crossing->which, point->bytes, size);
        fprintf(out, "%s%s: %.1f / %.1f", i % 4 == 0 ? i == 0 ? "#   " : ",\n#   " : ", ", size,
                point->us[0], point->us[1]);
    }
    fputs("\n", out);
}

static void write_measured(const struct tuner *tuner, FILE *out, const struct crossing *crossing,
                           const struct finding *finding)
{
    char was[CECL_TUNING_TEXT], text[CECL_TUNING_TEXT];
    const struct cecl_tuning_row row = row_of(tuner, crossing, finding->value);
    cecl_tuning_value_text(crossing->which, finding->was, was);
    cecl_tuning_row_text(&row, text);
    fprintf(out, "\n# %s\n# %s %s%s:\n", cecl_thresholds[crossing->which].decision,
            crossing->op->name, crossing->in_place ? "in place" : "out of place",
            crossing->of_block ? ", by the size of a block" : "");
    write_points(out, crossing, finding);
    fprintf(out, "%s # was %s\n", text, was);
}

static bool has_crossing(enum cecl_threshold which)
{
    for (int i = 0; i < ncrossings; i++)
        if (crossings[i].which == which)
            return true;
    return false;
}

/* Writes, as a comment, a row that was not measured, and so stays as it is. */
static void write_kept(const struct tuner *tuner, FILE *out, enum cecl_threshold which,
                       const char *why)
{
    struct cecl_tuning_row row =
        *cecl_tuning_row_of(&tuner->base, which, tuner->device, tuner->run.nranks);
    char text[CECL_TUNING_TEXT];
    cecl_tuning_row_text(&row, text);
    fprintf(out, "# kept: %s (%s)\n", text, why);
}

/* Writes CECL_TUNING's rows, except those that were measured again. */
static void write_base(const struct tuner *tuner, FILE *out, const struct finding *findings)
{
    for (size_t r = 0; r < tuner->base.nrows; r++) {
        const struct cecl_tuning_row *row = &tuner->base.rows[r];
        char text[CECL_TUNING_TEXT];
        bool anew = false;
        for (int i = 0; i < ncrossings; i++)
            anew = anew || (!findings[i].kept && crossings[i].which == row->which &&
                            row->first == tuner->run.nranks && row->last == row->first &&
                            row->device == tuner->device);
        cecl_tuning_row_text(row, text);
        if (!anew)
            fprintf(out, "%s%s\n", r == 0 ? "\n# As before, from CECL_TUNING.\n" : "", text);
    }
}

static void write_all(const struct tuner *tuner, FILE *out, const struct finding *findings)
{
    write_head(tuner, out);
    for (int i = 0; i < ncrossings; i++)
        if (!findings[i].kept)
            write_measured(tuner, out, &crossings[i], &findings[i]);
    fputs("\n", out);
    for (int i = 0; i < ncrossings; i++)
        if (findings[i].kept)
            write_kept(tuner, out, crossings[i].which, findings[i].kept);
    for (int t = 0; t < CECL_TUNE_COUNT; t++)
        if (!has_crossing((enum cecl_threshold)t))
            write_kept(tuner, out, (enum cecl_threshold)t, "it is no crossover between two ways");
    write_base(tuner, out, findings);
}

bool tuner_write(const struct tuner *tuner, const struct finding *findings)
{
    if (tuner->run.rank != 0)
        return true;
    FILE *out = fopen(tuner->output, "w");
    if (out)
        write_all(tuner, out, findings);
    const bool failed = !out || ferror(out);
    if ((out && fclose(out) != 0) || failed)
        return complain(&tuner->run, tuner->output, strerror(errno));
    printf("wrote %s: CECL_TUNING=%s loads it, cecl_info --tuning shows it\n", tuner->output,
           tuner->output);
    return true;
}
