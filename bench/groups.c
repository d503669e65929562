/* --group: times many all-gathers, as single calls and as one group, in turn. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#define REPEATS 20

struct many {
    unsigned char **buffers; /* [count], each for an all-gather in place */
    int count;
    size_t block;
};

/* way 0: single calls; 1: a group. */
static bool call_all(const struct run *run, void *context, int way)
{
    const struct many *many = context;
    const bool grouped = way == 1;
    if (grouped)
        BENCH_TRY(run, ceclGroupStart());
    for (int i = 0; i < many->count; i++)
        BENCH_TRY(run,
                  ceclAllGather(many->buffers[i] + (size_t)run->rank * many->block,
                                many->buffers[i], many->block, ceclUint8, run->comm, run->stream));
    if (grouped)
        BENCH_TRY(run, ceclGroupEnd());
    return true;
}

static bool check_all(const struct run *run, struct many *many)
{
    const size_t all = (size_t)run->nranks * many->block;
    unsigned char *host = malloc(all);
    bool fine = host != NULL;
    for (int i = 0; i < many->count && fine; i++) {
        for (size_t b = 0; b < all; b++)
            host[b] = (unsigned char)(b / many->block == (size_t)run->rank
                                          ? run->rank * 31 + i * 7 + (int)(b % 251)
                                          : 0xEE);
        fine =
            ceclMemcpyAsync(run->comm, many->buffers[i], host, all, run->stream) == ceclSuccess &&
            ceclStreamSynchronize(run->comm, run->stream) == ceclSuccess;
    }
    run->team->barrier();
    fine = fine && call_all(run, many, 1);
    for (int i = 0; i < many->count && fine; i++) {
        fine =
            ceclMemcpyAsync(run->comm, host, many->buffers[i], all, run->stream) == ceclSuccess &&
            ceclStreamSynchronize(run->comm, run->stream) == ceclSuccess;
        for (size_t b = 0; b < all && fine; b++)
            fine = host[b] == (unsigned char)((int)(b / many->block) * 31 + i * 7 + (int)(b % 251));
    }
    free(host);
    return fine || complain(run, "--group", "bytes are wrong, or a call failed");
}

static bool measure(const struct run *run, struct many *many)
{
    double us[2];
    if (!check_all(run, many) || !turn_medians(run, call_all, many, REPEATS, us))
        return false;
    if (run->rank == 0)
        printf("# %d all-gathers of %zu bytes a rank, in place: %.1f us one by one, %.1f us in a "
               "group (%.3f)\n",
               many->count, many->block, us[0], us[1], us[1] / us[0]);
    return true;
}

bool extra_group(const struct run *run)
{
    struct many many = {.count = run->options.group,
                        .block = block_of(&run->options, run->nranks, run->options.first)};
    many.buffers = calloc((size_t)many.count, sizeof(*many.buffers));
    bool fine = many.buffers || complain(run, "--group", "no host memory");
    for (int i = 0; i < many.count && fine; i++)
        fine = ceclMemAlloc(run->comm, (void **)&many.buffers[i],
                            (size_t)run->nranks * many.block) == ceclSuccess ||
               complain(run, "ceclMemAlloc", ceclGetLastError(run->comm));
    fine = fine && measure(run, &many);
    for (int i = 0; i < many.count && fine; i++)
        fine = ceclMemFree(run->comm, many.buffers[i]) == ceclSuccess;
    free(many.buffers);
    return fine;
}
