/* Proves a sequence of calls right, from the plans of all ranks, without running anything.
 *
 * It builds the happens-before order that flags and streams guarantee (vector clocks), then shows:
 * no deadlock; no two accesses of the same byte, one of
 * them a write, without an order, in a call, between calls, or with the user's own use of the
 * buffers before and after; every output byte written exactly
 * once a call, from the right source byte, and no byte written outside the output and staging. */
#ifndef CECL_PLAN_VERIFY_H
#define CECL_PLAN_VERIFY_H

#include "plan/plan.h"

/* `ncalls` calls one after the other on the same buffers; plans[c * nranks + r] is rank r's plan of
 * call c. All have the same nranks.
 * Buffers are as large as the largest call needs. Between calls each rank's user reads the output
 * and writes new input.
 * Bytes are tracked one by one: keep call.bytes small (tens). Works on broken plans: that is its
 * purpose.
 * ceclSuccess, or ceclInternalError with the first fault in words (call, rank, step, bytes) in
 * cecl_message(); ceclOutOfMemory. */
ceclResult_t cecl_verify(const struct cecl_plan *plans, int ncalls, int nranks);

#endif
