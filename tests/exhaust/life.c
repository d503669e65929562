/* A rank's life: prepares the step, makes it while one request of one rank is refused, reports the result, makes the
 * step again if it failed, and makes further calls. */
#include "life.h"

#include "../world/blame.h"

/* Seconds within which every rank must learn of a refusal: enough on a busy machine, and less than TIMEOUT_MS. */
#define LIMIT 45.0

static void set_environment(const struct step *step)
{
    char text[64];
    setenv("CECL_DEVICE", "host", 1);
    snprintf(text, sizeof(text), "%d", TIMEOUT_MS);
    setenv("CECL_INIT_TIMEOUT_MS", text, 1);
    if (!step->tuned)
        unsetenv("CECL_TUNING"); /* set by the leading process */
    if (step->compared)
        setenv("CECL_CHECK", "1", 1);
    if (step->urgent)
        setenv("CECL_URGENT", "1", 1);
}

static void begin(struct life *life)
{
    const struct step *step = life->step;
    life_begin();
    set_environment(step);
    refuse_in(life->ledger);
    census_take(&life->start);
    STEP(life, "coming to the step");
    if (!step->joins && !step->one_process) {
        if (step_join(life) != ceclSuccess)
            life_fail(life, "cannot join: %s", ceclGetLastError(NULL));
        life_open_buffers(life);
        if (step->prepare)
            step->prepare(life);
    }
    life_meet(life);
}

static ceclResult_t async_of(const struct life *life)
{
    ceclResult_t async = ceclSuccess;
    if (!life->comm)
        return ceclSuccess;
    return ceclCommGetAsyncError(life->comm, &async) == ceclSuccess ? async : ceclInternalError;
}

static bool was_refused(const struct life *life)
{
    return atomic_load(&life->ledger->refused) > 0;
}

static void keep_words(struct life *life)
{
    snprintf(life->report->words, WORDS_BYTES, "%s", ceclGetLastError(life->comm));
}

#define HEARING_MS 200 /* peers that fail do so within this time, even if they have other work */

static bool all_have_errors(const struct life *life)
{
    for (int ms = 0; ms < HEARING_MS; ms++) {
        if (atomic_load(&life->meeting->errors) == life->n)
            return true;
        usleep(1000);
    }
    return false;
}

static bool calls_alone(const struct life *life)
{
    if (life->step->ends || !was_refused(life) || async_of(life) != ceclSuccess)
        return false;
    return life->step->outcome == ALONE ||
           (life->step->outcome == EITHER && !all_have_errors(life));
}

/* Makes the step. A rank that was refused alone, and whose communicator still works, repeats the call alone. */
static ceclResult_t run(struct life *life)
{
    ceclResult_t result = step_make(life);
    if (result == ceclSuccess)
        return result;
    keep_words(life);
    atomic_fetch_add(&life->meeting->errors, 1);
    if (!calls_alone(life))
        return result;
    life->report->result = result;
    result = step_make(life);
    if (result != ceclSuccess && async_of(life) == ceclSuccess)
        life_fail(life, "refused, and failed again without a refusal: %s; before: %s",
                  ceclGetLastError(life->comm), life->report->words);
    return result;
}

static bool any_failed(const struct life *life)
{
    bool any = false;
    for (int r = 0; r < life->n; r++)
        any = any || life->meeting->reports[r].async != ceclSuccess;
    return any;
}

static void make_step(struct life *life)
{
    struct report *report = life->report;
    STEP(life, "the step");
    refuse_arm(true);
    const double start = now();
    const ceclResult_t result = run(life);
    report->took = now() - start;
    if (result != ceclSuccess || report->result == ceclSuccess)
        report->result = result;
    report->async = async_of(life);
    life_meet(life);
    refuse_arm(false);
    /* A failure of the communicator reaches all ranks, including those whose call had ended. */
    while (any_failed(life) && async_of(life) == ceclSuccess && life->comm)
        if (now() - start > LIMIT + report->took)
            life_fail(life, "a peer's communicator has failed, but not this one");
    if (any_failed(life) && report->result == ceclSuccess)
        keep_words(life);
    life_meet(life);
    report->async = async_of(life);
    life_meet(life);
}

/* Whether a refused rank's own message names the cause: it contains at least one of these words. */
static bool names_cause(const struct life *life, const char *words)
{
    const int call = life->ledger->refused_call;
    return strstr(words, strerror(refuse_errno(call))) || strstr(words, "memory") ||
           strstr(words, "descriptor") || strstr(words, "thread");
}

static void check_own(struct life *life)
{
    const struct report *report = life->report;
    const bool is_peers =
        life->n == 1 && report->result == ceclRemoteError; /* another rank here was refused */
    if (report->result != ceclOutOfMemory && report->result != ceclSystemError && !is_peers)
        life_fail(life, "refused a resource, but the result is %d: %s", (int)report->result,
                  report->words);
    if (!names_cause(life, report->words))
        life_fail(life, "the message does not name the cause: %s", report->words);
    if (strstr(report->words, "ended") || strstr(report->words, "left while"))
        life_fail(life, "the message blames a peer: %s", report->words);
}

/* Whether the error is that an exchange by the caller's callbacks failed, which names no rank. */
static bool is_callbacks(const struct report *report)
{
    return report->result == ceclSystemError && strstr(report->words, "the caller's allGather");
}

