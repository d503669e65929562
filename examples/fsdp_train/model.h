/* The network, forward and backward, one parameter group at a time. Each call is given the group's
 * parameters, and uses them during that call only. */
#ifndef CECL_FSDP_MODEL_H
#define CECL_FSDP_MODEL_H

#include "compute.h"
#include "shape.h"

/* A layer norm's input is kept by who made it. */
struct norm_memory {
    void *y;           /* [rows][width] */
    void *mean, *rstd; /* [rows], wide */
};

/* What the way back needs of a block; rows = batch * sequence. */
struct block_memory {
    void *x; /* [rows][width], what the block is given */
    struct norm_memory norm1, norm2;
    void *qkv;      /* [rows][3 * width] */
    void *weights;  /* [batch][heads][sequence][sequence], attention's */
    void *attended; /* [rows][width] */
    void *middle;   /* [rows][width], between attention and the second half */
    void *up;       /* [rows][4 * width], before gelu */
    void *active;   /* [rows][4 * width], after */
};

struct model {
    const struct shape *shape;
    struct compute *compute;
    struct dims dims;      /* samples: shape->batch, or fewer */
    unsigned char *tokens; /* [batch][sequence + 1] */
    struct block_memory *blocks;
    void *x; /* what the head is given */
    struct norm_memory norm;
    void *logits;   /* [rows][SYMBOLS], wide */
    void *dlogits;  /* [rows][SYMBOLS] */
    void *dx;       /* [rows][width], gradient of what the current group gave */
    void *dy;       /* [rows][width] */
    void *dup;      /* [rows][4 * width] */
    void *dqkv;     /* [rows][3 * width] */
    void *dweights; /* [heads][sequence][sequence] */
    size_t bytes;   /* all of the above */
};

/* All memory that training needs on top of parameters. False with words on stderr. */
bool model_open(struct model *m, const struct shape *shape, struct compute *compute);
void model_close(struct model *m); /* takes a zeroed or half-open one too */

/* The way there: from m->tokens to m->logits. `parameters` are those of the group named. */
void model_embed(struct model *m, const void *parameters);
void model_block(struct model *m, int layer, const void *parameters); /* layer 0 .. layers - 1 */
void model_head(struct model *m, const void *parameters);

/* The loss is the mean over all tokens of all ranks; each rank's gradients are its part of that, so
 * that the sum over the ranks is the gradient. `mean` gets this rank's own mean. */
void model_loss(struct model *m, double *mean);

/* The way back: fills all of the group's gradients. */
void model_head_back(struct model *m, const void *parameters, void *gradients);
void model_block_back(struct model *m, int layer, const void *parameters, void *gradients);
void model_embed_back(struct model *m, void *gradients);

#endif
