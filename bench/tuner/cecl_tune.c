/* cecl_tune measures, on this machine, the sizes from which one way of a collective is faster than another one, and
 * writes a file that CECL_TUNING loads. */
#include <cecl/cecl_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock_wall.h"
#include "tuner.h"
#include "util/settings.h"

/* Clears settings that would override the table's choice. */
static void clear_settings(void)
{
    static const char *const names[] = {"CECL_CHECK", "CECL_DIRECTION", "CECL_MAX_SMS",
                                        "CECL_SM_POLICY", "CECL_TUNING"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
}

/* Reads CECL_TUNING's file. All ranks read the same one, so only rank 0 prints a message. */
static bool read_base(struct tuner *tuner)
{
    const char *path = cecl_setting_text(CECL_SET_TUNING);
    if (!path || cecl_tuning_read(path, &tuner->base) == ceclSuccess)
        return true;
    if (tuner->run.rank == 0)
        fprintf(stderr, "cecl_tune: %s\n", cecl_message());
    return false;
}

/* Why a crossing is left out, or NULL. */
static const char *left_out(const struct tuner *tuner, const struct crossing *crossing)
{
    if (tuner->op && strcmp(tuner->op, crossing->op->name) != 0)
        return "not asked for";
    return tuner->run.nranks < crossing->least_ranks ? "it needs more ranks" : NULL;
}

static void count_sizes(struct tuner *tuner)
{
    for (int c = 0; c < ncrossings; c++)
        for (int i = 0; !left_out(tuner, &crossings[c]) && i < MAX_POINTS; i++)
            tuner->total += crossing_size(tuner, &crossings[c], i) > 0;
}

static bool measure_all(struct tuner *tuner, struct finding *findings)
{
    count_sizes(tuner);
    for (int c = 0; c < ncrossings; c++) {
        struct finding *finding = &findings[c];
        const int before = tuner->done;
        finding->was =
            cecl_tuning_row_of(&tuner->base, crossings[c].which, tuner->device, tuner->run.nranks)
                ->value;
        finding->value = finding->was;
        finding->kept = left_out(tuner, &crossings[c]);
        if (finding->kept)
            continue;
        if (!crossing_measure(tuner, &crossings[c], finding))
            return false;
        tuner->done = before;
        for (int i = 0; i < MAX_POINTS; i++)
            tuner->done += crossing_size(tuner, &crossings[c], i) > 0;
        progress_finding(tuner, &crossings[c], finding);
    }
    return true;
}

static int measure_joined(struct tuner *tuner)
{
    struct finding *findings = calloc((size_t)ncrossings, sizeof(*findings));
    if (!findings) {
        complain(&tuner->run, "findings", "no host memory");
        return END_BROKEN;
    }
    tuner->device = tuner->run.cuda ? CECL_TUNING_CUDA : CECL_TUNING_HOST;
    tuner->began = wall_us();
    const bool fine = measure_all(tuner, findings) && tuner_write(tuner, findings);
    free(findings);
    return fine ? END_FINE : END_BROKEN;
}

static int perform(struct tuner *tuner)
{
    struct run *run = &tuner->run;
    if (!output_opens(run, "--output", tuner->output))
        return END_USAGE;
    run->options.rounds = tuner->quick ? 7 : 21;
    clear_settings();
    run->options.op = crossings[0].op; /* for run_join */
    run->options.type = type_named("bfloat16");
    if (!run_join(run))
        return END_BROKEN;
    const int end = measure_joined(tuner);
    return run_leave(run, end) ? end : END_BROKEN;
}

int main(int argc, char **argv)
{
    struct tuner tuner = {.run = {.program = "cecl_tune"}};
    int end;
    tuner.run.team = team_mpi_join(&argc, &argv, &tuner.run.rank, &tuner.run.nranks);
    if (tuner_options(&tuner, argc, argv, &end))
        end = read_base(&tuner) ? perform(&tuner) : END_USAGE;
    cecl_tuning_forget(&tuner.base);
    if (end == END_BROKEN) /* other ranks may wait for this one inside MPI */
        MPI_Abort(MPI_COMM_WORLD, END_BROKEN);
    MPI_Finalize();
    return end;
}
