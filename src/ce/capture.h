/* The plan of a captured call: the same copies and reductions as the call's own plan, between signals
 * whose values are fixed, so that a graph may run it any number of times.
 *
 * All steps are on the main lane, in the order of the plan. This is an order that lanes may have anyway,
 * because they may share one queue of the hardware. Epochs become one word of each rank, which all peers read
 * (CECL_COUNTER_TURN, flags/turns.h). The phases of both lanes become phases 1 to n of this word. All ranks
 * signal them in the same order, on one lane, so a wait for a phase is also a wait for all phases before it. Each
 * wait is for the phase that was signalled last, and signals that no wait follows before the next signal are left
 * out.
 *
 * A call begins with the wait for the last phase of the call before. This wait is mostly over by then. A barrier,
 * and a call between two barriers:
 *
 *     wait 0 | signal 1, wait 1 | signal 2, wait 2 | signal 3
 *     wait 0 | signal 1, wait 1 | copies | signal 2, wait 2 | signal 3
 *
 * Phase 1 is signalled by the number of the call (CECL_COUNTER_CALL), and its wait is for just this number. So no rank
 * passes phase 1 if a peer has launched another graph, and no data moves before phase 1 but to staging.
 *
 * Two phases would not be enough. A rank that waits for phase 1 must not take a peer's phase 2 of the call before
 * for this call's, for the peer may still wait there. But a replay writes what the replay before wrote, so words
 * cannot show to which of them a phase belongs.
 */
#ifndef CECL_CE_CAPTURE_H
#define CECL_CE_CAPTURE_H

#include "plan/plan.h"

/* Makes `plan` the plan of a captured call, unless one kernel carries out the call and counts captured
 * calls itself: a small call, or with `meets` a reduction between two barriers. All ranks of the call
 * decide alike. Frees the plan on failure.
 *
 * number  of the call among the captured ones of the communicator; not 0, and equal on all ranks. (0 if the plan has no
 *         phases, because only this rank makes the call.) */
ceclResult_t cecl_plan_capture(struct cecl_plan *plan, bool meets, uint32_t number);

#endif
