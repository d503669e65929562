/* Splits on the host: one thread for each rank does what the kernels of splits.cu do. Tables and recvbuffs are memory
 * that ranks share. Barriers between the steps order what ranks write and read. */
#include <stdatomic.h>
#include <string.h>

#include "sm/splits.h"

static bool has_ended(const struct cecl_splits *call)
{
    return atomic_load_explicit((const _Atomic uint32_t *)call->end, memory_order_acquire) != 0;
}

static unsigned char *slice_of(const struct cecl_splits *call, uint32_t rank)
{
    return call->slices + rank * call->slice;
}

static void tell(const struct cecl_splits *call)
{
    const struct cecl_splits_form *form = &call->form;
    const uint64_t bytes = cecl_splits_line_bytes(form->nranks, form->experts);
    uint64_t line[CECL_SPLITS_BLOCKS_MAX + sizeof(struct cecl_splits_line) / sizeof(uint64_t)];
    cecl_splits_line_make(call, ++*call->number, (struct cecl_splits_line *)line);
    for (uint32_t r = 0; r < form->nranks; r++)
        memcpy(slice_of(call, r) + call->table_offset + call->rank * bytes, line, bytes);
}

static void tell_host(const struct cecl_splits *call, struct cecl_splits_trouble trouble)
{
    const uint32_t what = trouble.what;
    if (what == CECL_SPLITS_FINE || call->trouble->what != CECL_SPLITS_FINE)
        return; /* only the first trouble is reported to the host */
    trouble.what = CECL_SPLITS_FINE;
    *call->trouble = trouble;
    atomic_store_explicit((_Atomic uint32_t *)&call->trouble->what, what, memory_order_release);
}

/* Moves this rank's rows for rank `to`, of one of the two arrays. */
static void move_array(const struct cecl_splits *call, uint32_t to, uint64_t offset,
                       const void *array, uint64_t row_bytes, const uint64_t *rows,
                       const uint64_t *places)
{
    const struct cecl_splits_form *form = &call->form;
    const void *table = slice_of(call, call->rank) + call->table_offset;
    const struct cecl_splits_block *blocks =
        cecl_splits_blocks(cecl_splits_line_at(form, table, call->rank));
    unsigned char *const recv = slice_of(call, to) + offset;
    uint32_t from, expert;
    if (row_bytes == 0 || !cecl_splits_lies(call, offset, form->recv_rows * row_bytes))
        return;
    for (uint32_t i = 0; i < form->nranks * form->experts; i++) {
        cecl_splits_received(form, i, &from, &expert);
        const uint64_t at = blocks[to * form->experts + expert].at,
                       here = cecl_splits_here(form, at, rows[i]);
        if (from == call->rank && here > 0)
            memcpy(recv + places[i] * row_bytes, (const unsigned char *)array + at * row_bytes,
                   here * row_bytes);
    }
}

/* Reads the lines of all ranks, without their blocks. Returns the first rank whose line is not from this call, or
 * nranks if there is none. Lines are read only once, because a peer that has given up may overwrite its line. */
static uint32_t read_lines(const struct cecl_splits *call, struct cecl_splits_line *lines)
{
    const struct cecl_splits_form *form = &call->form;
    const void *table = slice_of(call, call->rank) + call->table_offset;
    uint32_t r = 0;
    for (; r < form->nranks; r++) {
        lines[r] = *cecl_splits_line_at(form, table, r);
        if (lines[r].seal != cecl_splits_seal(call, r, *call->number, &lines[r]))
            break;
    }
    return r;
}

/* Moves this rank's rows to rank `to`, whose line is `line`. */
static void move_to(const struct cecl_splits *call, uint32_t to,
                    const struct cecl_splits_line *line, uint64_t *rows, uint64_t *places)
{
    const struct cecl_splits_form *form = &call->form;
    const void *table = slice_of(call, call->rank) + call->table_offset;
    uint32_t ignored;
    cecl_splits_place(form, table, to, rows, places, &ignored);
    move_array(call, to, line->recv_offset, call->rows, form->row_bytes, rows, places);
    move_array(call, to, line->scales_offset, call->scales, form->scale_bytes, rows, places);
}

static void move(const struct cecl_splits *call)
{
    const struct cecl_splits_form *form = &call->form;
    const void *table = slice_of(call, call->rank) + call->table_offset;
    const uint32_t blocks = form->nranks * form->experts;
    struct cecl_splits_line lines[CECL_SPLITS_RANKS_MAX];
    uint64_t rows[CECL_SPLITS_BLOCKS_MAX], places[CECL_SPLITS_BLOCKS_MAX];
    const uint32_t other = read_lines(call, lines);
    if (other < form->nranks) {
        tell_host(call, (struct cecl_splits_trouble){.what = CECL_SPLITS_OTHER, .rank = other});
        return;
    }
    for (uint32_t i = 1, to; i <= form->nranks; i++) { /* this rank's own blocks come last */
        to = (call->rank + i) % form->nranks;
        move_to(call, to, &lines[to], rows, places);
    }
    memcpy(call->out, rows, blocks * sizeof(*rows));
    memcpy(call->out + blocks, places, blocks * sizeof(*places));
    tell_host(call, cecl_splits_judge(form, table));
}

void cecl_splits_host(const struct cecl_splits *call)
{
    if (has_ended(call))
        return;
    if (call->step == CECL_SPLITS_TELL)
        tell(call);
    else
        move(call);
}
