/* Calls by splits on the device, over several nodes.
 *
 * Only kernels know which rows go to which node, and the network needs sizes when it is enqueued. So each
 * rank sends all rows of its sendbuff to its carrier in each other node. The carrier's kernel reads the
 * sender's splits, and moves the rows that are for its own node, as the sender's kernel does in the
 * sender's node. Thus a row crosses the network once for each node, and not once for each rank:
 *
 *     main | my line -> my node's tables | barrier | after 1: my rows -> my node | after 2: pass 0 | ...
 *     net  |                    my node's lines -> other nodes: 1 | rows, window 0: 2 | window 1: 3 | ...
 *
 * A window is as many rows as have room in staging, which has two rooms. Windows have one size on all ranks,
 * so all ranks make equally many exchanges. If there is only one window, it goes with the lines.
 *
 * The network writes only to this rank's own staging and table, after the barrier: by then the peers' earlier
 * calls no longer use them. A last barrier says that all rows have been moved. */
#include <inttypes.h>

#include "call/splits.h"
#include "ce/lower_nodes.h"
#include "util/round.h"

#define ROOMS 2u

struct passing {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    struct cecl_splits_form form;
    uint64_t slot;          /* a room has a slot for each rank whose rows this rank receives */
    uint64_t rows, windows; /* rows of a window; number of windows */
    /* for each room: the exchange that fills it, and the transfers that bring rows, in the order of slots */
    uint32_t ends[ROOMS], transfers[ROOMS][CECL_SPLITS_RANKS_MAX];
};

/* Whether this rank receives the rows of a rank. */
static bool is_carried(const struct passing *p, int rank)
{
    const struct cecl_nodes *nodes = p->rails->nodes;
    return nodes->node[rank] != p->rails->node &&
           cecl_node_carrier(nodes, p->rails->node, nodes->local[rank]) == p->rails->me;
}

/* Chooses the slots and windows, equally on all ranks. The first rank of a node receives from the most
 * ranks. */
static ceclResult_t make_slots(struct passing *p)
{
    const struct cecl_rails *rails = p->rails;
    const uint64_t row = p->form.row_bytes + p->form.scale_bytes,
                   staging = rails->part->means.staging_bytes,
                   wanted = rails->chunk / row > 0 ? rails->chunk / row : 1;
    uint64_t most = 0;
    for (int n = 0; n < rails->nodes->count; n++) {
        uint64_t slots = 0;
        for (int other = 0; other < rails->nodes->count; other++)
            if (other != n)
                slots +=
                    (uint64_t)cecl_rails_carried(rails, other, 0, cecl_node_size(rails->nodes, n));
        most = slots > most ? slots : most;
    }
    p->slot = staging / (ROOMS * most) / CECL_CHUNK_ALIGN * CECL_CHUNK_ALIGN;
    /* scales begin at a multiple of CECL_CHUNK_ALIGN behind the rows */
    const uint64_t fits = p->slot > 0 ? (p->slot - CECL_CHUNK_ALIGN) / row : 0;
    if (fits == 0)
        return cecl_rails_too_small(
            rails, ROOMS * most * cecl_round_up(row + CECL_CHUNK_ALIGN, CECL_CHUNK_ALIGN));
    p->rows = wanted < fits ? wanted : fits;
    p->windows = (p->form.send_rows + p->rows - 1) / p->rows;
    return ceclSuccess;
}

/* ---- exchanges */

/* Lines of this node's ranks go to the rank `peer` of another node, or lines of its node's ranks come from
 * it. Lines of ranks with consecutive numbers lie side by side. */
static void transfer_lines(const struct passing *p, int peer, int node, bool sends)
{
    const struct cecl_rails *rails = p->rails;
    const uint64_t line = cecl_splits_line_bytes(p->form.nranks, p->form.experts);
    for (int l = 0, n; l < cecl_node_size(rails->nodes, node); l += n) {
        const int first = cecl_node_rank(rails->nodes, node, l);
        const struct cecl_place at = cecl_place_at(
            CECL_AREA_STAGING, rails->me, rails->part->means.table_offset + (uint64_t)first * line);
        n = 1;
        while (l + n < cecl_node_size(rails->nodes, node) &&
               cecl_node_rank(rails->nodes, node, l + n) == first + n)
            n++;
        if (sends)
            cecl_plan_send(p->plan, peer, at, (uint64_t)n * line);
        else
            cecl_plan_receive(p->plan, peer, at, (uint64_t)n * line);
    }
}

