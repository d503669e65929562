/* A symbol's target: the function to which jump.c passes the symbol's calls. symbol.c finds it at the first call. */
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
    CECL_NCCL_NUMBER, /* an int: -1, which is neither a rank nor a number of slots */
    /* like RESULT; the function only moves data, and cecl does not know its arguments */
    CECL_NCCL_MOVE,
    CECL_NCCL_REDUCTION, /* like MOVE, but the function computes */
    CECL_NCCL_ANSWERS
};

typedef void (*cecl_nccl_target)(void);

struct cecl_nccl_symbol {
    _Atomic(cecl_nccl_target) target; /* first, because jump.c reads it without an offset */
    const char *name;
    enum cecl_nccl_answer answer;
    /* -- only for MOVE and REDUCTION: each of their calls goes through cecl_nccl_resolve -- */
    _Atomic(cecl_nccl_target) found; /* NCCL's function; NULL: not looked up yet */
    /* how many calls were passed, and how many were refused; counted if CECL_NCCL_STATS=1 */
    _Atomic uint64_t calls[2];
};

/* jump.c. The first target of every symbol. Calls cecl_nccl_resolve, and jumps to the target that it returns, with all
 * arguments unchanged. */
void cecl_nccl_lazy(void);

/* Returns the function to jump to, and stores it: in `target`, so that later calls jump there directly; for MOVE and
 * REDUCTION in `found`, because each of their calls comes here to be counted. `caller` is the call's return address. */
cecl_nccl_target cecl_nccl_resolve(struct cecl_nccl_symbol *symbol, const void *caller);

#endif
