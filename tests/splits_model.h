/* Calls by splits in device memory (sm/splits.h) against a plain model, which has random splits for all ranks, and the
 * expected bytes of every recvbuff, of the splits and places that are written, and of the words for hosts. The
 * including file owns the memory, which all ranks share, and runs the steps, on the host or by kernels. */
#ifndef CECL_TEST_SPLITS_MODEL_H
#define CECL_TEST_SPLITS_MODEL_H

#include "with_cmocka.h"

#include "sm/splits.h"

#define MODEL_RANKS 8
#define MODEL_BLOCKS 64
#define MODEL_SLICE ((size_t)512 << 10)
#define MODEL_TABLE ((size_t)8 << 10)
#define MODEL_BYTES ((size_t)192 << 10)  /* most bytes of a buffer */
#define MODEL_SCALES ((size_t)320 << 10) /* about where the scales begin in a slice */
#define MODEL_UNTOUCHED 0x5A

struct model_memory {
    unsigned char slices[MODEL_RANKS][MODEL_SLICE], send[MODEL_RANKS][MODEL_BYTES + 64],
        scales[MODEL_RANKS][MODEL_BYTES + 64];
    uint64_t splits[MODEL_RANKS][MODEL_BLOCKS], offsets[MODEL_RANKS][MODEL_BLOCKS],
        out[MODEL_RANKS][2 * MODEL_BLOCKS];
    struct cecl_splits_trouble trouble[MODEL_RANKS];
    uint32_t number[MODEL_RANKS], end;
};

struct model {
    struct cecl_splits_form form;
    bool has_offsets;
    /* in bytes: where rows and scales begin in each rank's slice; send_at: where they begin in `send` and `scales` */
    size_t recv_at[MODEL_RANKS], scales_at[MODEL_RANKS], send_at;
    struct cecl_splits_trouble trouble;
    /* the expected contents of a rank's slice (behind its table) and of its `out` */
    unsigned char slice[MODEL_SLICE];
    uint64_t out[2 * MODEL_BLOCKS];
};

static inline uint64_t model_next(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}
static inline uint64_t model_below(uint64_t *x, uint64_t below)
{
    return model_next(x) % below;
}

static inline unsigned char model_byte(int rank, size_t at)
{
    return (unsigned char)((at * 2654435761u + (unsigned)rank * 40503u) >> 11);
}

/* Draws how many rows a block has. `kind`: one of several realistic shapes. */
static inline uint64_t model_rows(uint64_t *x, unsigned kind, int rank, uint32_t block)
{
    switch (kind) {
    case 0: return 0;
    case 1: return block == 1 ? 12 : 0; /* all for one block */
    case 2: return 1 + model_below(x, 3);
    case 3: return model_below(x, 4) == 0 ? model_below(x, 30) : 0;
    case 4: return (uint64_t)rank;
    default: return model_below(x, 9);
    }
}

/* Places blocks in their order, with gaps. */
static inline void model_draw_offsets(uint64_t *x, const struct model *m, struct model_memory *at,
                                      int rank)
{
    uint64_t next = model_below(x, 3);
    for (uint32_t i = 0; i < m->form.nranks * m->form.experts; i++) {
        at->offsets[rank][i] = next;
        next += at->splits[rank][i] + model_below(x, 3);
    }
}

static inline uint64_t model_input_end(const struct model *m, const struct model_memory *at,
                                       int rank)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < m->form.nranks * m->form.experts; i++)
        end =
            m->has_offsets ? at->offsets[rank][i] + at->splits[rank][i] : end + at->splits[rank][i];
    return end;
}

/* A block's index in its sender's arrays. */
static inline uint32_t model_index(const struct model *m, uint32_t to, uint32_t expert)
{
    return m->form.back ? expert * m->form.nranks + to : to * m->form.experts + expert;
}

/* How many of a block's rows lie in sendbuff; *begin: the first one. */
static inline uint64_t model_sent(const struct model *m, const struct model_memory *at,
                                  uint32_t from, uint32_t index, uint64_t *begin)
{
    const uint64_t rows = at->splits[from][index];
    *begin = m->has_offsets ? at->offsets[from][index] : 0;
    for (uint32_t i = 0; i < index && !m->has_offsets; i++)
        *begin += at->splits[from][i];
    if (*begin >= m->form.send_rows)
        return 0;
    return *begin + rows > m->form.send_rows ? m->form.send_rows - *begin : rows;
}

/* Writes rows that must arrive in one of the arrays into the expected slice. */
static inline void model_arrive(struct model *m, size_t at, int salt, uint64_t row, uint64_t next,
                                uint64_t begin, uint64_t rows)
{
    for (uint64_t i = 0; i < rows * row && next * row + i < m->form.recv_rows * row; i++)
        m->slice[at + next * row + i] = model_byte(salt, begin * row + i);
}

