/* --group: times many calls of --op, one by one and as one group, in turn. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#define REPEATS 20
#define CHECKED \
    8 /* how many calls of a group are checked, each by running the whole group once more */

struct many {
    struct side *sides; /* [count], each with buffers for one call */
    int count;
    size_t block;
    bool in_place;
};

/* `way`: 0 single calls, 1 a group. */
static bool call_all(const struct run *run, void *context, int way)
{
    const struct many *many = context;
    const struct type *type = run->options.type;
    const bool grouped = way == 1;
    if (grouped)
        BENCH_TRY(run, ceclGroupStart());
    for (int i = 0; i < many->count; i++) {
        const struct side *side = &many->sides[i];
        BENCH_TRY(run, run->options.op->call(send_place(side, run, many->block, many->in_place),
                                             side->recv, many->block / type->bytes, type->id,
                                             run->comm, run->stream));
    }
    if (grouped)
        BENCH_TRY(run, ceclGroupEnd());
    return true;
}

static bool call_group(struct side *side, const struct run *run, const void *send, size_t block)
{
    (void)send;
    (void)block;
    return call_all(run, side->state, 1);
}

/* Adds the wrong bytes of all ranks to *wrong. */
static bool check_all(const struct run *run, struct many *many, long long *wrong)
{
    const int step = (many->count + CHECKED - 1) / CHECKED;
    struct run own = *run;
    long long found = 0;
    own.host = malloc((size_t)(run->nranks + 1) * many->block);
    bool fine = own.host || complain(run, "--group", "no host memory");
    for (int i = 0; i < many->count && fine; i += step) {
        const long long mine =
            check_side(&many->sides[i], &own, many->block, many->in_place, (uint64_t)i);
        fine = mine >= 0;
        found += mine;
    }
    free(own.host);
    if (!fine)
        return false;
    run->team->sum(&found);
    if (found > 0 && run->rank == 0)
        printf("# --group: %lld wrong bytes\n", found);
    *wrong += found;
    return true;
}

static bool measure(const struct run *run, struct many *many, long long *wrong)
{
    double us[2];
    if (!check_all(run, many, wrong) || !turn_medians(run, call_all, many, REPEATS, us))
        return false;
    if (run->rank == 0)
        printf("# %d x %s of %zu bytes a rank%s: %.1f us one by one, %.1f us in a group (%.3f)\n",
               many->count, run->options.op->name, size_of(run, many->block),
               many->in_place ? ", in place" : "", us[0], us[1], us[1] / us[0]);
    return true;
}

bool extra_group(const struct run *run, long long *wrong)
{
    struct many many = {.count = run->options.group,
                        .block = block_of(&run->options, run->nranks, run->options.first),
                        .in_place = run->options.op->in_place_too};
    many.sides = calloc((size_t)many.count, sizeof(*many.sides));
    bool fine = many.sides || complain(run, "--group", "no host memory");
    for (int i = 0; i < many.count && fine; i++) {
        struct side *side = &many.sides[i];
        *side = (struct side){.name = "--group", .state = &many, .call = call_group};
        fine =
            (ceclMemAlloc(run->comm, &side->send, send_bytes_of(run, many.block)) == ceclSuccess &&
             ceclMemAlloc(run->comm, &side->recv, recv_bytes_of(run, many.block)) == ceclSuccess) ||
            complain(run, "ceclMemAlloc", ceclGetLastError(run->comm));
    }
    fine = fine && measure(run, &many, wrong);
    for (int i = 0; i < many.count && fine; i++)
        fine = ceclMemFree(run->comm, many.sides[i].recv) == ceclSuccess &&
               ceclMemFree(run->comm, many.sides[i].send) == ceclSuccess;
    free(many.sides);
    return fine;
}
