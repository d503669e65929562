/* Calls by splits on the device, over several nodes.
 *
 * Only kernels know which rows go to which node, and an exchange needs its sizes when it is enqueued. So each
 * rank sends all rows of its sendbuff to its carrier in each other node. The carrier's kernel reads the
 * sender's splits, and moves the rows that are for its own node, as the sender's kernel does in the
 * sender's node. Thus a row crosses the network once for each node, and not once for each rank:
 *
 *     main | my line -> my node's tables | barrier | after 1: my rows -> my node | after 2: pass 0 | ...
 *     net  |                    my node's lines -> other nodes: 1 | rows, window 0: 2 | window 1: 3 | ...
 *
 * A window is as much of sendbuff, or of the second array, as a slot of staging has room for. (No window of
 * memory is meant.) All ranks have the same windows, so all make equally many exchanges. If sendbuff and the
 * second array have at most one window each, they go with the lines in one exchange.
 *
 * The network writes only to this rank's own staging and table, after the barrier: by then the peers' earlier
 * calls no longer use them. The last barrier says that all rows for this node have been moved. */
#include <inttypes.h>

#include "call/splits.h"
#include "ce/lower_nodes.h"

#define ROOMS 2u

struct passing {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    struct cecl_splits_form form;
    uint64_t room, slot; /* a room has a slot for each rank whose windows this rank receives */
    uint64_t window;     /* bytes */
    /* the windows of sendbuff, and all windows, with those of the second array */
    uint64_t of_rows, windows;
    uint32_t ends[ROOMS]; /* the exchange that fills each room */
};

/* One window of a rank's arrays. */
struct window {
    enum cecl_area area;
    uint64_t first, bytes;
};

static uint64_t windows_in(const struct passing *p, uint64_t bytes)
{
    return bytes / p->window + (bytes % p->window > 0);
}

static struct window window_at(const struct passing *p, uint64_t w)
{
    const bool is_rows = w < p->of_rows;
    const uint64_t first = (is_rows ? w : w - p->of_rows) * p->window,
                   total = p->form.send_rows * (is_rows ? p->form.row_bytes : p->form.scale_bytes);
    return (struct window){is_rows ? CECL_AREA_SEND : CECL_AREA_SCALES, first,
                           cecl_chunk_left(total, first, p->window)};
}

/* Whether this rank receives the windows of a rank. */
static bool is_carried(const struct passing *p, int rank)
{
    const struct cecl_nodes *nodes = p->rails->nodes;
    return nodes->node[rank] != p->rails->node &&
           cecl_node_carrier(nodes, p->rails->node, nodes->local[rank]) == p->rails->me;
}

/* Chooses windows, equally on all ranks. The first rank of a node receives from the most ranks. */
static ceclResult_t make_windows(struct passing *p)
{
    const struct cecl_rails *rails = p->rails;
    uint64_t most = 0;
    for (int n = 0; n < rails->nodes->count; n++) {
        const int size = cecl_node_size(rails->nodes, n);
        uint64_t slots = 0;
        for (int other = 0; other < rails->nodes->count; other++)
            slots += other == n ? 0 : (uint64_t)cecl_rails_carried(rails, other, 0, size);
        most = slots > most ? slots : most;
    }
    p->slot =
        rails->part->means.staging_bytes / (ROOMS * most) / CECL_CHUNK_ALIGN * CECL_CHUNK_ALIGN;
    p->room = most * p->slot;
    p->window = p->slot < rails->chunk ? p->slot : rails->chunk;
    if (p->window >= CECL_CHUNK_ALIGN) /* the kernel copies aligned bytes faster */
        p->window -= p->window % CECL_CHUNK_ALIGN;
    if (p->window == 0)
        return cecl_rails_too_small(rails, ROOMS * most * CECL_CHUNK_ALIGN);
    p->of_rows = windows_in(p, p->form.send_rows * p->form.row_bytes);
    p->windows = p->of_rows + windows_in(p, p->form.send_rows * p->form.scale_bytes);
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

/* Calls `each` for each rank whose windows this rank receives, with the slot of window `w`. */
static void each_slot(const struct passing *p, uint64_t w,
                      void (*each)(const struct passing *p, const struct window *window, int rank,
                                   struct cecl_place slot))
{
    const struct window window = window_at(p, w);
    uint64_t at = w % ROOMS * p->room;
    for (int r = 0; r < p->rails->nodes->nranks; r++)
        if (is_carried(p, r)) {
            each(p, &window, r, cecl_staging_at(p->rails->part, p->rails->me, at));
            at += p->slot;
        }
}

static void receive(const struct passing *p, const struct window *window, int rank,
                    struct cecl_place slot)
{
    cecl_plan_receive(p->plan, rank, slot, window->bytes);
}

/* Moves what a window has brought. */
static void pass(const struct passing *p, const struct window *window, int rank,
                 struct cecl_place slot)
{
    cecl_plan_pass(p->plan, &(struct cecl_pass){.at = slot,
                                                .first = window->first,
                                                .bytes = window->bytes,
                                                .from = (uint16_t)rank,
                                                .is_scales = window->area == CECL_AREA_SCALES});
}

/* Sends a window to this rank's carriers, and receives the windows of the ranks that it carries. */
static void exchange_window(struct passing *p, uint64_t w)
{
    const struct cecl_rails *rails = p->rails;
    const struct window window = window_at(p, w);
    for (int n = 0; n < rails->nodes->count; n++)
        if (n != rails->node)
            cecl_plan_send(p->plan, cecl_node_carrier(rails->nodes, n, rails->local),
                           cecl_place_at(window.area, rails->me, window.first), window.bytes);
    each_slot(p, w, receive);
}

/* ---- the call */

/* Exchanges of windows [from, to): one for each, or one for all (`together`). */
static void begin(struct passing *p, uint64_t from, uint64_t to, bool together)
{
    for (uint64_t w = from; w < to && w < p->windows; w++) {
        exchange_window(p, w);
        if (!together)
            cecl_plan_close_exchange(p->plan);
        p->ends[w % ROOMS] = p->plan->nexchanges;
    }
    cecl_plan_close_exchange(p->plan);
}

ceclResult_t cecl_lower_nodes_splits(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    struct passing p = {.rails = &rails, .plan = plan, .form = cecl_call_splits(&part->call)};
    CECL_TRY(make_windows(&p));
    const bool together = p.of_rows <= 1 && p.windows <= p.of_rows + 1;
    cecl_plan_splits(plan, CECL_SPLITS_TELL);
    cecl_plan_barrier(plan);
    cecl_rails_follow(plan);
    exchange_lines(&p);
    if (!together)
        cecl_plan_close_exchange(plan);
    begin(&p, 0, ROOMS, together);
    cecl_rails_await(&rails, plan, 1);
    cecl_plan_splits(plan, CECL_SPLITS_MOVE);
    for (uint64_t w = 0; w < p.windows; w++) {
        cecl_rails_await(&rails, plan, p.ends[w % ROOMS]);
        each_slot(&p, w, pass);
        if (w + ROOMS < p.windows) {
            cecl_rails_follow(plan);
            begin(&p, w + ROOMS, w + ROOMS + 1, false);
        }
    }
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "%d nodes, all %" PRIu64 " sendrows to each, %" PRIu32 " exchange%s",
                  rails.nodes->count, p.form.send_rows, plan->nexchanges,
                  cecl_plural(plan->nexchanges));
    return ceclSuccess;
}
