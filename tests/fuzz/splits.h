/* Calls by splits on the device, for fuzz_api: ceclAlltoAllvDevice, ceclDispatch and ceclCombine of all ranks, made
 * by one thread, with any splits, also more rows than there is room for. Every byte that they write, and what
 * they report, is compared with plain loops. */
#ifndef CECL_TESTS_FUZZ_SPLITS_H
#define CECL_TESTS_FUZZ_SPLITS_H

#include <cecl/cecl.h>

#include "input.h"

/* Draws such a call and makes it. False: it had too many rows, so the communicators have failed, as they must. */
bool splits_run(struct input *in, int nranks, ceclComm_t comms[]);

/* Makes a call of one rank with one thing wrong. */
#define SPLITS_MISUSES 7
ceclResult_t splits_misuse(unsigned which, ceclComm_t comm, char *send, char *recv);

#endif
