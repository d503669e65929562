/* cecl_perf times a collective over sizes, in turn with other libraries, and checks every byte. */
#include <stdio.h>

#include "memory.h"

#define RANKS 2 /* number of ranks if neither MPI nor --ranks says it */
#define SPIN_UP_US 300e3

/* Times one round of one side: `iterations` calls, or in graphs at least as many. Sets *us to a call's time on the
 * slowest rank. */
static bool time_round(struct side *side, const struct run *whole, const void *send, size_t block,
                       int iterations, double *us)
{
    const struct run *run = side_run(side, whole);
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    run->team->barrier();
    const int each = side->calls > 0 ? side->calls : 1, times = (iterations + each - 1) / each;
    const double mine = clock_time(side, run, send, block, times);
    if (mine < 0)
        return complain(run, side->name, ceclGetLastError(run->comm));
    *us = mine / times / each;
    run->team->max(us, 1);
    return true;
}

/* One size and placement, for all sides. */
struct trial {
    struct side *sides;
    int nsides;
    bool in_place;
    size_t block;
    const void *send[MAX_SIDES];
    bool on[MAX_SIDES];
};

/* Adds the wrong bytes of all sides and ranks to *errors. Another `turn` gives other input. */
static bool check_all(const struct trial *t, const struct run *run, int turn, long long *errors)
{
    for (int s = 0; s < t->nsides; s++) {
        const uint64_t seed = (t->block * (MAX_ROUNDS + 1) + (uint64_t)turn) * MAX_SIDES;
        if (!t->on[s])
            continue;
        struct side *side = &t->sides[s];
        long long wrong =
            check_side(side, side_run(side, run), t->block, t->in_place, seed + (uint64_t)s);
        if (wrong < 0)
            return false;
        run->team->sum(&wrong);
        *errors += wrong;
    }
    return true;
}

/* Times `iterations` calls of each side, one side after the other. */
static bool time_all(const struct trial *t, const struct run *run, int iterations,
                     double us[MAX_SIDES])
{
    for (int s = 0; s < t->nsides; s++)
        if (t->on[s] && !time_round(&t->sides[s], run, t->send[s], t->block, iterations, &us[s]))
            return false;
    return true;
}

/* Makes calls until the clocks of a GPU that was idle have risen: otherwise the first size would be timed at lower
 * clocks than the others. `us` has the slowest rank's times, so all ranks make equally many calls. */
static bool spin_up(const struct trial *t, const struct run *run)
{
    double us[MAX_SIDES], total = 0;
    while (total < SPIN_UP_US) {
        if (!time_all(t, run, run->options.iterations, us))
            return false;
        for (int s = 0; s < t->nsides; s++)
            total += 1 + (t->on[s] ? us[s] * run->options.iterations : 0);
    }
    return true;
}

/* Runs all rounds. Each round warms up all sides and then times all, because a check leaves the device idle for long. */
static bool measure_rounds(const struct trial *t, const struct run *run, long long *errors,
                           double rounds[MAX_ROUNDS][MAX_SIDES])
{
    const struct options *o = &run->options;
    double unused[MAX_SIDES];
    for (int round = 0; round < o->rounds; round++)
        if ((o->check && !check_all(t, run, round, errors)) ||
            (o->warmup > 0 && !time_all(t, run, o->warmup, unused)) ||
            !time_all(t, run, o->iterations, rounds[round]))
            return false;
    return !o->check || check_all(t, run, o->rounds, errors);
}

static bool measure(struct side *sides, const struct run *run, struct result *r, bool first)
{
    static double rounds[MAX_ROUNDS][MAX_SIDES];
    double of_side[MAX_ROUNDS];
    const int nrounds = run->options.rounds;
    struct trial t = {
        .sides = sides, .nsides = r->nsides, .in_place = r->in_place, .block = r->block};

    for (int s = 0; s < r->nsides; s++) {
        r->names[s] = sides[s].name;
        t.on[s] = !sides[s].supports || sides[s].supports(&sides[s], run, r->in_place);
        t.send[s] = send_place(&sides[s], run, r->block, r->in_place);
    }
    r->errors = run->options.check ? 0 : -1;
    if (first && run->cuda && run->options.warmup > 0 && !spin_up(&t, run))
        return false;
    if (!measure_rounds(&t, run, &r->errors, rounds))
        return false;
    for (int s = 0; s < r->nsides; s++) {
        for (int i = 0; i < nrounds; i++)
            of_side[i] = rounds[i][s];
        r->us[s] = t.on[s] ? median_of(of_side, nrounds) : 0;
    }
    return true;
}

