/* The network, made of the operations of compute.h. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes and first values of the parameters */

/* Elements of a tensor: a multiple of the width, so tensors need no gaps between them. */
static size_t tensor_elements(const struct shape *s, int group, int tensor)
{
    const size_t width = (size_t)s->width;
    if (group == 0)
        return width * (tensor == EMBED_TABLE ? SYMBOLS : (size_t)s->sequence);
    if (group > s->layers)
        return width * (tensor == HEAD_OUT ? SYMBOLS : 1);
    switch (tensor) {
    case BLOCK_QKV: return width * 3 * width;
    case BLOCK_OUT: return width * width;
    case BLOCK_UP:
    case BLOCK_DOWN: return width * 4 * width;
    default: return width;
    }
}

static int tensor_count(const struct shape *s, int group)
{
    return group == 0 ? EMBED_TENSORS : group > s->layers ? HEAD_TENSORS : BLOCK_TENSORS;
}

size_t tensor_offset(const struct shape *s, int group, int tensor)
{
    size_t offset = 0;
    for (int t = 0; t < tensor; t++)
        offset += tensor_elements(s, group, t);
    return offset;
}

size_t group_elements(const struct shape *s, int group)
{
    return tensor_offset(s, group, tensor_count(s, group));
}

size_t shard_elements(const struct shape *s, int group)
{
    const size_t n = (size_t)s->nranks, unit = 128; /* shards begin at multiples of 256 bytes */
    const size_t each = (group_elements(s, group) + n - 1) / n;
    return (each + unit - 1) / unit * unit;
}

size_t parameter_count(const struct shape *s)
{
    size_t count = 0;
    for (int g = 0; g < group_count(s); g++)
        count += group_elements(s, g);
    return count;
}

void initial_parameters(const struct shape *s, uint64_t seed, int group, size_t from, size_t count,
                        float *out)
{
    const uint64_t key = scramble(scramble(seed) + (uint64_t)group);
    memset(out, 0, count * sizeof(*out));
    for (int t = 0; t < tensor_count(s, group); t++) {
        const size_t begin = tensor_offset(s, group, t), end = begin + tensor_elements(s, group, t);
        const bool block = group > 0 && group <= s->layers;
        const bool gain = block ? t == BLOCK_GAIN1 || t == BLOCK_GAIN2 : group && t == HEAD_GAIN;
        const bool norm = end - begin == (size_t)s->width; /* gains are 1, biases 0 */
        /* All layers together add 2 * layers outputs of such tensors to x. Smaller values keep x from
         * growing in deep networks. */
        const bool added = block && (t == BLOCK_OUT || t == BLOCK_DOWN);
        const float part = (float)s->width * (added ? 2.0f * (float)s->layers : 1);
        const float range = norm ? 0 : sqrtf(3.0f / part); /* standard deviation 0.5 / sqrt(part) */
        for (size_t i = from > begin ? from : begin; i < end && i < from + count; i++) {
            const float uniform = (float)(scramble(key + i) >> 40) / (float)(1 << 24) - 0.5f;
            out[i - from] = uniform * range + (gain ? 1 : 0);
        }
    }
}

/* ---- addresses */

static size_t cells_of(const struct model *m)
{
    return rows_of(m->dims) * (size_t)m->dims.width;
}

/* The address of the element number `elements` after p. */
static void *at(const struct model *m, const void *p, size_t elements)
{
    return (char *)p + elements * m->compute->element;
}

static void *tensor(const struct model *m, const void *group_base, int group, int index)
{
    return at(m, group_base, tensor_offset(m->shape, group, index));
}

/* ---- memory: all activations of a step are kept for the backward pass */

/* Takes the next `bytes` of m->memory. While m->memory is NULL, only counts them. */
static void *part(struct model *m, size_t bytes)
{
    void *begin = m->memory ? (char *)m->memory + m->bytes : NULL;
    m->bytes += (bytes + 255) / 256 * 256;
    return begin;
}

static struct norm_memory norm_part(struct model *m, size_t row)
{
    const size_t statistic = rows_of(m->dims) * sizeof(float);
    return (struct norm_memory){part(m, row), part(m, statistic), part(m, statistic)};
}

