/* What the benchmark programs share of a run: its communicator, error messages, medians. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

bool complain(const struct run *run, const char *what, const char *why)
{
    fprintf(stderr, "%s: rank %d: %s: %s\n", run->program, run->rank, what, why);
    return false;
}

int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare_doubles);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* Does not write to the file, so an earlier run's results stay until this run has its own. */
bool output_opens(const struct run *run, const char *option, const char *path)
{
    int opens = 1;
    if (run->rank == 0 && path) {
        struct stat file;
        const bool was_there = lstat(path, &file) == 0;
        FILE *out = fopen(path, "a");
        opens = out && fclose(out) == 0;
        if (opens && !was_there)
            unlink(path);
        if (!opens)
            fprintf(stderr, "%s: %s %s: a file that can be written expected\n", run->program,
                    option, path);
    }
    run->team->bcast(&opens, sizeof(opens), 0);
    return opens != 0;
}

bool run_join(struct run *run)
{
    const size_t largest = block_of(&run->options, run->nranks, run->options.last);
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    int device = -1;
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    config.urgent = run->options.urgent;
    BENCH_TRY(run, run->team->comm_init(&run->comm, &config));
    BENCH_TRY(run, ceclCommCuDevice(run->comm, &device));
    BENCH_TRY(run, ceclStreamCreate(run->comm, &run->stream));
    run->cuda = device >= 0;
    if (run->options.check && !(run->host = malloc(largest * (size_t)(run->nranks + 1))))
        return complain(run, "-c 1", "no host memory for the largest result");
    return true;
}

bool run_leave(struct run *run, int end)
{
    free(run->host);
    run->host = NULL;
    if (end != END_BROKEN && (ceclStreamDestroy(run->comm, run->stream) != ceclSuccess ||
                              ceclCommDestroy(run->comm) != ceclSuccess))
        return complain(run, "closing", ceclGetLastError(NULL));
    return true;
}
