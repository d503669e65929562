/* See trial.h. */
#include "nccl/trial.h"

/* This many periods lie between an offer and the decision, so that all ranks have time to offer. If a rank was too
 * late, the next offer lasts four times as long, but at most LONGEST_OFFER repetitions: no host is behind another by
 * more than the launches that a GPU's queue holds, about 1,000. */
#define OFFER_PERIODS 4u
#define LONGEST_OFFER 2048u
/* If a subject is so short that several repetitions make one period, its trial begins only after this many periods: a
 * turn takes hundreds of its calls, and a benchmark may make fewer of each size. */
#define EARLY_PERIODS 8u
#define MOST_TURN_PERIODS 16u /* a turn ends after at most this many periods, whole or not */
/* Repetitions are merged into periods of at least this length, because each measurement costs time. */
#define LEAST_PERIOD_NS UINT64_C(200000)
#define MOST_MERGED 256u
#define LONG_NS UINT64_C(1000000000) /* a longer repetition counts as this long */
#define HOLDS 10000u                 /* a verdict holds for this many periods */
#define LEFT 512u /* if all attempts to begin a trial failed: periods until the next attempt */

void cecl_trial_open(struct cecl_trial *trial, void *shared, int rank, int nranks, uint64_t drawn,
                     const struct cecl_trial_host *host)
{
    *trial =
        (struct cecl_trial){.shared = shared, .host = *host, .nranks = nranks, .id = drawn | 1};
    trial->mine = &trial->shared->ranks[rank];
}

/* ---- decisions */

/* Makes the next decision, or reads the one that another rank has made. */
static uint32_t decide(struct cecl_trial *trial, uint32_t mine)
{
    uint32_t word = 0;
    _Atomic uint32_t *const at = &trial->shared->decisions[trial->decisions++];
    if (atomic_compare_exchange_strong(at, &word, CECL_DECISION_MADE | mine))
        word = CECL_DECISION_MADE | mine;
    return word & ~CECL_DECISION_MADE;
}

static bool is_made(const struct cecl_trial *trial)
{
    return atomic_load(&trial->shared->decisions[trial->decisions]) != 0;
}

/* ---- states */

static void let_go(struct cecl_trial *trial)
{
    if (trial->holds)
        trial->host.release(trial->host.context, trial->id);
    trial->holds = false;
}

static void rest(struct cecl_trial *trial)
{
    let_go(trial);
    trial->state = CECL_TRIAL_IDLE;
    trial->wait = 0;
}

/* If this rank has offered to begin, another rank may already have decided on the offers. So this rank skips the number
 * of that decision. */
void cecl_trial_cancel(struct cecl_trial *trial)
{
    trial->decisions += trial->state == CECL_TRIAL_OFFERED;
    rest(trial);
    trial->has_verdict = false;
}

static struct cecl_learned *find_learned(struct cecl_trial *trial)
{
    for (uint32_t i = 0; i < CECL_TRIAL_LEARNED && i < trial->nlearned; i++)
        if (trial->learned[i].subject == trial->subject)
            return &trial->learned[i];
    return NULL;
}

void cecl_trial_want(struct cecl_trial *trial, uint64_t subject, uint32_t arms)
{
    cecl_trial_cancel(trial);
    trial->subject = subject;
    trial->arms = arms | 1;
    trial->attempt = trial->seen = 0;
    trial->host_ns = trial->longest_ns = 0;
    trial->is_busy = false;
    trial->offers = OFFER_PERIODS;
    const struct cecl_learned *known = find_learned(trial);
    if (known && known->left > 0) {
        trial->arm = known->arm;
        trial->has_verdict = true;
        return;
    }
    /* a trial makes one decision at each attempt to begin, before each turn, and each time the verdict is put off */
    if (trial->decisions + CECL_TRIAL_ATTEMPTS + CECL_TRIAL_TURNS + CECL_TRIAL_PUT_OFF <
        CECL_TRIAL_DECISIONS) {
        trial->state = CECL_TRIAL_WAITING;
        trial->wait = 1;
    }
}

static void remember(struct cecl_trial *trial, uint32_t arm, uint32_t merged)
{
    struct cecl_learned *known = find_learned(trial);
    if (!known)
        known = &trial->learned[trial->nlearned++ % CECL_TRIAL_LEARNED];
    *known = (struct cecl_learned){trial->subject, arm, HOLDS * merged};
}

