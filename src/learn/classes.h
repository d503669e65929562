/* Classes of calls, for programs whose calls have no period, such as servers. The calls of a class should
 * take about equally long: they have the same operation and type, and sizes between two powers of two. The
 * caller identifies a class by a number, its key. One class at a time is the subject of the communicator's
 * trial (trial.h): every 16th call of the class is a boundary, and the time of that call alone is published
 * at the next boundary. Only this call and the three calls of the class before it have the arm whose turn it is.
 * So a slow arm has an eighth of the calls of a trial at most.
 *
 * All ranks make the same sequence of collectives, so they take the same class at the same call, and reach
 * the same boundaries. The trial decides everything else, for all ranks. So ranks cannot differ.
 *
 * This file knows no clock, no device and no call. It allocates nothing. */
#ifndef CECL_LEARN_CLASSES_H
#define CECL_LEARN_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

#include "learn/trial.h"

#define CECL_CLASS_PLACES 64u /* a power of two */
#define CECL_CLASS_MOST 48u   /* the most classes; later ones get no place, and are not tried */
#define CECL_CLASS_QUIET 512u /* calls without a period until classes are tried */
#define CECL_CLASS_EVERY 16u  /* calls of the class from one boundary to the next */
/* how many of these calls have the turn's arm: the boundary's own call, and those before it */
#define CECL_CLASS_NEAR 4u

struct cecl_class {
    uint32_t key;     /* 0: the place is free */
    uint32_t wait;    /* calls of the class until it may be tried */
    uint32_t arm;     /* the arm in force, if has_verdict */
    bool has_verdict; /* true also while the class is tried again */
    bool is_recalled; /* the verdict is from an earlier run */
    bool was_tried;   /* this run has reached a verdict */
};

/* Starts zeroed. */
struct cecl_classes {
    struct cecl_class places[CECL_CLASS_PLACES];
    uint32_t used;
    uint32_t quiet;             /* calls in a row without a period, CECL_CLASS_QUIET at most */
    struct cecl_class *current; /* the class that is the trial's subject; NULL: none */
    uint32_t calls;             /* calls of the current class since it became the subject */
    uint32_t others;            /* calls of other classes since the last boundary */
};

/* What cecl_classes_next says of a call. */
struct cecl_class_step {
    struct cecl_class *its;      /* the call's class; NULL: none */
    bool is_boundary;            /* true at every 16th call of the class that is the subject */
    bool is_decided;             /* the verdict on its class has just been reached */
    struct cecl_trial_mark mark; /* at a boundary. If is_mark: measure how long this call takes */
};

/* Adds the next call, if no period is in force. All arguments are equal on all ranks.
 *
 * key        of the call's class; 0: none
 * arms       bit a: the class may try arm a
 * may_bound  this call may be a boundary */
struct cecl_class_step cecl_classes_next(struct cecl_classes *classes, struct cecl_trial *trial,
                                         uint32_t key, uint32_t arms, bool may_bound);

/* The class of a key; NULL: the key has no place. */
struct cecl_class *cecl_classes_find(struct cecl_classes *classes, uint32_t key);

/* Call this when a period was found, which is then the trial's subject. Verdicts are kept. */
void cecl_classes_leave(struct cecl_classes *classes);

/* The number that names the class as the subject of a trial. */
uint64_t cecl_class_subject(uint32_t key);

/* Whether an arm is in force for calls of the class `its`. *arm: which arm; *is_turn: the arm has its turn in
 * a trial. */
static inline bool cecl_class_has_arm(const struct cecl_classes *classes,
                                      const struct cecl_trial *trial, const struct cecl_class *its,
                                      uint32_t *arm, bool *is_turn)
{
    *is_turn = its && its == classes->current && trial->state == CECL_TRIAL_RUNNING &&
               (classes->calls + CECL_CLASS_NEAR - 1) % CECL_CLASS_EVERY < CECL_CLASS_NEAR;
    *arm = *is_turn ? trial->arm : its ? its->arm : 0;
    return *is_turn || (its && its->has_verdict);
}

#endif
