#include "world.h"

#include <stdlib.h>

/* A time that the rank's host publishes later, because its GPU is behind. */
struct pending {
    uint32_t number, due; /* due: the step at whose beginning the host publishes it */
    int sample;
    double ns;
};

struct rank {
    struct world *world;
    int number;
    uint64_t seed;
    uint32_t step;  /* the next step that the host makes */
    uint64_t tries; /* the communicator of this process that has the trial; 0: none */
    struct {
        struct cecl_period period;
        struct cecl_trial trial;
        struct pending pending[MOST_PENDING];
        uint32_t npending;
        double mark; /* the time of the last mark */
        uint64_t found;
    } comms[MOST_COMMS];
};

struct world {
    struct program program;
    struct cecl_trial_shared *shared[MOST_COMMS];
    struct rank *ranks;
    /* for each step: when it begins, whether it is an evaluation, and the arm of the first rank that made it */
    double *begins;
    bool *is_odd;
    signed char (*arms)[MOST_COMMS]; /* -1: none in force */
    uint32_t made;
    struct outcome outcome;
};

static bool reserve(void *context, uint64_t id)
{
    struct rank *rank = context;
    if (rank->tries != 0)
        return false;
    rank->tries = id;
    return true;
}
static void release(void *context, uint64_t id)
{
    struct rank *rank = context;
    if (rank->tries == id)
        rank->tries = 0;
}
static uint64_t token_of(const struct program *program, int comm, uint32_t step, uint32_t call,
                         bool is_odd)
{
    const bool is_other = program->changes > 0 && step / program->changes % 2 == 1;
    uint64_t at = program->length[0] + (is_other ? 1u << 29 : 0) + (uint64_t)comm * 1000003 +
                  call % 7 * (call % 3 == 0 ? 1 : 31) + call / 50;
    if (is_odd)
        at += 1u << 30;
    return cecl_period_token(draw(&at), call % 4 == 0);
}

static void publish_due(struct rank *rank, int comm)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < rank->comms[comm].npending; i++) {
        const struct pending pending = rank->comms[comm].pending[i];
        if (pending.due > rank->step)
            rank->comms[comm].pending[left++] = pending;
        else
            cecl_trial_publish(&rank->comms[comm].trial, pending.number, pending.sample,
                               (uint64_t)pending.ns);
    }
    rank->comms[comm].npending = left;
}

/* Hosts take different times for the same step, and now and then one stalls. */
static uint64_t host_ns_of(struct rank *rank)
{
    const double factor = below(&rank->seed, 50) == 0 ? 40 : uniform(&rank->seed, 0.5, 1.5);
    return (uint64_t)(rank->world->program.step_ns * factor);
}

/* Does what src/nccl/learn.c does at each call. */
static void make_call(struct rank *rank, int comm, uint64_t token, double now)
{
    struct world *world = rank->world;
    struct cecl_period *period = &rank->comms[comm].period;
    struct cecl_trial *trial = &rank->comms[comm].trial;
    const bool begins = cecl_period_next(period, token);
    const uint64_t found = period->length > 0 ? period->pattern : 0;
    if (begins) {
        const uint32_t number = trial->trials;
        const bool was_running = trial->state == CECL_TRIAL_RUNNING;
        const struct cecl_trial_mark mark =
            cecl_trial_boundary(trial, period->was_whole, host_ns_of(rank));
        if (mark.sample >= 0 && rank->comms[comm].npending < MOST_PENDING)
            rank->comms[comm].pending[rank->comms[comm].npending++] = (struct pending){
                number, rank->step + (uint32_t)below(&world->program.seed, world->program.lag + 1),
                mark.sample, now - rank->comms[comm].mark};
        if (mark.is_mark)
            rank->comms[comm].mark = now;
        if (!was_running && trial->state == CECL_TRIAL_RUNNING && rank->number == 0)
            world->outcome.periods[comm] = 0;
        if (rank->number == 0 && trial->state == CECL_TRIAL_RUNNING)
            world->outcome.periods[comm]++;
    }
    if (found != rank->comms[comm].found) {
        rank->comms[comm].found = found;
        if (found)
            cecl_trial_want(trial, found, 0xf);
        else
            cecl_trial_cancel(trial);
    }
}

/* About a standard normal number: the sum of twelve uniform ones. */
static double normal(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform(seed, 0, 1);
    return sum;
}

