/* Times both ways of a crossing in turn. Each way has a communicator, whose tuning table forces that way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock_wall.h"
#include "tuner.h"

#define TYPE ceclBfloat16
#define TYPE_BYTES 2
#define MOST_CALLS 50 /* in a round */

struct way {
    ceclComm_t comm;
    ceclStream_t stream;
    unsigned char *send, *recv;
};

/* What is timed: calls of one size, in both ways. */
struct trial {
    const struct crossing *crossing;
    struct way ways[2];
    size_t block; /* bytes of one block, as the op defines a block */
    int calls;    /* in a round */
};

/* ---- forcing a way */

/* A value for the threshold: all timed calls are below it (way 0), or all are above it (way 1). */
static uint64_t forcing_value(const struct tuner *tuner, const struct crossing *crossing, int way)
{
    const struct cecl_threshold_info *info = &cecl_thresholds[crossing->which];
    if ((way == 1) != crossing->is_min)
        return crossing->is_min ? info->most : info->least;
    return crossing->is_min ? info->least : crossing->sizes[tuner->device].last;
}

static bool is_forced(const struct crossing *crossing, enum cecl_threshold which)
{
    for (int i = 0; i < 2 && crossing->also[i].which != CECL_TUNE_COUNT; i++)
        if (crossing->also[i].which == which)
            return true;
    return crossing->which == which;
}

static void write_row(FILE *out, const struct cecl_tuning_row *row)
{
    char text[CECL_TUNING_TEXT];
    cecl_tuning_row_text(row, text);
    fprintf(out, "%s\n", text);
}

static void write_table(const struct tuner *tuner, const struct crossing *crossing, int way,
                        FILE *out)
{
    struct cecl_tuning_row row = {.which = crossing->which,
                                  .first = 1,
                                  .last = CECL_TUNING_EVERY_RANK,
                                  .device = CECL_TUNING_ANY,
                                  .value = forcing_value(tuner, crossing, way)};
    fprintf(out, "%s\n", CECL_TUNING_HEADER);
    write_row(out, &row);
    for (int i = 0; i < 2 && crossing->also[i].which != CECL_TUNE_COUNT; i++) {
        row.which = crossing->also[i].which;
        row.value = crossing->also[i].value;
        write_row(out, &row);
    }
    for (size_t i = 0; i < tuner->base.nrows; i++)
        if (!is_forced(crossing, tuner->base.rows[i].which))
            write_row(out, &tuner->base.rows[i]);
}

/* Writes the table to a file that only this rank uses. */
static bool make_table(const struct tuner *tuner, const struct crossing *crossing, int way,
                       char *path)
{
    const int fd = mkstemp(path);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out)
        write_table(tuner, crossing, way, out);
    if (!out || fclose(out) != 0)
        return complain(&tuner->run, path, "cannot be written");
    return true;
}

/* ---- a way's life */

static bool way_join(const struct tuner *tuner, const struct crossing *crossing, int way,
                     struct way *w)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    char path[] = "/tmp/cecl_tune_XXXXXX";
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    config.smPolicy = (int)crossing->policy;
    if (!make_table(tuner, crossing, way, path))
        return false;
    setenv("CECL_TUNING", path, 1);
    const ceclResult_t result = ceclCommInitMpi(&w->comm, MPI_COMM_WORLD, &config);
    unsetenv("CECL_TUNING");
    unlink(path);
    BENCH_TRY(&tuner->run, result);
    return true;
}

static size_t block_at(const struct tuner *tuner, const struct crossing *crossing, uint64_t bytes)
{
    return (size_t)bytes * (crossing->of_block ? (size_t)tuner->run.nranks : 1);
}

static bool way_open(const struct tuner *tuner, const struct crossing *crossing, int way,
                     struct way *w)
{
    const size_t n = (size_t)tuner->run.nranks,
                 largest = block_at(tuner, crossing, crossing->sizes[tuner->device].last);
    const size_t send = largest * (crossing->op->block_per_rank ? n : 1),
                 recv = largest * (crossing->op->block_of_each ? n : 1);
    if (!way_join(tuner, crossing, way, w))
        return false;
    BENCH_TRY(&tuner->run, ceclStreamCreate(w->comm, &w->stream));
    BENCH_TRY(&tuner->run, ceclMemAlloc(w->comm, (void **)&w->send, send));
    /* without a block from each rank, `recv` needs at most as many bytes as `send` has */
    if (crossing->in_place && !crossing->op->block_of_each)
        w->recv = w->send;
    else
        BENCH_TRY(&tuner->run, ceclMemAlloc(w->comm, (void **)&w->recv, recv));
    return true;
}

static bool way_close(const struct tuner *tuner, struct way *w)
{
    BENCH_TRY(&tuner->run, ceclStreamDestroy(w->comm, w->stream));
    BENCH_TRY(&tuner->run, ceclCommDestroy(w->comm));
    return true;
}

/* ---- calls */

static const void *input_of(const struct run *run, const struct trial *trial, const struct way *way)
{
    const struct op *op = trial->crossing->op;
    if (!trial->crossing->in_place)
        return way->send;
    return op->block_of_each && !op->block_per_rank ? way->recv + (size_t)run->rank * trial->block
                                                    : way->recv;
}

