/* What a process holds that a communicator takes and has to give back. */
#ifndef CECL_TESTS_FAULT_CENSUS_H
#define CECL_TESTS_FAULT_CENSUS_H

#include <stdbool.h>
#include <stddef.h>

/* A shared mapping, or a private one that is as large as a pool. */
struct census_mapping {
    unsigned long from, to;
    char rights[8], file[40];
};

enum { CENSUS_MAPPINGS = 256 };

struct census {
    int descriptors, threads, mappings;
    struct census_mapping list[CENSUS_MAPPINGS]; /* the first of them */
};

void census_take(struct census *out);
/* Waits until no more is held than `start`, for a few seconds at most: a thread of an id ends by
 * itself. *left is what is held at last. */
bool census_is_back(const struct census *start, struct census *left);
/* Writes what is left, with the mappings that were not there at the start. */
void census_describe(const struct census *start, const struct census *left, char *words,
                     size_t bytes);

#endif
