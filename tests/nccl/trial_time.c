/* What trials cost the host: passed all-gathers of 1 byte in the steps of a program, less the same calls made to the
 * stand-in for NCCL directly. While a trial runs, calls of NCCL's turns count; afterwards all do. Without
 * CECL_NCCL_TRIALS the same program says what its calls cost with trials off.
 * nccl_trial_time [MOST_NS MOST_NS]   fails if calls take longer while trials run, or afterwards
 * A step is long beside its calls, so serving them makes it less than 1.25 x as long, and a trial has
 * all of its turns. Medians over steps of a step's mean. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "calls.h"

enum { COMMS = 8, CALLS = 20, STEPS = 160, STEP_NS = 3000000 };
enum { RUNS = 14, RAN = 64, AFTER = 110 }; /* steps in which a trial surely runs, and is over */

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

/* Nanoseconds a call, of one step, whose first call is another one. *passed: how many calls came to the stand-in. */
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
    go_hollow();
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
    return argc > 2 && (runs > atof(argv[1]) || over > atof(argv[2]));
}
