/* Where the calls of each symbol go. jump.c jumps there; symbol.c finds the place at the first call. */
#ifndef CECL_NCCL_SYMBOL_H
#define CECL_NCCL_SYMBOL_H

#include <stdatomic.h>
#include <stdint.h>

/* What a symbol returns. This decides what a call gets that cannot be passed on. */
enum cecl_nccl_answer {
    CECL_NCCL_RESULT, /* ncclResult_t: an error */
    CECL_NCCL_WORDS,  /* a string: the reason */
    CECL_NCCL_NOTHING,
    CECL_NCCL_TEAM,   /* three ints: a team of no ranks */
    CECL_NCCL_NUMBER, /* an int: -1, which is no rank and no number of slots */
    CECL_NCCL_MOVE, /* as RESULT, of a collective that moves data, whose arguments are not known */
    CECL_NCCL_REDUCTION, /* the same, of one that computes */
    CECL_NCCL_ANSWERS
};

typedef void (*cecl_nccl_target)(void);

struct cecl_nccl_symbol {
    _Atomic(cecl_nccl_target) target; /* first, because jump.c reads it without an offset */
    const char *name;
    enum cecl_nccl_answer answer;
    /* -- of MOVE and REDUCTION, each call of which comes to cecl_nccl_resolve -- */
    _Atomic(cecl_nccl_target) found; /* NULL: it was not looked for */
    _Atomic uint64_t calls[2];       /* passed; refused. Counted under CECL_NCCL_STATS=1 */
};

/* jump.c. Every symbol's target at first: it calls cecl_nccl_resolve, and jumps to what that
 * returns, with all arguments as they came. */
void cecl_nccl_lazy(void);

/* Finds the target of `symbol`, and keeps it. A collective's target is kept in `found`, so the next call
 * comes here, too, and is counted. `caller` is the code that the call returns to. */
cecl_nccl_target cecl_nccl_resolve(struct cecl_nccl_symbol *symbol, const void *caller);

#endif
