/* kill_hunt: runs in which ranks are killed during random calls of all kinds. The survivors must get no wrong byte from
 * a successful call, learn of the deaths, make new communicators, and continue.
 *
 *    kill_hunt [--runs N] [--seed S] [--jobs J]
 *
 * A run has 2 to 8 ranks on the host device. Run i has seed S + i - 1, which decides the number of ranks, their
 * settings, the calls, and who is killed when. Timing does not follow from the seed: a failed run may pass when it is
 * repeated. */
#include <errno.h>
#include <fcntl.h>

#include "../forked.h"
#include "../world/options.h"
#include "arena.h"

#define RUN_SECONDS 180.0 /* a run that takes longer counts as hung */
#define LONGEST_US 16     /* a kill is delayed by at most 2 to the power of this, in us */

static uint64_t next(uint64_t *x)
{
    *x += 0x9e3779b97f4a7c15u;
    uint64_t z = (*x ^ (*x >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int draw_seat(int *seats, int *left, uint64_t *x)
{
    const int at = (int)(next(x) % (uint64_t)*left), seat = seats[at];
    seats[at] = seats[--*left];
    return seat;
}

void run_draw(struct run *run, uint64_t seed)
{
    uint64_t x = seed;
    int seats[SEATS], left;
    *run = (struct run){.seed = seed, .nranks = 2 + (int)(next(&x) % (SEATS - 1))};
    left = run->nranks;
    for (int s = 0; s < left; s++)
        seats[s] = s;
    const int count = 1 + (int)(next(&x) % HUNTS);
    while (run->count < count && left > 1) {
        struct hunt *hunt = &run->hunts[run->count++];
        const int kills = 1 + (int)(next(&x) % KILLS);
        hunt->pattern = (enum pattern)(next(&x) % PATTERNS);
        while (hunt->count < kills && left > 1) {
            hunt->delays_us[hunt->count] =
                (unsigned)(next(&x) % ((uint64_t)2 << next(&x) % LONGEST_US));
            hunt->victims[hunt->count++] = draw_seat(seats, &left, &x);
        }
    }
}

struct lead {
    struct run run;
    struct arena *arena;
    pid_t ranks[SEATS];
    int left, log; /* number of live ranks; a file for the ranks' output */
    bool failed, gave_up;
    double begun[HUNTS][2];
};

static void start_ranks(struct lead *lead)
{
    for (int s = 0; s < lead->run.nranks; s++) {
        lead->ranks[s] = fork();
        if (lead->ranks[s] == 0) {
            dup2(lead->log, 1);
            dup2(lead->log, 2);
            life_run(&lead->run, lead->arena, s);
        }
        if (lead->ranks[s] < 0) {
            perror("fork");
            exit(2);
        }
        lead->left++;
    }
}

static void kill_if_due(struct lead *lead, int h, int i)
{
    const struct hunt *hunt = &lead->run.hunts[h];
    const bool in_shrink = hunt->pattern == IN_SHRINK && i == hunt->count - 1;
    double *begun = &lead->begun[h][in_shrink];
    const int seat = hunt->victims[i];
    if (*begun == 0 && atomic_load(&lead->arena->begun[h][in_shrink]))
        *begun = now();
    if (*begun > 0 && now() - *begun >= hunt->delays_us[i] * 1e-6 && lead->ranks[seat] > 0)
        kill(lead->ranks[seat], SIGKILL);
}

static void kill_all(struct lead *lead)
{
    for (int s = 0; s < lead->run.nranks; s++)
        if (lead->ranks[s] > 0)
            kill(lead->ranks[s], SIGKILL);
}

/* Whether a hunt with this seat as a victim has begun, so that a death is as planned. */
static bool was_killed(const struct lead *lead, int seat)
{
    for (int h = 0; h < lead->run.count; h++)
        for (int i = 0; i < lead->run.hunts[h].count; i++)
            if (lead->run.hunts[h].victims[i] == seat)
                return lead->begun[h][0] > 0 || lead->begun[h][1] > 0;
    return false;
}

static void reap(struct lead *lead)
{
    int status;
    for (int s = 0; s < lead->run.nranks; s++) {
        if (lead->ranks[s] == 0 || waitpid(lead->ranks[s], &status, WNOHANG) != lead->ranks[s])
            continue;
        lead->ranks[s] = 0;
        lead->left--;
        const bool as_planned = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (as_planned && was_killed(lead, s))
            atomic_store(&lead->arena->dead[s], 1);
        else if (status != 0 && !lead->failed) {
            dprintf(lead->log, "seat %d ended with status %#x, at \"%s\"\n", s, (unsigned)status,
                    lead->arena->doing[s]);
            lead->failed = true;
        }
    }
}

/* Prints why the run has failed, and kills its ranks. Only the first call does so. */
static void give_up(struct lead *lead, const char *why)
{
    if (lead->gave_up)
        return;
    lead->gave_up = true;
    for (int s = 0; s < lead->run.nranks; s++)
        if (lead->ranks[s] > 0)
            dprintf(lead->log, "seat %d: %s, at \"%s\"\n", s, why, lead->arena->doing[s]);
    lead->failed = true;
    kill_all(lead);
}

static void print_plan(const struct run *run)
{
    printf("run with seed %llu FAILED: %d ranks", (unsigned long long)run->seed, run->nranks);
    for (int h = 0; h < run->count; h++)
        for (int i = 0; i < run->hunts[h].count; i++)
            printf("; hunt %d kills seat %d after %u us%s", h, run->hunts[h].victims[i],
                   run->hunts[h].delays_us[i],
                   run->hunts[h].pattern == IN_SHRINK && i == run->hunts[h].count - 1
                       ? " of a shrink"
                       : "");
    printf("\n");
}

static void print_log(int log)
{
    char part[4096];
    ssize_t got;
    fflush(stdout);
    lseek(log, 0, SEEK_SET);
    while ((got = read(log, part, sizeof(part))) > 0)
        (void)!write(1, part, (size_t)got);
}

struct tally {
    _Atomic int excused, made, killed;
};

static _Noreturn void lead_run(uint64_t seed, struct tally *tally)
{
    static struct lead lead;
    const double start = now();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_draw(&lead.run, seed);
    lead.arena = shared_memory(sizeof(*lead.arena));
    lead.log = memfd_create("log", MFD_CLOEXEC);
    if (lead.log < 0 || fcntl(lead.log, F_SETFL, O_APPEND) != 0) {
        perror("memory of a run");
        exit(2);
    }
    start_ranks(&lead);
    while (lead.left > 0) {
        for (int h = 0; h < lead.run.count; h++)
            for (int i = 0; i < lead.run.hunts[h].count; i++)
                kill_if_due(&lead, h, i);
        reap(&lead);
        if (lead.failed && lead.left > 0)
            give_up(&lead, "was there");
        else if (now() - start > RUN_SECONDS)
            give_up(&lead, "hung");
        usleep(50);
    }
    for (int s = 0; s < lead.run.nranks; s++)
        tally->killed += atomic_load(&lead.arena->dead[s]);
    tally->excused += lead.arena->excused;
    tally->made += lead.arena->made;
    if (lead.failed) {
        print_plan(&lead.run);
        print_log(lead.log);
    }
    fflush(stdout);
    _exit(lead.failed);
}

/* Waits until a run has ended. Returns whether it failed. */
static int await_run(void)
{
    int status;
    pid_t ended;
    while ((ended = wait(&status)) < 0 && errno == EINTR)
        ;
    return ended > 0 && status != 0;
}

int main(int argc, char **argv)
{
    struct options options = {
        .parts = 1, .jobs = 2, .runs = 20, .seed = (uint64_t)time(NULL) * 1000000};
    int failed = 0, running = 0;
    const double start = now();
    if (!options_read(argc, argv, "[--runs N] [--seed S] [--jobs J]", &options))
        return 2;
    struct tally *tally = shared_memory(sizeof(*tally));
    printf("%d runs from seed %llu on\n", options.runs, (unsigned long long)options.seed);
    for (int i = 0; i < options.runs; i++) {
        if (running == options.jobs) {
            failed += await_run();
            running--;
        }
        fflush(NULL);
        const pid_t leader = fork();
        if (leader == 0)
            lead_run(options.seed + (uint64_t)i, tally);
        if (leader < 0) {
            perror("fork");
            return 2;
        }
        running++;
    }
    while (running-- > 0)
        failed += await_run();
    printf("%d of %d runs failed; %d ranks killed, %d calls failed for that, %d communicators made "
           "meanwhile; %.1f s\n",
           failed, options.runs, tally->killed, tally->excused, tally->made, now() - start);
    return failed > 0;
}
