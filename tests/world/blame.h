#ifndef CECL_TESTS_FAULT_BLAME_H
#define CECL_TESTS_FAULT_BLAME_H

#include <stdbool.h>

/* The ranks that an error's message names and blames. */
struct blame {
    bool names_faulty; /* it names the faulty rank, or its process as the one that made the id */
    int wrongly;       /* a rank that it blames instead of the faulty one; -1: none */
};

/* `made_id`: the faulty rank's process made the id. A rank that only passes on a reason ("rank 2 gave up: ...") is not
 * blamed. */
struct blame blame_of(const char *words, int faulty, bool made_id);

#endif
