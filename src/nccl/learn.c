/* See learn.h. */
#include "nccl/learn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "learn/reservation.h"
#include "nccl/depth.h"
#include "nccl/gains.h"
#include "nccl/learned.h"
#include "nccl/learning.h"
#include "nccl/library.h"
#include "util/clock.h"

#define ARM(name) (UINT32_C(1) << CECL_NCCL_##name)

/* --stats is updated after every this many calls, and when a trial begins or ends. */
#define REPORT_CALLS 32u

/* ---- only one communicator of a process has a trial at a time */

static struct {
    pthread_mutex_t lock;
    struct cecl_reservation its;
} trying = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool reserve(void *context, uint64_t id)
{
    (void)context;
    pthread_mutex_lock(&trying.lock);
    const bool has_it = cecl_reservation_take(&trying.its, id, cecl_now_ns());
    pthread_mutex_unlock(&trying.lock);
    return has_it;
}

static void release(void *context, uint64_t id)
{
    (void)context;
    pthread_mutex_lock(&trying.lock);
    cecl_reservation_leave(&trying.its, id);
    pthread_mutex_unlock(&trying.lock);
}

/* Called at each boundary of a trial. */
static void keep_reservation(const struct cecl_trial *trial, int64_t now_ns)
{
    if (!trial->holds)
        return;
    pthread_mutex_lock(&trying.lock);
    cecl_reservation_use(&trying.its, trial->id, now_ns);
    pthread_mutex_unlock(&trying.lock);
}

/* Finds the arm of the file's verdict; -1: there is none. A class that was tried before is tried again, because
 * the file may have only the verdict of that earlier trial. */
static int recall(void *context, uint64_t subject)
{
    const struct cecl_nccl_comm *comm = context;
    const struct cecl_class *current = comm->learn->classes.current;
    struct cecl_nccl_verdict verdict;
    if (!comm->known || (current && current->was_tried) ||
        !cecl_nccl_learned_recall(comm->known, subject, &verdict))
        return -1;
    int arm = CECL_VERDICT_ARMS - 1;
    while (arm >= 0 && strcmp(cecl_nccl_arm_names[arm], verdict.way) != 0)
        arm--;
    return arm;
}

/* ---- beginning and ending */

/* Finds the words of the trial, which all ranks share. NULL: there is no room for them; this is so on all ranks or
 * on none. */
static ceclResult_t find_words(const struct cecl_nccl_comm *entry, void **words)
{
    size_t bytes;
    CECL_TRY(cecl_nccl_library()->ceclCommGetSharedMemory(entry->ours, words, &bytes));
    if (cecl_trial_bytes(entry->nranks) > bytes)
        *words = NULL;
    return ceclSuccess;
}

ceclResult_t cecl_nccl_learn_open(struct cecl_nccl_comm *entry, bool tries)
{
    const struct cecl_trial_host host = {
        .context = entry,
        .reserve = reserve,
        .release = release,
        .recall = recall,
        .only_recalls = !tries,
    };
    void *words = NULL;
    struct cecl_nccl_learn *learn = calloc(1, sizeof(*learn));
    const ceclResult_t result =
        learn ? find_words(entry, &words)
              : cecl_fail(ceclSystemError, "no host memory to learn which library is faster");
    if (!words) {
        free(learn);
        return result;
    }
    learn->policy = learn->policies = entry->limits.smPolicy;
    cecl_trial_open(&learn->trial, words, entry->rank, entry->nranks, entry->drawn, &host);
    cecl_nccl_marks_open(&learn->marks, entry->ordinal);
    entry->learn = learn;
    return result;
}

void cecl_nccl_learn_close(struct cecl_nccl_comm *entry)
{
    struct cecl_nccl_learn *learn = entry->learn;
    cecl_nccl_learn_report(entry);
    cecl_nccl_report_end(entry);
    if (!learn)
        return;
    entry->learn = NULL;
    cecl_trial_cancel(&learn->trial);
    cecl_nccl_marks_close(&learn->marks);
    free(learn);
}

/* ---- which arms are tried */

/* The arms that treat some call of the period differently. Without CECL_SM_ALLOW there is no WITH_SMS. */
static uint32_t arms_of_period(const struct cecl_nccl_learn *learn)
{
    const uint64_t before = learn->period.calls - learn->period.length;
    const bool moves = learn->moved > before, reduces = learn->reduced > before;
    uint32_t arms = ARM(BY_NCCL);
    if (learn->policies == CECL_SM_ALLOW)
        arms |= ARM(WITH_SMS);
    if (moves || learn->policies != CECL_SM_ALLOW)
        arms |= ARM(NO_SMS);
    if (moves && reduces)
        arms |= ARM(MOVES_ALONE);
    return arms;
}

