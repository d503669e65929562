/* Finds by trials which library makes a communicator's calls; see decide.h. */
#include "nccl/decide.h"

#include <pthread.h>
#include <stdlib.h>

#include "nccl/library.h"
#include "nccl/marks.h"
#include "nccl/process.h"
#include "nccl/report.h"
#include "nccl/trial.h"
#include "nccl/trial_period.h"
#include "nccl/trial_reservation.h"
#include "util/clock.h"
#include "util/log.h"

#define ARM(name) (UINT32_C(1) << CECL_NCCL_##name)

/* The communicator's entry of --stats is updated after this many calls, and when a trial begins or ends. */
#define REPORT_CALLS 32u

/* The arms of trials: the ways that are tried. cecl_nccl_arm_words says what they do. */
enum { CECL_NCCL_BY_NCCL, CECL_NCCL_NO_SMS, CECL_NCCL_WITH_SMS, CECL_NCCL_MOVES_ALONE };

struct cecl_nccl_learn {
    /* -- used at each call -- */
    struct cecl_trial trial;
    /* the group of the last call, and how many calls of this group came before that call */
    uint64_t group;
    uint32_t in_group;
    bool is_found; /* a period was found; it is the trial's subject */
    int policy;    /* the ceclSmPolicy_t of the last call, and of all calls of its group */
    /* numbers of the last call that only moves data and of the last reduction; the first call has number 1 */
    uint64_t moved, reduced;
    /* -- used less often -- */
    int64_t begun_ns;  /* when this period began on the host, in ns */
    uint64_t reported; /* number of calls when --stats was last updated */
    struct cecl_nccl_marks marks;
    struct cecl_verdict verdict; /* the result of the last trial on a period */
    uint32_t repeated; /* how many repetitions of the step the trial timed as one period */
    struct cecl_period period;
};

/* ---- only one communicator of a process has a trial at a time */

static struct {
    pthread_mutex_t lock;
    struct cecl_reservation its;
} trying = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool reserve(void *context, uint64_t id)
{
    (void)context;
    CECL_LOCKED(&trying.lock);
    return cecl_reservation_take(&trying.its, id, cecl_now_ns());
}

static void release(void *context, uint64_t id)
{
    (void)context;
    CECL_LOCKED(&trying.lock);
    cecl_reservation_leave(&trying.its, id);
}

static void keep_reservation(const struct cecl_trial *trial, int64_t now_ns)
{
    if (!trial->holds)
        return;
    CECL_LOCKED(&trying.lock);
    cecl_reservation_use(&trying.its, trial->id, now_ns);
}

/* ---- a verdict as a printed line */

/* What a verdict says about NCCL's way and another way. `after_ns` is computed from the gain, which decided the
 * verdict, and not from the other way's median. */
struct summary {
    double before_ns, after_ns, percent; /* a step's times, and the change; negative: shorter */
    double gain;
    uint32_t counts[2];
};

/* The arm to compare with NCCL's: the chosen arm or, if that is NCCL's, the best other arm. */
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

/* The words for the chosen arm. If NCCL was chosen although another arm looks faster, they give the reason. */
static const char *way_of(uint32_t arm, const struct summary *found)
{
    const bool is_unclear = arm == CECL_NCCL_BY_NCCL && found->gain >= CECL_VERDICT_LEAST;
    return is_unclear ? "the difference is not clear, so passed to NCCL" : cecl_nccl_arm_words[arm];
}

/* Reports a verdict that a trial has just given. Rank 0 prints it. */
static void tell_verdict(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm)
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

/* ---- what --stats shows */

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

/* Updates the communicator's entry of --stats, if calls are counted. Not inlined into the path of calls, because its
 * stack frame is large. */
__attribute__((noinline)) static void report(const struct cecl_nccl_comm *comm, bool is_last)
{
    const struct cecl_nccl_learn *learn = comm->learn;
    struct cecl_nccl_report now = {0};
    ceclCallStats_t stats = {0};
    if (!comm->ours || !cecl_nccl_process()->counts)
        return;
    (void)!cecl_nccl_library()->ceclCallStats(comm->ours, &stats);
    if (!learn && stats.told == 0) /* there is nothing to report */
        return;
    if (learn)
        now = (struct cecl_nccl_report){.state = state_of(learn),
                                        .trials = learn->trial.trials,
                                        .calls = learn->period.length,
                                        .repeated = learn->repeated,
                                        .arm = learn->trial.arm,
                                        .verdict = learn->verdict};
    now.rank = comm->rank;
    now.nranks = comm->nranks;
    now.told = stats.told;
    now.late = stats.late;
    cecl_nccl_report_set(comm, &now, is_last);
}

