/* Evaluates what ranks have published in a trial, and decides what comes next. See trial.h. */
#include "nccl/trial.h"

/* an arm is dropped if its periods take more than TOO_LONG times as long as arm 0's */
#define TOO_LONG 1.25
/* after this many turns of each arm only arm 0 and the best other arm go on */
#define EVEN_TURNS 3u

static uint32_t decision(const struct cecl_trial *trial, uint32_t number)
{
    return atomic_load(&trial->shared->decisions[number]) & ~CECL_DECISION_MADE;
}

/* ---- times */

void cecl_trial_publish(struct cecl_trial *trial, uint32_t number, int sample, uint64_t ns)
{
    if (sample >= 0 && number == trial->trials)
        atomic_store(&trial->mine->times[sample],
                     (uint64_t)number << 48 | (ns & (~UINT64_C(0) >> 16)));
}

/* The mean of all ranks' times for a period. Returns false while a rank has not published its time. *ns is 0 if a rank
 * could not measure its time. */
static bool time_of(const struct cecl_trial *trial, uint32_t sample, double *ns)
{
    double sum = 0;
    bool is_lost = false;
    for (int r = 0; r < trial->nranks; r++) {
        const uint64_t word = atomic_load(&trial->shared->ranks[r].times[sample]);
        const double its = (double)(word & (~UINT64_C(0) >> 16));
        if (word >> 48 != (trial->trials & 0xffff))
            return false;
        is_lost = is_lost || its <= 0;
        sum += its;
    }
    *ns = is_lost ? 0 : sum / trial->nranks;
    return true;
}

/* Lists the arms of this trial's turns so far. Returns the number of turns. */
static uint32_t turns_of(const struct cecl_trial *trial, uint32_t *arms)
{
    uint32_t count = 0;
    for (uint32_t d = trial->first + 1; d < trial->decisions && count < CECL_TRIAL_TURNS; d++)
        if ((decision(trial, d) & CECL_DECISION_KIND) == CECL_DECISION_TURN)
            arms[count++] = decision(trial, d) & CECL_DECISION_NUMBER;
    return count;
}

struct samples {
    struct cecl_sample list[CECL_TRIAL_SAMPLES];
    size_t count;
    uint32_t missing; /* how many samples are not known yet */
};

static struct samples samples_of(const struct cecl_trial *trial)
{
    struct samples known = {.count = 0};
    uint32_t arms[CECL_TRIAL_TURNS];
    const uint32_t turns = turns_of(trial, arms);
    for (uint32_t sample = 0; sample < turns * CECL_TRIAL_COUNTED; sample++) {
        const uint32_t turn = sample / CECL_TRIAL_COUNTED;
        double ns;
        if (!time_of(trial, sample, &ns))
            known.missing++;
        else if (ns > 0)
            known.list[known.count++] = (struct cecl_sample){
                arms[turn], turn * (CECL_TRIAL_COUNTED + 1) + 1 + sample % CECL_TRIAL_COUNTED, ns};
    }
    return known;
}

struct cecl_verdict cecl_trial_verdict(const struct cecl_trial *trial)
{
    const struct samples known = samples_of(trial);
    return cecl_verdict_of(known.list, known.count);
}

/* ---- turns */

static double mean_of(const struct samples *known, uint32_t arm)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < known->count; i++)
        if (known->list[i].arm == arm) {
            sum += known->list[i].ns;
            n++;
        }
    return n > 0 ? sum / n : 0;
}

static uint32_t best_of(const struct samples *known, uint32_t alive)
{
    const struct cecl_verdict verdict = cecl_verdict_of(known->list, known->count);
    uint32_t best = 0;
    for (uint32_t arm = 1; arm < CECL_VERDICT_ARMS; arm++)
        if (alive >> arm & 1 && (best == 0 || verdict.arms[arm].gain > verdict.arms[best].gain))
            best = arm;
    return best;
}

/* The arms that still get turns; `had` says how many turns each arm has had. */
static uint32_t alive_of(const struct cecl_trial *trial, const struct samples *known,
                         const uint32_t *had)
{
    uint32_t alive = trial->arms;
    const double base = mean_of(known, 0);
    bool are_even = true;
    for (uint32_t arm = 1; arm < CECL_VERDICT_ARMS && base > 0; arm++)
        if (mean_of(known, arm) > TOO_LONG * base)
            alive &= ~(UINT32_C(1) << arm);
    for (uint32_t arm = 0; arm < CECL_VERDICT_ARMS; arm++)
        are_even = are_even && (!(alive >> arm & 1) || had[arm] >= EVEN_TURNS);
    return are_even && base > 0 ? 1 | UINT32_C(1) << best_of(known, alive) : alive;
}

/* The arm of the next turn: one of those with the fewest turns so far. -1: there is no next turn, because only arm 0 is
 * left, or because another round would exceed CECL_TRIAL_TURNS. */
static int next_arm(const struct cecl_trial *trial, const struct samples *known)
{
    uint32_t arms[CECL_TRIAL_TURNS], had[CECL_VERDICT_ARMS] = {0}, nalive = 0, fewest = ~0u;
    const uint32_t turns = turns_of(trial, arms);
    uint64_t lowest = 0;
    bool is_round_done = true;
    int next = -1;
    for (uint32_t t = 0; t < turns; t++)
        had[arms[t]]++;
    const uint32_t alive = alive_of(trial, known, had);
    for (uint32_t arm = 0; arm < CECL_VERDICT_ARMS; arm++) {
        if (!(alive >> arm & 1))
            continue;
        const uint64_t drawn = cecl_trial_mix(
            trial->id ^ cecl_trial_mix((uint64_t)turns << 32 | trial->trials << 8 | arm));
        nalive++;
        is_round_done = is_round_done && had[arm] == had[0];
        if (had[arm] < fewest || (had[arm] == fewest && drawn < lowest)) {
            fewest = had[arm];
            lowest = drawn;
            next = (int)arm;
        }
    }
    const bool fits = turns + (is_round_done ? nalive : 1) <= CECL_TRIAL_TURNS;
    return nalive > 1 && fits ? next : -1;
}

uint32_t cecl_trial_next_step(const struct cecl_trial *trial)
{
    /* once the verdict was put off, no turn follows, even if another arm seems best now */
    const struct samples known = samples_of(trial);
    const int arm = trial->put_off == 0 ? next_arm(trial, &known) : -1;
    if (arm >= 0)
        return CECL_DECISION_TURN | (uint32_t)arm;
    if (known.missing > 0 && trial->put_off < CECL_TRIAL_PUT_OFF)
        return CECL_DECISION_PUT_OFF;
    return CECL_DECISION_VERDICT |
           (known.missing > 0 ? 0 : cecl_verdict_of(known.list, known.count).arm);
}
