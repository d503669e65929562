/* What each test needs: headers of the C library, and cmocka.h, which requires that some of them come before it. */
#ifndef CECL_TEST_WITH_CMOCKA_H
#define CECL_TEST_WITH_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "wrapped.h"

/* Defines a test that registers itself. A program's tests run in the order of their definitions. */
#define TEST(name) TEST_BETWEEN(name, NULL, NULL)
/* A test with functions that run before and after it; NULL: none. */
#define TEST_BETWEEN(name, set_up, tear_down) TEST_IF(1, name, set_up, tear_down)
/* A test that exists only if `condition` holds at the program's start. */
#define TEST_IF(condition, name, set_up, tear_down) \
    static void name(void **state); \
    __attribute__((constructor)) static void name##_is_registered(void) \
    { \
        if (condition) \
            tests_add((struct CMUnitTest){#name, name, set_up, tear_down, NULL}); \
    } \
    static void name(void **state)
/* Runs a test once more, with other functions before and after it. */
#define TEST_AGAIN(name, set_up, tear_down) TEST_AGAIN_IF(1, name, set_up, tear_down)
#define TEST_AGAIN_IF(condition, name, set_up, tear_down) \
    __attribute__((constructor)) static void name##_runs_after_##set_up(void) \
    { \
        if (condition) \
            tests_add( \
                (struct CMUnitTest){#name " after " #set_up, name, set_up, tear_down, NULL}); \
    }
void tests_add(struct CMUnitTest test);
/* Runs the registered tests between `set_up` and `tear_down` (NULL: none). Returns how many failed. */
int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down);
/* For a program that gets its main from main.c: `set_up` runs before all its tests, `tear_down` after them. The program
 * uses the host device unless CECL_DEVICE is set. */
#define TESTS_BETWEEN(set_up, tear_down) \
    __attribute__((constructor)) static void tests_are_between(void) \
    { \
        tests_between(set_up, tear_down); \
    }
void tests_between(CMFixtureFunction set_up, CMFixtureFunction tear_down);
/* Runs tests that mostly wait: each in a process of its own, several at a time. */
int tests_run_apart(void);

/* Ends a test as skipped. scripts/verdict.sh lists the reason. */
#define skip_because(why) \
    do { \
        print_message("skipped: %s\n", why); \
        skip(); \
    } while (0)

#endif
