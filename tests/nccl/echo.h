/* A library with NCCL's name, whose functions only record their arguments. */
#ifndef CECL_TESTS_NCCL_ECHO_H
#define CECL_TESTS_NCCL_ECHO_H

#include <stdint.h>

/* ECHO_WORDS: more than x86-64 and aarch64 pass in registers, so some are on the stack. Doubles use vector registers. */
#define ECHO_WORDS 24
#define ECHO_NUMBERS 8
#define ECHO_WORD_PARAMETERS(x) \
    uint64_t x##0, uint64_t x##1, uint64_t x##2, uint64_t x##3, uint64_t x##4, uint64_t x##5, \
        uint64_t x##6, uint64_t x##7
#define ECHO_NUMBER_PARAMETERS(x) \
    double x##0, double x##1, double x##2, double x##3, double x##4, double x##5, double x##6, \
        double x##7
#define ECHO_PARAMETERS \
    ECHO_WORD_PARAMETERS(a), ECHO_NUMBER_PARAMETERS(x), ECHO_WORD_PARAMETERS(b), \
        ECHO_WORD_PARAMETERS(c)

typedef uint64_t echo_function(ECHO_PARAMETERS);

struct echo {
    const char *name;
    uint64_t words[ECHO_WORDS];
    double numbers[ECHO_NUMBERS];
};

/* The one function that NCCL does not have: returns this thread's last call. NCCL's functions return ECHO_RETURNS; those
 * that make communicators return ECHO_FAILS. */
typedef const struct echo *echo_last_function(void);
#define ECHO_RETURNS UINT64_C(0x1234567800000000)
/* ncclInternalError, if read as an ncclResult_t */
#define ECHO_FAILS UINT64_C(0x1234567800000003)

#endif
