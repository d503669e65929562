/* See learn.h. */
#include "nccl/learn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/depth.h"
#include "nccl/gains.h"
#include "nccl/learning.h"
#include "nccl/library.h"
#include "nccl/trial_reservation.h"
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

/* ---- a call */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 31;
}

/* A hash of those properties of a call that are equal on all ranks (nccl/trial_period.h). Ranks may use either name of a
 * broadcast. in_group: how many calls of its group came before. */
static uint64_t token_of(const struct cecl_nccl_call *call, uint32_t in_group)
{
    const enum cecl_nccl_op op =
        call->op == CECL_NCCL_OP_ncclBcast ? CECL_NCCL_OP_ncclBroadcast : call->op;
    uint64_t hash = mix((uint64_t)op + 1, call->count);
    hash = mix(hash, (uint64_t)call->datatype << 32 | (uint32_t)call->root);
    hash = mix(hash, (uint64_t)(call->reduces ? call->redop + 1 : 0) << 32 | in_group);
    return cecl_period_token(mix(hash, 0), in_group == 0);
}

static void count_in_group(struct cecl_nccl_learn *learn)
{
    const uint64_t group = cecl_nccl_group_depth() > 0 ? cecl_nccl_group_number() : 0;
    learn->in_group = group > 0 && group == learn->group ? learn->in_group + 1 : 0;
    learn->group = group;
}

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
    const bool was_running = trial->state == CECL_TRIAL_RUNNING;
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
    if (was_running && trial->has_verdict)
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
        cecl_trial_want(&learn->trial, learn->period.pattern, arms_of_period(learn));
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

/* What the trial's arm says of a call, if it has one: by a verdict, or by a turn. Otherwise the table decides. */
static enum cecl_nccl_reason follow_arm(struct cecl_nccl_learn *learn,
                                        const struct cecl_nccl_call *call,
                                        const struct cecl_nccl_comm *comm, bool has_arm)
{
    const uint32_t arm = learn->trial.arm;
    if (is_extreme(call))
        return by_table(call, comm);
    if (has_arm && (arm == CECL_NCCL_BY_NCCL || (arm == CECL_NCCL_MOVES_ALONE && call->reduces)))
        return learn->trial.has_verdict ? CECL_NCCL_NOT_SHORTER : CECL_NCCL_TURN;
    const bool forbids = has_arm && arm != CECL_NCCL_WITH_SMS && learn->policies == CECL_SM_ALLOW;
    set_policy(learn, comm, forbids ? CECL_SM_REDUCE_ONLY : learn->policies);
    return has_arm ? CECL_NCCL_NO_REASON : by_table(call, comm);
}

/* Whether the trial decides on a call. A turn is for calls of the period alone: when the program goes on to other
 * calls, nothing is tried on them before their own trial. */
static bool decides(const struct cecl_nccl_learn *learn)
{
    return learn->is_found && cecl_trial_has_arm(&learn->trial) &&
           (learn->trial.has_verdict || cecl_period_is_within(&learn->period));
}

static enum cecl_nccl_reason decide(struct cecl_nccl_learn *learn,
                                    const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm)
{
    count_in_group(learn);
    follow_period(learn, call, token_of(call, learn->in_group), comm);
    return follow_arm(learn, call, comm, decides(learn));
}

/* Only a verdict decides on captured calls, not a turn of a trial. All ranks get a verdict at the same call,
 * so they agree. */
static enum cecl_nccl_reason decide_captured(struct cecl_nccl_learn *learn,
                                             const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm)
{
    count_in_group(learn);
    return follow_arm(learn, call, comm, learn->is_found && learn->trial.has_verdict);
}

enum cecl_nccl_reason cecl_nccl_learn_reason(const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm, bool is_captured)
{
    const bool is_inside = cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE);
    struct cecl_nccl_learn *learn = is_inside ? comm->learn : NULL;
    const enum cecl_nccl_reason reason = !learn        ? by_table(call, comm)
                                         : is_captured ? decide_captured(learn, call, comm)
                                                       : decide(learn, call, comm);
    if (is_inside)
        cecl_nccl_comm_leave(comm);
    return reason;
}
