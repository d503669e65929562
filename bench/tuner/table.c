/* The file that cecl_tune --against nccl writes (nccl/learned_file.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "against.h"

static bool is_measured_anew(const struct cecl_nccl_gain *row, const struct cecl_nccl_setup *setup,
                             const struct contest *contests, int count)
{
    for (int i = 0; i < count; i++)
        if (contests[i].npoints > 0 && cecl_nccl_setup_is(&row->setup, setup) &&
            row->op == contests[i].nccl_op && row->type == contests[i].row_type && !row->on_windows)
            return true;
    return false;
}

static void write_kept(FILE *out, const struct cecl_nccl_rows *rows,
                       const struct cecl_nccl_setup *setup, const struct contest *contests,
                       int count)
{
    char text[CECL_NCCL_ROW_BYTES];
    for (size_t i = 0; i < rows->nverdicts; i++) {
        cecl_nccl_verdict_text(&rows->verdicts[i], text);
        fprintf(out, "%s\n", text);
    }
    for (size_t i = 0; i < rows->ngains; i++) {
        if (is_measured_anew(&rows->gains[i], setup, contests, count))
            continue;
        cecl_nccl_gain_text(&rows->gains[i], text);
        fprintf(out, "%s\n", text);
    }
}

static void write_points(FILE *out, const struct contest *contest)
{
    fprintf(out, "# %s, %s%s:", contest->op->name, contest->type->name,
            contest->is_late ? ", no time was left for larger sizes" : "");
    for (int i = 0; i < contest->npoints; i++)
        fprintf(out, "%s%llu: %.1f / %.1f", i % 4 == 0 ? "\n#   " : ", ",
                (unsigned long long)contest->points[i].bytes, contest->points[i].us[0],
                contest->points[i].us[1]);
    fputs("\n", out);
}

static void write_contest(FILE *out, const struct cecl_nccl_setup *setup,
                          const struct contest *contest)
{
    struct span spans[MAX_POINTS];
    char text[CECL_NCCL_ROW_BYTES];
    int nspans = spans_of(contest->points, contest->npoints, spans);
    if (contest->npoints == 0)
        return;
    write_points(out, contest);
    if (nspans == 0) /* cecl is faster in no measured size */
        spans[nspans++] = (struct span){0, 0};
    for (int i = 0; i < nspans; i++) {
        const struct cecl_nccl_gain row = {.setup = *setup,
                                           .op = contest->nccl_op,
                                           .type = contest->row_type,
                                           .least = (size_t)spans[i].least,
                                           .most = (size_t)spans[i].most};
        cecl_nccl_gain_text(&row, text);
        fprintf(out, "%s\n", text);
    }
}

static void write_all(FILE *out, const struct cecl_nccl_rows *rows,
                      const struct cecl_nccl_setup *setup, const struct contest *contests,
                      int count)
{
    char date[32] = "?";
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(date, sizeof(date), "%Y-%m-%d", &parts);
    fprintf(out, "%s\n", CECL_NCCL_LEARNED_HEADER);
    write_kept(out, rows, setup, contests, count);
    fprintf(out,
            "# Measured by cecl_tune --against nccl, %s, %d ranks. Bytes as the call names its "
            "count: us of "
            "NCCL / of cecl.\n# Medians of the slowest rank, of that placement where cecl gains "
            "least.\n",
            date, setup->nranks);
    for (int i = 0; i < count; i++)
        write_contest(out, setup, &contests[i]);
}

/* Writes the file under another name first, because a program may read it meanwhile. */
static bool replace(const struct tuner *tuner, const struct cecl_nccl_rows *rows,
                    const struct cecl_nccl_setup *setup, const struct contest *contests, int count)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s.new", tuner->output);
    FILE *out = fopen(path, "w");
    if (out)
        write_all(out, rows, setup, contests, count);
    const bool failed = !out || ferror(out);
    if ((out && fclose(out) != 0) || failed || rename(path, tuner->output) != 0) {
        complain(&tuner->run, tuner->output, strerror(errno));
        unlink(path);
        return false;
    }
    return true;
}

bool table_write(const struct tuner *tuner, const struct cecl_nccl_setup *setup,
                 const struct contest *contests, int count)
{
    struct cecl_nccl_rows rows;
    if (tuner->run.rank != 0)
        return true;
    if (cecl_nccl_rows_read(tuner->output, &rows) != ceclSuccess)
        return complain(&tuner->run, tuner->output, cecl_message());
    if (rows.nskipped > 0)
        fprintf(stderr, "%s, %s. Lines dropped: %zu\n", tuner->output, rows.skipped, rows.nskipped);
    const bool fine = replace(tuner, &rows, setup, contests, count);
    cecl_nccl_rows_forget(&rows);
    if (fine)
        printf("wrote %s: with CECL_NCCL_LEARNED=%s cecl-run begins with it\n", tuner->output,
               tuner->output);
    return fine;
}
