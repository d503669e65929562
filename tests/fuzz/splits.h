/* Calls by splits in device memory, for fuzz_api: one thread makes ceclAlltoAllvDevice,
 * ceclDispatch and ceclCombine on all ranks, with random splits, sometimes with more rows than
 * fit. Every byte that the calls write, and the results that they report, are compared with plain
 * loops. */
#ifndef CECL_TESTS_FUZZ_SPLITS_H
#define CECL_TESTS_FUZZ_SPLITS_H

#include <cecl/cecl.h>

#include "input.h"

/* Draws such a call and makes it. False: the call had too many rows, so the communicators have
 * failed, as expected. */
bool splits_run(struct input *in, int nranks, ceclComm_t comms[]);

/* Makes a call of one rank with one invalid argument. */
#define SPLITS_MISUSES 7
ceclResult_t splits_misuse(unsigned which, ceclComm_t comm, char *send, char *recv);

#endif
