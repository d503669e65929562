/* Measures the host time that cecl adds to a passed call: the time of an all-gather that cecl passes to the stand-in
 * for NCCL, less the time of a direct call of the stand-in. Batches of both alternate, and medians are compared. Before
 * that, two ranks make calls until trials, if they are on, have decided for NCCL.
 *
 * nccl_pass_time [MOST_NS [mixed]] fails if the difference exceeds MOST_NS nanoseconds. CECL_NCCL_PATH names the
 * stand-in. With `mixed`, calls of two sizes come in an order without a period, as in a server. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "times.h"

#define BATCHES 401
#define CALLS 500 /* calls of a batch */
/* LEARNING: calls until trials are surely over. TOGETHER: calls until ranks meet: no trial begins if they are far
 * apart. */
enum { LEARNING = 60000, TOGETHER = 64 };

typedef __typeof__(ncclAllGather) all_gather;

static bool is_mixed;

/* Nanoseconds per call of one batch. A rank's block is 1 byte, a size for which no measurement says that cecl is faster. */
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

static pthread_barrier_t together;

static void *learn(void *comm)
{
    STANDIN(standin_go_hollow)(true);
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

int main(int argc, char **argv)
{
    static double passed[BATCHES], direct[BATCHES];
    all_gather *theirs = STANDIN(ncclAllGather);
    ncclComm_t comms[2];
    is_mixed = argc > 2 && strcmp(argv[2], "mixed") == 0;
    if (ncclCommInitAll(comms, 2, NULL) != 0)
        return 2;
    learn_both(comms);
    STANDIN(standin_go_hollow)(true);
    for (int i = 0; i < BATCHES; i++) {
        direct[i] = measure(theirs, comms[0], CALLS);
        passed[i] = measure(ncclAllGather, comms[0], CALLS);
    }
    const double after = median(passed, BATCHES), before = median(direct, BATCHES);
    printf("ns a call: %.0f passed on, %.0f made directly, %.0f more\n", after, before,
           after - before);
    return argc > 1 && after - before > atof(argv[1]);
}
