/* See classes.h. */
#include "learn/classes.h"

#include <stddef.h>

#define FIRST 32u /* calls of a new class before it may be tried */
/* the class is dropped if more calls of other classes come between two of its boundaries */
#define OTHERS 1024u
#define SELDOM 256u   /* calls of a dropped class before it may be tried again */
#define LATER 4096u   /* calls of a class until it may be tried again, if its trial did not begin */
#define HOLDS 160000u /* for how many calls a verdict holds */

/* Each call is a period by itself, even if it is short: calls are never joined to a longer period. */
#define LONG_NS UINT64_MAX

static uint32_t mix(uint32_t key)
{
    key = (key ^ key >> 16) * UINT32_C(0x7feb352d);
    return key ^ key >> 15;
}

uint64_t cecl_class_subject(uint32_t key)
{
    const uint64_t hash = (key + UINT64_C(0x51ed270b27b4f3cf)) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 31;
}

/* The place of a key, or the free place where the key belongs. Some places are always free. */
static struct cecl_class *place_of(struct cecl_classes *classes, uint32_t key)
{
    uint32_t at = mix(key) % CECL_CLASS_PLACES;
    while (classes->places[at].key != key && classes->places[at].key != 0)
        at = (at + 1) % CECL_CLASS_PLACES;
    return &classes->places[at];
}

struct cecl_class *cecl_classes_find(struct cecl_classes *classes, uint32_t key)
{
    struct cecl_class *its = place_of(classes, key);
    return its->key != 0 ? its : NULL;
}

static struct cecl_class *find_or_add(struct cecl_classes *classes, uint32_t key)
{
    struct cecl_class *its = place_of(classes, key);
    if (key == 0 || (its->key == 0 && classes->used == CECL_CLASS_MOST))
        return NULL;
    if (its->key == 0) {
        *its = (struct cecl_class){.key = key, .wait = FIRST};
        classes->used++;
    }
    return its;
}

static void put_aside(struct cecl_classes *classes, struct cecl_trial *trial, uint32_t wait)
{
    cecl_trial_cancel(trial);
    classes->current->wait = wait;
    classes->current = NULL;
}

static void take(struct cecl_classes *classes, struct cecl_trial *trial, struct cecl_class *its,
                 uint32_t arms)
{
    classes->current = its;
    classes->calls = classes->others = 0;
    cecl_trial_want(trial, cecl_class_subject(its->key), arms, CECL_TRIAL_CALLS);
}

static void pass_boundary(struct cecl_classes *classes, struct cecl_trial *trial,
                          struct cecl_class_step *step)
{
    classes->others = 0;
    step->is_boundary = true;
    step->mark = cecl_trial_boundary(trial, true, LONG_NS);
    step->is_decided = trial->has_verdict;
    if (trial->has_verdict) {
        step->its->arm = trial->arm;
        step->its->has_verdict = true;
        step->its->is_recalled = trial->is_recalled;
        step->its->was_tried = true;
    }
    if (trial->state == CECL_TRIAL_IDLE)
        put_aside(classes, trial, step->is_decided ? HOLDS : LATER);
}

struct cecl_class_step cecl_classes_next(struct cecl_classes *classes, struct cecl_trial *trial,
                                         uint32_t key, uint32_t arms, bool may_bound)
{
    struct cecl_class_step step = {.mark = {.slot = -1}};
    if (classes->quiet < CECL_CLASS_QUIET) {
        classes->quiet++;
        step.its = cecl_classes_find(classes, key);
        return step;
    }
    step.its = find_or_add(classes, key);
    if (step.its && step.its->wait > 0)
        step.its->wait--;
    if (!classes->current && step.its && step.its->wait == 0)
        take(classes, trial, step.its, arms);
    else if (classes->current && classes->current != step.its && ++classes->others > OTHERS)
        put_aside(classes, trial, SELDOM);
    else if (classes->current && classes->current == step.its && may_bound &&
             ++classes->calls % CECL_CLASS_EVERY == 0)
        pass_boundary(classes, trial, &step);
    return step;
}

void cecl_classes_leave(struct cecl_classes *classes)
{
    if (classes->current)
        classes->current->wait = FIRST;
    classes->current = NULL;
    classes->quiet = 0;
}
