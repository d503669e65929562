/* See learn.h. */
#include "nccl/learn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "learn/period.h"
#include "learn/trial.h"
#include "nccl/depth.h"
#include "nccl/gains.h"
#include "nccl/gpu.h"
#include "nccl/learned.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "nccl/report.h"
#include "util/clock.h"
#include "util/log.h"

/* The ways that take turns; cecl_nccl_arm_words has their names. */
enum { BY_NCCL, NO_SMS, WITH_SMS, MOVES_ALONE };
#define ARM(name) (UINT32_C(1) << (name))

/* A mark is a place in the program's stream whose time is noted. The GPU may be so many marks
 * behind the host; older marks are lost. */
#define MARKS 64u

/* While no period is found, --stats is updated after every so many calls. */
#define REPORT_CALLS 256u

struct mark {
    void *event; /* NULL on the host device */
    int64_t ns;  /* the time at the mark */
    bool is_noted;
};

/* A period whose time is to be published. */
struct pending {
    uint32_t from, to; /* numbers of its marks */
    uint32_t trial;
    int slot;
};

struct cecl_nccl_learn {
    struct cecl_period period;
    struct cecl_trial trial;
    bool is_found;               /* the trial is about the period */
    struct cecl_verdict verdict; /* of the last trial */
    int ordinal;                 /* number of the GPU; -1: the host device */
    int policy, policies;        /* the ceclSmPolicy_t in force; the communicator's own policy */
    uint64_t group;              /* the group of the last call; how many calls of it there were */
    uint32_t in_group;
    /* the numbers of the last call that moves data, and of the last reduction; from 1 */
    uint64_t moved, reduced;
    int64_t begun_ns; /* when the host began this period */
    struct mark marks[MARKS];
    uint32_t nmarks;
    struct pending pending[MARKS];
    uint32_t first_pending, npending;
};

/* ---- one communicator of a process tries at a time */

static struct {
    pthread_mutex_t lock;
    uint64_t id; /* of the communicator, which may have several ranks in one process */
    int holders;
} trying = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool reserve(void *context, uint64_t id)
{
    (void)context;
    pthread_mutex_lock(&trying.lock);
    const bool is_free = trying.holders == 0 || trying.id == id;
    if (is_free) {
        trying.id = id;
        trying.holders++;
    }
    pthread_mutex_unlock(&trying.lock);
    return is_free;
}

static void release(void *context, uint64_t id)
{
    (void)context;
    (void)id;
    pthread_mutex_lock(&trying.lock);
    trying.holders--;
    pthread_mutex_unlock(&trying.lock);
}

static int recall(void *context, uint64_t subject)
{
    const struct cecl_nccl_known *known = context;
    struct cecl_nccl_verdict verdict;
    if (!known || !cecl_nccl_learned_recall(known, subject, &verdict))
        return -1;
    int arm = CECL_VERDICT_ARMS - 1;
    while (arm >= 0 && strcmp(cecl_nccl_arm_names[arm], verdict.way) != 0)
        arm--;
    return arm;
}

/* ---- reporting */

static enum cecl_nccl_trial_state state_of(const struct cecl_nccl_learn *learn)
{
    const struct cecl_trial *trial = &learn->trial;
    if (trial->has_verdict)
        return trial->is_recalled ? CECL_NCCL_TRIAL_RECALLED : CECL_NCCL_TRIAL_DECIDED;
    if (trial->state == CECL_TRIAL_RUNNING)
        return CECL_NCCL_TRIAL_RUNNING;
    if (!learn->is_found)
        return CECL_NCCL_TRIAL_SEARCHING;
    return trial->state == CECL_TRIAL_IDLE ? CECL_NCCL_TRIAL_LEFT : CECL_NCCL_TRIAL_WAITING;
}

/* Updates the entry of --stats. */
static void report(const struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_learn *learn = comm->learn;
    struct cecl_nccl_report now = {.rank = comm->rank, .nranks = comm->nranks};
    ceclCallStats_t stats = {0};
    if (!comm->ours || !cecl_nccl_process()->counts)
        return;
    (void)!cecl_nccl_library()->ceclCallStats(comm->ours, &stats);
    if (!learn && stats.told == 0) /* there is nothing to report */
        return;
    now.told = stats.told;
    now.late = stats.late;
    if (learn) {
        now.state = state_of(learn);
        now.trials = learn->trial.trials;
        now.calls = learn->period.length;
        now.repeated = learn->trial.merged;
        now.arm = learn->trial.arm;
        now.verdict = learn->verdict;
    }
    cecl_nccl_report_set(comm, &now);
}

