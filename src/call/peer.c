/* A call as a peer describes it. */
#include "call/call.h"

/* The five arrays of a layout that each rank has of its own: see struct cecl_view. */
enum { SENT, SENT_AT, TARGET, RECEIVED, RECEIVED_AT };

void cecl_call_of_peer(const struct cecl_call *call, int rank, bool outside,
                       const uint64_t *send_at, uint64_t *layout, struct cecl_call *peer)
{
    const int n = call->nranks, me = call->rank;
    const uint64_t *mine = call->view.layout;
    *peer = *call;
    peer->rank = rank;
    if (!call->op->per_rank && !call->op->each && !call->op->reduces)
        peer->in_place = !outside;
    if (!call->op->per_rank)
        return;
    peer->in_place = false; /* only the peer knows, and it concerns its own block alone */
    if (call->layout_words == 0)
        return;
    layout[SENT * n + me] = mine[RECEIVED * n + rank];
    layout[SENT_AT * n + me] = send_at ? send_at[rank] : 0;
    layout[TARGET * n + me] = mine[RECEIVED_AT * n + rank];
    layout[RECEIVED * n + me] = mine[SENT * n + rank];
    layout[RECEIVED_AT * n + me] = mine[TARGET * n + rank];
    peer->view.layout = layout;
}
