/* The network, forward and backward, one parameter group at a time. Each call gets the group's
 * parameters, and uses them only during that call. */
#ifndef CECL_FSDP_MODEL_H
#define CECL_FSDP_MODEL_H

#include "compute.h"
#include "shape.h"

/* What a layer norm keeps for the backward pass. The caller keeps its input. */
struct norm_memory {
    void *y;           /* [rows][width] */
    void *mean, *rstd; /* [rows], wide */
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
    struct dims dims;      /* samples: shape->batch, or fewer */
    unsigned char *tokens; /* [batch][sequence + 1] */
    struct block_memory *blocks;
    void *x; /* the head's input */
    struct norm_memory norm;
    void *logits;   /* [rows][SYMBOLS], wide */
    void *dlogits;  /* [rows][SYMBOLS] */
    void *dx;       /* [rows][width], gradient of the current group's output */
    void *dy;       /* [rows][width] */
    void *dup;      /* [rows][4 * width] */
    void *dqkv;     /* [rows][3 * width] */
    void *dweights; /* [heads][sequence][sequence] */
    size_t bytes;   /* all of the above */
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

/* The loss is the mean over all tokens of all ranks. Each rank's gradients are its part of that
 * mean's gradient, so their sum over the ranks is the gradient. `mean` gets this rank's own
 * mean. */
void model_loss(struct model *m, double *mean);

/* The backward pass: fills all of the group's gradients. */
void model_head_back(struct model *m, const void *parameters, void *gradients);
void model_block_back(struct model *m, int layer, const void *parameters, void *gradients);
void model_embed_back(struct model *m, void *gradients);

#endif