/* Adds a block's rows behind the `next` rows that are there already. Returns the row after the block's last one. */
static inline uint64_t model_receive(struct model *m, const struct model_memory *at, uint32_t to,
                                     uint32_t from, uint32_t expert, uint32_t place, uint64_t next)
{
    const uint32_t blocks = m->form.nranks * m->form.experts;
    const uint64_t room = m->form.recv_rows;
    uint64_t begin;
    const uint64_t all = model_sent(m, at, from, model_index(m, to, expert), &begin);
    model_arrive(m, m->recv_at[to], (int)from, m->form.row_bytes, next, begin, all);
    model_arrive(m, m->scales_at[to], (int)from + MODEL_RANKS, m->form.scale_bytes, next, begin,
                 all);
    m->out[place] = next + all <= room ? all : next < room ? room - next : 0;
    m->out[blocks + place] = next < room ? next : room;
    if (next + all > room && all > 0 && m->trouble.what == CECL_SPLITS_FINE) {
        m->trouble.what = CECL_SPLITS_RECV;
        m->trouble.rank = to;
        m->trouble.expert = expert;
        m->trouble.room = (uint32_t)room;
    }
    if (m->trouble.what == CECL_SPLITS_RECV && m->trouble.rank == to && all > 0)
        m->trouble.rows = (uint32_t)(next + all);
    return next + all;
}

/* Computes what rank `to` must get. Notes the first block that does not fit. */
static inline void model_expect(struct model *m, const struct model_memory *at, uint32_t to)
{
    uint64_t next = 0;
    uint32_t place = 0;
    memset(m->slice, MODEL_UNTOUCHED, sizeof(m->slice));
    if (m->form.back) {
        for (uint32_t from = 0; from < m->form.nranks; from++)
            for (uint32_t e = 0; e < m->form.experts; e++)
                next = model_receive(m, at, to, from, e, place++, next);
        return;
    }
    for (uint32_t e = 0; e < m->form.experts; e++) {
        const uint64_t first = next;
        for (uint32_t from = 0; from < m->form.nranks; from++)
            next = model_receive(m, at, to, from, e, place++, next);
        if (next == first && m->form.align > 1)
            next++;
        while (next % m->form.align != 0)
            next++;
    }
}

/* Notes the first block, of any rank, that ends behind the rank's sendbuff. */
static inline void model_judge_sends(struct model *m, const struct model_memory *at)
{
    for (uint32_t r = 0; r < m->form.nranks; r++)
        for (uint32_t i = 0; i < m->form.nranks * m->form.experts; i++) {
            uint64_t begin;
            if (model_sent(m, at, r, i, &begin) == at->splits[r][i])
                continue;
            m->trouble.what = CECL_SPLITS_SEND;
            m->trouble.rank = r;
            m->trouble.to = m->form.back ? i % m->form.nranks : i / m->form.experts;
            m->trouble.expert = m->form.back ? i / m->form.nranks : i % m->form.experts;
            m->trouble.room = (uint32_t)m->form.send_rows;
            return;
        }
}

/* Where the last row that rank `to` receives ends, if there is room. */
static inline uint64_t model_output_end(struct model *m, const struct model_memory *at, uint32_t to)
{
    uint64_t end = 0;
    m->form.recv_rows = MODEL_BYTES / (m->form.row_bytes + m->form.scale_bytes);
    model_expect(m, at, to);
    for (uint32_t i = 0; i < m->form.nranks * m->form.experts; i++)
        if (m->out[i] > 0 && m->out[i] + m->out[m->form.nranks * m->form.experts + i] > end)
            end = m->out[i] + m->out[m->form.nranks * m->form.experts + i];
    return end;
}