/* Whether the words are those of the refused rank, which a peer repeats after "rank N: ". */
static bool repeats_refused(const struct life *life, const char *words)
{
    char prefix[16];
    snprintf(prefix, sizeof(prefix), "rank %d: ", life->faulty);
    return strstr(words, prefix) != NULL;
}

static void check_peers(struct life *life)
{
    const struct report *report = life->report;
    const struct blame blame = blame_of(report->words, life->faulty, life->faulty == 0);
    if (is_callbacks(report) || repeats_refused(life, report->words))
        return;
    if (report->result != ceclRemoteError && report->result != ceclOutOfMemory &&
        report->result != ceclSystemError)
        life_fail(life, "a peer was refused something, but the result is %d: %s",
                  (int)report->result, report->words);
    if (blame.wrongly >= 0)
        life_fail(life, "the message blames rank %d: %s", blame.wrongly, report->words);
    if (!blame.names_faulty && !strstr(report->words, "the root"))
        life_fail(life, "the message does not name rank %d: %s", life->faulty, report->words);
    if (strstr(report->words, "ended"))
        life_fail(life, "the message says that a rank has ended: %s", report->words);
}

static void check_words(struct life *life)
{
    const bool heard = life->report->result != ceclSuccess || life->report->words[0] != '\0';
    if (life->report->result == ceclSuccess && heard)
        life->report->result = life->report->async;
    if (life->report->result == ceclSuccess || life->faulty < 0)
        return;
    if (life->me == life->faulty)
        check_own(life);
    else
        check_peers(life);
}

static void check_time(struct life *life)
{
    if (life->report->took > LIMIT)
        life_fail(life, "%.2f s until result %d: %s", life->report->took, (int)life->report->result,
                  life->report->words);
}

/* How many ranks failed, not counting those that repeated the call alone. */
static int count_failed(const struct life *life)
{
    int count = 0;
    for (int r = 0; r < life->n; r++)
        count += life->meeting->reports[r].result != ceclSuccess;
    return count;
}

static void check_alike(struct life *life)
{
    const int failed = count_failed(life);
    if (life->faulty < 0 && failed > 0)
        life_fail(life, "an error without a refusal: %d: %s", (int)life->report->result,
                  life->report->words);
    if (life->step->outcome == TOGETHER && failed > 0 && failed < life->n)
        life_fail(life, "%d of %d ranks failed; this one: %d: %s", failed, life->n,
                  (int)life->report->result, life->report->words);
    if (life->step->outcome == EITHER && failed > 1 && failed < life->n)
        life_fail(life, "%d of %d ranks failed", failed, life->n);
    if (life->step->outcome == ALONE && life->me != life->faulty && !any_failed(life) &&
        !life->step->ends && life->report->result != ceclSuccess)
        life_fail(life, "a peer was refused something, and this rank fails alone: %d: %s",
                  (int)life->report->result, life->report->words);
}

static void join_anew(struct life *life)
{
    STEP(life, "joining anew");
    if (step_join(life) != ceclSuccess)
        life_fail(life, "no new communicator: %s", ceclGetLastError(NULL));
}

static void shrink_failed(struct life *life)
{
    ceclComm_t made = NULL;
    STEP(life, "making a new communicator of the failed one");
    if (ceclCommShrink(life->comm, NULL, 0, &made, NULL) != ceclSuccess)
        life_fail(life, "no new communicator: %s", ceclGetLastError(NULL));
    (void)!ceclCommDestroy(life->comm);
    life->comm = made;
}

static void call_again(struct life *life)
{
    STEP(life, "the step once more");
    life->attempt++;
    const ceclResult_t result = step_make(life);
    if (result != ceclSuccess)
        life_fail(life, "once more, without a refusal: %d: %s", (int)result,
                  ceclGetLastError(life->comm));
}

static void go_on(struct life *life)
{
    const bool failed = any_failed(life);
    const int wants = count_failed(life);
    life_meet(life); /* no rank changes its report while another rank reads it */
    if (life->step->one_process)
        return;
    if (life->step->ends) {
        if (life->comm)
            (void)!ceclCommDestroy(life->comm);
        join_anew(life);
    } else if (failed && life->comm) {
        shrink_failed(life);
    } else if (wants == life->n && life->step->outcome != ALONE) {
        call_again(life);
    }
    STEP(life, "a gather afterwards");
    life_prove(life, life->comm, NULL, life->n);
}

/* Lists allocations that are kept even if nothing is refused: the ended communicator's message, a thread's group. */
static void list_left(struct life *life)
{
    uintptr_t *left = life->report->left, at;
    for (int i = 0; i < MOST_LEFT && refuse_live(left, &at) > 0; i++)
        left[i] = at;
}

static _Noreturn void finish(struct life *life)
{
    uintptr_t at;
    step_clean(life);
    STEP(life, "looking for what is left");
    life_check_left(life);
    if (life->faulty < 0)
        list_left(life);
    const int count = refuse_live(life->faulty < 0 ? life->report->left : life->kept, &at);
    if (count > 0)
        life_fail(life, "left are %d allocations; `addr2line -e exhaust_cases %#lx` tells one",
                  count, (unsigned long)at - 1);
    life_end(life);
}

_Noreturn void life_run(struct life *life)
{
    begin(life);
    make_step(life);
    check_words(life);
    check_time(life);
    life_meet(life);
    check_alike(life);
    go_on(life);
    finish(life);
}
