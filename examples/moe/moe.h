/* A layer of experts that is divided among ranks. Each rank has some tokens and some experts. A router chooses CHOICES
 * experts for each token. The token's output is the sum of these experts' outputs, each times its gate.
 *
 *     moe.c           the training, and the same training on one rank alone
 *     layer.c         the arithmetic without communication: router, experts, and their gradients
 *     way_dispatch.c  rows travel by ceclDispatch and ceclCombine
 *     way_gather.c    all ranks gather all tokens, and select the rows of their experts */
#ifndef MOE_H
#define MOE_H

#include <stddef.h>
#include <stdint.h>

#include "../check.h"

enum {
    WIDTH = 16,  /* numbers of a token */
    TOKENS = 96, /* of a rank */
    LOCAL = 2,   /* experts of a rank */
    CHOICES = 2, /* experts of a token */
    MOST_RANKS = 16,
    MOST_EXPERTS = MOST_RANKS * LOCAL
};

/* Allocates symmetric memory. Collective. */
float *allocate(ceclComm_t comm, size_t numbers);

/* ---- layer.c */

struct tokens {
    float x[TOKENS][WIDTH], wanted[TOKENS][WIDTH];
};
/* The experts of each token, in ascending order, and the gate with which each output is multiplied. */
struct routes {
    uint32_t expert[TOKENS][CHOICES];
    float gate[TOKENS][CHOICES];
};

void route(const float *router, int experts, const struct tokens *tokens, struct routes *routes);
/* out = x times an expert's matrix [WIDTH][WIDTH]: a GEMM of `rows` rows. */
void expert_forward(const float *weights, const float *x, size_t rows, float *out);
/* Adds to the gradient of an expert's matrix what follows from d_out, the gradient of its outputs. */
void expert_backward(float *d_weights, const float *x, const float *d_out, size_t rows);
float dot(const float *a, const float *b);
/* Returns this rank's part of the loss, and its gradient in d_outputs. all_tokens: how many tokens all ranks have. */
float loss_of(const struct tokens *tokens, const float *outputs, int all_tokens, float *d_outputs);
/* Adds to the router's gradient what follows from the gradient of the gates. */
void route_backward(float *d_router, int experts, const struct tokens *tokens,
                    const struct routes *routes, const float *d_gates);

/* ---- how rows travel */

struct way {
    const char *name;
    void (*open)(ceclComm_t comm);
    /* outputs  [TOKENS][WIDTH] of this rank's tokens; weights: [LOCAL] matrices of this rank's experts */
    void (*forward)(const struct tokens *tokens, const struct routes *routes, const float *weights,
                    float *outputs);
    /* Runs after `forward`. Writes d_gates [TOKENS][CHOICES]; adds to d_weights, [LOCAL] matrices. */
    void (*backward)(const struct routes *routes, const float *d_outputs, float *d_gates,
                     float *d_weights);
};
extern const struct way way_dispatch, way_gather;

#endif
