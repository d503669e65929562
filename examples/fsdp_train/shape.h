/* The network: its sizes, its parameter groups, where each tensor lies in a group, and the values
 * of the parameters before training. It knows no device and no communication. */
#ifndef CECL_FSDP_SHAPE_H
#define CECL_FSDP_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYMBOLS 256 /* the network reads and predicts bytes */

/* embedding -> `layers` blocks -> head. A block is
 *     x += attention(norm(x)) Out,  x += gelu(norm(x) Up) Down;   the head is  norm(x) Out.
 * Matrices are row-major, [inputs][outputs]; there are no biases but those of the norms. */
struct shape {
    int layers;
    int width;    /* a multiple of 8, so that every tensor begins at a multiple of 8 elements */
    int heads;    /* divides width */
    int sequence; /* the most bytes that the network looks at */
    int batch;    /* samples of one rank in one step */
    int nranks;
};

/* The tensors of a group, in the order in which they lie in its flat buffer. */
enum { EMBED_TABLE, EMBED_PLACES, EMBED_TENSORS }; /* [SYMBOLS][width], [sequence][width] */
enum {
    BLOCK_QKV,  /* [width][3 * width]: queries, keys, values, each head after head */
    BLOCK_OUT,  /* [width][width] */
    BLOCK_UP,   /* [width][4 * width] */
    BLOCK_DOWN, /* [4 * width][width] */
    BLOCK_GAIN1,
    BLOCK_BIAS1,
    BLOCK_GAIN2,
    BLOCK_BIAS2,
    BLOCK_TENSORS
};
enum { HEAD_OUT, HEAD_GAIN, HEAD_BIAS, HEAD_TENSORS }; /* [width][SYMBOLS] */

/* Groups in the order of their use: 0 embedding, 1 .. layers the blocks, layers + 1 the head. */
static inline int group_count(const struct shape *s)
{
    return s->layers + 2;
}
size_t group_elements(const struct shape *s, int group);
/* Elements of one rank's shard. A group is cut into nranks equal parts, and the last part is
 * padded. */
size_t shard_elements(const struct shape *s, int group);
size_t tensor_offset(const struct shape *s, int group, int tensor); /* in elements */
size_t parameter_count(const struct shape *s);

/* Computes parameters from .. from + count - 1 of a group from the seed alone. They are the same
 * for any number of ranks, and each rank computes only its own. Parameters beyond the group's end
 * are 0. */
void initial_parameters(const struct shape *s, uint64_t seed, int group, size_t from, size_t count,
                        float *out);

#ifdef __cplusplus
}
#endif
#endif