static void exchange_lines(const struct passing *p)
{
    const struct cecl_nodes *nodes = p->rails->nodes;
    for (int r = 0; r < nodes->nranks; r++)
        if (is_carried(p, r))
            transfer_lines(p, r, p->rails->node, true);
    for (int n = 0; n < nodes->count; n++)
        if (n != p->rails->node)
            transfer_lines(p, cecl_node_carrier(nodes, n, p->rails->local), n, false);
}

/* Sends a window of this rank's rows to its carriers, and receives the windows of the ranks that this rank
 * carries. */
static void exchange_rows(struct passing *p, uint64_t window)
{
    const struct cecl_rails *rails = p->rails;
    const uint64_t first = window * p->rows, room = window % ROOMS,
                   rows = cecl_chunk_left(p->form.send_rows, first, p->rows),
                   bytes = rows * p->form.row_bytes, scales = rows * p->form.scale_bytes;
    uint64_t at = room * (rails->part->means.staging_bytes / ROOMS);
    uint32_t slot = 0;
    for (int n = 0; n < rails->nodes->count; n++) {
        const int carrier = cecl_node_carrier(rails->nodes, n, rails->local);
        if (n == rails->node)
            continue;
        cecl_plan_send(p->plan, carrier,
                       cecl_place_at(CECL_AREA_SEND, rails->me, first * p->form.row_bytes), bytes);
        cecl_plan_send(p->plan, carrier,
                       cecl_place_at(CECL_AREA_SCALES, rails->me, first * p->form.scale_bytes),
                       scales);
    }
    for (int r = 0; r < rails->nodes->nranks; r++) {
        if (!is_carried(p, r))
            continue;
        p->transfers[room][slot++] = p->plan->ntransfers;
        cecl_plan_receive(p->plan, r, cecl_staging_at(rails->part, rails->me, at), bytes);
        cecl_plan_receive(
            p->plan, r,
            cecl_staging_at(rails->part, rails->me, at + cecl_round_up(bytes, CECL_CHUNK_ALIGN)),
            scales);
        at += p->slot;
    }
    p->ends[room] = cecl_plan_close_exchange(p->plan);
}

/* ---- the call */

/* Moves the rows that a window has brought. */
static void pass(const struct passing *p, uint64_t window)
{
    uint32_t slot = 0;
    for (int r = 0; r < p->rails->nodes->nranks; r++)
        if (is_carried(p, r))
            cecl_plan_splits(p->plan, CECL_SPLITS_PASS, p->transfers[window % ROOMS][slot++],
                             (uint32_t)(window * p->rows));
}

ceclResult_t cecl_lower_nodes_splits(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    struct passing p = {.rails = &rails, .plan = plan, .form = cecl_call_splits(&part->call)};
    CECL_TRY(make_slots(&p));
    cecl_plan_splits(plan, CECL_SPLITS_TELL, 0, 0);
    cecl_plan_barrier(plan);
    cecl_rails_follow(plan);
    exchange_lines(&p);
    if (p.windows != 1)
        cecl_plan_close_exchange(plan);
    for (uint64_t w = 0; w < ROOMS && w < p.windows; w++)
        exchange_rows(&p, w);
    cecl_rails_await(&rails, plan, 1);
    cecl_plan_splits(plan, CECL_SPLITS_MOVE, 0, 0);
    for (uint64_t w = 0; w < p.windows; w++) {
        cecl_rails_await(&rails, plan, p.ends[w % ROOMS]);
        pass(&p, w);
        if (w + ROOMS < p.windows) {
            cecl_rails_follow(plan);
            exchange_rows(&p, w + ROOMS);
        }
    }
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "%d nodes, all %" PRIu64 " sendrows to each, %" PRIu32 " exchange%s",
                  rails.nodes->count, p.form.send_rows, plan->nexchanges,
                  cecl_plural(plan->nexchanges));
    return ceclSuccess;
}
