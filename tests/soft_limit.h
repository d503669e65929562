#ifndef CECL_TESTS_SOFT_LIMIT_H
#define CECL_TESTS_SOFT_LIMIT_H

#include <sys/resource.h>

#include "with_cmocka.h"

/* Sets a soft limit; returns the former one. Restore RLIMIT_NOFILE: leak checks at the end need descriptors. */
static inline rlim_t soft_limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(resource, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    assert_int_equal(setrlimit(resource, &limit), 0);
    return before;
}

#endif
