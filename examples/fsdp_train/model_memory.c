/* The network's memory: all activations of a step are kept for the backward pass. */
#include <stdlib.h>

#include "model.h"

/* Lists each buffer's pointer with its size. Opening, closing and counting use the same list. */
typedef bool visit(struct model *m, void **buffer, size_t bytes);

static bool visit_norm(struct model *m, visit *v, struct norm_memory *n, size_t rows, size_t e,
                       size_t wide)
{
    return v(m, &n->y, rows * (size_t)m->shape->width * e) && v(m, &n->mean, rows * wide) &&
           v(m, &n->rstd, rows * wide);
}

/* What each layer keeps. `row`: bytes of one activation; `weights`: of attention's weights. */
static bool visit_blocks(struct model *m, visit *v, size_t rows, size_t row, size_t weights)
{
    const size_t e = m->compute->element, wide = m->compute->wide;
    bool fine = true;
    for (int l = 0; l < m->shape->layers && fine; l++) {
        struct block_memory *b = &m->blocks[l];
        fine = v(m, &b->x, row) && visit_norm(m, v, &b->norm1, rows, e, wide) &&
               v(m, &b->qkv, 3 * row) && v(m, &b->weights, weights) && v(m, &b->attended, row) &&
               v(m, &b->middle, row) && visit_norm(m, v, &b->norm2, rows, e, wide) &&
               v(m, &b->up, 4 * row) && v(m, &b->active, 4 * row);
    }
    return fine;
}

static bool visit_all(struct model *m, visit *v)
{
    const struct shape *s = m->shape;
    const size_t e = m->compute->element, wide = m->compute->wide;
    const size_t sequence = (size_t)s->sequence, rows = (size_t)s->batch * sequence;
    const size_t row = rows * (size_t)s->width * e;
    const size_t square = (size_t)s->heads * sequence * sequence * e;
    bool fine = visit_blocks(m, v, rows, row, (size_t)s->batch * square);
    void *tokens = m->tokens;
    fine = fine && v(m, &tokens, (size_t)s->batch * (sequence + 1));
    m->tokens = tokens;
    return fine && v(m, &m->x, row) && visit_norm(m, v, &m->norm, rows, e, wide) &&
           v(m, &m->logits, rows * SYMBOLS * wide) && v(m, &m->dlogits, rows * SYMBOLS * e) &&
           v(m, &m->dx, row) && v(m, &m->dy, row) && v(m, &m->dup, 4 * row) &&
           v(m, &m->dqkv, 3 * row) && v(m, &m->dweights, square);
}

static bool open_one(struct model *m, void **buffer, size_t bytes)
{
    m->bytes += bytes;
    return (*buffer = m->compute->alloc(m->compute, bytes)) != NULL;
}

static bool close_one(struct model *m, void **buffer, size_t bytes)
{
    (void)bytes;
    m->compute->free(m->compute, *buffer);
    *buffer = NULL;
    return true;
}

bool model_open(struct model *m, const struct shape *shape, struct compute *compute)
{
    *m = (struct model){
        .shape = shape, .compute = compute, .dims = {shape->batch, shape->sequence, shape->width}};
    m->blocks = calloc((size_t)shape->layers, sizeof(*m->blocks));
    return m->blocks && visit_all(m, open_one);
}

void model_close(struct model *m)
{
    if (m->blocks)
        visit_all(m, close_one);
    free(m->blocks);
    m->blocks = NULL;
}