static void lay_out(struct model *m)
{
    const size_t e = m->compute->element, rows = rows_of(m->dims), row = cells_of(m) * e;
    const size_t sequence = (size_t)m->dims.sequence;
    const size_t square = (size_t)m->shape->heads * sequence * sequence * e;
    m->bytes = 0;
    for (int l = 0; l < m->shape->layers; l++) {
        struct block_memory *b = &m->blocks[l];
        b->x = part(m, row);
        b->norm1 = norm_part(m, row);
        b->qkv = part(m, 3 * row);
        b->weights = part(m, (size_t)m->dims.samples * square);
        b->attended = part(m, row);
        b->middle = part(m, row);
        b->norm2 = norm_part(m, row);
        b->up = part(m, 4 * row);
        b->active = part(m, 4 * row);
    }
    m->tokens = part(m, (size_t)m->dims.samples * (sequence + 1));
    m->x = part(m, row);
    m->norm = norm_part(m, row);
    m->logits = part(m, rows * SYMBOLS * sizeof(float));
    m->dlogits = part(m, rows * SYMBOLS * e);
    m->dx = part(m, row);
    m->dy = part(m, row);
    m->dup = part(m, 4 * row);
    m->dqkv = part(m, 3 * row);
    m->dweights = part(m, square);
}

bool model_open(struct model *m, const struct shape *shape, struct compute *compute)
{
    *m = (struct model){
        .shape = shape, .compute = compute, .dims = {shape->batch, shape->sequence, shape->width}};
    m->blocks = calloc((size_t)shape->layers, sizeof(*m->blocks));
    if (!m->blocks)
        return false;
    lay_out(m);
    m->memory = compute->alloc(compute, m->bytes);
    lay_out(m);
    return m->memory != NULL;
}

void model_close(struct model *m)
{
    if (m->memory)
        m->compute->free(m->compute, m->memory);
    free(m->blocks);
    *m = (struct model){0};
}

/* ---- matrix products: [rows][inputs] times [inputs][outputs] */

/* C = op(A) op(B): C is [rows][columns], and each element is a sum of `inner` products */
static struct matmul product(void *c, const void *a, bool a_turned, const void *b, bool b_turned,
                             int rows, int columns, int inner)
{
    return (struct matmul){.m = rows,
                           .n = columns,
                           .k = inner,
                           .a_turned = a_turned,
                           .b_turned = b_turned,
                           .a = a,
                           .b = b,
                           .c = c,
                           .lda = a_turned ? rows : inner,
                           .ldb = b_turned ? inner : columns,
                           .ldc = columns,
                           .batch = 1,
                           .alpha = 1};
}

enum into { SET, ADD, SET_WIDE };

/* y = x W, or y += x W */
static void linear(const struct model *m, void *y, const void *x, const void *w, int inputs,
                   int outputs, enum into into)
{
    struct matmul p = product(y, x, false, w, false, (int)rows_of(m->dims), outputs, inputs);
    p.beta = into == ADD ? 1 : 0;
    p.wide = into == SET_WIDE;
    m->compute->matmul(m->compute, &p);
}

/* dx = dy W' and dW = x' dy */
static void linear_back(const struct model *m, void *dx, void *dw, const void *dy, const void *x,
                        const void *w, int inputs, int outputs)
{
    const int rows = (int)rows_of(m->dims);
    const struct matmul to_x = product(dx, dy, false, w, true, rows, inputs, outputs);
    const struct matmul to_w = product(dw, x, true, dy, false, inputs, outputs, rows);
    m->compute->matmul(m->compute, &to_x);
    m->compute->matmul(m->compute, &to_w);
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

/* An operand of a sample's products, one product for each head. If ld is 0, it is the attention
 * weights, [sequence][sequence] for each head. Otherwise it has rows of `ld` elements. In each row a
 * head has width / heads elements, and the next head begins behind them. */
struct operand {
    const void *base;
    int ld;
};

static void heads(const struct model *m, struct operand a, bool a_turned, struct operand b,
                  bool b_turned, struct operand c, float alpha)
{
    const int t = m->dims.sequence, head = m->dims.width / m->shape->heads;
    const long long square = (long long)t * t;
    struct matmul p = product((void *)c.base, a.base, a_turned, b.base, b_turned, t,
                              c.ld ? head : t, a.ld && !a_turned ? head : t);
    p.lda = a.ld ? a.ld : t;
    p.ldb = b.ld ? b.ld : t;
    p.ldc = c.ld ? c.ld : t;
    p.stride_a = a.ld ? head : square;
    p.stride_b = b.ld ? head : square;
    p.stride_c = c.ld ? head : square;
    p.batch = m->shape->heads;
    p.alpha = alpha;
    m->compute->matmul(m->compute, &p);
}

/* One sample's queries, keys or values (`which` is 0, 1 or 2). */
static struct operand slice(const struct model *m, const void *qkv, int sample, int which)
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
        heads(m, slice(m, b->qkv, s, 0), false, slice(m, b->qkv, s, 1), true,
              weights(m, b->weights, s), attention_scale(m));
    c->softmax(c, b->weights, (size_t)m->dims.samples * (size_t)m->shape->heads, m->dims.sequence);
    for (int s = 0; s < m->dims.samples; s++)
        heads(m, weights(m, b->weights, s), false, slice(m, b->qkv, s, 2), false,
              result(m, b->attended, s), 1);
}