/* Draws a call among `n` ranks; `row_most`: the most bytes of a row. */
static inline void model_draw(uint64_t *x, int n, uint64_t row_most, struct model *m,
                              struct model_memory *at)
{
    const unsigned kind = (unsigned)model_below(x, 6), fits = (unsigned)model_below(x, 8);
    uint64_t sends = 0, receives = 0;
    memset(m, 0, sizeof(*m));
    m->form = (struct cecl_splits_form){.nranks = (uint32_t)n, .experts = 1, .align = 1};
    if (model_below(x, 2))
        m->form.experts = 1 + (uint32_t)model_below(x, MODEL_BLOCKS / (unsigned)n);
    m->form.back = m->form.experts > 1 && model_below(x, 2);
    if (!m->form.back && model_below(x, 2))
        m->form.align = 1 + (uint32_t)model_below(x, 8);
    m->form.row_bytes = 1 + model_below(x, row_most);
    m->form.scale_bytes = model_below(x, 2) * model_below(x, row_most / 4 + 2);
    m->has_offsets = model_below(x, 3) == 0;
    for (int r = 0; r < n; r++) {
        const uint32_t shift = (uint32_t)model_below(x, (uint64_t)n * m->form.experts);
        for (uint32_t i = 0; i < (uint32_t)n * m->form.experts; i++)
            at->splits[r][(i + shift) % ((uint32_t)n * m->form.experts)] =
                model_rows(x, kind, r, i);
        model_draw_offsets(x, m, at, r);
        m->recv_at[r] = MODEL_TABLE + model_below(x, 2) * 256 + model_below(x, 20);
        m->scales_at[r] = MODEL_SCALES + model_below(x, 20);
        const uint64_t end = model_input_end(m, at, r);
        sends = end > sends ? end : sends;
    }
    m->send_at = (size_t)model_below(x, 2) * (size_t)model_below(x, 40);
    m->form.send_rows = fits == 0 && sends > 0 ? model_below(x, sends) : sends;
    for (int r = 0; r < n; r++) {
        const uint64_t end = model_output_end(m, at, (uint32_t)r);
        receives = end > receives ? end : receives;
    }
    m->form.recv_rows = fits == 1 && receives > 1 ? 1 + model_below(x, receives - 1)
                        : receives > 0            ? receives
                                                  : 1;
    m->trouble = (struct cecl_splits_trouble){.experts = m->form.experts};
    model_judge_sends(m, at);
    for (int r = 0; r < n; r++) {
        memset(at->slices[r], MODEL_UNTOUCHED, MODEL_SLICE);
        for (size_t i = 0; i < m->form.send_rows * m->form.row_bytes; i++)
            at->send[r][m->send_at + i] = model_byte(r, i);
        for (size_t i = 0; i < m->form.send_rows * m->form.scale_bytes; i++)
            at->scales[r][m->send_at + i] = model_byte(r + MODEL_RANKS, i);
        for (uint32_t i = 0; i < 2 * MODEL_BLOCKS; i++)
            at->out[r][i] = UINT64_MAX;
        at->trouble[r] = (struct cecl_splits_trouble){0};
        at->number[r] = 0;
    }
    at->end = 0;
}

/* The arguments of a rank's step on this memory. */
static inline struct cecl_splits model_step(const struct model *m, struct model_memory *at,
                                            int rank, enum cecl_splits_step step)
{
    return (struct cecl_splits){.step = step,
                                .rank = (uint32_t)rank,
                                .form = m->form,
                                .shape = 0x5EA1,
                                .number = &at->number[rank],
                                .rows = at->send[rank] + m->send_at,
                                .scales = at->scales[rank] + m->send_at,
                                .splits = at->splits[rank],
                                .offsets = m->has_offsets ? at->offsets[rank] : NULL,
                                .out = at->out[rank],
                                .slices = at->slices[0],
                                .slice = MODEL_SLICE,
                                .table_offset = 64,
                                .recv_offset = m->recv_at[rank],
                                .scales_offset = m->scales_at[rank],
                                .end = &at->end,
                                .trouble = &at->trouble[rank]};
}

/* Gives all steps of all ranks to `each`, and calls `meet` where ranks meet. */
static inline void model_run(struct model *m, struct model_memory *at,
                             void (*each)(const struct cecl_splits *), void (*meet)(void))
{
    for (int r = 0; r < (int)m->form.nranks; r++) {
        const struct cecl_splits tell = model_step(m, at, r, CECL_SPLITS_TELL);
        each(&tell);
    }
    meet();
    for (int r = 0; r < (int)m->form.nranks; r++) {
        const struct cecl_splits move = model_step(m, at, r, CECL_SPLITS_MOVE);
        each(&move);
    }
    meet();
}

static inline void model_check_trouble(const struct model *m, const struct model_memory *at,
                                       int rank)
{
    const struct cecl_splits_trouble *got = &at->trouble[rank], *want = &m->trouble;
    const bool same =
        got->what == want->what &&
        (got->what == CECL_SPLITS_FINE ||
         (got->rank == want->rank && got->to == want->to && got->expert == want->expert &&
          got->experts == want->experts && got->rows == want->rows && got->room == want->room));
    if (!same)
        fail_msg(
            "rank %d reports %u of rank %u, to %u, expert %u of %u, %u rows of %u; expected: %u of "
            "rank %u, to %u, expert %u of %u, %u of %u",
            rank, got->what, got->rank, got->to, got->expert, got->experts, got->rows, got->room,
            want->what, want->rank, want->to, want->expert, want->experts, want->rows, want->room);
}