static ceclResult_t call_once(const struct run *run, const struct trial *trial, int way)
{
    const struct way *w = &trial->ways[way];
    return trial->crossing->op->call(input_of(run, trial, w), w->recv, trial->block / TYPE_BYTES,
                                     TYPE, w->comm, w->stream);
}

/* Makes a round of calls in one way, and waits for their end. */
static bool call_round(const struct run *run, void *context, int way)
{
    const struct trial *trial = context;
    for (int i = 0; i < trial->calls; i++)
        BENCH_TRY(run, call_once(run, trial, way));
    BENCH_TRY(run, ceclStreamSynchronize(trial->ways[way].comm, trial->ways[way].stream));
    return true;
}

/* Explains a call in this way. False: the call is refused, for example because staging is too small. */
static bool explain(const struct run *run, const struct trial *trial, int way, ceclExplanation_t *e)
{
    memset(e, 0, sizeof(*e));
    if (ceclGroupStart() != ceclSuccess)
        return false;
    const ceclResult_t called = call_once(run, trial, way);
    return ceclGroupExplain(trial->ways[way].comm, e) == ceclSuccess && called == ceclSuccess;
}

/* Whether all ranks can go both ways at this size, and the ways differ on some rank. */
static bool ways_differ(const struct run *run, const struct trial *trial)
{
    ceclExplanation_t e[2];
    int mine, all;
    const bool both = explain(run, trial, 0, &e[0]) && explain(run, trial, 1, &e[1]);
    mine = !both ? -1
                 : strcmp(e[0].path, e[1].path) != 0 || e[0].copies != e[1].copies ||
                       e[0].barriers != e[1].barriers;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all < 0)
        return false;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return all > 0;
}

/* ---- one size */

/* Chooses how many calls take about the wanted time together. The same on all ranks. */
static bool choose_calls(const struct tuner *tuner, struct trial *trial)
{
    const double wanted = tuner->quick ? 2000 : 5000; /* us */
    double mine = 0, slowest = 0;
    trial->calls = 1;
    for (int turn = 0; turn < 2; turn++) { /* the first turn makes plans */
        const double start = wall_us();
        if (!call_round(&tuner->run, trial, 0) || !call_round(&tuner->run, trial, 1))
            return false;
        mine = (wall_us() - start) / 2;
    }
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const double calls = wanted / (slowest > 1 ? slowest : 1);
    trial->calls = calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
    return true;
}

static bool measure_size(const struct tuner *tuner, struct trial *trial, uint64_t bytes,
                         struct finding *finding)
{
    struct point *point = &finding->points[finding->npoints];
    trial->block = block_at(tuner, trial->crossing, bytes);
    if (!ways_differ(&tuner->run, trial))
        return true;
    if (!choose_calls(tuner, trial) || !turn_medians(&tuner->run, call_round, trial, 1, point->us))
        return false;
    point->bytes = bytes;
    point->us[0] /= trial->calls;
    point->us[1] /= trial->calls;
    finding->npoints++;
    return true;
}

uint64_t crossing_size(const struct tuner *tuner, const struct crossing *crossing, int i)
{
    const int step = tuner->quick ? 4 : 2;
    uint64_t bytes = crossing->sizes[tuner->device].first;
    const uint64_t last = crossing->sizes[tuner->device].last / (tuner->quick ? 4 : 1);
    while (i-- > 0 && bytes <= last)
        bytes *= (uint64_t)step;
    return bytes <= last ? bytes : 0;
}

/* ---- all sizes */

/* Whether the time for measuring is over, by rank 0's clock. */
static bool is_late(const struct tuner *tuner, struct finding *finding)
{
    int late = wall_us() - tuner->began > tuner->seconds * 1e6;
    MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (late)
        finding->kept = "there was no time left";
    return late;
}

static bool measure_sizes(struct tuner *tuner, struct trial *trial, struct finding *finding)
{
    uint64_t bytes;
    for (int i = 0; i < MAX_POINTS && (bytes = crossing_size(tuner, trial->crossing, i)) > 0; i++) {
        progress_size(tuner, trial->crossing, bytes);
        if (is_late(tuner, finding))
            return true;
        if (!measure_size(tuner, trial, bytes, finding))
            return false;
        tuner->done++;
    }
    if (finding->npoints == 0)
        finding->kept = "both ways are the same here";
    return true;
}

bool crossing_measure(struct tuner *tuner, const struct crossing *crossing, struct finding *finding)
{
    struct trial trial = {.crossing = crossing};
    if (is_late(tuner, finding))
        return true;
    for (int way = 0; way < 2; way++)
        if (!way_open(tuner, crossing, way, &trial.ways[way]))
            return false;
    if (!measure_sizes(tuner, &trial, finding))
        return false;
    for (int way = 0; way < 2; way++)
        if (!way_close(tuner, &trial.ways[way]))
            return false;
    if (!finding->kept)
        finding->value = split_value(finding->points, finding->npoints, crossing->is_min,
                                     finding->was, cecl_thresholds[crossing->which].least);
    return true;
}
