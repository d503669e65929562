/* How many rounds random tests run. */
#ifndef CECL_TEST_SHARE_H
#define CECL_TEST_SHARE_H

#include <stdlib.h>

/* How many of `all` rounds a test runs: one in CECL_TEST_SHARE, but at least one. scripts/test.sh and the sanitizers
 * run a quarter of them, .ci/nightly all. */
static inline int test_share(int all)
{
    const char *given = getenv("CECL_TEST_SHARE");
    const int share = given ? atoi(given) : 1;
    return share < 2 ? all : all < share ? 1 : all / share;
}

#endif
