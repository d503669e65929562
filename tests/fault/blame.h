/* Whom an error's words blame. */
#ifndef CECL_TESTS_FAULT_BLAME_H
#define CECL_TESTS_FAULT_BLAME_H

#include <stdbool.h>

/* What the words of an error say about ranks. */
struct blame {
    bool names_faulty; /* as a rank, or as the process that made the id, if that was it */
    int wrongly;       /* a rank that is blamed and is not the faulty one; -1: none */
};

/* `made_id`: the faulty rank's process made the id. A rank that only passes on a reason ("rank 2 gave
 * up: ...") is not blamed by that. */
struct blame blame_of(const char *words, int faulty, bool made_id);

#endif
