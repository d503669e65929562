/* First errors of several calls. Some tests are linked to the public library only, which has no CECL_TRY. */
#ifndef CECL_TESTS_TRY_H
#define CECL_TESTS_TRY_H

#include <cecl/cecl.h>

/* Returns a failure to the caller. */
#define TRY(expr) \
    do { \
        const ceclResult_t try_result_ = (expr); \
        if (try_result_ != ceclSuccess) \
            return try_result_; \
    } while (0)

static inline ceclResult_t first_of(ceclResult_t result, ceclResult_t later)
{
    return result == ceclSuccess ? later : result;
}

#endif
