/* Reports a verdict: as a printed line, and an entry of --stats. */
#include "nccl/learning.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "util/log.h"

/* What a verdict says about NCCL's way and another way. `after` is calculated from the gain, on which the decision
 * is based. The ratio of the two ways' medians may differ from it. */
struct summary {
    double before_ns, after_ns, percent; /* times of one step; percent negative: shorter */
    double gain;
    uint32_t counts[2];
};

/* The way with which NCCL's way is compared: the way that was decided on; or, if NCCL's own way was, the best of
 * the other ways. */
static uint32_t other_arm(const struct cecl_verdict *verdict, uint32_t decided)
{
    uint32_t best = decided;
    for (uint32_t arm = 1; arm < CECL_VERDICT_ARMS && decided == CECL_NCCL_BY_NCCL; arm++)
        if (verdict->arms[arm].count > 0 &&
            (best == CECL_NCCL_BY_NCCL || verdict->arms[arm].gain > verdict->arms[best].gain))
            best = arm;
    return best;
}

static struct summary summary_of(const struct cecl_verdict *verdict, uint32_t arm, uint32_t merged)
{
    const struct cecl_arm_times *before = &verdict->arms[CECL_NCCL_BY_NCCL],
                                *after = &verdict->arms[other_arm(verdict, arm)];
    const double before_ns = before->median_ns / (merged > 0 ? merged : 1);
    return (struct summary){.before_ns = before_ns,
                            .after_ns = before_ns * (1 - after->gain),
                            .percent = -100 * after->gain,
                            .gain = after->gain,
                            .counts = {before->count, after->count}};
}

/* A difference of times that is not clear looks as if a faster way were left. */
static const char *way_of(uint32_t arm, const struct summary *found)
{
    const bool is_unclear = arm == CECL_NCCL_BY_NCCL && found->gain >= CECL_VERDICT_LEAST;
    return is_unclear ? "the difference is not clear, so passed to NCCL" : cecl_nccl_arm_words[arm];
}

void cecl_nccl_learn_tell(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm)
{
    const struct cecl_trial *trial = &learn->trial;
    learn->verdict = cecl_trial_verdict(trial);
    learn->repeated = trial->merged;
    const struct summary found = summary_of(&learn->verdict, trial->arm, learn->repeated);
    const char *way = way_of(trial->arm, &found);
    if (comm->rank != 0)
        return;
    if (found.counts[0] == 0 || found.counts[1] == 0)
        cecl_log(CECL_LOG_WARN, -1,
                 "step: the times of both libraries were not measured in time: %s", way);
    else
        cecl_log(CECL_LOG_WARN, -1, "step %.3g -> %.3g ms (%+.1f %%, %u and %u steps): %s",
                 found.before_ns / 1e6, found.after_ns / 1e6, found.percent, found.counts[0],
                 found.counts[1], way);
}

/* ---- --stats */

static enum cecl_nccl_trial_state state_of(const struct cecl_nccl_learn *learn)
{
    const struct cecl_trial *trial = &learn->trial;
    if (!learn->is_found)
        return CECL_NCCL_TRIAL_SEARCHING;
    if (trial->has_verdict)
        return CECL_NCCL_TRIAL_DECIDED;
    if (trial->state == CECL_TRIAL_RUNNING)
        return CECL_NCCL_TRIAL_RUNNING;
    if (trial->state == CECL_TRIAL_IDLE && trial->wait > 0)
        return CECL_NCCL_TRIAL_LEFT;
    if (trial->state == CECL_TRIAL_IDLE)
        return CECL_NCCL_TRIAL_FULL;
    if (trial->attempt == 0)
        return CECL_NCCL_TRIAL_WAITING;
    return trial->is_busy ? CECL_NCCL_TRIAL_PUT_OFF : CECL_NCCL_TRIAL_APART;
}

static void describe(const struct cecl_nccl_learn *learn, struct cecl_nccl_report *now)
{
    now->state = state_of(learn);
    now->trials = learn->trial.trials;
    now->calls = learn->period.length;
    now->repeated = learn->repeated;
    now->arm = learn->trial.arm;
    now->verdict = learn->verdict;
}

static void report(const struct cecl_nccl_comm *comm)
{
    struct cecl_nccl_report now = {.rank = comm->rank, .nranks = comm->nranks};
    ceclCallStats_t stats = {0};
    (void)!cecl_nccl_library()->ceclCallStats(comm->ours, &stats);
    if (!comm->learn && stats.told == 0) /* there is nothing to report */
        return;
    now.told = stats.told;
    now.late = stats.late;
    if (comm->learn)
        describe(comm->learn, &now);
    cecl_nccl_report_set(comm, &now);
}

/* Separate from report(), whose stack frame is large, because calls run this function. */
void cecl_nccl_learn_report(const struct cecl_nccl_comm *comm)
{
    if (comm->ours && cecl_nccl_process()->counts)
        report(comm);
}
