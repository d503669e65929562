#include "echo.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define VERSION 23102

static _Thread_local struct echo last;

EXPORT echo_last_function echo_last;
const struct echo *echo_last(void)
{
    return &last;
}

#define EIGHT(x) x##0, x##1, x##2, x##3, x##4, x##5, x##6, x##7

static void note(const char *name, const uint64_t words[ECHO_WORDS],
                 const double numbers[ECHO_NUMBERS])
{
    last.name = name;
    memcpy(last.words, words, sizeof(last.words));
    memcpy(last.numbers, numbers, sizeof(last.numbers));
}

/* ncclGetVersion also writes a version, as NCCL's does, because cecl uses it. */
static void tell_version(const char *name, uint64_t address)
{
    if (strcmp(name, "ncclGetVersion") == 0)
        *(int *)(uintptr_t)address = VERSION;
}

/* Functions that make communicators return an error, because the library has no communicators. */
#define COUNTED(name) FUNCTION(name, ECHO_RETURNS)
#define FOLLOWED(name, answer) FUNCTION(name, ECHO_FAILS)
#define JUMP(name, answer) FUNCTION(name, ECHO_RETURNS)
#define FUNCTION(name, result) \
    EXPORT echo_function name; \
    uint64_t name(ECHO_PARAMETERS) \
    { \
        tell_version(#name, a0); \
        note(#name, (const uint64_t[]){EIGHT(a), EIGHT(b), EIGHT(c)}, (const double[]){EIGHT(x)}); \
        return result; \
    }
#include "nccl/names.h"
