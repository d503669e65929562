/* Tasks of a group, each on a thread of its own. */
#include <signal.h>

#include "../with_cmocka.h"

#include "comm/together.h"

#define TASKS 4

static bool blocks[TASKS];

/* Whether the calling thread blocks a signal that programs handle. */
static ceclResult_t see_mask(void *item)
{
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    *(bool *)item = sigismember(&mask, SIGUSR1);
    return ceclSuccess;
}

static void *next_of(void *item)
{
    return item == &blocks[TASKS - 1] ? NULL : (bool *)item + 1;
}

TEST(handlers_of_the_program_run_on_its_own_threads)
{
    assert_int_equal(cecl_together(see_mask, blocks, next_of), ceclSuccess);
    assert_false(blocks[0]); /* the caller's thread */
    for (int t = 1; t < TASKS; t++)
        assert_true(blocks[t]);
}
