/* The plan of a captured call: the same copies and reductions as the call's own plan, between signals
 * whose values are fixed, so that a graph may run it any number of times.
 *
 * All steps are on the main lane, in the order of the plan. This is an order that lanes may have anyway,
 * because they may share one queue of the hardware. Epochs become words that are set and reset
 * (CECL_COUNTER_TURN, flags/turns.h). One rule decides which phase takes which word: a rank may set a word
 * again once that rank knows that the peer has reset the word. The rank knows this after a wait for the
 * next signal that the peer sends behind the reset.
 *
 * In a call of barriers and copies two words, A and B, are enough within the call. The next call,
 * whichever it is, begins with A. So the last phase never takes A: if the number of phases is odd, the last
 * one takes a third word, and a call with a single phase gets a second phase:
 *
 *     1 phase     A B
 *     2 phases    A B
 *     3 phases    A B C
 *     4 phases    A B A B
 *     5 phases    A B A B C
 *
 * Plans that send one chunk ahead have more phases under way, and take more words. Every signal has exactly
 * one wait: if two lanes wait for a phase in the call's own plan, the second wait is left out. */
#ifndef CECL_CE_CAPTURE_H
#define CECL_CE_CAPTURE_H

#include "plan/plan.h"

/* Makes `plan` the plan of a captured call, unless one kernel carries out the call and counts captured
 * calls itself: a small call, or with `meets` a reduction between two barriers. All ranks of the call
 * decide alike. Frees the plan on failure. Returns ceclInvalidUsage if the plan would take more than
 * CECL_TURNS words. */
ceclResult_t cecl_plan_capture(struct cecl_plan *plan, bool meets);

#endif