/* ---- beginning and ending */

/* Finds the words of the trial, which all ranks share. *words NULL: no rank has room for them. */
static ceclResult_t find_words(const struct cecl_nccl_comm *entry, void **words)
{
    size_t bytes;
    CECL_TRY(cecl_nccl_library()->ceclCommGetSharedMemory(entry->ours, words, &bytes));
    if (cecl_trial_bytes(entry->nranks) > bytes)
        *words = NULL;
    return ceclSuccess;
}

ceclResult_t cecl_nccl_learn_open(struct cecl_nccl_comm *entry)
{
    const struct cecl_trial_host host = {.reserve = reserve, .release = release};
    void *words = NULL;
    struct cecl_nccl_learn *learn = calloc(1, sizeof(*learn));
    const ceclResult_t result =
        learn ? find_words(entry, &words)
              : cecl_fail(ceclSystemError, "no host memory to learn which library is faster");
    if (!words) {
        free(learn);
        return result;
    }
    cecl_trial_open(&learn->trial, words, entry->rank, entry->nranks, entry->drawn, &host);
    cecl_nccl_marks_open(&learn->marks, entry->ordinal);
    entry->learn = learn;
    return result;
}

void cecl_nccl_learn_close(struct cecl_nccl_comm *entry)
{
    struct cecl_nccl_learn *learn = entry->learn;
    report(entry, true);
    if (!learn)
        return;
    entry->learn = NULL;
    cecl_trial_cancel(&learn->trial);
    cecl_nccl_marks_close(&learn->marks);
    free(learn);
}

/* ---- which arms are tried */

/* The arms to try: those that treat some call of the period differently from the other arms. Without CECL_SM_ALLOW,
 * WITH_SMS is not among them.
 * policy  the communicator's own policy */
static uint32_t arms_of_period(const struct cecl_nccl_learn *learn, int policy)
{
    const uint64_t before = learn->period.calls - learn->period.length;
    const bool moves = learn->moved > before, reduces = learn->reduced > before;
    uint32_t arms = ARM(BY_NCCL);
    if (policy == CECL_SM_ALLOW)
        arms |= ARM(WITH_SMS);
    if (moves || policy != CECL_SM_ALLOW)
        arms |= ARM(NO_SMS);
    if (moves && reduces)
        arms |= ARM(MOVES_ALONE);
    return arms;
}

/* ---- a call */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 31;
}

/* A hash of what is equal on all ranks in a call (nccl/trial_period.h), and of how many calls of its group came before
 * it (`in_group`). ncclBcast counts as ncclBroadcast, because ranks may mix the two. */
static uint64_t token_of(const struct cecl_nccl_call *call, uint32_t in_group)
{
    const enum cecl_nccl_op op =
        call->op == CECL_NCCL_OP_ncclBcast ? CECL_NCCL_OP_ncclBroadcast : call->op;
    uint64_t hash = mix((uint64_t)op + 1, call->count);
    hash = mix(hash, (uint64_t)call->datatype << 32 | (uint32_t)call->root);
    hash = mix(hash, (uint64_t)(call->reduces ? call->redop + 1 : 0) << 32 | in_group);
    return cecl_period_token(mix(hash, 0), in_group == 0);
}

static void count_in_group(struct cecl_nccl_learn *learn, const struct cecl_nccl_group *group)
{
    const uint64_t number = group->depth > 0 ? group->number : 0;
    learn->in_group = number > 0 && number == learn->group ? learn->in_group + 1 : 0;
    learn->group = number;
}

