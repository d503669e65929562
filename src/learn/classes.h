/* Classes of calls, for programs whose calls have no period, such as servers. A class has calls that
 * should take about as long: one operation, one type, one power of two of sizes. The caller names it by
 * a number, its key. One class at a time is the subject of the communicator's trial (trial.h): each 16th
 * of its calls is a boundary, and the time of that call alone is published at the next one.
 *
 * All ranks make the same sequence of collectives, so they take the same class at the same call, and
 * come to the same boundaries. All else is decided by the trial, for all ranks. So ranks cannot
 * differ.
 *
 * This file knows no clock, no device and no call. It allocates nothing. */
#ifndef CECL_LEARN_CLASSES_H
#define CECL_LEARN_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

#include "learn/trial.h"

#define CECL_CLASS_PLACES 64u /* a power of two */
#define CECL_CLASS_MOST 48u   /* classes that find a place; later ones are not tried */
#define CECL_CLASS_QUIET 512u /* calls without a period, before classes are tried */
#define CECL_CLASS_EVERY 16u  /* calls of the class from one boundary to the next */

struct cecl_class {
    uint32_t key;     /* 0: the place is free */
    uint32_t wait;    /* calls of the class until it may be tried */
    uint32_t arm;     /* in force, if it has a verdict */
    bool has_verdict; /* it may be tried anew meanwhile */
    bool is_recalled; /* the verdict is from an earlier run */
    bool was_tried;   /* a verdict fell in this run */
};

/* All zero: no calls yet. */
struct cecl_classes {
    struct cecl_class places[CECL_CLASS_PLACES];
    uint32_t used;
    uint32_t quiet;             /* calls in a row without a period, CECL_CLASS_QUIET at most */
    struct cecl_class *current; /* the trial's subject; NULL: none is */
    uint32_t calls;             /* of the current class, since it was taken */
    uint32_t others;            /* of others, since the current one's last boundary */
};

/* What the next call is to classes. */
struct cecl_class_step {
    struct cecl_class *its;      /* its class; NULL: it has none */
    bool is_boundary;            /* its class is the subject, and this is its 16th call again */
    bool is_decided;             /* the verdict on its class has just fallen */
    struct cecl_trial_mark mark; /* at a boundary. is_mark: note how long this call takes */
};

/* Adds the next call, where no period is in force.
 *
 * key   of its class; 0: it has none
 * arms  that its class may try
 * may_bound  this call may be a boundary. Alike on all ranks, as all arguments are */
struct cecl_class_step cecl_classes_next(struct cecl_classes *classes, struct cecl_trial *trial,
                                         uint32_t key, uint32_t arms, bool may_bound);

/* The class of a key; NULL: it has no place. */
struct cecl_class *cecl_classes_find(struct cecl_classes *classes, uint32_t key);

/* A period was found, which the trial has as its subject from now on. Verdicts stay. */
void cecl_classes_leave(struct cecl_classes *classes);

/* The subject of a trial of the class. */
uint64_t cecl_class_subject(uint32_t key);

/* Whether an arm is in force for calls of the class. *arm: which one; *is_turn: the trial gives it. */
static inline bool cecl_class_has_arm(const struct cecl_classes *classes,
                                      const struct cecl_trial *trial, const struct cecl_class *its,
                                      uint32_t *arm, bool *is_turn)
{
    *is_turn = its && its == classes->current && trial->state == CECL_TRIAL_RUNNING;
    *arm = *is_turn ? trial->arm : its ? its->arm : 0;
    return *is_turn || (its && its->has_verdict);
}

#endif
