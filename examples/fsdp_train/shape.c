/* Sizes and initial values of the parameters. */
#include "shape.h"

#include <math.h>
#include <string.h>

#include "random.h"

/* Elements of a tensor. Each number is a multiple of the width, so no gap between tensors is
 * needed. */
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

/* Standard deviation of a tensor's initial values; 0: all are `constant`. */
static float deviation_of(const struct shape *s, int group, int tensor, float *constant)
{
    const int block = group > 0 && group <= s->layers, head = group > s->layers;
    *constant =
        (block && (tensor == BLOCK_GAIN1 || tensor == BLOCK_GAIN2)) || (head && tensor == HEAD_GAIN)
            ? 1
            : 0;
    if ((block && tensor >= BLOCK_GAIN1) || (head && tensor >= HEAD_GAIN))
        return 0;
    const float deviation = 0.5f / sqrtf((float)s->width);
    /* These tensors' outputs are added to x 2 * layers times. Their initial values are smaller, so
     * that x keeps its size in deep networks. */
    const int added = block && (tensor == BLOCK_OUT || tensor == BLOCK_DOWN);
    return added ? deviation / sqrtf(2.0f * (float)s->layers) : deviation;
}

void initial_parameters(const struct shape *s, uint64_t seed, int group, size_t from, size_t count,
                        float *out)
{
    const uint64_t key = scramble(scramble(seed) + (uint64_t)group);
    const int tensors = tensor_count(s, group);
    memset(out, 0, count * sizeof(*out));
    for (int t = 0; t < tensors; t++) {
        const size_t begin = tensor_offset(s, group, t), end = begin + tensor_elements(s, group, t);
        float constant;
        const float scale = deviation_of(s, group, t, &constant) * sqrtf(12.0f);
        for (size_t i = from > begin ? from : begin; i < end && i < from + count; i++) {
            const float uniform = (float)(scramble(key + i) >> 40) / (float)(1 << 24) - 0.5f;
            out[i - from] = constant + uniform * scale;
        }
    }
}
