/* Reports a verdict: as a printed line, a row of CECL_NCCL_LEARNED, and an entry of --stats. */
#include <stdio.h>
#include <string.h>

#include "nccl/learned.h"
#include "nccl/learning.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "util/log.h"

/* What a verdict says about NCCL's way and another way. `after` is calculated from the gain, on which the decision
 * is based. The ratio of the two ways' medians may differ from it. */
struct summary {
    double before_ns, after_ns, percent; /* times of one step or call; percent negative: shorter */
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

/* A decision: what was decided on, and which arm was chosen. */
struct ruling {
    const char *what; /* "step", or a class */
    uint64_t subject;
    uint32_t arm;
    bool is_recalled, is_class;
};

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

static void keep(const struct cecl_nccl_comm *comm, const struct ruling *ruling,
                 const struct summary *found)
{
    const bool is_served = ruling->arm != CECL_NCCL_BY_NCCL;
    const double after_ns = is_served ? found->after_ns : found->before_ns;
    struct cecl_nccl_verdict row = {.subject = ruling->subject,
                                    .before_us = (unsigned)(found->before_ns / 1e3),
                                    .after_us = (unsigned)(after_ns / 1e3),
                                    .gain = is_served ? (int)(1e3 * found->gain) : 0};
    if (!comm->known || found->counts[0] == 0)
        return;
    snprintf(row.way, sizeof(row.way), "%s", cecl_nccl_arm_names[ruling->arm]);
    if (ruling->is_class)
        snprintf(row.words, sizeof(row.words), "%s", ruling->what);
    cecl_nccl_learned_keep(comm->known, row);
}

static void tell_recalled(const struct cecl_nccl_comm *comm, const struct ruling *ruling)
{
    struct cecl_nccl_verdict row;
    const char *way = cecl_nccl_arm_words[ruling->arm];
    if (comm->known && cecl_nccl_learned_recall(comm->known, ruling->subject, &row) &&
        strcmp(row.way, cecl_nccl_arm_names[ruling->arm]) == 0)
        cecl_log(CECL_LOG_WARN, -1, "%s: %s, as %s says (%.3g -> %.3g ms, %+.1f %%)", ruling->what,
                 way, cecl_nccl_learned_name(), row.before_us / 1e3, row.after_us / 1e3,
                 -row.gain / 10.0);
    else
        cecl_log(CECL_LOG_WARN, -1, "%s: %s, as another rank's CECL_NCCL_LEARNED says",
                 ruling->what, way);
}

/* A difference of times that is not clear looks as if a faster way were left. */
static const char *way_of(const struct ruling *ruling, const struct summary *found)
{
    const bool is_unclear = ruling->arm == CECL_NCCL_BY_NCCL && found->gain >= CECL_VERDICT_LEAST;
    return is_unclear ? "the difference is not clear, so passed to NCCL"
                      : cecl_nccl_arm_words[ruling->arm];
}

static void tell(const struct cecl_nccl_comm *comm, const struct ruling *ruling,
                 const struct summary *found)
{
    const char *way = way_of(ruling, found);
    if (comm->rank != 0)
        return;
    if (ruling->is_recalled) {
        tell_recalled(comm, ruling);
        return;
    }
    if (found->counts[0] == 0 || found->counts[1] == 0)
        cecl_log(CECL_LOG_WARN, -1, "%s: the times of both libraries were not measured in time: %s",
                 ruling->what, way);
    else if (ruling->is_class)
        cecl_log(CECL_LOG_WARN, -1, "%s: %.1f -> %.1f us (%+.1f %%, %u and %u calls): %s",
                 ruling->what, found->before_ns / 1e3, found->after_ns / 1e3, found->percent,
                 found->counts[0], found->counts[1], way);
    else
        cecl_log(CECL_LOG_WARN, -1, "step %.3g -> %.3g ms (%+.1f %%, %u and %u steps): %s",
                 found->before_ns / 1e6, found->after_ns / 1e6, found->percent, found->counts[0],
                 found->counts[1], way);
    keep(comm, ruling, found);
}

void cecl_nccl_learn_tell(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm)
{
    const struct cecl_trial *trial = &learn->trial;
    const struct ruling ruling = {"step", trial->subject, trial->arm, trial->is_recalled, false};
    if (!trial->is_recalled) {
        learn->verdict = cecl_trial_verdict(trial);
        learn->repeated = trial->merged;
    }
    const struct summary found = summary_of(&learn->verdict, trial->arm, learn->repeated);
    tell(comm, &ruling, &found);
}

static void note_class(struct cecl_nccl_learn *learn, const struct cecl_class *its,
                       const struct summary *found, const char *words)
{
    uint32_t at = 0;
    while (at < learn->ntold && learn->told[at].key != its->key)
        at++;
    learn->ntold += at == learn->ntold;
    struct cecl_nccl_class_report *told = &learn->told[at];
    *told = (struct cecl_nccl_class_report){.key = its->key,
                                            .arm = its->arm,
                                            .is_recalled = its->is_recalled,
                                            .before_ns = found->before_ns,
                                            .gain = found->gain,
                                            .counts = {found->counts[0], found->counts[1]}};
    snprintf(told->words, sizeof(told->words), "%s", words);
}

void cecl_nccl_learn_tell_class(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm,
                                const struct cecl_class *its)
{
    char words[CECL_NCCL_CLASS_BYTES];
    const struct ruling ruling = {words, cecl_class_subject(its->key), its->arm, its->is_recalled,
                                  true};
    const struct cecl_verdict verdict =
        its->is_recalled ? (struct cecl_verdict){0} : cecl_trial_verdict(&learn->trial);
    const struct summary found = summary_of(&verdict, its->arm, 1);
    cecl_nccl_class_words(its->key, words);
    note_class(learn, its, &found, words);
    tell(comm, &ruling, &found);
}

/* ---- --stats */

static enum cecl_nccl_trial_state state_of(const struct cecl_nccl_learn *learn)
{
    const struct cecl_trial *trial = &learn->trial;
    if (!learn->is_found)
        return learn->classes.used > 0 ? CECL_NCCL_TRIAL_CLASSES : CECL_NCCL_TRIAL_SEARCHING;
    if (trial->has_verdict)
        return trial->is_recalled ? CECL_NCCL_TRIAL_RECALLED : CECL_NCCL_TRIAL_DECIDED;
    if (trial->state == CECL_TRIAL_RUNNING)
        return CECL_NCCL_TRIAL_RUNNING;
    if (trial->state == CECL_TRIAL_IDLE && trial->wait > 0)
        return CECL_NCCL_TRIAL_LEFT;
    if (trial->state == CECL_TRIAL_IDLE)
        return trial->host.only_recalls ? CECL_NCCL_TRIAL_UNKNOWN : CECL_NCCL_TRIAL_FULL;
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
    now->nclasses = learn->ntold;
    memcpy(now->classes, learn->told, sizeof(now->classes));
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