/* Decides on an arm; `merged` repetitions make a period. */
static void decide_on(struct cecl_trial *trial, uint32_t arm, uint32_t merged)
{
    remember(trial, arm, merged);
    rest(trial);
    trial->arm = arm;
    trial->has_verdict = true;
}

/* ---- beginning */

/* Offers to begin, or says that this rank is busy, if another communicator of this process has its trial. If any rank
 * is busy, all ranks put the trial off, at the same boundary. */
static void offer(struct cecl_trial *trial)
{
    trial->state = CECL_TRIAL_OFFERED;
    trial->wait = trial->offers;
    trial->holds = trial->host.reserve(trial->host.context, trial->id);
    atomic_store(&trial->mine->offer, (uint64_t)(trial->decisions + 1) << 1 | !trial->holds);
}

/* What the ranks' offers so far decide: START, or PUT_OFF with the reason. */
static uint32_t answer_of_offers(const struct cecl_trial *trial)
{
    uint32_t answer = CECL_DECISION_START;
    for (int r = 0; r < trial->nranks; r++) {
        const uint64_t word = atomic_load(&trial->shared->ranks[r].offer);
        const bool has_come = word >> 1 == trial->decisions + 1;
        if (has_come && word & 1)
            return CECL_DECISION_PUT_OFF | CECL_DECISION_BUSY;
        if (!has_come)
            answer = CECL_DECISION_PUT_OFF;
    }
    return answer;
}

/* Adds the time that a repetition took on this host. Leaves out the first one: its beginning was not timed. */
static void note_host_time(struct cecl_trial *trial, uint64_t host_ns)
{
    const uint64_t ns = host_ns < LONG_NS ? host_ns : LONG_NS;
    if (trial->seen++ == 0)
        return;
    trial->host_ns += ns;
    trial->longest_ns = ns > trial->longest_ns ? ns : trial->longest_ns;
}

/* How many repetitions make a period of LEAST_PERIOD_NS, by their mean time on this host. Leaves out the longest. */
static uint32_t merged_of(const struct cecl_trial *trial)
{
    const uint64_t count = trial->seen > 2 ? trial->seen - 2 : 1;
    const uint64_t sum = trial->host_ns - (trial->seen > 2 ? trial->longest_ns : 0);
    uint32_t merged = 1;
    while (merged < MOST_MERGED && merged * sum < LEAST_PERIOD_NS * count)
        merged *= 2;
    return merged;
}

/* Whether the subject is short and has not come often enough. `seen`, the boundaries since the trial was asked for, is
 * equal on all ranks, so all ranks then wait equally long (try_later). */
static bool is_early(const struct cecl_trial *trial, uint32_t merged)
{
    return merged > 1 && trial->seen < EARLY_PERIODS * merged;
}

static uint32_t beginning(const struct cecl_trial *trial)
{
    const uint32_t answer = answer_of_offers(trial), merged = merged_of(trial);
    if (answer != CECL_DECISION_START)
        return answer | merged;
    return is_early(trial, merged) ? CECL_DECISION_PUT_OFF | CECL_DECISION_EARLY | merged
                                   : answer | merged;
}

/* How many boundaries the next offer lasts, after a rank was too late for the last one. */
static uint32_t longer_offer(uint32_t offers, uint32_t merged)
{
    const uint32_t least = OFFER_PERIODS * merged, longer = 4 * (offers > least ? offers : least);
    return longer < LONGEST_OFFER ? longer : LONGEST_OFFER;
}

static void try_later(struct cecl_trial *trial, uint32_t word)
{
    const uint32_t merged = word & CECL_DECISION_NUMBER;
    const uint64_t drawn = cecl_trial_mix(trial->id + ++trial->attempt);
    const bool is_early = (word & CECL_DECISION_EARLY) != 0;
    uint32_t least = 1;
    trial->is_busy = (word & CECL_DECISION_BUSY) != 0;
    let_go(trial);
    if (trial->is_busy) /* another communicator of some rank's process has a trial */
        least = trial->attempt < 5 ? 4u << trial->attempt : 64u;
    else if (!is_early)
        trial->offers = longer_offer(trial->offers, merged);
    /* the wait is drawn anew for each attempt, equally on all ranks */
    trial->wait = is_early ? EARLY_PERIODS * merged - trial->seen
                           : merged * (least + (uint32_t)(drawn % (least + 1)));
    trial->state = CECL_TRIAL_WAITING;
    if (trial->attempt == CECL_TRIAL_ATTEMPTS) {
        rest(trial);
        trial->wait = merged * LEFT;
    }
}

