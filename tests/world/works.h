/* Whether a new communicator works: one made from another one, or after a failure. */
#ifndef CECL_TESTS_WORLD_WORKS_H
#define CECL_TESTS_WORLD_WORKS_H

#include <cecl/cecl.h>

/* Gathers and reduces with new buffers. `members`: for each rank a number, from which its input follows; NULL: the rank
 * itself. wrong [out]: what is wrong, or empty. Returns the first error of a call. */
ceclResult_t comm_works(ceclComm_t comm, const int *members, int count, char *wrong, size_t bytes);

#endif