/* NO_SMS exists because calls on SMs slow down computation beside them. The time of a single call does not show
 * that. So of cecl's arms only the one that has the communicator's own policy is tried. */
static uint32_t arms_of_class(const struct cecl_nccl_learn *learn)
{
    return ARM(BY_NCCL) | (learn->policies == CECL_SM_ALLOW ? ARM(WITH_SMS) : ARM(NO_SMS));
}

static void count_in_group(struct cecl_nccl_learn *learn)
{
    const uint64_t group = cecl_nccl_group_depth() > 0 ? cecl_nccl_group_number() : 0;
    learn->in_group = group > 0 && group == learn->group ? learn->in_group + 1 : 0;
    learn->group = group;
}

/* ---- a call */

/* Called at the first call of a period. If nothing is tried, reads no clock and publishes nothing. */
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
    const bool was_running = trial->state == CECL_TRIAL_RUNNING, was_recalled = trial->is_recalled;
    if (!cecl_trial_is_within(trial))
        cecl_nccl_marks_publish(marks, trial);
    const struct cecl_trial_mark here =
        cecl_trial_boundary(trial, learn->period.was_whole, (uint64_t)(now - learn->begun_ns));
    learn->begun_ns = now;
    keep_reservation(trial, now);
    if (here.is_mark)
        cecl_nccl_marks_note(marks, call->stream);
    if (here.slot >= 0)
        cecl_nccl_marks_time(marks, marks->count - 2, marks->count - 1, trial->trials, here.slot);
    if ((was_running && trial->has_verdict) || (trial->is_recalled && !was_recalled))
        cecl_nccl_learn_tell(learn, comm);
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
        cecl_classes_leave(&learn->classes);
        cecl_trial_want(&learn->trial, learn->period.pattern, arms_of_period(learn),
                        CECL_TRIAL_PERIODS);
    } else if (!is_found && learn->is_found) {
        cecl_trial_cancel(&learn->trial);
    }
    const bool has_changed = is_found != learn->is_found || trial->state != before;
    learn->is_found = is_found;
    if (has_changed || learn->period.calls - learn->reported >= REPORT_CALLS) {
        learn->reported = learn->period.calls;
        cecl_nccl_learn_report(comm);
    }
}

/* Called at a call that is a boundary of a trial on a class. Returns whether the call is timed. A call in
 * a group cannot be timed. It is a boundary nevertheless, because ranks need not have the same groups, and
 * its time counts as lost. */
static bool pass_boundary(struct cecl_nccl_learn *learn, const struct cecl_trial_mark *here)
{
    struct cecl_trial *trial = &learn->trial;
    if (here->slot >= 0 && learn->has_timed)
        cecl_nccl_marks_time(&learn->marks, learn->timed_from, learn->timed_to, trial->trials,
                             here->slot);
    else if (here->slot >= 0)
        cecl_trial_publish(trial, trial->trials, here->slot, 0);
    cecl_nccl_marks_publish(&learn->marks, trial);
    keep_reservation(trial, cecl_now_ns());
    learn->has_from = learn->has_timed = false;
    return here->is_mark && cecl_nccl_group_depth() == 0;
}

/* Returns the call's class. may_bound: the call may be a boundary. */
static struct cecl_class *follow_class(struct cecl_nccl_learn *learn,
                                       const struct cecl_nccl_call *call,
                                       const struct cecl_nccl_comm *comm, bool may_bound,
                                       bool *is_timed)
{
    if (learn->is_found && learn->classes.used == 0)
        return NULL;
    const uint32_t key = cecl_nccl_class_of(call);
    if (learn->is_found)
        return cecl_classes_find(&learn->classes, key);
    const struct cecl_class_step step =
        cecl_classes_next(&learn->classes, &learn->trial, key, arms_of_class(learn), may_bound);
    if (step.is_boundary)
        *is_timed = pass_boundary(learn, &step.mark);
    if (step.is_decided)
        cecl_nccl_learn_tell_class(learn, comm, step.its);
    return step.its;
}

/* Sets the policy of cecl's calls from here on. All calls of a group are made with one policy. */
static void set_policy(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm, int policy)
{
    if (policy == learn->policy || learn->in_group > 0)
        return;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = policy;
    if (cecl_nccl_library()->ceclSetOptions(comm->ours, &options) == ceclSuccess)
        learn->policy = policy;
}

static enum cecl_nccl_reason by_table(const struct cecl_nccl_call *call,
                                      const struct cecl_nccl_comm *comm)
{
    return cecl_nccl_gains(call, comm) ? CECL_NCCL_NO_REASON : CECL_NCCL_NO_GAIN;
}

/* For maximum and minimum the libraries' results differ if there are NaNs, so these are not tried. */
static bool is_extreme(const struct cecl_nccl_call *call)
{
    return call->reduces &&
           (call->redop == (ncclRedOp_t)ceclMax || call->redop == (ncclRedOp_t)ceclMin);
}

