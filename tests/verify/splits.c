/* The steps of calls by splits on the device. The layout names the splits by address, so the verifier reads the splits
 * that a device would read. The verifier proves that steps touch only the memory that they may touch, when they may.
 * tests/unit/test_splits_host.c compares with a plain model where blocks go. Scales move with their rows, in the same
 * steps, and are not tracked. */
#include <inttypes.h>
#include <string.h>

#include "plan/splits.h"
#include "verify/internal.h"

/* What a table contains once all ranks have sent their lines. */
struct told {
    struct cecl_splits_form form;
    uint64_t table[CECL_SPLITS_RANKS_MAX *
                   (CECL_SPLITS_BLOCKS_MAX + sizeof(struct cecl_splits_line) / sizeof(uint64_t))];
};

static const struct cecl_call *call_of(const struct verifier *v, int call, int rank)
{
    return &verify_plan(v, call, rank)->part.call;
}

static void tell_all(const struct verifier *v, int call, struct told *told)
{
    told->form = cecl_call_splits(call_of(v, call, 0));
    for (uint32_t r = 0; r < told->form.nranks; r++) {
        const struct cecl_splits step = {
            .form = told->form,
            .splits = cecl_call_address(call_of(v, call, (int)r), CECL_LAYOUT_SPLITS),
            .offsets = cecl_call_offsets(call_of(v, call, (int)r))};
        cecl_splits_line_make(
            &step, 1, (struct cecl_splits_line *)cecl_splits_line_at(&told->form, told->table, r));
    }
}

/* Where a block lies in its sender's sendbuff. */
static const struct cecl_splits_block *sent_block(const struct told *told, uint32_t from,
                                                  uint32_t to, uint32_t expert)
{
    return &cecl_splits_blocks(
        cecl_splits_line_at(&told->form, told->table, from))[to * told->form.experts + expert];
}

static uint64_t line_bytes(const struct cecl_splits_form *form)
{
    return cecl_splits_line_bytes(form->nranks, form->experts);
}

/* The tag of a rank's line. Tags of lines count down, because those of user bytes count up. */
static uint32_t line_tag(const struct verifier *v, int call, int rank)
{
    return UINT32_MAX - (uint32_t)(call * v->nranks + rank);
}

static struct cecl_place line_place(const struct cecl_plan *plan, int holder, int rank)
{
    const struct cecl_splits_form form = cecl_call_splits(&plan->part.call);
    return (struct cecl_place){.offset = plan->part.means.table_offset +
                                         (uint64_t)rank * line_bytes(&form),
                               .area = CECL_AREA_STAGING,
                               .rank = (uint16_t)holder};
}

static void set_tags(const struct verifier *v, const struct cecl_place *place, uint64_t bytes,
                     uint32_t tag)
{
    for (uint64_t i = 0; i < bytes; i++)
        verify_tags(v, place->area, place->rank)[place->offset + i] = tag;
}

static ceclResult_t do_tell(struct verifier *v, int call, int rank, int actor)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    const struct cecl_splits_form form = cecl_call_splits(&plan->part.call);
    for (int holder = 0; holder < v->nranks; holder++) {
        const struct cecl_place line = line_place(plan, holder, rank);
        CECL_TRY(verify_note(v, &line, line.offset, line_bytes(&form), actor, true));
        set_tags(v, &line, line_bytes(&form), line_tag(v, call, rank));
    }
    return ceclSuccess;
}

/* All lines of this rank's table must belong to this call. */
static ceclResult_t read_table(struct verifier *v, int call, int rank, int actor)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    const struct cecl_splits_form form = cecl_call_splits(&plan->part.call);
    for (int r = 0; r < v->nranks; r++) {
        const struct cecl_place line = line_place(plan, rank, r);
        const uint32_t *tags = verify_tags(v, line.area, line.rank) + line.offset;
        CECL_TRY(verify_note(v, &line, line.offset, line_bytes(&form), actor, false));
        for (uint64_t i = 0; i < line_bytes(&form); i++)
            if (tags[i] != line_tag(v, call, r))
                return VERIFY_FAULT("call %d, rank %d: rank %d has not told its splits", call, rank,
                                    r);
    }
    return ceclSuccess;
}

