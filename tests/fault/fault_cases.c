/* The fault suite: one rank of a small communicator commits a fault at one point of one call. Each other rank checks
 * that its calls end in time, its error names the faulty rank and no other, every successful result is right, all
 * resources are given back, and the survivors' new communicator works. If the faulty rank makes another call, error
 * texts are not read: ranks that differ name each other.
 *
 *     fault_cases [--list] [--case N] [--part I/P] [--jobs J] [--seed S]
 *
 * CECL_TEST_DEVICE=cuda runs the cases on GPUs, except those with registered memory. With fewer GPUs than ranks, set
 * CECL_SHARE_GPU=1. */
#include "life.h"

#include "../world/options.h"

#define CASE_SECONDS 180.0 /* a case that takes longer counts as hung */
#define MOST_TRIES 5       /* of a case in which a time limit passes before the fault */

struct tally {
    int passed, failed, known, repeated;
    double slowest; /* most seconds until peers get an error, if the fault leaves evidence */
    int slowest_case;
};

struct run {
    pid_t leader;
    const struct fault_case *c;
    struct meeting *meeting;
    int tries;
};

static bool is_done(const struct fault_case *c, const struct meeting *meeting, int rank)
{
    const bool goes = rank == c->faulty && !fault_case_stays(c, rank);
    return goes || atomic_load(&meeting->reports[rank].told.done);
}

static bool all_done(const struct fault_case *c, const struct meeting *meeting)
{
    bool all = true;
    for (int r = 0; r < c->nranks; r++)
        all = all && is_done(c, meeting, r);
    return all;
}

static void kill_child(const struct meeting *meeting)
{
    if (atomic_load(&meeting->child) > 0)
        kill(atomic_load(&meeting->child), SIGKILL);
}

/* When the peers are done, the rank that stayed away continues or dies, and the child that keeps descriptors dies. */
static void release(const struct fault_case *c, struct meeting *meeting, const pid_t *ranks)
{
    atomic_store(&meeting->released, 1);
    if (c->fault == STOPPED && ranks[c->faulty] > 0) /* kill(0) signals this whole process group */
        kill(ranks[c->faulty], c->seed % 2 ? SIGCONT : SIGKILL);
    kill_child(meeting);
}

/* Notes which ranks have ended, and records those that ended without a report. */
static void reap(const struct fault_case *c, struct meeting *meeting, pid_t *ranks, int *left)
{
    /* again: on a busy machine the rank may have stopped only after the first SIGCONT */
    if (c->fault == STOPPED && c->seed % 2 && atomic_load(&meeting->released) &&
        ranks[c->faulty] > 0)
        kill(ranks[c->faulty], SIGCONT);
    for (int r = 0; r < c->nranks; r++) {
        int status = 0;
        if (ranks[r] == 0 || waitpid(ranks[r], &status, WNOHANG) != ranks[r])
            continue;
        ranks[r] = 0;
        --*left;
        struct report *report = &meeting->reports[r];
        if (atomic_load(&report->told.done) || is_done(c, meeting, r))
            continue;
        snprintf(report->told.wrong, sizeof(report->told.wrong), "ended with status %#x",
                 (unsigned)status);
        report->told.failed_at = now();
        atomic_store(&report->told.failed, 1);
        atomic_store(&report->told.done, 1);
    }
}

static void kill_all(const struct fault_case *c, const struct meeting *meeting, const pid_t *ranks)
{
    for (int r = 0; r < c->nranks; r++)
        if (ranks[r] > 0) /* kill(0) signals this whole process group */
            kill(ranks[r], SIGKILL);
    kill_child(meeting);
}

static void give_up(const struct fault_case *c, struct meeting *meeting, const pid_t *ranks)
{
    kill_all(c, meeting, ranks);
    for (int r = 0; r < c->nranks; r++) {
        struct report *report = &meeting->reports[r];
        if (ranks[r] == 0)
            continue;
        report->told.failed_at = now();
        snprintf(report->told.wrong, sizeof(report->told.wrong), "hung");
        atomic_store(&report->told.failed, 1);
    }
}

