/* The network, made of the operations of compute.h. */
#include "model.h"

#include <math.h>

static int rows_of(const struct model *m)
{
    return m->dims.samples * m->dims.sequence;
}

static size_t cells_of(const struct model *m)
{
    return (size_t)rows_of(m) * (size_t)m->dims.width;
}

/* The address `elements` behind p. */
static void *at(const struct model *m, const void *p, size_t elements)
{
    return (char *)p + elements * m->compute->element;
}

static void *tensor(const struct model *m, const void *group_base, int group, int index)
{
    return at(m, group_base, tensor_offset(m->shape, group, index));
}

/* ---- matrix products: rows x (inputs x outputs) */

/* y = x W, or y += x W */
static void linear(const struct model *m, void *y, const void *x, const void *w, int inputs,
                   int outputs, bool add)
{
    const struct matmul product = {.m = rows_of(m),
                                   .n = outputs,
                                   .k = inputs,
                                   .a = x,
                                   .b = w,
                                   .c = y,
                                   .lda = inputs,
                                   .ldb = outputs,
                                   .ldc = outputs,
                                   .batch = 1,
                                   .alpha = 1,
                                   .beta = add ? 1 : 0};
    m->compute->matmul(m->compute, &product);
}

/* dx = dy W' and dW = x' dy */
static void linear_back(const struct model *m, void *dx, void *dw, const void *dy, const void *x,
                        const void *w, int inputs, int outputs)
{
    struct matmul product = {.m = rows_of(m),
                             .n = inputs,
                             .k = outputs,
                             .b_turned = true,
                             .a = dy,
                             .b = w,
                             .c = dx,
                             .lda = outputs,
                             .ldb = outputs,
                             .ldc = inputs,
                             .batch = 1,
                             .alpha = 1};
    m->compute->matmul(m->compute, &product);
    product = (struct matmul){.m = inputs,
                              .n = outputs,
                              .k = rows_of(m),
                              .a_turned = true,
                              .a = x,
                              .b = dy,
                              .c = dw,
                              .lda = inputs,
                              .ldb = outputs,
                              .ldc = outputs,
                              .batch = 1,
                              .alpha = 1};
    m->compute->matmul(m->compute, &product);
}

/* ---- layer norm: gain and bias are neighbours in every group */

static void norm(const struct model *m, struct norm_memory *n, const void *x, const void *gain)
{
    m->compute->norm(m->compute, n->y, n->mean, n->rstd, x, gain,
                     at(m, gain, (size_t)m->dims.width), m->dims);
}

/* Adds to m->dx the gradient that follows from m->dy. */
static void norm_back(const struct model *m, const struct norm_memory *n, const void *x,
                      const void *gain, void *dgain)
{
    m->compute->norm_back(m->compute, m->dx, dgain, at(m, dgain, (size_t)m->dims.width), m->dy, x,
                          n->mean, n->rstd, gain, m->dims);
}

/* ---- attention: for each sample, a product for each head */

/* A product over all heads of a sample. Operands are [sequence][head] inside rows of `ld` elements,
 * where the next head begins `head` elements further on. Where ld is 0, they are
 * [sequence][sequence] weights. */
struct operand {
    const void *base;
    int ld;
};

static void heads(const struct model *m, struct operand a, bool a_turned, struct operand b,
                  bool b_turned, struct operand c, float alpha)
{
    const int t = m->dims.sequence, head = m->dims.width / m->shape->heads;
    const long long square = (long long)t * t;
    const struct matmul product = {.m = t,
                                   .n = c.ld ? head : t,
                                   .k = a.ld && !a_turned ? head : t,
                                   .a_turned = a_turned,
                                   .b_turned = b_turned,
                                   .a = a.base,
                                   .b = b.base,
                                   .c = (void *)c.base,
                                   .lda = a.ld ? a.ld : t,
                                   .ldb = b.ld ? b.ld : t,
                                   .ldc = c.ld ? c.ld : t,
                                   .stride_a = a.ld ? head : square,
                                   .stride_b = b.ld ? head : square,
                                   .stride_c = c.ld ? head : square,
                                   .batch = m->shape->heads,
                                   .alpha = alpha};
    m->compute->matmul(m->compute, &product);
}

