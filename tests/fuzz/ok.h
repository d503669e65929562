/* Checks that a call of cecl.h succeeds. */
#ifndef CECL_TESTS_FUZZ_OK_H
#define CECL_TESTS_FUZZ_OK_H

#include <cecl/cecl.h>

#include "input.h"

#define OK(expr)                                                                                   \
    do {                                                                                           \
        const ceclResult_t result_ = (expr);                                                       \
        REQUIRE(result_ == ceclSuccess, "%s: %d: %s", #expr, (int)result_,                         \
                ceclGetLastError(NULL));                                                           \
    } while (0)

#endif