/* The way with which NCCL's is compared: the one in force, or the best of the others. */
static uint32_t other_arm(const struct cecl_verdict *verdict, uint32_t decided)
{
    uint32_t best = decided;
    for (uint32_t arm = 1; arm < CECL_VERDICT_ARMS && decided == BY_NCCL; arm++)
        if (verdict->arms[arm].count > 0 &&
            (best == BY_NCCL || verdict->arms[arm].median_ns < verdict->arms[best].median_ns))
            best = arm;
    return best;
}

/* Reports a trial that has just ended. */
static void tell(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm)
{
    learn->verdict = cecl_trial_verdict(&learn->trial);
    const struct cecl_verdict *verdict = &learn->verdict;
    const struct cecl_arm_times *before = &verdict->arms[BY_NCCL],
                                *after = &verdict->arms[other_arm(verdict, learn->trial.arm)];
    const double repeated = learn->trial.merged > 0 ? learn->trial.merged : 1;
    if (comm->rank != 0)
        return;
    cecl_log(CECL_LOG_WARN, -1, "step %.3g -> %.3g ms (%+.1f %%, %u and %u steps): %s",
             before->median_ns / 1e6 / repeated, after->median_ns / 1e6 / repeated,
             before->median_ns > 0 ? 100 * (after->median_ns / before->median_ns - 1) : 0,
             before->count, after->count, cecl_nccl_arm_words[learn->trial.arm]);
}

/* ---- beginning and ending */

static uint64_t draw(const struct cecl_nccl_learn *learn)
{
    return (uint64_t)cecl_now_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(uintptr_t)learn;
}

/* Without events this rank's times count as lost, so nothing is learned. Calls go on. */
static void make_events(struct cecl_nccl_learn *learn)
{
    void *events[MARKS] = {NULL};
    if (cecl_nccl_gpu_make_events(learn->ordinal, events, MARKS) != ceclSuccess) {
        cecl_log(CECL_LOG_WARN, -1, "no trials: %s", cecl_message());
        return;
    }
    for (uint32_t i = 0; i < MARKS; i++)
        learn->marks[i].event = events[i];
}

ceclResult_t cecl_nccl_learn_open(struct cecl_nccl_comm *entry, bool tries)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    const struct cecl_trial_host host = {(void *)(uintptr_t)entry->known, reserve, release, recall,
                                         !tries};
    void *shared;
    size_t bytes;
    CECL_TRY(cecl->ceclCommGetSharedMemory(entry->ours, &shared, &bytes));
    if (cecl_trial_bytes(entry->nranks) > bytes) /* equal on all ranks */
        return ceclSuccess;
    struct cecl_nccl_learn *learn = calloc(1, sizeof(*learn));
    if (!learn)
        return cecl_fail(ceclSystemError, "no host memory to learn which library is faster");
    learn->ordinal = entry->ordinal;
    learn->policy = learn->policies = entry->limits.smPolicy;
    cecl_trial_open(&learn->trial, shared, entry->rank, entry->nranks, draw(learn), &host);
    if (learn->ordinal >= 0)
        make_events(learn);
    entry->learn = learn;
    return ceclSuccess;
}

void cecl_nccl_learn_close(struct cecl_nccl_comm *entry)
{
    struct cecl_nccl_learn *learn = entry->learn;
    void *events[MARKS];
    report(entry);
    cecl_nccl_report_end(entry);
    if (!learn)
        return;
    entry->learn = NULL;
    cecl_trial_cancel(&learn->trial);
    for (uint32_t i = 0; i < MARKS; i++)
        events[i] = learn->marks[i].event;
    if (learn->ordinal >= 0)
        cecl_nccl_gpu_free_events(learn->ordinal, events, MARKS);
    free(learn);
}

/* ---- times */

