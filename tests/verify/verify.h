/* Proves that a sequence of calls is right, from the plans of all ranks, without running anything.
 *
 * It builds the happens-before order that flags and streams guarantee (vector clocks), then shows
 * the following. There is no deadlock. Any two accesses to the same byte, of which one is a write,
 * have an order: within a call, between calls, and with the user's own use of the buffers before and
 * after. Every output byte is written exactly once in a call, from the right source byte. No byte
 * outside the output and staging is written. */
#ifndef CECL_VERIFY_VERIFY_H
#define CECL_VERIFY_VERIFY_H

#include "plan/plan.h"

/* `ncalls` calls one after the other on the same buffers; plans[c * nranks + r] is rank r's plan of
 * call c. All plans have the same nranks.
 *
 * Buffers are as large as the largest call needs. Between calls each rank's user reads the output
 * and writes new input.
 *
 * The verifier tracks every byte by itself, so keep call.bytes small (tens of bytes). It accepts
 * broken plans, because finding them is its purpose.
 *
 * Returns ceclSuccess, ceclOutOfMemory, or ceclInternalError; then cecl_message() describes the
 * first fault (call, rank, step, bytes). */
ceclResult_t cecl_verify(const struct cecl_plan *plans, int ncalls, int nranks);

#endif