/* Starts a rank. Returns its process id, or 0 if fork failed. */
static pid_t start_rank(const struct fault_case *c, struct meeting *meeting, int rank)
{
    const pid_t process = fork();
    if (process == 0)
        life_run(c, meeting, rank);
    if (process > 0)
        return process;
    struct report *report = &meeting->reports[rank];
    snprintf(report->told.wrong, sizeof(report->told.wrong), "no process: fork failed");
    atomic_store(&report->told.failed, 1);
    atomic_store(&report->told.done, 1);
    return 0;
}

/* Whether a rank failed before the fault: then the case can show nothing. */
static bool is_spoilt(const struct fault_case *c, const struct meeting *meeting)
{
    bool failed = false;
    for (int r = 0; r < c->nranks; r++)
        failed = failed || atomic_load(&meeting->reports[r].told.failed);
    return failed && !atomic_load(&meeting->fault_began);
}

static _Noreturn void lead(const struct fault_case *c, struct meeting *meeting)
{
    pid_t ranks[MOST_RANKS];
    int left = c->nranks;
    bool released = false;
    const double start = now();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int r = 0; r < c->nranks; r++)
        if ((ranks[r] = start_rank(c, meeting, r)) == 0)
            left--;
    while (left > 0) {
        reap(c, meeting, ranks, &left);
        if (!released && all_done(c, meeting)) {
            release(c, meeting, ranks);
            released = true;
        }
        if (is_spoilt(c, meeting)) {
            kill_all(c, meeting, ranks);
            break;
        }
        if (now() - start > CASE_SECONDS) {
            give_up(c, meeting, ranks);
            break;
        }
        usleep(1000);
    }
    _exit(0);
}

/* Prints what each rank reported, in the order in which ranks failed. */
static void print_ranks(const struct run *run)
{
    for (int r = 0; r < run->c->nranks; r++) {
        const struct report *report = &run->meeting->reports[r];
        if (atomic_load(&report->told.failed))
            printf("    rank %d, at \"%s\", t = %.3f s after the fault: %s\n", r,
                   report->told.step ? report->told.step : "start",
                   report->told.failed_at - run->meeting->fault_at, report->told.wrong);
        else
            printf("    rank %d, at \"%s\": %s (%.3f s)\n", r,
                   report->told.step ? report->told.step : "start", report->heard, report->took);
    }
}

static const struct report *first_failure(const struct run *run)
{
    const struct report *first = NULL;
    for (int r = 0; r < run->c->nranks; r++) {
        const struct report *report = &run->meeting->reports[r];
        if (atomic_load(&report->told.failed) &&
            (!first || report->told.failed_at < first->told.failed_at))
            first = report;
    }
    return first;
}

/* Whether a time limit passed before the fault, or before all other ranks had come, as these short limits do on a busy
 * machine. A rank that comes after the limit of the id's maker finds no listener, and may report that before the maker
 * reports the limit. */
static bool was_held_up(const struct run *run)
{
    const struct report *failure = first_failure(run);
    const bool before = failure && (!atomic_load(&run->meeting->fault_began) ||
                                    failure->told.failed_at < run->meeting->fault_at),
               late = failure && !fault_case_is_seen(run->c) &&
                      (strstr(failure->told.wrong, "the message blames rank") ||
                       strstr(failure->told.wrong, "no answer from the rank that made")) &&
                      strstr(failure->told.wrong, "TIMEOUT_MS");
    return late || (before && (strstr(failure->told.wrong, "TIMEOUT_MS") ||
                               strstr(failure->told.wrong, "no process listens at its address")));
}

static void note_slowest(const struct run *run, struct tally *tally)
{
    for (int r = 0; r < run->c->nranks && fault_case_is_seen(run->c); r++)
        if (run->meeting->reports[r].took > tally->slowest) {
            tally->slowest = run->meeting->reports[r].took;
            tally->slowest_case = run->c->number;
        }
}

