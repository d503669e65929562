/* The resources that a communicator takes from a process and must give back. */
#ifndef CECL_TESTS_FAULT_CENSUS_H
#define CECL_TESTS_FAULT_CENSUS_H

#include <stdbool.h>
#include <stddef.h>

/* A shared mapping, or a private one that is as large as a pool. */
struct census_mapping {
    unsigned long from, to;
    char rights[8], file[40];
};

enum { CENSUS_MAPPINGS = 256, CENSUS_DESCRIPTORS = 1024 };

struct census {
    int descriptors, threads, mappings;
    struct census_mapping list[CENSUS_MAPPINGS]; /* the first mappings that were found */
    bool is_open[CENSUS_DESCRIPTORS];
};

void census_take(struct census *out);
/* Waits until the process holds no more than `start`, because the thread that serves an id ends a little later. Returns
 * false after a few seconds. Sets *left to what the process then holds. */
bool census_is_back(const struct census *start, struct census *left);
/* Says which resources are left, with the mappings and descriptors that the process did not have at the start. */
void census_describe(const struct census *start, const struct census *left, char *words,
                     size_t bytes);

#endif