/* The arm that decides on a call: has_arm: there is one; is_turn: it is the trial's turn; by_period: it is
 * on the period, and otherwise on a class. */
struct in_force {
    bool has_arm, is_turn, by_period;
    uint32_t arm;
};

static enum cecl_nccl_reason follow_arm(struct cecl_nccl_learn *learn,
                                        const struct cecl_nccl_call *call,
                                        const struct cecl_nccl_comm *comm, struct in_force in_force)
{
    const uint32_t arm = in_force.arm;
    const bool has_arm = in_force.has_arm;
    if (is_extreme(call))
        return by_table(call, comm);
    if (has_arm && (arm == CECL_NCCL_BY_NCCL || (arm == CECL_NCCL_MOVES_ALONE && call->reduces)))
        return in_force.is_turn     ? CECL_NCCL_TURN
               : in_force.by_period ? CECL_NCCL_NOT_SHORTER
                                    : CECL_NCCL_NOT_FASTER;
    const bool forbids = has_arm && arm != CECL_NCCL_WITH_SMS && learn->policies == CECL_SM_ALLOW;
    set_policy(learn, comm, forbids ? CECL_SM_REDUCE_ONLY : learn->policies);
    return has_arm ? CECL_NCCL_NO_REASON : by_table(call, comm);
}

/* Whether the trial on the period decides on a call. A turn is for calls of the period alone: when the program goes
 * on to other calls, nothing is tried on them before their own trial. */
static bool decides_by_period(const struct cecl_nccl_learn *learn)
{
    return learn->is_found && cecl_trial_has_arm(&learn->trial) &&
           (learn->trial.has_verdict || cecl_period_is_within(&learn->period));
}

/* The period's verdict or turn decides. If the period has neither, the verdict or turn of the class decides. */
static enum cecl_nccl_reason decide(struct cecl_nccl_learn *learn,
                                    const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                                    bool *is_timed)
{
    const struct cecl_trial *trial = &learn->trial;
    count_in_group(learn);
    const uint64_t token = cecl_nccl_token_of(call, learn->in_group);
    follow_period(learn, call, token, comm);
    struct in_force in_force = {
        .by_period = decides_by_period(learn), .is_turn = !trial->has_verdict, .arm = trial->arm};
    struct cecl_class *its =
        in_force.by_period ? NULL : follow_class(learn, call, comm, learn->in_group == 0, is_timed);
    in_force.has_arm = in_force.by_period || cecl_class_has_arm(&learn->classes, trial, its,
                                                                &in_force.arm, &in_force.is_turn);
    return follow_arm(learn, call, comm, in_force);
}

/* Only verdicts decide on captured calls, not turns of a trial. All ranks get a verdict at the same call,
 * so they agree. */
static enum cecl_nccl_reason decide_captured(struct cecl_nccl_learn *learn,
                                             const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm)
{
    const bool by_period = learn->is_found && learn->trial.has_verdict;
    const struct cecl_class *its =
        by_period ? NULL : cecl_classes_find(&learn->classes, cecl_nccl_class_of(call));
    count_in_group(learn);
    return follow_arm(learn, call, comm,
                      (struct in_force){.has_arm = by_period || (its && its->has_verdict),
                                        .by_period = by_period,
                                        .arm = by_period ? learn->trial.arm
                                               : its     ? its->arm
                                                         : 0});
}

enum cecl_nccl_reason cecl_nccl_learn_captured(const struct cecl_nccl_call *call,
                                               struct cecl_nccl_comm *comm)
{
    const bool is_inside = cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE);
    const enum cecl_nccl_reason reason =
        is_inside && comm->learn ? decide_captured(comm->learn, call, comm) : by_table(call, comm);
    if (is_inside)
        cecl_nccl_comm_leave(comm);
    return reason;
}

enum cecl_nccl_reason cecl_nccl_learn_reason(const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm, bool *is_timed)
{
    const bool is_inside = cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE);
    struct cecl_nccl_learn *learn = is_inside ? comm->learn : NULL;
    const enum cecl_nccl_reason reason =
        learn ? decide(learn, call, comm, is_timed) : by_table(call, comm);
    if (is_inside)
        cecl_nccl_comm_leave(comm);
    return reason;
}

void cecl_nccl_learn_time(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                          bool is_end)
{
    if (!cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE))
        return;
    struct cecl_nccl_learn *learn = comm->learn;
    if (learn && is_end) {
        learn->timed_to = cecl_nccl_marks_note(&learn->marks, call->stream);
        learn->has_timed = learn->has_from;
    } else if (learn) {
        learn->timed_from = cecl_nccl_marks_note(&learn->marks, call->stream);
        learn->has_from = true;
    }
    cecl_nccl_comm_leave(comm);
}
