/* What a process holds that a communicator takes and has to give back. */
#ifndef CECL_TESTS_FAULT_CENSUS_H
#define CECL_TESTS_FAULT_CENSUS_H

#include <stdbool.h>

struct census {
    int descriptors, threads;
    int mappings;  /* shared ones, and private ones that are as large as a pool */
    int of_driver; /* of these, mappings of the GPU driver's files; they only explain */
};

struct census census_take(void);
/* Waits until no more is held than `start`, for a few seconds at most: a thread of an id ends by
 * itself. *now is what is held at last. */
bool census_is_back(const struct census *start, struct census *now);

#endif
