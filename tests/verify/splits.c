/* The steps of calls by splits on the device. The layout names the splits by address, so the verifier reads
 * the splits that a device would read. The test of sm/splits.h proves where blocks belong, with a plain
 * model. The verifier proves that steps touch only the memory that they may touch, when they may. Scales
 * move with their rows, in the same steps, and are not tracked. */
#include <inttypes.h>
#include <string.h>

#include "call/splits.h"
#include "verify/internal.h"

/* The contents of a table once all ranks have sent their lines, and where this rank's blocks lie in
 * sendbuff. */
struct told {
    uint64_t table[CECL_SPLITS_RANKS_MAX *
                   (CECL_SPLITS_BLOCKS_MAX + sizeof(struct cecl_splits_line) / sizeof(uint64_t))];
    uint64_t at[CECL_SPLITS_BLOCKS_MAX];
};

static const struct cecl_call *call_of(const struct verifier *v, int call, int rank)
{
    return &verify_plan(v, call, rank)->part.call;
}

static void tell_all(const struct verifier *v, int call, int rank, struct told *told)
{
    const struct cecl_splits_form form = cecl_call_splits(call_of(v, call, rank));
    uint64_t ignored[CECL_SPLITS_BLOCKS_MAX];
    for (uint32_t r = 0; r < form.nranks; r++) {
        const struct cecl_splits step = {
            .form = form,
            .splits = cecl_call_address(call_of(v, call, (int)r), CECL_LAYOUT_SPLITS),
            .offsets = cecl_call_offsets(call_of(v, call, (int)r))};
        cecl_splits_line_make(&step,
                              (struct cecl_splits_line *)cecl_splits_line_at(&form, told->table, r),
                              (int)r == rank ? told->at : ignored);
    }
}

static uint64_t line_bytes(const struct cecl_splits_form *form)
{
    return cecl_splits_line_bytes(form->nranks, form->experts);
}

/* The tag of a rank's line. Tags of user bytes are numbered from the lower end. */
static uint32_t line_tag(const struct verifier *v, int call, int rank)
{
    return UINT32_MAX - (uint32_t)(call * v->nranks + rank);
}

static struct cecl_place line_place(const struct cecl_plan *plan, int holder, int rank)
{
    const struct cecl_splits_form form = cecl_call_splits(&plan->part.call);
    return (struct cecl_place){.offset = plan->part.means.staging_offset +
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
        CECL_TRY(verify_note(v, &line, line.offset, line_bytes(&form), actor, true, 0));
        set_tags(v, &line, line_bytes(&form), line_tag(v, call, rank));
    }
    return ceclSuccess;
}

/* Checks that all lines of this rank's table belong to this call. */
static ceclResult_t read_table(struct verifier *v, int call, int rank, int actor)
{
    const struct cecl_plan *plan = verify_plan(v, call, rank);
    const struct cecl_splits_form form = cecl_call_splits(&plan->part.call);
    for (int r = 0; r < v->nranks; r++) {
        const struct cecl_place line = line_place(plan, rank, r);
        CECL_TRY(verify_note(v, &line, line.offset, line_bytes(&form), actor, false, 0));
        if (verify_tags(v, line.area, line.rank)[line.offset] != line_tag(v, call, r))
            return VERIFY_FAULT("call %d, rank %d: rank %d has not told its splits", call, rank, r);
    }
    return ceclSuccess;
}

static ceclResult_t move_block(struct verifier *v, int actor, struct cecl_place src,
                               struct cecl_place dst, uint64_t bytes)
{
    if (bytes == 0)
        return ceclSuccess;
    CECL_TRY(verify_note(v, &src, src.offset, bytes, actor, false, 0));
    CECL_TRY(verify_note(v, &dst, dst.offset, bytes, actor, true, 0));
    memcpy(verify_tags(v, dst.area, dst.rank) + dst.offset,
           verify_tags(v, src.area, src.rank) + src.offset, (size_t)bytes * sizeof(uint32_t));
    uint32_t *writes = verify_writes(v, dst.area, dst.rank) + dst.offset;
    for (uint64_t i = 0; i < bytes; i++)
        writes[i]++;
    return ceclSuccess;
}

