/* The exhaustion suite: in one step of a communicator of three ranks, one rank is refused one request for memory, a
 * descriptor, a mapping, a thread or a connection. If the step needed the request, the step must fail soon, with an error
 * that names the cause, on all ranks where the manual says so. All resources must be given back, the step must succeed
 * when it is made again, and an all-gather after that must be right in every byte.
 *
 *     exhaust_cases [--list] [--case NAME] [--part I/P] [--jobs J] [--selected]
 *
 * First each step is made without a refusal, to count its requests by rank and by place in src/. Each request is a case,
 * named STEP/RANK/CALL@FILE:LINE/N: the N-th request from that place. NAME may be the beginning of a name. `--selected`,
 * as in CI, runs all requests from places where a refusal once found a defect, and the first request from every other
 * place, on one of the ranks that make it. */

#include "../world/options.h"
#include "life.h"

#define CASE_SECONDS 180.0 /* a case that takes longer counts as hung */
#define MOST_CASES 20000
#define MOST_STEPS 64
#define TRIES 3 /* tries of a case: some requests are made only if threads run in a certain order */
#define NAME_BYTES 128

struct exhaust_case {
    int step, rank;
    struct place place;
    int nth;
    char name[NAME_BYTES];
};

struct run {
    const struct exhaust_case *c; /* NULL if the slot is free */
    struct meeting *meeting;
    pid_t ranks[RANKS];
    int left, try;
    double start;
    bool hung;
};

struct tally {
    int passed, failed, refused, absent;
    double slowest;
    const char *slowest_case;
};

static struct exhaust_case cases[MOST_CASES];
static int ncases;
/* By step and rank: the places whose allocations a step keeps even without a refusal. */
static uintptr_t kept[MOST_STEPS][RANKS][MOST_LEFT + 1];

static int ranks_of(const struct step *step)
{
    return step->one_process ? 1 : RANKS;
}

static void start(struct run *run, const struct exhaust_case *c, int try)
{
    const struct step *step = &steps[c->step];
    const int n = ranks_of(step);
    *run = (struct run){.c = c, .left = n, .try = try, .start = now()};
    run->meeting = shared_memory(sizeof(*run->meeting));
    if (c->nth > 0) {
        run->meeting->ledgers[c->rank].refused_at = c->place.at;
        run->meeting->ledgers[c->rank].refused_call = c->place.call;
        run->meeting->ledgers[c->rank].refused_nth = c->nth;
    }
    for (int r = 0; r < n; r++)
        if ((run->ranks[r] = fork()) == 0) {
            struct life life = {.step = step,
                                .venue = &run->meeting->venue,
                                .meeting = run->meeting,
                                .report = &run->meeting->reports[r],
                                .ledger = &run->meeting->ledgers[r],
                                .me = r,
                                .n = n,
                                .faulty = c->nth > 0 ? c->rank : -1,
                                .kept = kept[c->step][r]};
            for (int i = 0; i < n; i++)
                life.told[i] = &run->meeting->reports[i].told;
            life_run(&life);
        }
}

static void note_end(struct run *run, int rank, int status)
{
    struct report *report = &run->meeting->reports[rank];
    run->ranks[rank] = 0;
    run->left--;
    if (WIFEXITED(status))
        return;
    snprintf(report->told.wrong, sizeof(report->told.wrong), "ended by signal %d%s",
             WTERMSIG(status), run->hung ? ": hung" : "");
    atomic_store(&report->told.failed, 1);
}

static void kill_ranks(const struct run *run)
{
    for (int r = 0; r < RANKS; r++)
        if (run->ranks[r] > 0)
            kill(run->ranks[r], SIGKILL);
}

static struct run *await_one(struct run *runs, int jobs)
{
    for (;;) {
        int status;
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        for (int j = 0; j < jobs; j++) {
            struct run *run = &runs[j];
            for (int r = 0; r < RANKS && run->c && ended > 0; r++)
                if (run->ranks[r] == ended)
                    note_end(run, r, status);
            if (run->c && run->left == 0)
                return run;
            if (run->c && !run->hung && now() - run->start > CASE_SECONDS) {
                run->hung = true;
                kill_ranks(run);
            }
        }
        if (ended <= 0)
            usleep(200);
    }
}

static void name_place(const struct place *place, const char *line, char *name, size_t room)
{
    const char *file = strrchr(line, '/');
    file = file ? file + 1 : line;
    if (*line == '\0' || *file == '?')
        snprintf(name, room, "%s@%#lx", refuse_name(place->call), (unsigned long)place->at);
    else
        snprintf(name, room, "%s@%.*s", refuse_name(place->call), (int)strcspn(file, " \n"), file);
}