/* ---- turns */

/* Makes the next decision, and does what it says: a turn, the verdict, or putting the verdict off. */
static void go_on(struct cecl_trial *trial)
{
    const uint32_t word = decide(trial, is_made(trial) ? 0 : cecl_trial_next_step(trial));
    trial->period = trial->counted = 0;
    trial->has_turn = (word & CECL_DECISION_KIND) == CECL_DECISION_TURN;
    trial->arm = trial->has_turn ? word & CECL_DECISION_NUMBER : 0;
    trial->turn += trial->has_turn;
    trial->put_off += (word & CECL_DECISION_KIND) == CECL_DECISION_PUT_OFF;
    if ((word & CECL_DECISION_KIND) == CECL_DECISION_VERDICT)
        decide_on(trial, word & CECL_DECISION_NUMBER, trial->merged);
}

static struct cecl_trial_mark begin_trial(struct cecl_trial *trial)
{
    const uint32_t word = decide(trial, is_made(trial) ? 0 : beginning(trial));
    if ((word & CECL_DECISION_KIND) != CECL_DECISION_START) {
        try_later(trial, word);
        return (struct cecl_trial_mark){.sample = -1};
    }
    trial->state = CECL_TRIAL_RUNNING;
    trial->first = trial->decisions - 1;
    trial->merged = word & CECL_DECISION_NUMBER;
    trial->trials++;
    trial->turn = trial->put_off = trial->repeated = 0;
    go_on(trial);
    return (struct cecl_trial_mark){.is_mark = true, .sample = -1};
}

/* Publishes the remaining times of this turn as not measured, and goes on. */
static void end_turn(struct cecl_trial *trial)
{
    for (uint32_t i = trial->counted; trial->has_turn && i < CECL_TRIAL_COUNTED; i++)
        cecl_trial_publish(trial, trial->trials, (int)((trial->turn - 1) * CECL_TRIAL_COUNTED + i),
                           0);
    go_on(trial);
}

/* How many periods the verdict is put off: 1 the first four times, then 2, 4 ...; in all 2,050. A GPU's queue holds
 * fewer periods. */
static uint32_t periods_put_off(const struct cecl_trial *trial)
{
    return trial->put_off < 5 ? 1 : 1u << (trial->put_off - 4);
}

static bool is_turn_over(const struct cecl_trial *trial)
{
    if (!trial->has_turn)
        return trial->period >= periods_put_off(trial);
    return trial->counted == CECL_TRIAL_COUNTED || trial->period == MOST_TURN_PERIODS;
}

static struct cecl_trial_mark run(struct cecl_trial *trial, bool was_whole)
{
    struct cecl_trial_mark mark = {.sample = -1};
    trial->repeated++;
    if (was_whole && trial->repeated < trial->merged)
        return mark;
    trial->repeated = 0;
    trial->period++;
    if (was_whole && trial->has_turn && trial->period > 1)
        mark.sample = (int)((trial->turn - 1) * CECL_TRIAL_COUNTED + trial->counted++);
    if (is_turn_over(trial))
        end_turn(trial);
    mark.is_mark = mark.sample >= 0 || (trial->state == CECL_TRIAL_RUNNING && trial->has_turn);
    return mark;
}

/* Counts down until a verdict expires, or until a trial that could not begin is asked for again. */
static void wear(struct cecl_trial *trial)
{
    struct cecl_learned *known = find_learned(trial);
    if ((trial->wait > 0 && --trial->wait == 0) || (known && known->left > 0 && --known->left == 0))
        cecl_trial_want(trial, trial->subject, trial->arms);
}

struct cecl_trial_mark cecl_trial_boundary(struct cecl_trial *trial, bool was_whole,
                                           uint64_t host_ns)
{
    if (trial->state == CECL_TRIAL_WAITING || trial->state == CECL_TRIAL_OFFERED)
        note_host_time(trial, host_ns);
    switch (trial->state) {
    case CECL_TRIAL_WAITING:
        if (--trial->wait == 0)
            offer(trial);
        break;
    case CECL_TRIAL_OFFERED:
        if (--trial->wait == 0)
            return begin_trial(trial);
        break;
    case CECL_TRIAL_RUNNING: return run(trial, was_whole);
    default: wear(trial);
    }
    return (struct cecl_trial_mark){.sample = -1};
}
