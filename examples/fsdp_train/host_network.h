/* The network's operations on the host, with the signatures of struct compute. */
#ifndef CECL_FSDP_HOST_NETWORK_H
#define CECL_FSDP_HOST_NETWORK_H

#include "constants.h"
#include "host_matmul.h"
#include "shape.h"

#ifdef FSDP_DOUBLE
#define REAL_EXP exp
#define REAL_TANH tanh
#else
#define REAL_EXP expf
#define REAL_TANH tanhf
#endif

void host_batch(struct compute *c, unsigned char *tokens, const unsigned char *text, size_t bytes,
                uint64_t seed, uint64_t first, struct dims d);
void host_embed(struct compute *c, void *x, const void *table, const void *places,
                const unsigned char *tokens, struct dims d);
void host_embed_back(struct compute *c, void *dtable, void *dplaces, const void *dx,
                     const unsigned char *tokens, struct dims d);
void host_norm(struct compute *c, void *y, void *mean, void *rstd, const void *x, const void *gain,
               const void *bias, struct dims d);
void host_norm_back(struct compute *c, void *dx, void *dgain, void *dbias, const void *dy,
                    const void *x, const void *mean, const void *rstd, const void *gain,
                    struct dims d);
void host_gelu(struct compute *c, void *y, const void *x, size_t count);
void host_gelu_back(struct compute *c, void *dy, const void *x, size_t count);
void host_softmax(struct compute *c, void *p, size_t count, int size);
void host_softmax_back(struct compute *c, void *dp, const void *p, size_t count, int size,
                       float scale);
void host_loss(struct compute *c, double *mean, void *dlogits, const void *logits,
               const unsigned char *tokens, struct dims d, float scale);

#endif