static void mark(struct cecl_nccl_learn *learn, cudaStream_t stream)
{
    struct mark *here = &learn->marks[learn->nmarks++ % MARKS];
    here->ns = cecl_now_ns();
    here->is_noted = learn->ordinal < 0 || (here->event && cecl_nccl_gpu_note(here->event, stream));
}

/* Returns false if the time is not known yet. *ns: 0 if it is lost. */
static bool time_between(struct cecl_nccl_learn *learn, const struct pending *pending, uint64_t *ns)
{
    const struct mark *from = &learn->marks[pending->from % MARKS],
                      *to = &learn->marks[pending->to % MARKS];
    *ns = 0;
    if (learn->nmarks - pending->from > MARKS || !from->is_noted || !to->is_noted)
        return true;
    if (learn->ordinal >= 0)
        return cecl_nccl_gpu_elapsed(from->event, to->event, ns);
    *ns = (uint64_t)(to->ns - from->ns);
    return true;
}

static void publish(struct cecl_nccl_learn *learn)
{
    while (learn->npending > 0) {
        const struct pending *pending = &learn->pending[learn->first_pending % MARKS];
        uint64_t ns;
        if (!time_between(learn, pending, &ns))
            return;
        cecl_trial_publish(&learn->trial, pending->trial, pending->slot, ns);
        learn->first_pending++;
        learn->npending--;
    }
}

/* Every pending time has two marks, so there are never more pending times than marks. */
static void note_pending(struct cecl_nccl_learn *learn, uint32_t trial, int slot)
{
    if (learn->npending == MARKS) { /* the marks of the oldest one are lost */
        learn->first_pending++;
        learn->npending--;
    }
    learn->pending[(learn->first_pending + learn->npending++) % MARKS] =
        (struct pending){learn->nmarks - 2, learn->nmarks - 1, trial, slot};
}

/* ---- what a sequence can try */

/* The ways in which the calls of a period differ. A policy that forbids SMs excludes WITH_SMS. */
static uint32_t arms_of(const struct cecl_nccl_learn *learn)
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

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 31;
}

/* The token of a call: a hash of what is equal on all ranks. */
static uint64_t token_of(struct cecl_nccl_learn *learn, const struct cecl_nccl_call *call)
{
    const uint64_t group = cecl_nccl_group_depth() > 0 ? cecl_nccl_group_number() : 0;
    learn->in_group = group > 0 && group == learn->group ? learn->in_group + 1 : 0;
    learn->group = group;
    /* some ranks may call a broadcast by its other name */
    const bool is_old_name = call->op == CECL_NCCL_OP_ncclBcast;
    const enum cecl_nccl_op op = is_old_name ? CECL_NCCL_OP_ncclBroadcast : call->op;
    uint64_t hash = mix((uint64_t)op + 1, call->count);
    hash = mix(hash, (uint64_t)call->datatype << 32 | (uint32_t)call->root);
    hash = mix(hash, (uint64_t)(call->reduces ? call->redop + 1 : 0) << 32 | learn->in_group);
    return cecl_period_token(mix(hash, 0), learn->in_group == 0);
}

/* ---- a call */

/* Rank 0 keeps a verdict for later runs. */
static void keep(const struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm)
{
    const struct cecl_arm_times *before = &learn->verdict.arms[BY_NCCL],
                                *after = &learn->verdict.arms[learn->trial.arm];
    struct cecl_nccl_verdict row = {.subject = learn->trial.subject,
                                    .before_us = (unsigned)(before->median_ns / 1e3),
                                    .after_us = (unsigned)(after->median_ns / 1e3)};
    if (comm->rank != 0 || !comm->known || before->count == 0)
        return;
    row.gain = (int)(1e3 * (1 - after->median_ns / before->median_ns));
    snprintf(row.way, sizeof(row.way), "%s", cecl_nccl_arm_names[learn->trial.arm]);
    cecl_nccl_learned_keep(comm->known, row);
}

