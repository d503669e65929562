/* The network: its sizes, its parameter groups, where each tensor lies in a group, and the values of the
 * parameters before training; then the forward and backward passes, one parameter group at a time.
 * A group's parameters may be overwritten once the work of the call is done. Nothing here communicates. */
#ifndef CECL_FSDP_MODEL_H
#define CECL_FSDP_MODEL_H

#include "compute.h"

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
    int sequence; /* bytes of a sample: the longest context of a prediction */
    int batch;    /* samples of one rank in one step */
    int nranks;
};

/* The tensors of a group, in the order in which they lie in its flat buffer. */
enum { EMBED_TABLE, EMBED_PLACES, EMBED_TENSORS }; /* [SYMBOLS][width], [sequence][width] */
enum {
    BLOCK_QKV,  /* [width][3 * width]: queries, keys, values; within each, head after head */
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

/* Computes `count` parameters of a group, from number `from` on, out of the seed alone. They are the
 * same for any number of ranks, so each rank computes only its own. Parameters beyond the group's end
 * are 0. */
void initial_parameters(const struct shape *s, uint64_t seed, int group, size_t from, size_t count,
                        float *out);

/* ---- random numbers that are functions of their index. Any rank and any device can compute any of
 * them, so neither the parameters nor the order of the data depend on the number of ranks. */

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

ON_BOTH static inline uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Where sample `index` of the whole training begins in the text. `index` counts the samples of all
 * ranks: step * global batch + position in the global batch. */
ON_BOTH static inline size_t sample_start(uint64_t seed, uint64_t index, size_t text_bytes,
                                          int sequence)
{
    return (size_t)(scramble(scramble(seed) + index) % (text_bytes - (size_t)sequence));
}

/* ---- the network, forward and backward */

/* What a layer norm keeps for the backward pass. (The caller keeps the norm's input.) */
struct norm_memory {
    void *y;           /* [rows][width] */
    void *mean, *rstd; /* [rows], float */
};

/* What the backward pass of a block needs; rows = batch * sequence. */
struct block_memory {
    void *x; /* [rows][width], the block's input */
    struct norm_memory norm1, norm2;
    void *qkv;      /* [rows][3 * width] */
    void *weights;  /* [batch][heads][sequence][sequence], of attention */
    void *attended; /* [rows][width] */
    void *middle;   /* [rows][width], between attention and the second half */
    void *up;       /* [rows][4 * width], before gelu */
    void *active;   /* [rows][4 * width], after gelu */
};

struct model {
    const struct shape *shape;
    struct compute *compute;
    struct dims dims;
    unsigned char *tokens; /* [batch][sequence + 1] */
    struct block_memory *blocks;
    void *x; /* the head's input */
    struct norm_memory norm;
    void *logits;   /* [rows][SYMBOLS], float */
    void *dlogits;  /* [rows][SYMBOLS] */
    void *dx;       /* [rows][width], gradient of the current group's output */
    void *dy;       /* [rows][width] */
    void *dup;      /* [rows][4 * width] */
    void *dqkv;     /* [rows][3 * width] */
    void *dweights; /* [heads][sequence][sequence] */
    void *memory;   /* the one allocation for the buffers above */
    size_t bytes;
};

/* Allocates all memory that training needs besides parameters. Returns false with a message on
 * stderr. */
bool model_open(struct model *m, const struct shape *shape, struct compute *compute);
void model_close(struct model *m); /* also accepts a zeroed or half-open model */

/* The forward pass, from m->tokens to m->logits. `parameters` are those of the group in the
 * function's name. */
void model_embed(struct model *m, const void *parameters);
void model_block(struct model *m, int layer, const void *parameters); /* layer 0 .. layers - 1 */
void model_head(struct model *m, const void *parameters);

/* The training minimizes the mean loss over the tokens of all ranks. Each rank computes the part of
 * this mean's gradient that its own tokens contribute, so the sum over the ranks is the gradient.
 * `mean` gets the mean over this rank's tokens. */
void model_loss(struct model *m, double *mean);

/* The backward pass: fills all of the group's gradients. */
void model_head_back(struct model *m, const void *parameters, void *gradients);
void model_block_back(struct model *m, int layer, const void *parameters, void *gradients);
void model_embed_back(struct model *m, void *gradients);

#ifdef __cplusplus
}
#endif
#endif