static ceclResult_t move_block(struct verifier *v, int actor, struct cecl_place src,
                               struct cecl_place dst, uint64_t bytes)
{
    if (bytes == 0)
        return ceclSuccess;
    CECL_TRY(verify_note(v, &src, src.offset, bytes, actor, false));
    CECL_TRY(verify_note(v, &dst, dst.offset, bytes, actor, true));
    memcpy(verify_tags(v, dst.area, dst.rank) + dst.offset,
           verify_tags(v, src.area, src.rank) + src.offset, (size_t)bytes * sizeof(uint32_t));
    uint32_t *writes = verify_writes(v, dst.area, dst.rank) + dst.offset;
    for (uint64_t i = 0; i < bytes; i++)
        writes[i]++;
    return ceclSuccess;
}

/* Moves the blocks that this rank has for rank `to`. */
static ceclResult_t move_to(struct verifier *v, const struct told *told, int rank, uint32_t to,
                            int actor)
{
    const uint64_t row_bytes = told->form.row_bytes;
    uint64_t rows[CECL_SPLITS_BLOCKS_MAX], places[CECL_SPLITS_BLOCKS_MAX];
    uint32_t from, expert, ignored;
    cecl_splits_place(&told->form, told->table, to, rows, places, &ignored);
    for (uint32_t i = 0; i < told->form.nranks * told->form.experts; i++) {
        cecl_splits_received(&told->form, i, &from, &expert);
        const uint64_t at = sent_block(told, from, to, expert)->at,
                       here = cecl_splits_here(&told->form, at, rows[i]);
        const struct cecl_place src = {at * row_bytes, CECL_AREA_SEND, (uint16_t)rank},
                                dst = {places[i] * row_bytes, CECL_AREA_RECV, (uint16_t)to};
        if (from == (uint32_t)rank)
            CECL_TRY(move_block(v, actor, src, dst, here * row_bytes));
    }
    return ceclSuccess;
}

ceclResult_t verify_splits(struct verifier *v, int call, int rank, const struct cecl_step *step)
{
    const int actor = verify_actor(v, rank, step->lane);
    struct told told;
    if (step->first == CECL_SPLITS_TELL)
        return do_tell(v, call, rank, actor);
    CECL_TRY(read_table(v, call, rank, actor));
    tell_all(v, call, &told);
    for (int to = 0; to < v->nranks; to++)
        CECL_TRY(move_to(v, &told, rank, (uint32_t)to, actor));
    return ceclSuccess;
}

uint64_t verify_splits_staging(const struct cecl_plan *plan)
{
    const struct cecl_splits_form form = cecl_call_splits(&plan->part.call);
    return plan->part.means.table_offset + cecl_splits_table_bytes(form.nranks, form.experts);
}

ceclResult_t verify_splits_form(const struct verifier *v, const struct cecl_plan *plan,
                                const struct cecl_step *step)
{
    const struct cecl_part *part = &plan->part;
    if (part->call.op->family != CECL_FAMILY_SPLITS || cecl_plan_parts(plan) != 1 ||
        step->lane != CECL_LANE_MAIN || step->first > CECL_SPLITS_MOVE ||
        v->nranks > CECL_SPLITS_RANKS_MAX)
        return VERIFY_FAULT("step %" PRIu32 " of a call by splits, where there is none",
                            step->first);
    if (verify_splits_staging(plan) > part->means.table_offset + part->means.table_bytes)
        return VERIFY_FAULT("a table of splits ends at byte %" PRIu64 " of staging",
                            verify_splits_staging(plan));
    return ceclSuccess;
}

ceclResult_t verify_splits_output(const struct verifier *v, int call, int rank)
{
    const uint32_t *tags = verify_tags(v, CECL_AREA_RECV, rank);
    uint64_t rows[CECL_SPLITS_BLOCKS_MAX], places[CECL_SPLITS_BLOCKS_MAX];
    uint32_t from, expert, ignored;
    struct told told;
    tell_all(v, call, &told);
    const uint64_t row_bytes = told.form.row_bytes;
    cecl_splits_place(&told.form, told.table, (uint32_t)rank, rows, places, &ignored);
    for (uint32_t i = 0; i < told.form.nranks * told.form.experts; i++) {
        cecl_splits_received(&told.form, i, &from, &expert);
        const uint64_t src = sent_block(&told, from, (uint32_t)rank, expert)->at * row_bytes,
                       dst = places[i] * row_bytes;
        for (uint64_t b = 0; b < rows[i] * row_bytes; b++) {
            CECL_TRY(verify_writes_of(v, call, 0, rank, dst + b, 1));
            if (tags[dst + b] != verify_tag(v, call, 0, (int)from, src + b))
                return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                    " of the output is not byte %" PRIu64 " of rank %u's rows",
                                    call, rank, dst + b, src + b, from);
        }
    }
    return ceclSuccess;
}
