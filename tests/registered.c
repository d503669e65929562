/* The tests of a program; see with_cmocka.h. */
#include <stdlib.h>

#include "with_cmocka.h"

#define MOST 200

static struct CMUnitTest tests[MOST];
static size_t count;

void tests_add(struct CMUnitTest test)
{
    if (count == MOST)
        abort();
    tests[count++] = test;
}

int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    return _cmocka_run_group_tests("tests", tests, count, set_up, tear_down);
}