static void tell_recalled(const struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm)
{
    const uint32_t arm = learn->trial.arm;
    struct cecl_nccl_verdict row;
    if (comm->rank != 0)
        return;
    if (comm->known && cecl_nccl_learned_recall(comm->known, learn->trial.subject, &row) &&
        strcmp(row.way, cecl_nccl_arm_names[arm]) == 0)
        cecl_log(CECL_LOG_WARN, -1, "step: %s, as %s says (%.1f -> %.1f ms, %+.1f %%)",
                 cecl_nccl_arm_words[arm], cecl_nccl_learned_name(), row.before_us / 1e3,
                 row.after_us / 1e3, -row.gain / 10.0);
    else
        cecl_log(CECL_LOG_WARN, -1, "step: %s, as another rank's CECL_NCCL_LEARNED says",
                 cecl_nccl_arm_words[arm]);
}

static void begin_period(struct cecl_nccl_learn *learn, const struct cecl_nccl_call *call,
                         const struct cecl_nccl_comm *comm)
{
    struct cecl_trial *trial = &learn->trial;
    /* if nothing is tried, the length of periods is not needed */
    const int64_t now = trial->state == CECL_TRIAL_IDLE ? 0 : cecl_now_ns();
    const bool was_running = trial->state == CECL_TRIAL_RUNNING, was_recalled = trial->is_recalled;
    publish(learn);
    const struct cecl_trial_mark here =
        cecl_trial_boundary(trial, learn->period.was_whole, (uint64_t)(now - learn->begun_ns));
    learn->begun_ns = now;
    if (here.is_mark)
        mark(learn, call->stream);
    if (here.slot >= 0)
        note_pending(learn, trial->trials, here.slot);
    if (was_running && trial->has_verdict) {
        tell(learn, comm);
        keep(learn, comm);
    }
    if (trial->is_recalled && !was_recalled)
        tell_recalled(learn, comm);
}

static void follow(struct cecl_nccl_learn *learn, const struct cecl_nccl_call *call,
                   const struct cecl_nccl_comm *comm)
{
    const bool is_first = cecl_period_next(&learn->period, token_of(learn, call));
    if (is_first)
        begin_period(learn, call, comm);
    *(call->reduces ? &learn->reduced : &learn->moved) = learn->period.calls;
    const bool is_found = learn->period.length > 0;
    if (is_found && !learn->is_found)
        cecl_trial_want(&learn->trial, learn->period.pattern, arms_of(learn), CECL_TRIAL_MEAN);
    else if (!is_found && learn->is_found)
        cecl_trial_cancel(&learn->trial);
    const bool has_changed = is_first || is_found != learn->is_found;
    learn->is_found = is_found;
    if (has_changed || learn->period.calls % REPORT_CALLS == 1)
        report(comm);
}

/* Sets the policy of cecl's calls from here on. */
static void set_policy(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm)
{
    const bool has_arm = cecl_trial_has_arm(&learn->trial);
    const int policy = has_arm && learn->trial.arm != WITH_SMS && learn->policies == CECL_SM_ALLOW
                           ? CECL_SM_REDUCE_ONLY
                           : learn->policies;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = policy;
    if (policy != learn->policy &&
        cecl_nccl_library()->ceclSetOptions(comm->ours, &options) == ceclSuccess)
        learn->policy = policy;
}

static enum cecl_nccl_reason reason_of(const struct cecl_nccl_learn *learn,
                                       const struct cecl_nccl_call *call,
                                       const struct cecl_nccl_comm *comm)
{
    const struct cecl_trial *trial = &learn->trial;
    if (!cecl_trial_has_arm(trial))
        return cecl_nccl_gains(call, comm) ? CECL_NCCL_NO_REASON : CECL_NCCL_NO_GAIN;
    if (trial->arm != BY_NCCL && !(trial->arm == MOVES_ALONE && call->reduces))
        return CECL_NCCL_NO_REASON;
    return trial->has_verdict ? CECL_NCCL_NOT_SHORTER : CECL_NCCL_TURN;
}

enum cecl_nccl_reason cecl_nccl_learn_reason(const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm)
{
    const bool is_inside = cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE);
    struct cecl_nccl_learn *learn = is_inside ? comm->learn : NULL;
    enum cecl_nccl_reason reason;
    if (learn) {
        follow(learn, call, comm);
        set_policy(learn, comm);
        reason = reason_of(learn, call, comm);
    } else {
        reason = cecl_nccl_gains(call, comm) ? CECL_NCCL_NO_REASON : CECL_NCCL_NO_GAIN;
    }
    if (is_inside)
        cecl_nccl_comm_leave(comm);
    return reason;
}