static ceclResult_t do_move(struct verifier *v, int call, int rank, int actor)
{
    const struct cecl_splits_form form = cecl_call_splits(call_of(v, call, rank));
    uint64_t rows[CECL_SPLITS_BLOCKS_MAX], places[CECL_SPLITS_BLOCKS_MAX];
    struct told told;
    CECL_TRY(read_table(v, call, rank, actor));
    tell_all(v, call, rank, &told);
    for (uint32_t to = 0; to < form.nranks; to++) {
        uint32_t from, expert, ignored;
        cecl_splits_place(&form, told.table, to, rows, places, &ignored);
        for (uint32_t i = 0; i < form.nranks * form.experts; i++) {
            cecl_splits_received(&form, i, &from, &expert);
            const struct cecl_place src = {told.at[to * form.experts + expert] * form.row_bytes,
                                           CECL_AREA_SEND, (uint16_t)rank},
                                    dst = {places[i] * form.row_bytes, CECL_AREA_RECV,
                                           (uint16_t)to};
            if ((int)from == rank)
                CECL_TRY(move_block(v, actor, src, dst, rows[i] * form.row_bytes));
        }
    }
    return ceclSuccess;
}

ceclResult_t verify_splits(struct verifier *v, int call, int rank, const struct cecl_step *step)
{
    const int actor = verify_actor(v, rank, step->lane);
    return step->first == CECL_SPLITS_TELL ? do_tell(v, call, rank, actor)
                                           : do_move(v, call, rank, actor);
}

uint64_t verify_splits_staging(const struct cecl_plan *plan)
{
    const struct cecl_splits_form form = cecl_call_splits(&plan->part.call);
    return plan->part.means.staging_offset + cecl_splits_table_bytes(form.nranks, form.experts);
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
    if (verify_splits_staging(plan) > part->means.staging_offset + part->means.staging_bytes)
        return VERIFY_FAULT("a table of splits ends at byte %" PRIu64 " of staging",
                            verify_splits_staging(plan));
    return ceclSuccess;
}

ceclResult_t verify_splits_alike(const struct cecl_call *mine, const struct cecl_call *zero)
{
    const struct cecl_splits_form form = cecl_call_splits(mine);
    if (memcmp(mine->view.layout, zero->view.layout,
               cecl_layout_alike(mine->op, mine->layout_words) * sizeof(uint64_t)) != 0)
        return VERIFY_FAULT("ranks differ in the rows of buffers");
    if (cecl_splits_check(&form) != ceclSuccess || form.row_bytes == 0 ||
        form.recv_rows * form.row_bytes != mine->bytes)
        return VERIFY_FAULT("a recvbuff of %" PRIu64 " rows of %" PRIu64 " bytes", form.recv_rows,
                            form.row_bytes);
    return ceclSuccess;
}

ceclResult_t verify_splits_output(const struct verifier *v, int call, int rank)
{
    const struct cecl_splits_form form = cecl_call_splits(call_of(v, call, rank));
    const uint32_t *tags = verify_tags(v, CECL_AREA_RECV, rank);
    uint64_t rows[CECL_SPLITS_BLOCKS_MAX], places[CECL_SPLITS_BLOCKS_MAX];
    struct told told;
    for (int from = 0; from < v->nranks; from++) {
        uint32_t sender, expert, ignored;
        tell_all(v, call, from, &told); /* for the places in this sender's sendbuff */
        cecl_splits_place(&form, told.table, (uint32_t)rank, rows, places, &ignored);
        for (uint32_t i = 0; i < form.nranks * form.experts; i++) {
            cecl_splits_received(&form, i, &sender, &expert);
            const uint64_t src = told.at[(uint32_t)rank * form.experts + expert] * form.row_bytes,
                           dst = places[i] * form.row_bytes;
            for (uint64_t b = 0; (int)sender == from && b < rows[i] * form.row_bytes; b++) {
                CECL_TRY(verify_writes_of(v, call, 0, rank, dst + b, 1));
                if (tags[dst + b] != verify_tag(v, call, 0, from, src + b))
                    return VERIFY_FAULT("call %d, rank %d: byte %" PRIu64
                                        " of the output is not byte %" PRIu64 " of rank %d's rows",
                                        call, rank, dst + b, src + b, from);
            }
        }
    }
    return ceclSuccess;
}
