/* The life of an entry for an NCCL communicator (comms.h), in one word: its state, how many threads are inside, and
 * whether a call has claimed to end NCCL's communicator. For short, "cecl's" is cecl's communicator. */
#ifndef CECL_NCCL_LIFE_H
#define CECL_NCCL_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum cecl_nccl_state {
    CECL_NCCL_FREE,       /* the entry is not in use */
    CECL_NCCL_MAKING,     /* a thread, called the maker, makes cecl's communicator */
    CECL_NCCL_READY,      /* cecl's is made, or the entry says why there is none */
    CECL_NCCL_FINALIZING, /* a thread of this library waits until the calls on cecl's are done */
    /* a thread of the program waits until the calls on cecl's are done, and then ends it */
    CECL_NCCL_DESTROYING,
    CECL_NCCL_ENDING, /* one thread ends cecl's; no other thread may enter */
    /* one thread waits until the maker has left the entry */
    CECL_NCCL_GIVING_UP,
    /* the maker has stopped using NCCL's communicator, and will end what it has made */
    CECL_NCCL_GIVEN_UP,
    CECL_NCCL_LOST /* a thread never left, so the entry is never used again */
};

/* All allowed steps, STEP(from, to). No other step has a name, so code with another step does not compile. */
#define CECL_NCCL_STEPS(STEP) \
    STEP(FREE, MAKING)        /* NCCL has a new communicator */ \
    STEP(MAKING, FREE)        /* ranks could not agree, or a thread or memory was missing */ \
    STEP(MAKING, READY)       /* the maker has finished */ \
    STEP(MAKING, GIVING_UP)   /* abort or revoke */ \
    STEP(GIVING_UP, GIVEN_UP) /* the maker has left */ \
    STEP(GIVING_UP, ENDING)   /* the maker has finished; the thread that gave up ends cecl's */ \
    STEP(GIVEN_UP, FREE)      /* the maker has ended what it made */ \
    STEP(READY, FINALIZING)   /* finalize, if NCCL finalizes in the background */ \
    STEP(FINALIZING, READY)   /* the calls are done */ \
    STEP(READY, DESTROYING)   /* destroy */ \
    STEP(READY, ENDING)       /* abort or revoke */ \
    STEP(FINALIZING, ENDING)  /* abort or revoke */ \
    STEP(DESTROYING, ENDING)  /* abort or revoke, or the calls are done */ \
    STEP(ENDING, FREE)        /* cecl's has ended */ \
    STEP(ENDING, LOST)        /* a thread has not left in time */

enum cecl_nccl_step {
#define STEP(from, to) CECL_NCCL_##from##_TO_##to = CECL_NCCL_##from << 4 | CECL_NCCL_##to,
    CECL_NCCL_STEPS(STEP)
#undef STEP
};

/* Sets of states. */
#define CECL_NCCL_SET(state) (1u << CECL_NCCL_##state)
#define CECL_NCCL_MADE \
    (CECL_NCCL_SET(READY) | CECL_NCCL_SET(FINALIZING) | CECL_NCCL_SET(DESTROYING))
#define CECL_NCCL_UNMADE \
    (CECL_NCCL_SET(MAKING) | CECL_NCCL_SET(GIVING_UP) | CECL_NCCL_SET(GIVEN_UP))
/* In these states calls are refused, as NCCL refuses calls on a communicator that is not ready. */
#define CECL_NCCL_NOT_READY (CECL_NCCL_UNMADE | CECL_NCCL_SET(FINALIZING))

/* The word: the number of threads inside, a bit for the claim, and the state. */
typedef _Atomic uint32_t cecl_nccl_life;
#define CECL_NCCL_STATE_SHIFT 28
#define CECL_NCCL_CLAIM (UINT32_C(1) << 27)
#define CECL_NCCL_INSIDE (CECL_NCCL_CLAIM - 1)

static inline enum cecl_nccl_state cecl_nccl_life_state(const cecl_nccl_life *life)
{
    return (enum cecl_nccl_state)(atomic_load(life) >> CECL_NCCL_STATE_SHIFT);
}

static inline bool cecl_nccl_life_is(const cecl_nccl_life *life, unsigned states)
{
    return states >> cecl_nccl_life_state(life) & 1;
}

static inline uint32_t cecl_nccl_life_inside(const cecl_nccl_life *life)
{
    return atomic_load(life) & CECL_NCCL_INSIDE;
}

/* Takes a step. Returns false and takes no step if the life is not in the state where the step begins. A step to MAKING
 * clears the claim. */
static inline bool cecl_nccl_life_go(cecl_nccl_life *life, enum cecl_nccl_step step)
{
    const uint32_t from = (uint32_t)step >> 4, to = (uint32_t)step & 15;
    uint32_t word = atomic_load(life);
    while (word >> CECL_NCCL_STATE_SHIFT == from) {
        const uint32_t rest =
            word & (to == CECL_NCCL_MAKING ? CECL_NCCL_INSIDE : CECL_NCCL_INSIDE | CECL_NCCL_CLAIM);
        if (atomic_compare_exchange_weak(life, &word, to << CECL_NCCL_STATE_SHIFT | rest))
            return true;
    }
    return false;
}

/* Claims the right to end NCCL's communicator. False: another call has it. */
static inline bool cecl_nccl_life_claim(cecl_nccl_life *life)
{
    return !(atomic_fetch_or(life, CECL_NCCL_CLAIM) & CECL_NCCL_CLAIM);
}

static inline void cecl_nccl_life_leave(cecl_nccl_life *life)
{
    atomic_fetch_sub(life, 1);
}

/* Counts the thread as inside and returns true, if the life is in one of `states`. Then no other thread frees a part of
 * the entry before cecl_nccl_life_leave. */
static inline bool cecl_nccl_life_enter(cecl_nccl_life *life, unsigned states)
{
    if (states >> (atomic_fetch_add(life, 1) >> CECL_NCCL_STATE_SHIFT) & 1)
        return true;
    cecl_nccl_life_leave(life);
    return false;
}

#endif