/* Measures all sizes and placements. Returns the number of results, or -1. */
static int measure_all(struct side *sides, int nsides, const struct run *run,
                       struct result results[MAX_RESULTS])
{
    const struct options *o = &run->options;
    size_t size;
    int count = 0;
    report_head(run, sides, nsides);
    for (int i = 0; i < MAX_SIZES && (size = size_at(o, i)) != 0; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            if (!(in_place ? o->in_place : o->out_of_place))
                continue;
            const bool first = count == 0;
            struct result *r = &results[count++];
            *r = (struct result){
                .block = block_of(o, run->nranks, size), .in_place = in_place, .nsides = nsides};
            if (!measure(sides, run, r, first))
                return -1;
            report_row(run, r);
        }
    return count;
}

/* Opens the sides with room for the largest size, measures them, and closes them. */
static bool measure_sides(const struct run *run, long long *wrong)
{
    static struct result results[MAX_RESULTS];
    struct side sides[MAX_SIDES];
    const int nsides = sides_make(run, sides);
    const size_t largest = block_of(&run->options, run->nranks, run->options.last);
    bool fine = nsides > 0;

    for (int s = 0; s < nsides; s++)
        if (!sides[s].open(&sides[s], run, send_bytes_of(run, largest),
                           recv_bytes_of(run, largest)))
            return false;
    const int count = fine ? measure_all(sides, nsides, run, results) : -1;
    fine = count >= 0 && report_json(run, results, count);
    for (int s = 0; s < nsides && run->options.enqueue && fine; s++)
        fine = extra_enqueue(run, &sides[s]);
    for (int s = 0; s < nsides && run->options.beside > 0 && fine; s++)
        fine = extra_beside(run, &sides[s]);
    for (int s = nsides - 1; s >= 0; s--)
        sides[s].close(&sides[s]);
    for (int i = 0; i < count; i++)
        *wrong += results[i].errors > 0 ? results[i].errors : 0;
    return fine;
}

/* Prints whether the bytes were right. Returns the exit code. */
static int verdict(const struct run *run, long long wrong)
{
    if (run->rank == 0 && wrong)
        printf("# WRONG BYTES: %lld\n", wrong);
    else if (run->rank == 0)
        puts(run->options.check ? "# every byte right" : "# not checked");
    return wrong ? END_WRONG : END_FINE;
}

/* Measures what the options ask for besides the sweep. Adds wrong bytes to *wrong. */
static bool measure_extras(const struct run *run, long long *wrong)
{
    const struct options *o = &run->options;
    return (o->row_bytes == 0 || extra_rows(run, wrong)) &&
           (!o->first_use || extra_first_use(run)) && (o->late_us == 0 || extra_late(run)) &&
           (o->group == 0 || extra_group(run, wrong));
}

static int perform_joined(struct run *run)
{
    long long wrong = 0;
    const struct options *o = &run->options;
    if ((o->nccl || o->nccl_ce) && !run->cuda) {
        if (run->rank == 0)
            fprintf(stderr, "cecl_perf: --baseline: GPUs are needed, and ranks are on the host\n");
        return END_USAGE;
    }
    if (!measure_sides(run, &wrong))
        return END_BROKEN;
    if (!measure_extras(run, &wrong))
        return END_BROKEN;
    if (run->options.alloc) {
        const int end = extra_alloc(run);
        if (end != END_FINE)
            return end;
    }
    return verdict(run, wrong);
}

static int perform(struct run *run)
{
    if (!output_opens(run, "--json", run->options.json))
        return END_USAGE;
    if (!run_join(run))
        return END_BROKEN;
    const int end = perform_joined(run);
    return run_leave(run, end) ? end : END_BROKEN;
}

/* Becomes a rank, which MPI has started, or which this program starts (with --ranks, or without MPI). */
static bool join(struct run *run, int *argc, char ***argv)
{
    const int asked = team_ranks_asked(*argc, *argv);
    if (asked < 0) {
        fprintf(stderr, "cecl_perf: --ranks: 1 to %d expected\n", TEAM_RANKS_MAX);
        return false;
    }
    if (asked == 0 && team_mpi_built) {
        run->team = team_mpi_join(argc, argv, &run->rank, &run->nranks);
        return true;
    }
    run->nranks = asked > 0 ? asked : RANKS;
    run->team = team_fork_join(run->nranks, &run->rank);
    if (!run->team)
        perror("cecl_perf: starting ranks");
    return run->team != NULL;
}

int main(int argc, char **argv)
{
    struct run run = {.program = "cecl_perf"};
    int end;
    if (!join(&run, &argc, &argv))
        return END_USAGE;
    if (options_parse(&run.options, argc, argv, &run, &end))
        end = perform(&run);
    run.team->leave(end, end == END_BROKEN); /* other ranks may wait for this one */
    return end;
}
