/* cmocka.h, after the headers that it needs. */
#ifndef CECL_TEST_WITH_CMOCKA_H
#define CECL_TEST_WITH_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Ends a test as skipped. scripts/verdict.sh lists the reason. */
#define skip_because(why)                                                                          \
    do {                                                                                           \
        print_message("skipped: %s\n", why);                                                       \
        skip();                                                                                    \
    } while (0)

#endif
