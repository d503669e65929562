/* Measures the host time of trials while they run: the time of passed all-gathers of 1 byte in the steps of a program,
 * less the time of direct calls of the stand-in for NCCL. Only calls of NCCL's turns count. (pass_time.c measures calls
 * after a trial.) With CECL_NCCL_TRIALS=0 the program prints the same for calls without trials.
 *
 * nccl_trial_time [MOST_NS] also runs itself without trials, and fails if trials cost more than MOST_NS nanoseconds a
 * call. (Calls without trials cost 44 to 600 ns, depending on the machine.)
 *
 * A step is long compared to its calls. So serving the calls changes the step's time by less than 1.25 x, and a trial
 * takes all its turns. Each printed time is the median, over all steps, of the mean time of a call in one step. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "calls.h"
#include "times.h"

/* A trial surely runs from step BEGINS until the end. */
enum { COMMS = 8, CALLS = 20, BEGINS = 14, STEPS = 64, STEP_NS = 3000000 };

static __typeof__(ncclAllGather) *theirs;
static __typeof__(standin_last) *last;
static ncclComm_t comms[2];

static double by_library[COMMS * STEPS], directly[COMMS * STEPS];
static size_t count; /* of both */

/* Nanoseconds per call of one step, whose first call has another size. *passed: how many calls went to the stand-in. */
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

static void *run_rank(void *comm)
{
    STANDIN(standin_go_hollow)(true);
    for (int step = 0; step < STEPS; step++) {
        const double start = now_ns();
        int passed, direct_passed;
        const double ns = call_all(ncclAllGather, *(ncclComm_t *)comm, &passed),
                     direct = call_all(theirs, *(ncclComm_t *)comm, &direct_passed);
        if (comm == &comms[0] && passed == CALLS && step >= BEGINS) {
            by_library[count] = ns;
            directly[count++] = direct;
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
        if (pthread_create(&threads[i], NULL, run_rank, &comms[i]) != 0)
            exit(2);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (ncclCommDestroy(comms[i]) != 0)
            exit(2);
}

/* Runs this program without trials, and reads what it prints. Returns whether it printed the time. */
static bool run_without_trials(const char *self, double *more)
{
    char command[4096];
    setenv("CECL_NCCL_TRIALS", "0", 1);
    snprintf(command, sizeof(command), "'%s'", self);
    fflush(NULL);
    FILE *said = popen(command, "r");
    if (!said)
        return false;
    const int got = fscanf(said, "ns a call more than directly: %lf", more);
    while (fgetc(said) != EOF)
        ;
    return pclose(said) == 0 && got == 1;
}

int main(int argc, char **argv)
{
    last = STANDIN(standin_last);
    theirs = STANDIN(ncclAllGather);
    for (int i = 0; i < COMMS; i++)
        run_comms();
    const double direct = median(directly, count), more = median(by_library, count) - direct;
    printf("ns a call more than directly: %.0f (%zu steps); directly %.0f\n", more, count, direct);
    if (count < COMMS)
        return 2;
    if (argc <= 1)
        return 0;
    double usual;
    if (!run_without_trials(argv[0], &usual))
        return 2;
    printf("ns a call that trials cost: %.0f\n", more - usual);
    return more - usual > atof(argv[1]);
}
