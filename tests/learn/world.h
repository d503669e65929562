/* Simulated programs for the tests of learning: ranks make the same sequence of calls at different times. How long a
 * step takes depends on the arm in force. */
#ifndef TESTS_LEARN_WORLD_H
#define TESTS_LEARN_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl/trial.h"
#include "nccl/trial_period.h"

enum { MOST_RANKS = 8, MOST_COMMS = 4, MOST_PENDING = 64 };

/* splitmix64 */
static inline uint64_t draw(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static inline double uniform(uint64_t *seed, double least, double most)
{
    return least + (most - least) * (double)(draw(seed) >> 11) / 9007199254740992.0;
}
static inline uint64_t below(uint64_t *seed, uint64_t bound)
{
    return draw(seed) % bound;
}

/* `ncomms` communicators make calls in each step. The arms of all of them change the step's time. */
struct program {
    uint64_t seed;
    int nranks, ncomms;
    uint32_t length[MOST_COMMS]; /* calls of each communicator in a step */
    /* relative gain of a step while the arm is in force */
    double gain[MOST_COMMS][CECL_VERDICT_ARMS];
    /* relative scatter of a step, and relative change over 60 steps */
    double noise, drift;
    double odd; /* fraction of steps that are evaluations */
    double step_ns;
    uint32_t lag;   /* most steps by which a rank's GPU is behind its host */
    uint32_t ahead; /* most steps by which one host is ahead of another */
    bool is_apart;  /* rank 0's host is ahead by `ahead` whenever possible */
    uint32_t steps;
    uint32_t changes; /* after this many steps the calls change, and later change back; 0: never */
};

struct outcome {
    bool has_verdict[MOST_COMMS], disagree;
    uint32_t arm[MOST_COMMS];
    uint32_t periods[MOST_COMMS]; /* from the start of the trial to the verdict */
    uint32_t counted[MOST_COMMS][CECL_VERDICT_ARMS]; /* times of each arm */
    uint32_t trials[MOST_COMMS];
};

struct outcome run_program(const struct program *program);

#endif