static void judge(const struct run *run, const struct options *options, struct tally *tally)
{
    const struct fault_case *c = run->c;
    const struct report *failure = first_failure(run);
    const char *known = failure ? fault_case_known(c, failure->told.wrong) : NULL;
    char name[128];
    fault_case_name(c, name, sizeof(name));
    tally->passed += !failure;
    tally->known += known != NULL;
    tally->failed += failure && !known;
    note_slowest(run, tally);
    if (failure || options->only)
        printf("case %d (%s; seed %u) %s%s\n", c->number, name, c->seed,
               !failure ? "passed"
               : known  ? "failed with a known defect: "
                        : "FAILED",
               known ? known : "");
    if ((failure && !known) || options->only)
        print_ranks(run);
    fflush(stdout);
}

static void start(struct run *run, const struct fault_case *c, int tries)
{
    *run = (struct run){.c = c, .tries = tries};
    run->meeting = shared_memory(sizeof(*run->meeting));
    run->meeting->timeout_ms = TIMEOUT_MS << tries;
    run->leader = fork();
    if (run->leader == 0)
        lead(c, run->meeting);
}

static void close_run(struct run *run, const struct options *options, struct tally *tally)
{
    struct meeting *meeting = run->meeting;
    const bool again = was_held_up(run) && run->tries + 1 < MOST_TRIES;
    if (!again)
        judge(run, options, tally);
    run->leader = 0;
    if (again) {
        tally->repeated++;
        start(run, run->c, run->tries + 1);
    }
    munmap(meeting, sizeof(*meeting));
}

static void end_one(struct run *runs, const struct options *options, struct tally *tally)
{
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended > 0 && status != 0) { /* its own failure: after a failed case it ends with 0 */
        fprintf(stderr, "the process that starts a case's ranks ended with status %#x\n",
                (unsigned)status);
        tally->failed++;
    }
    for (int j = 0; j < options->jobs; j++)
        if (runs[j].leader == ended && ended > 0)
            close_run(&runs[j], options, tally);
}

static struct run *find_free(struct run *runs, int jobs)
{
    for (int j = 0; j < jobs; j++)
        if (runs[j].leader == 0)
            return &runs[j];
    return NULL;
}

/* Whether to run the case. In this suite registered memory consists of mapped files, which GPUs do not support. */
static bool is_chosen(const struct fault_case *c, const struct options *options)
{
    if (c->op == REGISTER && life_on_gpus())
        return false;
    return options->only ? c->number == atoi(options->only)
                         : c->number % options->parts == options->part;
}

static void run_all(const struct fault_case *cases, int count, const struct options *options,
                    struct tally *tally)
{
    struct run runs[OPTIONS_MOST_JOBS] = {0};
    for (int i = 0; i < count; i++) {
        if (!is_chosen(&cases[i], options))
            continue;
        while (!find_free(runs, options->jobs))
            end_one(runs, options, tally);
        start(find_free(runs, options->jobs), &cases[i], 0);
    }
    for (int j = 0; j < options->jobs; j++)
        while (runs[j].leader)
            end_one(runs, options, tally);
}

static void list_all(const struct fault_case *cases, int count)
{
    char name[128];
    for (int i = 0; i < count; i++) {
        fault_case_name(&cases[i], name, sizeof(name));
        printf("%d  %s; seed %u\n", cases[i].number, name, cases[i].seed);
    }
}

int main(int argc, char **argv)
{
    struct options options = {.parts = 1, .jobs = 4, .runs = 1, .seed = 1};
    struct tally tally = {0};
    int count = 0;
    if (!options_read(argc, argv, "[--list] [--case N] [--part I/P] [--jobs J] [--seed S]",
                      &options))
        return 2;
    const struct fault_case *cases = fault_cases((uint32_t)options.seed, &count);
    if (options.lists) {
        list_all(cases, count);
        return 0;
    }
    const double began = now();
    printf("part %d of %d of %d cases, seed %llu\n", options.part, options.parts, count,
           (unsigned long long)options.seed);
    run_all(cases, count, &options, &tally);
    printf("%d passed, %d failed, %d failed with a known defect; %d times a time limit passed "
           "before a case's fault, and the case was run again; %.1f s; slowest error %.3f s after "
           "its fault (case %d)\n",
           tally.passed, tally.failed, tally.known, tally.repeated, now() - began, tally.slowest,
           tally.slowest_case);
    return tally.failed > 0 || tally.passed + tally.known == 0;
}
