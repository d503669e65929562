/* The plan of a captured call. It has the copies and reductions of a call that is not captured, but its signals have
 * fixed values, so a graph may run it any number of times.
 *
 * All steps are on the main lane, in the order of the original plan. Every plan must work in that order even on one
 * lane, because lanes may share one hardware queue. In place of epochs, each rank has words that all peers read (TURN
 * and CALL, flags/turns.h). The phases of both lanes become phases 1 to n of TURN. All ranks signal them in the same
 * order, on one lane, so a wait for a phase is also a wait for all phases before it. Each wait is for the phase that
 * was signalled last. A signal is left out if the next signal comes before any wait.
 *
 * A call begins with the wait for the last phase of the previous call (wait 0), which the peers have usually signalled
 * by then. The plans of a barrier, and of a call between two barriers:
 *
 *     wait 0 | signal 1, wait 1 | signal 2, wait 2 | signal 3
 *     wait 0 | signal 1, wait 1 | copies | signal 2, wait 2 | signal 3
 *
 * Phase 1 signals the number of the call (CECL_COUNTER_CALL), and waits until the peers have signalled the same
 * number. So no rank passes phase 1 if a peer has launched another graph. Before phase 1, data moves only to
 * staging, or from a rank to itself.
 *
 * At least three phases are needed. Each replay writes the same values, so a word does not show which replay wrote it.
 * With two phases, a rank could mistake a peer's phase 2 of the previous call for phase 2 of this call. */
#ifndef CECL_CE_CAPTURE_H
#define CECL_CE_CAPTURE_H

#include "plan/plan.h"

/* Makes `plan` the plan of a captured call. Keeps the plan's steps if one kernel carries out the whole call and counts
 * captured calls itself: for a small call and, if `meets` (as in struct cecl_device), for a reduction between two
 * barriers (cecl_fuses_all). All ranks decide alike. Frees the plan on failure.
 *
 * number  the call's number among the communicator's captured calls, equal on all ranks and not 0; 0 for
 *         copies within this rank */
ceclResult_t cecl_plan_capture(struct cecl_plan *plan, bool meets, uint32_t number);

#endif
