/* Shared by trial.c and turns.c: the words of decisions, and how a trial goes on. */
#ifndef CECL_NCCL_TRIAL_TURNS_H
#define CECL_NCCL_TRIAL_TURNS_H

#include "nccl/trial.h"

/* A decision's word: MADE, its kind, and an arm or a number. */
#define CECL_DECISION_MADE (UINT32_C(1) << 31)
#define CECL_DECISION_KIND 0x7f000000u
#define CECL_DECISION_NUMBER 0x00000fffu
enum {
    CECL_DECISION_START = 1 << 24,   /* + how many repetitions of the subject make a period */
    CECL_DECISION_PUT_OFF = 2 << 24, /* the start (+ START's number) or the verdict is put off */
    CECL_DECISION_TURN = 3 << 24,    /* + arm */
    CECL_DECISION_VERDICT = 4 << 24, /* + arm */
    /* reasons for PUT_OFF. With neither, a rank had not offered yet */
    CECL_DECISION_BUSY = 1 << 23, /* a rank's process tries another communicator */
    CECL_DECISION_EARLY = 1 << 22 /* the subject is short, and has not come often enough */
};

#define CECL_TRIAL_PUT_OFF 14u /* how often the verdict is put off, at most */

static inline uint64_t cecl_trial_mix(uint64_t hash)
{
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* What this rank would decide now: the next turn, the verdict, or that the verdict is put off. */
uint32_t cecl_trial_next_step(const struct cecl_trial *trial);

#endif
