/* Intended errors of a soak. All ranks call these with equal numbers in `x`. */
#ifndef CECL_SOAK_TROUBLE_H
#define CECL_SOAK_TROUBLE_H

#include <stdint.h>

extern int trouble_aborts, trouble_revokes; /* counts of these events */

/* A member aborts or revokes a communicator, or all members abort it, while calls are pending.
 * The others must learn of it, and of the culprit's rank; results that are reported as valid must
 * be right. Some of the members then make a new communicator. Other communicators continue. */
void trouble_breaks(uint64_t *x);

#endif