/* Called at the first call of a period. If the trial is IDLE, reads no clock and publishes nothing. */
static void begin_period(struct cecl_nccl_learn *learn, const struct cecl_nccl_call *call,
                         const struct cecl_nccl_comm *comm)
{
    struct cecl_trial *trial = &learn->trial;
    struct cecl_nccl_marks *marks = &learn->marks;
    if (trial->state == CECL_TRIAL_IDLE) {
        cecl_trial_boundary(trial, learn->period.was_whole, 0);
        return;
    }
    const int64_t now = cecl_now_ns();
    const bool was_running = trial->state == CECL_TRIAL_RUNNING;
    if (!cecl_trial_is_within(trial))
        cecl_nccl_marks_publish(marks, trial);
    const struct cecl_trial_mark here =
        cecl_trial_boundary(trial, learn->period.was_whole, (uint64_t)(now - learn->begun_ns));
    learn->begun_ns = now;
    keep_reservation(trial, now);
    if (here.is_mark)
        cecl_nccl_marks_note(marks, call->stream);
    if (here.sample >= 0)
        cecl_nccl_marks_time(marks, marks->count - 2, marks->count - 1, trial->trials, here.sample);
    if (was_running && trial->has_verdict)
        tell_verdict(learn, comm);
}

static void follow_period(struct cecl_nccl_learn *learn, const struct cecl_nccl_call *call,
                          uint64_t token, const struct cecl_nccl_comm *comm)
{
    const struct cecl_trial *trial = &learn->trial;
    const int before = trial->state;
    if (cecl_period_next(&learn->period, token))
        begin_period(learn, call, comm);
    *(call->reduces ? &learn->reduced : &learn->moved) = learn->period.calls;
    const bool is_found = learn->period.length > 0;
    if (is_found && !learn->is_found) {
        cecl_trial_want(&learn->trial, learn->period.pattern,
                        arms_of_period(learn, comm->limits.smPolicy));
    } else if (!is_found && learn->is_found) {
        cecl_trial_cancel(&learn->trial);
    }
    const bool has_changed = is_found != learn->is_found || trial->state != before;
    learn->is_found = is_found;
    if (has_changed || learn->period.calls - learn->reported >= REPORT_CALLS) {
        learn->reported = learn->period.calls;
        report(comm, false);
    }
}

/* Trials do not decide on maximum and minimum, because the libraries' results differ if there are NaNs. */
static bool is_extreme(const struct cecl_nccl_call *call)
{
    return call->reduces &&
           (call->redop == (ncclRedOp_t)ceclMax || call->redop == (ncclRedOp_t)ceclMin);
}

/* Whether the trial decides on a call. A turn decides only on calls of the period, not on other calls that the program
 * makes meanwhile. A verdict also decides on captured calls, because all ranks get the verdict at the same call. */
static bool has_arm(const struct cecl_nccl_learn *learn, const struct cecl_nccl_call *call,
                    bool is_captured)
{
    if (!learn->is_found || is_extreme(call))
        return false;
    return learn->trial.has_verdict || (!is_captured && cecl_trial_has_arm(&learn->trial) &&
                                        cecl_period_is_within(&learn->period));
}

/* Decides by the trial's arm, if has_arm(); otherwise by the table of gains.c. */
static void follow_arm(struct cecl_nccl_learn *learn, const struct cecl_nccl_call *call,
                       const struct cecl_nccl_comm *comm, const struct cecl_nccl_group *group,
                       struct cecl_nccl_way *way)
{
    const bool has = has_arm(learn, call, way->is_captured);
    const uint32_t arm = learn->trial.arm;
    if (learn->in_group == 0)
        learn->policy = has && arm != CECL_NCCL_WITH_SMS && way->policy == CECL_SM_ALLOW
                            ? CECL_SM_REDUCE_ONLY
                            : way->policy;
    way->policy = learn->policy;
    if (has && (arm == CECL_NCCL_BY_NCCL || (arm == CECL_NCCL_MOVES_ALONE && call->reduces)))
        way->reason = learn->trial.has_verdict ? CECL_NCCL_NOT_SHORTER : CECL_NCCL_TURN;
    else if (!has && !cecl_nccl_gains(call, comm, group))
        way->reason = CECL_NCCL_NO_GAIN;
}

void cecl_nccl_learn(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                     const struct cecl_nccl_group *group, struct cecl_nccl_way *way)
{
    struct cecl_nccl_learn *learn = comm->learn;
    if (!learn) {
        if (!cecl_nccl_gains(call, comm, group))
            way->reason = CECL_NCCL_NO_GAIN;
        return;
    }
    count_in_group(learn, group);
    if (!way->is_captured)
        follow_period(learn, call, token_of(call, learn->in_group), comm);
    follow_arm(learn, call, comm, group, way);
}
