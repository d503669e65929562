/* Whether a communicator works, for all tests that make one of another, or after a failure. */
#ifndef CECL_TESTS_WORLD_WORKS_H
#define CECL_TESTS_WORLD_WORKS_H

#include <cecl/cecl.h>

/* Gathers and reduces between new buffers. `members`: what the ranks are called, in the order of their ranks; NULL: by
 * their ranks. wrong [out] what is not as it must be; empty: nothing. Returns the first error of a call. */
ceclResult_t comm_works(ceclComm_t comm, const int *members, int count, char *wrong, size_t bytes);

#endif
