/* The tests of a program; see with_cmocka.h. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "with_cmocka.h"

#define MOST 200
#define TOGETHER 6 /* how many tests run at a time if each has a process of its own */

static struct CMUnitTest tests[MOST];
static size_t count;

void tests_add(struct CMUnitTest test)
{
    if (count == MOST)
        abort();
    tests[count++] = test;
}

static CMFixtureFunction first, last;

void tests_between(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    first = set_up;
    last = tear_down;
}

int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    return _cmocka_run_group_tests("tests", tests, count, set_up ? set_up : first,
                                   tear_down ? tear_down : last);
}

/* A test's output goes to a file until the test has ended. */
static struct child {
    pid_t process;
    FILE *said;
} children[MOST];

static void start(size_t test)
{
    struct child *child = &children[test];
    child->said = tmpfile();
    fflush(NULL);
    child->process = child->said ? fork() : -1;
    if (child->process < 0)
        abort();
    if (child->process > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(fileno(child->said), 1) < 0 || dup2(fileno(child->said), 2) < 0)
        abort();
    fclose(child->said);
    exit(_cmocka_run_group_tests(tests[test].name, &tests[test], 1, NULL, NULL));
}

/* Waits until a test has ended, and prints what it said. Returns whether it failed. */
static bool has_one_failed(void)
{
    int status = 0, c;
    size_t test = 0;
    const pid_t ended = wait(&status);
    while (test < count && children[test].process != ended)
        test++;
    if (test == count)
        abort();
    rewind(children[test].said);
    while ((c = getc(children[test].said)) != EOF)
        putchar(c);
    fclose(children[test].said);
    if (WIFSIGNALED(status))
        printf("%s ended by signal %d\n", tests[test].name, WTERMSIG(status));
    return status != 0;
}

int tests_run_apart(void)
{
    int failed = 0;
    size_t started = 0;
    for (size_t ended = 0; ended < count; ended++) {
        while (started < count && started - ended < TOGETHER)
            start(started++);
        failed += has_one_failed();
    }
    return failed;
}