/* Asks addr2line for the source line of each case's place. Without addr2line, the name keeps the address. */
static void name_cases(void)
{
    char command[256], path[] = "/tmp/cecl-exhaust-XXXXXX", self[160] = "", line[512];
    const int fd = mkstemp(path);
    FILE *list = fd < 0 ? NULL : fdopen(fd, "w");
    if (!list || readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return;
    for (int i = 0; i < ncases; i++) /* `at` is the return address, just behind the call */
        fprintf(list, "%#lx\n", (unsigned long)cases[i].place.at - 1);
    fclose(list);
    snprintf(command, sizeof(command), "addr2line -e '%s' < %s 2>/dev/null", self, path);
    FILE *lines = popen(command, "r");
    for (int i = 0; i < ncases; i++) {
        char place[96];
        if (!lines || !fgets(line, sizeof(line), lines))
            *line = '\0';
        name_place(&cases[i].place, line, place, sizeof(place));
        snprintf(cases[i].name, NAME_BYTES, "%s/%d/%s/%d", steps[cases[i].step].name, cases[i].rank,
                 place, cases[i].nth);
    }
    if (lines)
        pclose(lines);
    unlink(path);
}

static bool print_faults(const struct run *run)
{
    bool any = false;
    for (int r = 0; r < RANKS; r++)
        any = any || atomic_load(&run->meeting->reports[r].told.failed);
    if (!any)
        return false;
    printf("FAILED %s\n", run->c->name);
    for (int r = 0; r < ranks_of(&steps[run->c->step]); r++) {
        const struct report *report = &run->meeting->reports[r];
        printf("    rank %d, at \"%s\": %s%s\n", r, report->told.step ? report->told.step : "start",
               atomic_load(&report->told.failed) ? "FAULT: " : "",
               atomic_load(&report->told.failed) ? report->told.wrong : report->words);
    }
    fflush(stdout);
    return true;
}

static void print_passed(const struct run *run)
{
    printf("passed %s\n", run->c->name);
    for (int r = 0; r < ranks_of(&steps[run->c->step]); r++) {
        const struct report *report = &run->meeting->reports[r];
        printf("    rank %d: result %d%s, %.3f s: %s\n", r, (int)report->result,
               report->async != ceclSuccess ? ", failed" : "", report->took, report->words);
    }
}

static void note_time(const struct run *run, struct tally *tally)
{
    for (int r = 0; r < RANKS; r++)
        if (run->meeting->reports[r].took > tally->slowest) {
            tally->slowest = run->meeting->reports[r].took;
            tally->slowest_case = run->c->name;
        }
}

static bool is_refused(const struct run *run)
{
    return atomic_load(&run->meeting->ledgers[run->c->rank].refused) > 0;
}

static void end_run(struct run *run)
{
    munmap(run->meeting, sizeof(*run->meeting));
    run->c = NULL;
}

/* Counts the case's result; if its request was not made, runs the case again. */
static void judge(struct run *run, const struct options *options, struct tally *tally)
{
    const struct exhaust_case *c = run->c;
    const int try = run->try;
    if (print_faults(run)) {
        tally->failed++;
    } else if (!is_refused(run)) {
        end_run(run);
        if (try < TRIES)
            start(run, c, try + 1);
        else
            tally->absent++;
        return;
    } else {
        tally->passed++;
        note_time(run, tally);
        if (options->only)
            print_passed(run);
    }
    end_run(run);
}

static void add_cases(int step, int rank, const struct ledger *ledger)
{
    for (int p = 0; p < ledger->nplaces; p++)
        for (int nth = 1; nth <= ledger->places[p].count; nth++)
            if (ncases < MOST_CASES)
                cases[ncases++] = (struct exhaust_case){
                    .step = step, .rank = rank, .place = ledger->places[p], .nth = nth};
}

/* Makes a step without a refusal, and adds a case for each of its requests. */
static bool count_step(int step)
{
    const struct exhaust_case none = {.step = step};
    struct run run;
    struct exhaust_case named = none;
    snprintf(named.name, NAME_BYTES, "%s, without a refusal", steps[step].name);
    start(&run, &named, 0);
    await_one(&run, 1);
    const bool failed = print_faults(&run);
    for (int r = 0; r < ranks_of(&steps[step]) && !failed; r++) {
        memcpy(kept[step][r], run.meeting->reports[r].left, sizeof(kept[step][r]));
        add_cases(step, r, &run.meeting->ledgers[r]);
    }
    end_run(&run);
    return !failed;
}

/* Steps, and calls in source files, where a refusal once found a defect. */
static const struct {
    const char *step, *place;
} found[] = {
    {"join", "connect@tcp.c"},
    {"join", "socket@net.c"},
    {"join", "connect@inbox.c"},
    {"join", "sendmsg@inbox.c"},
    {"join", "fallocate@meeting.c"},
    {"join-callbacks", "open@introduce.c"},
    {"join-callbacks", "recvmsg@inbox.c"},
    {"join-tuned", "fopen@tuning_file.c"},
    {"group", "pthread_key_create@"},
    {"gather-compared", "realloc@grow.h"},
    {"exchange-sizes", "realloc@grow.h"},
    {"gather-files", "recvmsg@inbox.c"},
    {"gather-files", "opendir@host_region.c"},
    {"gather-private", "open@host_maps.c"},
};

enum { FOUND = sizeof(found) / sizeof(found[0]) };

static bool is_found(const struct exhaust_case *c, int i)
{
    return strcmp(steps[c->step].name, found[i].step) == 0 && strstr(c->name, found[i].place);
}

static bool has_found(const struct exhaust_case *c)
{
    int i = 0;
    while (i < FOUND && !is_found(c, i))
        i++;
    return i < FOUND;
}

/* Counts rows of `found` that match no case, because the library now asks elsewhere. */
static int count_lost(void)
{
    int lost = 0;
    for (int i = 0; i < FOUND; i++) {
        int c = 0;
        while (c < ncases && !is_found(&cases[c], i))
            c++;
        if (c == ncases)
            fprintf(stderr, "no case is %s %s any more\n", found[i].step, found[i].place);
        lost += c == ncases;
    }
    return lost;
}

static bool is_selected(const struct exhaust_case *c)
{
    int below = 0, all = 0; /* how many ranks request from this place: those below c->rank; all */
    for (int i = 0; i < ncases && c->nth == 1; i++) {
        const struct exhaust_case *o = &cases[i];
        const bool is_its = o->step == c->step && o->nth == 1 && o->place.at == c->place.at &&
                            o->place.call == c->place.call;
        all += is_its;
        below += is_its && o->rank < c->rank;
    }
    return (all > 0 && (int)(c->place.at % (uintptr_t)all) == below) || has_found(c);
}

/* A case's part follows from its name, not its number: each part is a run of its own, and runs number requests
 * differently. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    while (*name)
        hash = (hash ^ (unsigned char)*name++) * 16777619u;
    return hash >> 8;
}

static bool is_chosen(int index, const struct options *options)
{
    if (options->only)
        return strncmp(cases[index].name, options->only, strlen(options->only)) == 0;
    return hash_of(cases[index].name) % (uint32_t)options->parts == (uint32_t)options->part &&
           (!options->selects || is_selected(&cases[index]));
}

static void run_all(const struct options *options, struct tally *tally)
{
    struct run runs[OPTIONS_MOST_JOBS] = {0};
    int busy = 0;
    for (int i = 0; i < ncases; i++) {
        if (!is_chosen(i, options))
            continue;
        for (int j = 0; j < options->jobs; j++)
            if (!runs[j].c) {
                start(&runs[j], &cases[i], 1);
                busy++;
                break;
            }
        while (busy == options->jobs) {
            struct run *run = await_one(runs, options->jobs);
            judge(run, options, tally);
            busy -= !run->c;
        }
    }
    while (busy > 0) {
        struct run *run = await_one(runs, options->jobs);
        judge(run, options, tally);
        busy -= !run->c;
    }
}

static void write_tuning(char *path)
{
    const int fd = mkstemp(path);
    const char text[] = "cecl-tuning 1\n";
    if (fd < 0 || write(fd, text, sizeof(text) - 1) < 0)
        exit(2);
    close(fd);
    setenv("CECL_TUNING", path, 1);
}

static bool is_wanted(int step, const struct options *options)
{
    const char *name = steps[step].name;
    return !options->only || strncmp(options->only, name, strlen(name)) == 0;
}

int main(int argc, char **argv)
{
    struct options options = {.parts = 1, .jobs = 4, .runs = 1};
    struct tally tally = {.slowest_case = "none"};
    char tuning[] = "/tmp/cecl-exhaust-tuning-XXXXXX";
    if (!options_read(argc, argv, "[--list] [--case NAME] [--part I/P] [--jobs J] [--selected]",
                      &options))
        return 2;
    const double began = now();
    write_tuning(tuning);
    for (int s = 0; s < nsteps; s++)
        if (is_wanted(s, &options))
            tally.failed += !count_step(s);
    name_cases();
    if (options.selects && !options.only)
        tally.failed += count_lost();
    for (int i = 0; i < ncases && options.lists; i++)
        if (is_chosen(i, &options))
            printf("%s\n", cases[i].name);
    if (!options.lists)
        run_all(&options, &tally);
    unlink(tuning);
    printf("%d requests; part %d of %d%s: %d passed, %d failed, %d were not made; %.1f s; slowest "
           "step "
           "%.3f s (%s)\n",
           ncases, options.part, options.parts, options.selects ? ", selected" : "", tally.passed,
           tally.failed, tally.absent, now() - began, tally.slowest, tally.slowest_case);
    return tally.failed > 0 || (tally.passed == 0 && !options.lists);
}
