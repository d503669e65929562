/* What goes wrong in a soak, on purpose. All ranks call with equal numbers in `x`. */
#ifndef CECL_SOAK_TROUBLE_H
#define CECL_SOAK_TROUBLE_H

#include <stdint.h>

extern int trouble_aborts, trouble_revokes, trouble_refusals; /* how many there were */

/* A member aborts or revokes a communicator, or all of them abort it, while calls are pending. The
 * others must hear of it and of who it was; what they are told is right must be right. Some of the
 * members then make a new communicator. Other communicators go on. */
void trouble_breaks(uint64_t *x);

/* Calls that are refused, which must leave no trace. */
void trouble_refuses(uint64_t *x);

#endif
