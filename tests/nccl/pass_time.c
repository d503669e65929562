/* Measures the host time that cecl adds to a passed call: the time of an all-gather that cecl
 * passes to the stand-in for NCCL, less the time of a direct call of the stand-in. Batches of
 * both alternate, and medians are compared. Before that, two ranks make calls until trials, if
 * they are on, have decided that NCCL makes them.
 *
 * nccl_pass_time [MOST_NS [mixed]] fails if the difference exceeds MOST_NS nanoseconds.
 * CECL_NCCL_PATH names the stand-in. With `mixed`, calls of two sizes come in an order without a
 * period, as in a server. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"

#define BATCHES 401
#define CALLS 500 /* calls of a batch */
/* calls of each rank until all trials are surely over, and after how many of them ranks meet: a
 * trial does not begin while ranks are far apart */
enum { LEARNING = 60000, TOGETHER = 64 };

typedef __typeof__(ncclAllGather) all_gather;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static bool is_mixed;

/* Nanoseconds per call of one batch. Calls have 1 byte of each rank, a size for which no
 * measurement says that cecl is faster. */
static double measure(all_gather *gather, ncclComm_t comm, int calls)
{
    static _Thread_local uint64_t word = 1;
    char in[2] = {1, 2}, out[4];
    const double start = now_ns();
    for (int i = 0; i < calls; i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        if (gather(in, out, is_mixed ? 1 + (word >> 63) : 1, ncclInt8, comm, NULL) != 0)
            exit(2);
    }
    return (now_ns() - start) / calls;
}

static __typeof__(standin_go_hollow) *go_hollow;
static pthread_barrier_t together;

static void *learn(void *comm)
{
    go_hollow(true);
    for (int i = 0; i < LEARNING / TOGETHER; i++) {
        measure(ncclAllGather, *(ncclComm_t *)comm, TOGETHER);
        pthread_barrier_wait(&together);
    }
    return NULL;
}

static void learn_both(ncclComm_t *comms)
{
    pthread_t threads[2];
    pthread_barrier_init(&together, NULL, 2);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, learn, &comms[i]) != 0)
            exit(2);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values)
{
    qsort(values, BATCHES, sizeof(*values), by_value);
    return values[BATCHES / 2];
}

int main(int argc, char **argv)
{
    static double passed[BATCHES], direct[BATCHES];
    const char *real = getenv("CECL_NCCL_PATH");
    void *standin = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    all_gather *theirs = NULL;
    ncclComm_t comms[2];
    is_mixed = argc > 2 && strcmp(argv[2], "mixed") == 0;
    if (!standin || ncclCommInitAll(comms, 2, NULL) != 0) {
        fprintf(stderr, "CECL_NCCL_PATH names no stand-in\n");
        return 2;
    }
    *(void **)&go_hollow = dlsym(standin, "standin_go_hollow");
    *(void **)&theirs = dlsym(standin, "ncclAllGather");
    learn_both(comms);
    go_hollow(true);
    for (int i = 0; i < BATCHES; i++) {
        direct[i] = measure(theirs, comms[0], CALLS);
        passed[i] = measure(ncclAllGather, comms[0], CALLS);
    }
    const double more = median(passed) - median(direct);
    printf("ns a call: %.0f passed on, %.0f made directly, %.0f more\n", median(passed),
           median(direct), more);
    return argc > 1 && more > atof(argv[1]);
}