/* Turns m->dy, the gradient of attention's output, into m->dqkv. */
static void attention_back(const struct model *m, const struct block_memory *b)
{
    struct compute *c = m->compute;
    const struct operand dw = weights(m, m->dweights, 0);
    for (int s = 0; s < m->dims.samples; s++) {
        const struct operand p = weights(m, b->weights, s), dy = result(m, m->dy, s);
        heads(m, dy, false, slice(m, b->qkv, s, 2), true, dw, 1); /* dP = dY V' */
        heads(m, p, true, dy, false, slice(m, m->dqkv, s, 2), 1); /* dV = P' dY */
        c->softmax_back(c, m->dweights, p.base, (size_t)m->shape->heads, m->dims.sequence,
                        attention_scale(m)); /* m->dweights: dP becomes dS */
        heads(m, dw, false, slice(m, b->qkv, s, 1), false, slice(m, m->dqkv, s, 0), 1); /* dS K */
        heads(m, dw, true, slice(m, b->qkv, s, 0), false, slice(m, m->dqkv, s, 1), 1);  /* dS' Q */
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
    const size_t row = cells_of(m) * c->element;
    norm(m, &b->norm1, b->x, tensor(m, parameters, group, BLOCK_GAIN1));
    linear(m, b->qkv, b->norm1.y, tensor(m, parameters, group, BLOCK_QKV), width, 3 * width, SET);
    attention(m, b);
    c->copy(c, b->middle, b->x, row);
    linear(m, b->middle, b->attended, tensor(m, parameters, group, BLOCK_OUT), width, width, ADD);

    norm(m, &b->norm2, b->middle, tensor(m, parameters, group, BLOCK_GAIN2));
    linear(m, b->up, b->norm2.y, tensor(m, parameters, group, BLOCK_UP), width, 4 * width, SET);
    c->gelu(c, b->active, b->up, 4 * cells_of(m));
    c->copy(c, output_of(m, layer), b->middle, row);
    linear(m, output_of(m, layer), b->active, tensor(m, parameters, group, BLOCK_DOWN), 4 * width,
           width, ADD);
}

void model_head(struct model *m, const void *parameters)
{
    const int group = m->shape->layers + 1;
    norm(m, &m->norm, m->x, tensor(m, parameters, group, HEAD_GAIN));
    linear(m, m->logits, m->norm.y, tensor(m, parameters, group, HEAD_OUT), m->dims.width, SYMBOLS,
           SET_WIDE);
}

void model_loss(struct model *m, double *mean)
{
    const float all = (float)rows_of(m->dims) * (float)m->shape->nranks;
    m->compute->loss(m->compute, mean, m->dlogits, m->logits, m->tokens, m->dims, 1 / all);
}

void model_head_back(struct model *m, const void *parameters, void *gradients)
{
    const int group = m->shape->layers + 1;
    linear_back(m, m->dy, tensor(m, gradients, group, HEAD_OUT), m->dlogits, m->norm.y,
                tensor(m, parameters, group, HEAD_OUT), m->dims.width, SYMBOLS);
    m->compute->zero(m->compute, m->dx, cells_of(m) * m->compute->element);
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
