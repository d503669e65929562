/* Splits: where blocks lie, as pure functions. */
#include "sm/splits.h"

#include <inttypes.h>

#define BEYOND ((uint64_t)CECL_SPLITS_ROWS_MAX + 1)

ceclResult_t cecl_splits_check(const struct cecl_splits_form *form)
{
    if (form->nranks < 1 || form->nranks > CECL_SPLITS_RANKS_MAX)
        return cecl_fail(ceclInvalidArgument, "splits on the device: %u ranks: 1 to %d expected",
                         form->nranks, CECL_SPLITS_RANKS_MAX);
    if (form->experts < 1 || form->experts > CECL_SPLITS_BLOCKS_MAX / form->nranks)
        return cecl_fail(ceclInvalidArgument,
                         "experts->experts %u: 1 to %u expected on each of %u ranks", form->experts,
                         CECL_SPLITS_BLOCKS_MAX / form->nranks, form->nranks);
    if (form->send_rows > CECL_SPLITS_ROWS_MAX || form->recv_rows > CECL_SPLITS_ROWS_MAX)
        return cecl_fail(ceclInvalidArgument, "%s %" PRIu64 ": at most %u expected",
                         form->send_rows > CECL_SPLITS_ROWS_MAX ? "sendrows" : "recvrows",
                         form->send_rows > CECL_SPLITS_ROWS_MAX ? form->send_rows : form->recv_rows,
                         CECL_SPLITS_ROWS_MAX);
    if (form->align < 1 || form->align > CECL_SPLITS_ROWS_MAX)
        return cecl_fail(ceclInvalidArgument, "experts->align %u: 1 to %u expected", form->align,
                         CECL_SPLITS_ROWS_MAX);
    return ceclSuccess;
}

/* Limits a number of rows, so that the sum of a table's rows cannot wrap around. */
static uint64_t bounded(uint64_t rows)
{
    return rows < BEYOND ? rows : BEYOND;
}

static uint64_t aligned(const struct cecl_splits_form *form, uint64_t rows)
{
    const uint64_t some = rows > 0 ? rows : form->align > 1;
    return (some + form->align - 1) / form->align * form->align;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t cecl_splits_place(const struct cecl_splits_form *form, const void *table, uint32_t to,
                           uint64_t *rows, uint64_t *places, uint32_t *first)
{
    const uint32_t blocks = form->nranks * form->experts;
    /* `begin` is where the expert begins, `next` where the block begins; `needed` rows end with the last block that is
     * not empty */
    uint64_t begin = 0, next = 0, needed = 0;
    for (uint32_t at = 0, from, expert; at < blocks; at++) {
        cecl_splits_received(form, at, &from, &expert);
        if (!form->back && from == 0 && expert > 0)
            begin = next = begin + aligned(form, next - begin);
        const uint32_t block = to * form->experts + expert;
        const uint64_t all =
            bounded(cecl_splits_blocks(cecl_splits_line_at(form, table, from))[block].rows);
        const uint64_t place = least(next, form->recv_rows);
        rows[at] = least(all, form->recv_rows - place);
        places[at] = place;
        if (rows[at] < all && needed <= form->recv_rows)
            *first = at;
        next += all;
        needed = all > 0 ? next : needed;
    }
    return bounded(needed);
}

struct cecl_splits_trouble cecl_splits_judge(const struct cecl_splits_form *form, const void *table)
{
    uint64_t rows[CECL_SPLITS_BLOCKS_MAX], places[CECL_SPLITS_BLOCKS_MAX];
    struct cecl_splits_trouble trouble = {.experts = form->experts};
    for (uint32_t r = 0; r < form->nranks; r++) {
        const uint64_t beyond = cecl_splits_line_at(form, table, r)->beyond;
        if (beyond == 0)
            continue;
        trouble.what = CECL_SPLITS_SEND;
        trouble.rank = r;
        trouble.to = (uint32_t)(beyond - 1) / form->experts;
        trouble.expert = (uint32_t)(beyond - 1) % form->experts;
        trouble.room = (uint32_t)form->send_rows;
        return trouble;
    }
    for (uint32_t r = 0, first = 0; r < form->nranks; r++) {
        const uint64_t needed = cecl_splits_place(form, table, r, rows, places, &first);
        uint32_t from;
        if (needed <= form->recv_rows)
            continue;
        trouble.what = CECL_SPLITS_RECV;
        trouble.rank = r;
        cecl_splits_received(form, first, &from, &trouble.expert);
        trouble.rows = (uint32_t)needed;
        trouble.room = (uint32_t)form->recv_rows;
        return trouble;
    }
    return trouble;
}

void cecl_splits_line_make(const struct cecl_splits *call, uint32_t number,
                           struct cecl_splits_line *line)
{
    const struct cecl_splits_form *form = &call->form;
    struct cecl_splits_block *sent = (struct cecl_splits_block *)(line + 1);
    uint64_t next = 0;
    line->recv_offset = call->recv_offset;
    line->scales_offset = call->scales_offset;
    line->beyond = 0;
    for (uint32_t i = 0; i < form->nranks * form->experts; i++) {
        const uint32_t block = cecl_splits_input(form, i);
        const uint64_t rows = bounded(call->splits[i]),
                       begin = bounded(call->offsets ? call->offsets[i] : next),
                       place = least(begin, form->send_rows),
                       fits = least(rows, form->send_rows - place);
        sent[block] = (struct cecl_splits_block){(uint32_t)fits, (uint32_t)place};
        if (fits < rows && line->beyond == 0)
            line->beyond = 1 + block;
        next = begin + rows;
    }
    line->seal = cecl_splits_seal(call, call->rank, number, line);
}
