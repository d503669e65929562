/* What ranks find after the fault. */
#include "life.h"

#include "../world/blame.h"

static double limit_of(const struct life *life)
{
    return fault_case_is_seen(life->c) ? PROMPT : PROMPT + life->meeting->timeout_ms / 1000.0;
}

void aftermath_check_time(struct life *life)
{
    const struct meeting *meeting = life->meeting;
    if (!life->is_back && atomic_load(&meeting->fault_began) &&
        now() - meeting->fault_at > limit_of(life))
        life_fail(life, "no error %.1f s after the fault", now() - meeting->fault_at);
}

static bool is_joining(const struct life *life)
{
    return life->comm == NULL && (life->op == JOIN || life->op == JOIN_BY_CALLBACKS);
}

#define ENDING "this process is ending"
#define TELLING 8
/* For each fault: an error's message must contain one of these words. Unused entries are NULL. */
static const char *const telling[FAULTS][TELLING] = {
    [KILLED] = {"ended", "left", "closed the connection", "Connection refused"},
    [EXITS] = {"ended", "left", "closed the connection", "Connection refused", ENDING},
    [LEAVES_CHILD] = {"ended", "left", "closed the connection", "Connection refused"},
    [STOPPED] = {"stopped inside a call", "has waited ", "waits for", "did not come",
                 "did not make this", "missing: ", "no answer", "no connection"},
    [NEVER_CALLS] = {"has waited ", "waits for", "did not come", "did not make this",
                     "missing: ", "no answer", "no connection"},
    [ABORTS] = {"ceclCommAbort was called", "gave up and then ended", "has left"},
    [REVOKES] = {"ceclCommRevoke was called"},
    [LEAVES] = {"has left", "destroyed its communicator"},
};

static bool has_one_of(const char *words, const char *const *list)
{
    bool any = list[0] == NULL;
    for (int i = 0; i < TELLING && list[i]; i++)
        any = any || strstr(words, list[i]);
    return any;
}

static bool tells(const struct fault_case *c, const char *words)
{
    return has_one_of(words, telling[c->fault]) ||
           (!fault_case_is_seen(c) && has_one_of(words, telling[NEVER_CALLS]));
}

static bool is_expected(const struct life *life, ceclResult_t result, const char *words)
{
    /* the faulty rank's call failed because CUDA had ended in its process, and peers repeat its message */
    if (life->c->fault == EXITS && result == ceclUnhandledCudaError)
        return strstr(words, ENDING) != NULL;
    if (is_joining(life) && life->c->fault == OTHER_CALL)
        return result == ceclInvalidArgument || result == ceclRemoteError;
    if (life->c->fault == OTHER_CALL)
        return result == ceclInvalidUsage || result == ceclRemoteError;
    if (!fault_case_is_seen(life->c) && result == ceclTimeout)
        return true;
    /* The process that made the id may have ended before a rank could connect to it. */
    return result == ceclRemoteError || (is_joining(life) && result == ceclInvalidUsage);
}

/* Whether the error is that an exchange by the caller's callbacks failed, which names no rank. */
static bool is_callbacks(const struct life *life, ceclResult_t result)
{
    return is_joining(life) && life->op == JOIN_BY_CALLBACKS && result == ceclSystemError;
}

static void check_blame(struct life *life, const char *words)
{
    const bool made_id = fault_case_maker(life->c) == life->c->faulty && is_joining(life);
    const struct blame blame = blame_of(words, life->c->faulty, made_id);
    if (life->is_faulty || life->c->fault == OTHER_CALL)
        return; /* two ranks that differ name each other */
    if (blame.wrongly >= 0)
        life_fail(life, "the message blames rank %d: %s", blame.wrongly, words);
    if (!blame.names_faulty)
        life_fail(life, "the message does not name rank %d: %s", life->c->faulty, words);
}

/* Whether the call may fail and leave its communicator usable. A split may, even after ranks have agreed on it. */
static bool leaves_usable(const struct life *life)
{
    const bool meets = life->op == ALLOCATE || life->op == PUTS;
    return life->op == SHRINK || (meets && life->c->fault == OTHER_CALL) ||
           (life->op == SPLIT && (life->c->fault == OTHER_CALL || life->c->when == AMID));
}

/* If another thread ends the process, waits for its end: until then any call may fail, because CUDA ends first. */
static void await_exit(const struct life *life)
{
    while (life->is_faulty && life->c->fault == EXITS)
        pause();
}

void aftermath_check_error(struct life *life, ceclResult_t result)
{
    await_exit(life);
    ceclResult_t async = ceclSuccess;
    char *words = life->report->heard;
    snprintf(words, sizeof(life->report->heard), "%s", ceclGetLastError(life->comm));
    if (!atomic_load(&life->meeting->fault_began))
        life_fail(life, "an error before the fault: %d: %s", (int)result, words);
    life->report->took = now() - life->meeting->fault_at;
    aftermath_check_time(life);
    if (life->is_back || is_callbacks(life, result))
        return;
    if (!is_expected(life, result, words))
        life_fail(life, "result %d was not expected: %s", (int)result, words);
    if (!tells(life->c, words))
        life_fail(life, "the message does not name the reason: %s", words);
    check_blame(life, words);
    if (life->comm && !leaves_usable(life) &&
        (ceclCommGetAsyncError(life->comm, &async) != ceclSuccess || async == ceclSuccess))
        life_fail(life, "result %d, but no asynchronous error: %s", (int)result, words);
}

#define IDLE_MS 20

/* Whether peers, if no call is pending, may learn of this fault only in a later call that needs the faulty rank. */
static bool leaves_quietly(enum fault fault)
{
    return fault == LEAVES || fault == EXITS || fault == ABORTS;
}

