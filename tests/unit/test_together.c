/* Tasks of a group, each on a thread of its own. */
#include <signal.h>
#include <stdbool.h>

#include "../with_cmocka.h"

#include "comm/together.h"

#define TASKS 4

/* Whether the calling thread blocks a signal that programs handle. */
static ceclResult_t see_mask(void *argument)
{
    bool *blocks = argument;
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    *blocks = sigismember(&mask, SIGUSR1);
    return ceclSuccess;
}

TEST(handlers_of_the_program_run_on_its_own_threads)
{
    bool blocks[TASKS] = {false};
    struct cecl_task tasks[TASKS];
    for (int t = 0; t < TASKS; t++)
        tasks[t] = (struct cecl_task){.run = see_mask, .argument = &blocks[t]};
    assert_int_equal(cecl_together(tasks, TASKS), ceclSuccess);
    assert_false(blocks[0]); /* the caller's thread */
    for (int t = 1; t < TASKS; t++)
        assert_true(blocks[t]);
}
