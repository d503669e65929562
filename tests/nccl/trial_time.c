/* Measures the host time of trials: the time of passed all-gathers of 1 byte in the steps of a
 * program, less the time of direct calls of the stand-in for NCCL. While a trial runs, only calls
 * of NCCL's turns count; afterwards all calls count. With CECL_NCCL_TRIALS=0, the program prints
 * the same for calls without trials.
 *
 * nccl_trial_time [MOST_NS MOST_NS] also runs itself without trials. It fails if trials cost more than the first
 * limit while they run, or than the second afterwards. (Calls without trials cost time, too: 44 to 600 ns,
 * depending on the machine.)
 *
 * A step is long compared to its calls. So serving the calls changes the step's time by less than
 * 1.25 x, and a trial takes all its turns. Each time printed is the median, over all steps, of
 * the mean time of a call in one step. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "calls.h"

enum { COMMS = 8, CALLS = 20, STEPS = 160, STEP_NS = 3000000 };
/* steps during which a trial surely runs, and after which it is surely over */
enum { RUNS = 14, RAN = 64, AFTER = 110 };

static __typeof__(ncclAllGather) *theirs;
static __typeof__(standin_last) *last;
static __typeof__(standin_go_hollow) *go_hollow;
static ncclComm_t comms[2];

struct times {
    double ns[COMMS * STEPS];
    size_t count;
};
static struct times during, during_direct, after, after_direct;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nanoseconds per call of one step, whose first call has another size. *passed: how many calls
 * went to the stand-in. */
static double call_all(__typeof__(ncclAllGather) *gather, ncclComm_t comm, int *passed)
{
    char in[3] = {1, 2, 3}, out[4];
    double sum = 0;
    *passed = 0;
    for (int i = 0; i < CALLS; i++) {
        const double start = now_ns();
        if (gather(&in[i % 2], out, i == 0 ? 2 : 1, ncclInt8, comm, NULL) != 0)
            exit(2);
        sum += now_ns() - start;
        *passed += last().words[0] == (uint64_t)(uintptr_t)&in[i % 2];
    }
    return sum / CALLS;
}

static void note(struct times *times, double ns)
{
    times->ns[times->count++] = ns;
}

static void *run_rank(void *comm)
{
    const int rank = comm == comms[0] ? 0 : 1;
    go_hollow(true);
    for (int step = 0; step < STEPS; step++) {
        const double start = now_ns();
        int passed, direct_passed;
        const double ns = call_all(ncclAllGather, comm, &passed),
                     direct = call_all(theirs, comm, &direct_passed);
        const bool runs = step >= RUNS && step < RAN, is_over = step >= AFTER;
        if (rank == 0 && passed == CALLS && (runs || is_over)) {
            note(runs ? &during : &after, ns);
            note(runs ? &during_direct : &after_direct, direct);
        }
        const struct timespec pause = {.tv_nsec = STEP_NS - STEP_NS / 4};
        nanosleep(&pause, NULL);
        while (now_ns() < start + STEP_NS)
            ;
    }
    return NULL;
}

static void run_comms(void)
{
    pthread_t threads[2];
    if (ncclCommInitAll(comms, 2, NULL) != 0)
        exit(2);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run_rank, comms[i]) != 0)
            exit(2);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (ncclCommDestroy(comms[i]) != 0)
            exit(2);
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(struct times *times)
{
    qsort(times->ns, times->count, sizeof(*times->ns), by_value);
    return times->count > 0 ? times->ns[times->count / 2] : 0;
}

/* Runs this program without trials, and reads what it prints. Returns whether it printed both times. */
static bool run_without_trials(const char *self, double *runs, double *over)
{
    char command[4096];
    setenv("CECL_NCCL_TRIALS", "0", 1);
    snprintf(command, sizeof(command), "'%s'", self);
    fflush(NULL);
    FILE *said = popen(command, "r");
    if (!said)
        return false;
    const int got = fscanf(
        said, "ns a call more than directly: %lf while trials run (%*u steps), %lf", runs, over);
    while (fgetc(said) != EOF)
        ;
    return pclose(said) == 0 && got == 2;
}

int main(int argc, char **argv)
{
    const char *real = getenv("CECL_NCCL_PATH");
    void *standin = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!standin) {
        fprintf(stderr, "CECL_NCCL_PATH names no stand-in\n");
        return 2;
    }
    *(void **)&go_hollow = dlsym(standin, "standin_go_hollow");
    *(void **)&last = dlsym(standin, "standin_last");
    *(void **)&theirs = dlsym(standin, "ncclAllGather");
    for (int i = 0; i < COMMS; i++)
        run_comms();
    const double runs = median(&during) - median(&during_direct),
                 over = median(&after) - median(&after_direct);
    printf("ns a call more than directly: %.0f while trials run (%zu steps), %.0f afterwards "
           "(%zu steps); directly %.0f\n",
           runs, during.count, over, after.count, median(&after_direct));
    if (during.count < COMMS || after.count < COMMS)
        return 2;
    if (argc <= 2)
        return 0;
    double usual_runs, usual_over;
    if (!run_without_trials(argv[0], &usual_runs, &usual_over))
        return 2;
    printf("ns a call that trials cost: %.0f while they run, %.0f afterwards\n", runs - usual_runs,
           over - usual_over);
    return runs - usual_runs > atof(argv[1]) || over - usual_over > atof(argv[2]);
}