void aftermath_watch_idle(struct life *life)
{
    const bool is_heard = fault_case_is_seen(life->c) && !leaves_quietly(life->c->fault);
    ceclResult_t async = ceclSuccess;
    for (int ms = 0; is_heard ? async == ceclSuccess : ms < IDLE_MS; ms++) {
        if (ceclCommGetAsyncError(life->comm, &async) != ceclSuccess)
            life_fail(life, "no answer: %s", ceclGetLastError(NULL));
        if (async != ceclSuccess && !is_heard) {
            /* A peer that has been idle long enough makes a call, finds the fault, and tells this rank. */
            if (!strstr(ceclGetLastError(life->comm), " gave up: "))
                life_fail(life, "an error without a reason: %s", ceclGetLastError(life->comm));
            break;
        }
        aftermath_check_time(life);
        usleep(1000);
    }
    if (async != ceclSuccess)
        aftermath_check_error(life, async);
}

/* The rank's number among the survivors, or -1. */
static int new_rank(const struct fault_case *c, int rank)
{
    int place = 0;
    for (int r = 0; r < rank; r++)
        place += fault_case_stays(c, r);
    return fault_case_stays(c, rank) ? place : -1;
}

static void new_one_works(struct life *life, ceclComm_t comm)
{
    int members[MOST_RANKS], count = 0;
    for (int r = 0; r < life->n; r++)
        if (fault_case_stays(life->c, r))
            members[count++] = r;
    life_prove(life, comm, members, count);
}

/* Waits for all ranks that stay: one that is still in a shrink with another list would be refused, and refuse the others. */
static void meet_left(struct life *life, int count)
{
    struct meeting *meeting = life->meeting;
    atomic_fetch_add(&meeting->left, 1);
    while (atomic_load(&meeting->left) < count) {
        for (int r = 0; r < life->n; r++)
            if (atomic_load(&meeting->reports[r].told.failed))
                life_fail(life, "rank %d has failed", r);
        usleep(200);
    }
}

/* Shrinks without excluding the dead rank, which the error must name. Another shrink may follow. */
static void miss_the_dead(struct life *life)
{
    char words[64];
    ceclComm_t made = (ceclComm_t)8;
    const double start = now();
    const ceclResult_t result = ceclCommShrink(life->comm, NULL, 0, &made, NULL);
    snprintf(words, sizeof(words), "rank %d ended unexpectedly; it is not excluded",
             life->c->faulty);
    if (result != ceclRemoteError || !strstr(ceclGetLastError(NULL), words) ||
        made != (ceclComm_t)8 || now() - start > PROMPT)
        life_fail(life, "a shrink without the dead in its list: %d after %.1f s: %s", (int)result,
                  now() - start, ceclGetLastError(NULL));
}

static void go_on(struct life *life)
{
    const struct fault_case *c = life->c;
    const bool excludes = !fault_case_stays(c, c->faulty);
    const int count = excludes ? life->n - 1 : life->n;
    ceclComm_t made = NULL;
    ceclResult_t result;
    STEP(life, "making a new communicator");
    join_set_limits(LONG_TIMEOUT_MS);
    const ceclConfig_t config = join_config(c, LONG_TIMEOUT_MS);
    if (c->op == SHRINK)
        meet_left(life, count);
    /* After JOIN or DESTROY only some ranks may have a communicator, so the survivors join anew. */
    const bool shrinks = life->comm && c->op != JOIN && c->op != DESTROY;
    if (shrinks && c->op != SHRINK && (c->fault == KILLED || c->fault == LEAVES_CHILD))
        miss_the_dead(life);
    if (shrinks)
        result = ceclCommShrink(life->comm, &c->faulty, excludes, &made, &config);
    else
        result = join_by_id(life, 1, count, new_rank(c, life->me), &config, &made);
    if (result != ceclSuccess)
        life_fail(life, "no new communicator: %d: %s", (int)result, ceclGetLastError(NULL));
    STEP(life, "using the new communicator");
    new_one_works(life, made);
}

static void end_old(struct life *life)
{
    STEP(life, "ending the old communicator");
    const double start = now();
    if (life->comm && life->c->seed / 11 % 2)
        (void)!ceclCommAbort(life->comm);
    else if (life->comm)
        (void)!ceclCommDestroy(life->comm);
    life->comm = NULL;
    if (now() - start > PROMPT)
        life_fail(life, "the end of the old communicator took %.1f s", now() - start);
}

static _Noreturn void finish(struct life *life)
{
    attempt_clean(life);
    STEP(life, "looking for what is left");
    life_check_left(life);
    life_end(life);
}

_Noreturn void aftermath_of_survivors(struct life *life)
{
    misdeed_forget(life);
    if (fault_case_stays(life->c, life->me))
        go_on(life);
    end_old(life);
    finish(life);
}

_Noreturn void aftermath_of_leaving(struct life *life)
{
    STEP(life, "leaving");
    (void)!(life->c->fault == ABORTS ? ceclCommAbort(life->comm) : ceclCommDestroy(life->comm));
    life->comm = NULL;
    finish(life);
}

/* If the peers gave up on this rank, its next call must return the communicator's asynchronous error. */
_Noreturn void aftermath_of_the_late(struct life *life)
{
    ceclResult_t async = ceclSuccess;
    STEP(life, "coming back");
    if (ceclCommGetAsyncError(life->comm, &async) != ceclSuccess)
        life_fail(life, "no answer: %s", ceclGetLastError(NULL));
    if (async != ceclSuccess && !life->is_over && ceclBarrier(life->comm, 0) != async)
        life_fail(life, "a call on a failed communicator gave another result");
    end_old(life);
    finish(life);
}
