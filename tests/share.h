/* How much of the random tests runs. */
#ifndef CECL_TEST_SHARE_H
#define CECL_TEST_SHARE_H

#include <stdlib.h>

/* How many of `all` rounds a test runs. CECL_TEST_SHARE=N runs every Nth round, at least one: scripts/test.sh and
 * the sanitizers run a share, CI also runs all rounds. */
static inline int test_share(int all)
{
    const char *given = getenv("CECL_TEST_SHARE");
    const int share = given ? atoi(given) : 1;
    return share < 2 ? all : all < share ? 1 : all / share;
}

#endif