/* Operands of `heads` for one sample: its query, key or value (`which` is 0, 1, 2). */
static struct operand part(const struct model *m, const void *qkv, int sample, int which)
{
    const size_t width = (size_t)m->dims.width, row = (size_t)sample * (size_t)m->dims.sequence;
    return (struct operand){at(m, qkv, row * 3 * width + (size_t)which * width), 3 * m->dims.width};
}

/* One sample's part of attention's output. */
static struct operand result(const struct model *m, const void *attended, int sample)
{
    const size_t row = (size_t)sample * (size_t)m->dims.sequence;
    return (struct operand){at(m, attended, row * (size_t)m->dims.width), m->dims.width};
}

/* One sample's attention weights. */
static struct operand weights(const struct model *m, const void *base, int sample)
{
    const size_t t = (size_t)m->dims.sequence;
    return (struct operand){at(m, base, (size_t)sample * (size_t)m->shape->heads * t * t), 0};
}

static float attention_scale(const struct model *m)
{
    return 1.0f / sqrtf((float)(m->dims.width / m->shape->heads));
}

static void attention(const struct model *m, const struct block_memory *b)
{
    struct compute *c = m->compute;
    for (int s = 0; s < m->dims.samples; s++)
        heads(m, part(m, b->qkv, s, 0), false, part(m, b->qkv, s, 1), true,
              weights(m, b->weights, s), attention_scale(m));
    c->softmax(c, b->weights, (size_t)m->dims.samples * (size_t)m->shape->heads, m->dims.sequence);
    for (int s = 0; s < m->dims.samples; s++)
        heads(m, weights(m, b->weights, s), false, part(m, b->qkv, s, 2), false,
              result(m, b->attended, s), 1);
}

/* Turns m->dy, the gradient of attention's output, into m->dqkv. */
static void attention_back(const struct model *m, const struct block_memory *b)
{
    struct compute *c = m->compute;
    const struct operand dw = weights(m, m->dweights, 0);
    for (int s = 0; s < m->dims.samples; s++) {
        const struct operand p = weights(m, b->weights, s), dy = result(m, m->dy, s);
        heads(m, dy, false, part(m, b->qkv, s, 2), true, dw, 1); /* dP = dY V' */
        heads(m, p, true, dy, false, part(m, m->dqkv, s, 2), 1); /* dV = P' dY */
        c->softmax_back(c, m->dweights, p.base, (size_t)m->shape->heads, m->dims.sequence,
                        attention_scale(m)); /* dP is now dS */
        heads(m, dw, false, part(m, b->qkv, s, 1), false, part(m, m->dqkv, s, 0), 1); /* dS K */
        heads(m, dw, true, part(m, b->qkv, s, 0), false, part(m, m->dqkv, s, 1), 1);  /* dS' Q */
    }
}

/* ---- the groups */

void model_embed(struct model *m, const void *parameters)
{
    m->compute->embed(m->compute, m->blocks[0].x, tensor(m, parameters, 0, EMBED_TABLE),
                      tensor(m, parameters, 0, EMBED_PLACES), m->tokens, m->dims);
}

static void *output_of(const struct model *m, int layer)
{
    return layer + 1 < m->shape->layers ? m->blocks[layer + 1].x : m->x;
}