/* After all steps of all ranks, compares all that they wrote with the model. */
static inline void model_check(struct model *m, const struct model_memory *at)
{
    const int n = (int)m->form.nranks;
    for (int r = 0; r < n; r++) {
        model_expect(m, at, (uint32_t)r);
        if (memcmp(at->slices[r] + MODEL_TABLE, m->slice + MODEL_TABLE,
                   MODEL_SLICE - MODEL_TABLE) != 0)
            fail_msg("rank %d of %d: its output is wrong (%u experts, back %d, align %u, "
                     "rows of %llu "
                     "bytes)",
                     r, n, m->form.experts, (int)m->form.back, m->form.align,
                     (unsigned long long)m->form.row_bytes);
        assert_memory_equal(at->out[r], m->out, 2 * m->form.experts * (size_t)n * sizeof(uint64_t));
    }
    for (int r = 0; r < n; r++)
        model_check_trouble(m, at, r);
}

/* ---- lines of other calls. 4 ranks: no row may move by a line that belongs to another call */

typedef void model_each(const struct cecl_splits *);
typedef void model_meet(void);

/* All ranks but `silent` do a step. Rank `odd` makes a call of other sizes, which only its hash shows. */
static inline void model_all_do(const struct model *m, struct model_memory *at,
                                enum cecl_splits_step step, int silent, int odd, model_each *each,
                                model_meet *meet)
{
    for (int r = 0; r < (int)m->form.nranks; r++) {
        struct cecl_splits call = model_step(m, at, r, step);
        call.shape += r == odd;
        if (r != silent)
            each(&call);
    }
    meet();
}

/* Draws a call with rows, and makes it. Keeps its lines, and clears its output. */
static inline void model_first_call(struct model *m, struct model_memory *at, model_each *each,
                                    model_meet *meet)
{
    uint64_t x = 11;
    do
        model_draw(&x, 4, 8, m, at);
    while (m->trouble.what != CECL_SPLITS_FINE || m->form.send_rows == 0);
    model_all_do(m, at, CECL_SPLITS_TELL, -1, -1, each, meet);
    model_all_do(m, at, CECL_SPLITS_MOVE, -1, -1, each, meet);
    for (int r = 0; r < 4; r++) {
        memset(at->slices[r] + MODEL_TABLE, MODEL_UNTOUCHED, MODEL_SLICE - MODEL_TABLE);
        memset(at->out[r], 0xff, sizeof(at->out[r]));
    }
}

/* Rank `r` does the step that moves rows. It must write nothing, and name rank `other`. */
static inline void model_must_move_nothing(const struct model *m, struct model_memory *at, int r,
                                           uint32_t other, model_each *each, model_meet *meet)
{
    const struct cecl_splits call = model_step(m, at, r, CECL_SPLITS_MOVE);
    each(&call);
    meet();
    assert_int_equal(at->trouble[r].what, CECL_SPLITS_OTHER);
    assert_int_equal(at->trouble[r].rank, other);
    for (int to = 0; to < 4; to++)
        for (size_t i = MODEL_TABLE; i < MODEL_SLICE; i++)
            assert_int_equal(at->slices[to][i], MODEL_UNTOUCHED);
    for (uint32_t i = 0; i < 2 * MODEL_BLOCKS; i++)
        assert_true(at->out[r][i] == UINT64_MAX);
}

/* Rank 2's line has not come: the wait for it ended because the communicator failed. */
static inline void model_early_line(struct model *m, struct model_memory *at, model_each *each,
                                    model_meet *meet)
{
    model_first_call(m, at, each, meet);
    model_all_do(m, at, CECL_SPLITS_TELL, 2, -1, each, meet);
    for (int r = 0; r < 4; r++)
        if (r != 2)
            model_must_move_nothing(m, at, r, 2, each, meet);
}

/* Rank 1's seal came before the rest of its line, which still says where an earlier recvbuff lies. */
static inline void model_torn_line(struct model *m, struct model_memory *at, model_each *each,
                                   model_meet *meet)
{
    struct cecl_splits_line early, late;
    model_first_call(m, at, each, meet);
    unsigned char *const line =
        at->slices[0] + 64 + cecl_splits_line_bytes(m->form.nranks, m->form.experts);
    memcpy(&early, line, sizeof(early));
    m->recv_at[1] += 16;
    model_all_do(m, at, CECL_SPLITS_TELL, -1, -1, each, meet);
    memcpy(&late, line, sizeof(late));
    assert_true(late.recv_offset == early.recv_offset + 16);
    early.seal = late.seal;
    memcpy(line, &early, sizeof(early));
    model_must_move_nothing(m, at, 0, 1, each, meet);
}

static inline void model_odd_line(struct model *m, struct model_memory *at, model_each *each,
                                  model_meet *meet)
{
    model_first_call(m, at, each, meet);
    model_all_do(m, at, CECL_SPLITS_TELL, -1, 1, each, meet);
    for (int r = 0; r < 4; r++)
        if (r != 1)
            model_must_move_nothing(m, at, r, 1, each, meet);
}

#endif
