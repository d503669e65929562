/* A call as a peer describes it. */
#include "plan/call.h"

void cecl_call_of_peer(const struct cecl_call *call, int rank, bool outside,
                       const uint64_t *send_at, uint64_t *layout, struct cecl_call *peer)
{
    /* {an array of the peer's layout, the array of this rank's layout that holds the same facts} */
    static const int theirs_mine[][2] = {{CECL_LAYOUT_SENT, CECL_LAYOUT_RECEIVED},
                                         {CECL_LAYOUT_TARGET, CECL_LAYOUT_RECEIVED_AT},
                                         {CECL_LAYOUT_RECEIVED, CECL_LAYOUT_SENT},
                                         {CECL_LAYOUT_RECEIVED_AT, CECL_LAYOUT_TARGET}};
    const int n = call->nranks, me = call->rank;
    const uint64_t *mine = call->view.layout;
    *peer = *call;
    peer->rank = rank;
    if (call->op->family == CECL_FAMILY_GATHERED)
        peer->in_place = !outside;
    if (cecl_op_has_both_buffers(call->op))
        /* only the peer knows whether its own block is in place, and other blocks do not depend on that */
        peer->in_place = false;
    if (call->op->family != CECL_FAMILY_OWN_LAYOUT)
        return;
    for (size_t i = 0; i < sizeof(theirs_mine) / sizeof(theirs_mine[0]); i++)
        layout[cecl_layout_at(n, theirs_mine[i][0], me)] =
            mine[cecl_layout_at(n, theirs_mine[i][1], rank)];
    layout[cecl_layout_at(n, CECL_LAYOUT_SENT_AT, me)] = send_at ? send_at[rank] : 0;
    peer->view.layout = layout;
}
