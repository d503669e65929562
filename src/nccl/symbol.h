/* The function to which the calls of each symbol go. jump.c jumps there; symbol.c finds it at the first call. */
#ifndef CECL_NCCL_SYMBOL_H
#define CECL_NCCL_SYMBOL_H

#include <stdatomic.h>
#include <stdint.h>

/* The type that a function returns. It decides the answer to a call that cannot be passed on. */
enum cecl_nccl_answer {
    CECL_NCCL_RESULT, /* ncclResult_t: an error */
    CECL_NCCL_WORDS,  /* a string: the reason */
    CECL_NCCL_NOTHING,
    CECL_NCCL_TEAM,   /* three ints: a team of no ranks */
    CECL_NCCL_NUMBER, /* an int: -1, which is not a rank and not a number of slots */
    /* like RESULT, for a collective or a one-sided call that only moves data, with arguments that cecl does not know */
    CECL_NCCL_MOVE,
    CECL_NCCL_REDUCTION, /* like MOVE, for a collective that computes */
    CECL_NCCL_ANSWERS
};

typedef void (*cecl_nccl_target)(void);

struct cecl_nccl_symbol {
    _Atomic(cecl_nccl_target) target; /* first, because jump.c reads it without an offset */
    const char *name;
    enum cecl_nccl_answer answer;
    /* -- for MOVE and REDUCTION, whose calls all go through cecl_nccl_resolve -- */
    _Atomic(cecl_nccl_target) found; /* NULL: not looked for yet */
    /* how many calls were passed, and how many were refused; counted if CECL_NCCL_STATS=1 */
    _Atomic uint64_t calls[2];
};

/* jump.c. The first target of every symbol. Calls cecl_nccl_resolve, and jumps to the target that it returns, with all
 * arguments unchanged. */
void cecl_nccl_lazy(void);

/* Finds the target of `symbol`, and stores it. The target of a MOVE or REDUCTION is stored in `found` instead, so that
 * later calls also go through this function, and are counted. `caller` is the return address of the call. */
cecl_nccl_target cecl_nccl_resolve(struct cecl_nccl_symbol *symbol, const void *caller);

#endif