/* How long the step takes depends on the arm that its first rank has at the step's end. */
static void note_step(struct world *world, struct rank *rank, uint32_t step)
{
    struct program *program = &world->program;
    double factor = 1 + program->drift * step / 60;
    for (int c = 0; c < program->ncomms; c++) {
        const struct cecl_trial *trial = &rank->comms[c].trial;
        const int arm = cecl_trial_has_arm(trial) ? (int)trial->arm : -1;
        if (step < world->made) {
            world->outcome.disagree = world->outcome.disagree || world->arms[step][c] != arm;
            continue;
        }
        world->arms[step][c] = (signed char)arm;
        factor *= 1 - program->gain[c][arm > 0 ? arm : 0];
    }
    if (step < world->made)
        return;
    factor *= 1 + program->noise * normal(&program->seed);
    if (world->is_odd[step])
        factor *= 3;
    world->begins[step + 1] =
        world->begins[step] + program->step_ns * (factor > 0.2 ? factor : 0.2);
    world->made = step + 1;
}

static void make_step(struct world *world, struct rank *rank)
{
    const struct program *program = &world->program;
    const uint32_t step = rank->step;
    if (step >= world->made)
        world->is_odd[step] = uniform(&world->program.seed, 0, 1) < program->odd;
    for (int c = 0; c < program->ncomms; c++) {
        const bool is_odd = world->is_odd[step];
        publish_due(rank, c);
        for (uint32_t call = 0; call < program->length[c] + (is_odd ? 3 : 0); call++) {
            /* not all calls come at the start of the step */
            const double now = world->begins[step] + program->step_ns * 1e-4 * (double)(call % 5);
            make_call(rank, c, token_of(program, c, step, call, is_odd), now);
        }
    }
    note_step(world, rank, step);
    rank->step++;
}

/* A random rank that may go on. */
static struct rank *next_rank(struct world *world)
{
    const struct program *program = &world->program;
    uint32_t last = UINT32_MAX;
    for (int r = 0; r < program->nranks; r++)
        last = world->ranks[r].step < last ? world->ranks[r].step : last;
    struct rank *rank = &world->ranks[0];
    if (program->is_apart && rank->step < last + program->ahead && rank->step < program->steps)
        return rank;
    do
        rank = &world->ranks[below(&world->program.seed, (uint64_t)program->nranks)];
    while (rank->step > last + program->ahead || rank->step >= program->steps);
    return rank;
}

static void end_world(struct world *world)
{
    const struct program *program = &world->program;
    for (int c = 0; c < program->ncomms; c++) {
        const struct cecl_trial *trial = &world->ranks[0].comms[c].trial;
        world->outcome.has_verdict[c] = trial->has_verdict;
        world->outcome.arm[c] = trial->has_verdict ? trial->arm : 0;
        world->outcome.trials[c] = trial->trials;
        for (int arm = 0; arm < CECL_VERDICT_ARMS; arm++)
            world->outcome.counted[c][arm] = cecl_trial_verdict(trial).arms[arm].count;
        for (int r = 0; r < program->nranks; r++)
            world->outcome.disagree =
                world->outcome.disagree ||
                world->ranks[r].comms[c].trial.has_verdict != trial->has_verdict ||
                (trial->has_verdict && world->ranks[r].comms[c].trial.arm != trial->arm);
        free(world->shared[c]);
    }
    free(world->ranks);
    free(world->begins);
    free(world->is_odd);
    free(world->arms);
}

static void open_trial(struct rank *rank, int comm, uint64_t drawn)
{
    struct world *world = rank->world;
    const struct cecl_trial_host host = {rank, reserve, release};
    cecl_trial_open(&rank->comms[comm].trial, world->shared[comm], rank->number,
                    world->program.nranks, drawn, &host);
}

struct outcome run_program(const struct program *program)
{
    struct world world = {.program = *program};
    world.ranks = calloc((size_t)program->nranks, sizeof(*world.ranks));
    world.begins = calloc(program->steps + 1, sizeof(*world.begins));
    world.is_odd = calloc(program->steps, sizeof(*world.is_odd));
    world.arms = calloc(program->steps, sizeof(*world.arms));
    uint64_t drawn[MOST_COMMS];
    for (int c = 0; c < program->ncomms; c++) {
        world.shared[c] = calloc(1, cecl_trial_bytes(program->nranks));
        drawn[c] = draw(&world.program.seed);
    }
    for (int r = 0; r < program->nranks; r++) {
        struct rank *rank = &world.ranks[r];
        rank->world = &world;
        rank->number = r;
        rank->seed = program->seed + (uint64_t)r;
        for (int c = 0; c < program->ncomms; c++)
            open_trial(rank, c, drawn[c]);
    }
    for (uint64_t i = (uint64_t)program->nranks * program->steps; i > 0; i--)
        make_step(&world, next_rank(&world));
    end_world(&world);
    return world.outcome;
}
