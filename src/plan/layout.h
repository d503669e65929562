/* What the layout of a call holds whose blocks differ, and how it is read.
 *
 * Of an all-gather, alike on all ranks: [nranks] sizes, then [nranks] offsets in recvbuff.
 *
 * Of an all-to-all, each rank's own, [nranks] words each: bytes for a rank, where these lie in this
 * rank's sendbuff, where they belong in that rank's recvbuff; bytes from a rank, and where those
 * belong in this rank's recvbuff. The last two say nothing that the others' first three do not:
 * lowering needs them not, proving does. A gather and a scatter are such calls. */
#ifndef CECL_PLAN_LAYOUT_H
#define CECL_PLAN_LAYOUT_H

#include "plan/plan.h"

/* Words of a layout. */
static inline size_t cecl_layout_words(ceclOp_t op, int nranks)
{
    return (op == ceclOpAlltoAll ? 5 : 2) * (size_t)nranks;
}

/* Whether blocks of an all-to-all differ. */
static inline bool cecl_is_variable(const struct cecl_call *call)
{
    return call->op == ceclOpAlltoAll && call->layout;
}

/* -- of such a one -- */
static inline uint64_t cecl_sent_bytes(const struct cecl_call *call, int to)
{
    return call->layout[to];
}
static inline uint64_t cecl_sent_offset(const struct cecl_call *call, int to)
{
    return call->layout[call->nranks + to];
}
static inline uint64_t cecl_target_offset(const struct cecl_call *call, int at)
{
    return call->layout[2 * call->nranks + at];
}
static inline uint64_t cecl_received_bytes(const struct cecl_call *call, int from)
{
    return call->layout[3 * call->nranks + from];
}
static inline uint64_t cecl_received_offset(const struct cecl_call *call, int from)
{
    return call->layout[4 * call->nranks + from];
}

/* -- of an all-gather: the one rank that contributes anything, or -1 -- */
static inline int cecl_only_contributor(const struct cecl_call *call)
{
    int only = -1;
    for (int r = 0; r < call->nranks; r++)
        if (call->op != ceclOpAllGather || !call->layout || (call->layout[r] > 0 && only >= 0))
            return -1;
        else if (call->layout[r] > 0)
            only = r;
    return only;
}

#endif
