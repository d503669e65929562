/* See trial.h. A decision's word holds MADE, the kind of decision, and an arm or a number. */
#include "learn/trial.h"

#define MADE (UINT32_C(1) << 31)
enum { START = 1 << 24, PUT_OFF = 2 << 24, TURN = 3 << 24, VERDICT = 4 << 24, NOTHING = 5 << 24 };
#define KIND 0x7f000000u
#define NUMBER 0x00ffffffu

/* from a rank's offer to the decision, so that all ranks have time to offer */
#define OFFER_PERIODS 4u
#define MOST_TURN_PERIODS 16u /* after so many periods a turn ends, even if they were not whole */
#define MOST_PUT_OFF 64u      /* how often the verdict is put off at most */
/* an arm is dropped if its periods take so many times those of arm 0 */
#define TOO_LONG 1.25
/* Shorter repetitions are joined to periods of this length, so that noting times costs little. */
#define LEAST_PERIOD_NS UINT64_C(200000)
#define MOST_MERGED 256u
#define HOLDS 10000u /* how many repetitions of the subject a verdict holds for */

static uint64_t mix(uint64_t hash)
{
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

void cecl_trial_open(struct cecl_trial *trial, void *shared, int rank, int nranks, uint64_t drawn,
                     const struct cecl_trial_host *host)
{
    uint64_t id = 0;
    *trial = (struct cecl_trial){.shared = shared, .host = *host, .rank = rank, .nranks = nranks};
    if (atomic_compare_exchange_strong(&trial->shared->id, &id, drawn | 1))
        id = drawn | 1;
    trial->id = id;
}

/* ---- decisions */

/* Makes the next decision, or reads the one that another rank has made. */
static uint32_t decide(struct cecl_trial *trial, uint32_t mine)
{
    uint32_t word = 0;
    _Atomic uint32_t *const at = &trial->shared->decisions[trial->decisions++];
    if (atomic_compare_exchange_strong(at, &word, MADE | mine))
        word = MADE | mine;
    return word & ~MADE;
}

static bool is_made(const struct cecl_trial *trial)
{
    return atomic_load(&trial->shared->decisions[trial->decisions]) != 0;
}

static uint32_t decision(const struct cecl_trial *trial, uint32_t number)
{
    return atomic_load(&trial->shared->decisions[number]) & ~MADE;
}

/* ---- times */

void cecl_trial_publish(struct cecl_trial *trial, uint32_t number, int slot, uint64_t ns)
{
    if (slot >= 0 && number == trial->trials)
        atomic_store(&trial->shared->ranks[trial->rank].times[slot],
                     (uint64_t)number << 48 | (ns & (~UINT64_C(0) >> 16)));
}

/* The time of a period, joined from those of all ranks. Returns false while a rank has not
 * published its own. *ns is 0 if a rank has lost its time. */
static bool time_of(const struct cecl_trial *trial, uint32_t slot, double *ns)
{
    double sum = 0, least = 0;
    bool is_lost = false;
    for (int r = 0; r < trial->nranks; r++) {
        const uint64_t word = atomic_load(&trial->shared->ranks[r].times[slot]);
        const double its = (double)(word & (~UINT64_C(0) >> 16));
        if (word >> 48 != (trial->trials & 0xffff))
            return false;
        is_lost = is_lost || its <= 0;
        sum += its;
        least = r == 0 || its < least ? its : least;
    }
    *ns = is_lost ? 0 : trial->kind == CECL_TRIAL_CALLS ? least : sum / trial->nranks;
    return true;
}

/* The arms of the turns that were decided so far. Returns the number of turns. */
static uint32_t turns_of(const struct cecl_trial *trial, uint32_t *arms)
{
    uint32_t count = 0;
    for (uint32_t d = trial->first + 1; d < trial->decisions && count < CECL_TRIAL_TURNS; d++)
        if ((decision(trial, d) & KIND) == TURN)
            arms[count++] = decision(trial, d) & NUMBER;
    return count;
}

/* All known times. *missing: how many are not known yet. */
static size_t samples_of(const struct cecl_trial *trial, struct cecl_sample *samples,
                         uint32_t *missing)
{
    uint32_t arms[CECL_TRIAL_TURNS];
    const uint32_t turns = turns_of(trial, arms);
    size_t count = 0;
    *missing = 0;
    for (uint32_t slot = 0; slot < turns * CECL_TRIAL_COUNTED; slot++) {
        const uint32_t turn = slot / CECL_TRIAL_COUNTED;
        double ns;
        if (!time_of(trial, slot, &ns))
            ++*missing;
        else if (ns > 0)
            samples[count++] = (struct cecl_sample){
                arms[turn], turn * (CECL_TRIAL_COUNTED + 1) + 1 + slot % CECL_TRIAL_COUNTED, ns};
    }
    return count;
}

struct cecl_verdict cecl_trial_verdict(const struct cecl_trial *trial)
{
    struct cecl_sample samples[CECL_TRIAL_SLOTS];
    uint32_t missing;
    const size_t count = samples_of(trial, samples, &missing);
    return cecl_verdict_of(samples, count);
}

/* ---- turns */

/* Of periods the mean; of calls the least, because what comes between makes single calls longer. */
static double typical_of(const struct cecl_trial *trial, const struct cecl_sample *samples,
                         size_t count, uint32_t arm)
{
    double sum = 0, least = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        if (samples[i].arm == arm) {
            sum += samples[i].ns;
            least = n > 0 && least < samples[i].ns ? least : samples[i].ns;
            n++;
        }
    return trial->kind == CECL_TRIAL_CALLS || n <= 0 ? least : sum / n;
}

/* The arms that are still worth a turn. */
static uint32_t alive_of(const struct cecl_trial *trial)
{
    struct cecl_sample samples[CECL_TRIAL_SLOTS];
    uint32_t missing, alive = trial->arms;
    const size_t count = samples_of(trial, samples, &missing);
    const double base = typical_of(trial, samples, count, 0);
    for (uint32_t arm = 1; arm < CECL_VERDICT_ARMS && base > 0; arm++)
        if (typical_of(trial, samples, count, arm) > TOO_LONG * base)
            alive &= ~(UINT32_C(1) << arm);
    return alive;
}

/* The next arm: one of those with the fewest turns. -1: the trial is over, because only arm 0 is
 * left, or because no further round fits. */
static int next_arm(const struct cecl_trial *trial)
{
    uint32_t arms[CECL_TRIAL_TURNS], had[CECL_VERDICT_ARMS] = {0}, nalive = 0, fewest = ~0u;
    const uint32_t turns = turns_of(trial, arms), alive = alive_of(trial);
    uint64_t lowest = 0;
    bool is_round_done = true;
    int next = -1;
    for (uint32_t t = 0; t < turns; t++)
        had[arms[t]]++;
    for (uint32_t arm = 0; arm < CECL_VERDICT_ARMS; arm++) {
        if (!(alive >> arm & 1))
            continue;
        const uint64_t drawn =
            mix(trial->id ^ mix((uint64_t)turns << 32 | trial->trials << 8 | arm));
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

/* What this rank would decide now: the next turn, the verdict, or to put the verdict off. */
static uint32_t next_step(const struct cecl_trial *trial)
{
    const int arm = next_arm(trial);
    if (arm >= 0)
        return TURN | (uint32_t)arm;
    struct cecl_sample samples[CECL_TRIAL_SLOTS];
    uint32_t missing;
    const size_t count = samples_of(trial, samples, &missing);
    if (missing > 0 && trial->put_off < MOST_PUT_OFF)
        return PUT_OFF;
    return VERDICT | (missing > 0 ? 0 : cecl_verdict_of(samples, count).arm);
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
}

/* This rank's offer stays in shared memory, so the decision for which it was made is skipped. */
void cecl_trial_cancel(struct cecl_trial *trial)
{
    trial->decisions += trial->state == CECL_TRIAL_OFFERED;
    rest(trial);
    trial->has_verdict = trial->is_recalled = false;
}

static struct cecl_learned *find_learned(struct cecl_trial *trial)
{
    for (uint32_t i = 0; i < CECL_TRIAL_LEARNED && i < trial->nlearned; i++)
        if (trial->learned[i].subject == trial->subject)
            return &trial->learned[i];
    return NULL;
}

void cecl_trial_want(struct cecl_trial *trial, uint64_t subject, uint32_t arms,
                     enum cecl_trial_kind kind)
{
    cecl_trial_cancel(trial);
    trial->subject = subject;
    trial->arms = arms | 1;
    trial->kind = kind;
    trial->attempt = 0;
    trial->wait = 1;
    const struct cecl_learned *known = find_learned(trial);
    if (known && known->left > 0) {
        trial->arm = known->arm;
        trial->has_verdict = true;
        return;
    }
    /* a trial needs decisions for its attempts to begin, for each turn, and for each time that the
     * verdict is put off */
    if (trial->decisions + CECL_TRIAL_ATTEMPTS + CECL_TRIAL_TURNS + MOST_PUT_OFF <
        CECL_TRIAL_DECISIONS)
        trial->state = CECL_TRIAL_WAITING;
}

static void remember(struct cecl_trial *trial, uint32_t arm)
{
    struct cecl_learned *known = find_learned(trial);
    if (!known)
        known = &trial->learned[trial->nlearned++ % CECL_TRIAL_LEARNED];
    *known = (struct cecl_learned){trial->subject, arm, HOLDS};
}

static void settle(struct cecl_trial *trial, uint32_t arm, bool is_recalled)
{
    if (trial->kind == CECL_TRIAL_PERIODS)
        remember(trial, arm);
    rest(trial);
    trial->arm = arm;
    trial->has_verdict = true;
    trial->is_recalled = is_recalled;
}

/* ---- beginning */

/* Offers to begin. A rank whose process tries another communicator makes no offer; then all ranks
 * put the trial off, at the same boundary. */
static void offer(struct cecl_trial *trial)
{
    trial->state = CECL_TRIAL_OFFERED;
    trial->wait = OFFER_PERIODS;
    trial->holds = trial->host.reserve(trial->host.context, trial->id);
    if (trial->holds)
        atomic_store(&trial->shared->ranks[trial->rank].offer, trial->decisions + 1);
}

static bool have_all_offered(const struct cecl_trial *trial)
{
    for (int r = 0; r < trial->nranks; r++)
        if (atomic_load(&trial->shared->ranks[r].offer) != trial->decisions + 1)
            return false;
    return true;
}

/* How many repetitions make a period of LEAST_PERIOD_NS. */
static uint32_t merged_for(uint64_t host_ns)
{
    uint32_t merged = 1;
    while (merged < MOST_MERGED && merged * host_ns < LEAST_PERIOD_NS)
        merged *= 2;
    return merged;
}

static uint32_t beginning(struct cecl_trial *trial, uint64_t host_ns)
{
    if (!have_all_offered(trial))
        return PUT_OFF;
    /* a verdict of this run has worn out, so the subject is tried again */
    const bool is_known = !trial->host.only_recalls && find_learned(trial);
    const int recalled = is_known ? -1 : trial->host.recall(trial->host.context, trial->subject);
    if (recalled >= 0 && trial->arms >> recalled & 1)
        return VERDICT | (uint32_t)recalled;
    return trial->host.only_recalls ? NOTHING : START | merged_for(host_ns);
}

static void try_later(struct cecl_trial *trial)
{
    let_go(trial);
    trial->state = ++trial->attempt < CECL_TRIAL_ATTEMPTS ? CECL_TRIAL_WAITING : CECL_TRIAL_IDLE;
    /* other communicators are tried meanwhile; different attempts wait for different times */
    const uint32_t least = trial->attempt < 5 ? 4u << trial->attempt : 64u;
    trial->wait = least + (uint32_t)(mix(trial->id + trial->attempt) % least);
}

/* ---- turns */

/* Decides what comes next, and begins it. */
static void go_on(struct cecl_trial *trial)
{
    const uint32_t word = decide(trial, is_made(trial) ? 0 : next_step(trial));
    trial->period = trial->counted = 0;
    trial->has_turn = (word & KIND) == TURN;
    trial->arm = trial->has_turn ? word & NUMBER : 0;
    trial->turn += trial->has_turn;
    trial->put_off += (word & KIND) == PUT_OFF;
    if ((word & KIND) == VERDICT)
        settle(trial, word & NUMBER, false);
}

static struct cecl_trial_mark begin(struct cecl_trial *trial, uint64_t host_ns)
{
    const uint32_t word = decide(trial, is_made(trial) ? 0 : beginning(trial, host_ns));
    switch (word & KIND) {
    case START:
        trial->state = CECL_TRIAL_RUNNING;
        trial->first = trial->decisions - 1;
        trial->merged = word & NUMBER;
        trial->trials++;
        trial->turn = trial->put_off = trial->repeated = 0;
        go_on(trial);
        return (struct cecl_trial_mark){.is_mark = true, .slot = -1};
    case VERDICT: settle(trial, word & NUMBER, true); break;
    case NOTHING: rest(trial); break;
    default: try_later(trial);
    }
    return (struct cecl_trial_mark){.slot = -1};
}

/* Marks the remaining times of this turn as lost. */
static void end_turn(struct cecl_trial *trial)
{
    for (uint32_t i = trial->counted; trial->has_turn && i < CECL_TRIAL_COUNTED; i++)
        cecl_trial_publish(trial, trial->trials, (int)((trial->turn - 1) * CECL_TRIAL_COUNTED + i),
                           0);
    go_on(trial);
}

static struct cecl_trial_mark run(struct cecl_trial *trial, bool was_whole)
{
    struct cecl_trial_mark mark = {.slot = -1};
    trial->repeated++;
    if (was_whole && trial->repeated < trial->merged)
        return mark;
    trial->repeated = 0;
    trial->period++;
    if (was_whole && trial->has_turn && trial->period > 1)
        mark.slot = (int)((trial->turn - 1) * CECL_TRIAL_COUNTED + trial->counted++);
    if (!trial->has_turn || trial->counted == CECL_TRIAL_COUNTED ||
        trial->period == MOST_TURN_PERIODS)
        end_turn(trial);
    mark.is_mark = mark.slot >= 0 || trial->state == CECL_TRIAL_RUNNING;
    return mark;
}

/* Counts down for how long a verdict holds. */
static void wear(struct cecl_trial *trial)
{
    struct cecl_learned *known = find_learned(trial);
    if (known && known->left > 0 && --known->left == 0)
        cecl_trial_want(trial, trial->subject, trial->arms, trial->kind);
}

struct cecl_trial_mark cecl_trial_boundary(struct cecl_trial *trial, bool was_whole,
                                           uint64_t host_ns)
{
    switch (trial->state) {
    case CECL_TRIAL_WAITING:
        if (--trial->wait == 0)
            offer(trial);
        break;
    case CECL_TRIAL_OFFERED:
        if (--trial->wait == 0)
            return begin(trial, host_ns);
        break;
    case CECL_TRIAL_RUNNING: return run(trial, was_whole);
    default: wear(trial);
    }
    return (struct cecl_trial_mark){.slot = -1};
}