void model_block(struct model *m, int layer, const void *parameters)
{
    struct compute *c = m->compute;
    struct block_memory *b = &m->blocks[layer];
    const int width = m->dims.width, group = layer + 1;
    norm(m, &b->norm1, b->x, tensor(m, parameters, group, BLOCK_GAIN1));
    linear(m, b->qkv, b->norm1.y, tensor(m, parameters, group, BLOCK_QKV), width, 3 * width, false);
    attention(m, b);
    c->copy(c, b->middle, b->x, cells_of(m));
    linear(m, b->middle, b->attended, tensor(m, parameters, group, BLOCK_OUT), width, width, true);

    norm(m, &b->norm2, b->middle, tensor(m, parameters, group, BLOCK_GAIN2));
    linear(m, b->up, b->norm2.y, tensor(m, parameters, group, BLOCK_UP), width, 4 * width, false);
    c->gelu(c, b->active, b->up, 4 * cells_of(m));
    c->copy(c, output_of(m, layer), b->middle, cells_of(m));
    linear(m, output_of(m, layer), b->active, tensor(m, parameters, group, BLOCK_DOWN), 4 * width,
           width, true);
}

void model_head(struct model *m, const void *parameters)
{
    const int group = m->shape->layers + 1;
    norm(m, &m->norm, m->x, tensor(m, parameters, group, HEAD_GAIN));
    const struct matmul product = {.m = rows_of(m),
                                   .n = SYMBOLS,
                                   .k = m->dims.width,
                                   .a = m->norm.y,
                                   .b = tensor(m, parameters, group, HEAD_OUT),
                                   .c = m->logits,
                                   .lda = m->dims.width,
                                   .ldb = SYMBOLS,
                                   .ldc = SYMBOLS,
                                   .batch = 1,
                                   .alpha = 1,
                                   .wide = true};
    m->compute->matmul(m->compute, &product);
}

void model_loss(struct model *m, double *mean)
{
    const float all = (float)rows_of(m) * (float)m->shape->nranks;
    m->compute->loss(m->compute, mean, m->dlogits, m->logits, m->tokens, m->dims, 1 / all);
}

void model_head_back(struct model *m, const void *parameters, void *gradients)
{
    const int group = m->shape->layers + 1;
    linear_back(m, m->dy, tensor(m, gradients, group, HEAD_OUT), m->dlogits, m->norm.y,
                tensor(m, parameters, group, HEAD_OUT), m->dims.width, SYMBOLS);
    m->compute->zero(m->compute, m->dx, cells_of(m));
    norm_back(m, &m->norm, m->x, tensor(m, parameters, group, HEAD_GAIN),
              tensor(m, gradients, group, HEAD_GAIN));
}

void model_block_back(struct model *m, int layer, const void *parameters, void *gradients)
{
    struct compute *c = m->compute;
    const struct block_memory *b = &m->blocks[layer];
    const int width = m->dims.width, group = layer + 1;
    linear_back(m, m->dup, tensor(m, gradients, group, BLOCK_DOWN), m->dx, b->active,
                tensor(m, parameters, group, BLOCK_DOWN), 4 * width, width);
    c->gelu_back(c, m->dup, b->up, 4 * cells_of(m));
    linear_back(m, m->dy, tensor(m, gradients, group, BLOCK_UP), m->dup, b->norm2.y,
                tensor(m, parameters, group, BLOCK_UP), width, 4 * width);
    norm_back(m, &b->norm2, b->middle, tensor(m, parameters, group, BLOCK_GAIN2),
              tensor(m, gradients, group, BLOCK_GAIN2));

    linear_back(m, m->dy, tensor(m, gradients, group, BLOCK_OUT), m->dx, b->attended,
                tensor(m, parameters, group, BLOCK_OUT), width, width);
    attention_back(m, b);
    linear_back(m, m->dy, tensor(m, gradients, group, BLOCK_QKV), m->dqkv, b->norm1.y,
                tensor(m, parameters, group, BLOCK_QKV), width, 3 * width);
    norm_back(m, &b->norm1, b->x, tensor(m, parameters, group, BLOCK_GAIN1),
              tensor(m, gradients, group, BLOCK_GAIN1));
}

void model_embed_back(struct model *m, void *gradients)
{
    m->compute->embed_back(m->compute, tensor(m, gradients, 0, EMBED_TABLE),
                           tensor(m, gradients, 0, EMBED_PLACES), m->dx, m->tokens, m->dims);
}
