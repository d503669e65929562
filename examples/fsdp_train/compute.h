/* The operations of a device, as a table of functions. The network (model.c) is written once, and
 * computes by these operations.
 *
 * Operations run in the order of the calls. On a GPU they are enqueued on one compute stream, and
 * may still run when the call returns. On the host they are done by then. A failure is reported on
 * stderr and remembered; wait() then returns false. */
#ifndef CECL_FSDP_COMPUTE_H
#define CECL_FSDP_COMPUTE_H

#include <cecl/cecl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* C = alpha op(A) op(B) + beta C, `batch` times. Row-major; C is [m][n]; leading dimensions and
 * strides are in elements. */
struct matmul {
    int m, n, k;
    bool a_turned, b_turned; /* whether op(A) and op(B) are transposes */
    const void *a, *b;
    void *c;
    int lda, ldb, ldc;
    long long stride_a, stride_b, stride_c; /* from one product to the next */
    int batch;
    float alpha, beta;
    bool wide; /* C's elements are float */
};

/* There are samples * sequence rows of `width` elements. Tokens are [samples][sequence + 1]: the
 * last `sequence` tokens of a sample are to be predicted. */
struct dims {
    int samples, sequence, width;
};

static inline size_t rows_of(struct dims d)
{
    return (size_t)d.samples * (size_t)d.sequence;
}

#define NORM_EPSILON 1e-5
/* gelu(x) = x (1 + tanh u) / 2 with u = GELU_A (x + GELU_B x^3) */
#define GELU_A 0.7978845608028654 /* sqrt(2 / pi) */
#define GELU_B 0.044715

struct adam {
    float rate, beta1, beta2, epsilon;
    float correction1, correction2; /* 1 / (1 - beta^step) */
};

struct compute {
    const char *name;
    size_t element;      /* bytes of a parameter, gradient or activation: bfloat16 or float */
    ceclDataType_t type; /* the type of an element */
    void *state;

    bool (*open)(struct compute *c, int device, int lanes, int ticks);
    void (*close)(struct compute *c);
    void *(*alloc)(struct compute *c, size_t bytes); /* zeroed; NULL with a message on stderr */
    void (*free)(struct compute *c, void *memory);
    /* Copies to or from the device, or within it. Only after wait() may the program reuse a source in
     * host memory, and read a destination there. */
    void (*copy)(struct compute *c, void *dst, const void *src, size_t bytes);
    void (*zero)(struct compute *c, void *dst, size_t bytes);
    bool (*wait)(struct compute *c);

    /* ---- the network */
    void (*matmul)(struct compute *c, const struct matmul *m);
    /* Cuts the samples number `first`, first + 1, ... out of the text (sample_start in model.h). */
    void (*batch)(struct compute *c, unsigned char *tokens, const unsigned char *text, size_t bytes,
                  uint64_t seed, uint64_t first, struct dims d);
    void (*embed)(struct compute *c, void *x, const void *table, const void *places,
                  const unsigned char *tokens, struct dims d);
    void (*embed_back)(struct compute *c, void *dtable, void *dplaces, const void *dx,
                       const unsigned char *tokens, struct dims d);
    /* Layer norm; mean and rstd are [rows], float. norm_back adds to dx. */
    void (*norm)(struct compute *c, void *y, void *mean, void *rstd, const void *x,
                 const void *gain, const void *bias, struct dims d);
    void (*norm_back)(struct compute *c, void *dx, void *dgain, void *dbias, const void *dy,
                      const void *x, const void *mean, const void *rstd, const void *gain,
                      struct dims d);
    void (*gelu)(struct compute *c, void *y, const void *x, size_t count);
    void (*gelu_back)(struct compute *c, void *dy, const void *x, size_t count); /* dy becomes dx */
    /* In place on `count` matrices [size][size]; row i uses columns 0 .. i. softmax_back turns dp, the
     * gradient of softmax's output, into the gradient of its input, times `scale`. */
    void (*softmax)(struct compute *c, void *p, size_t count, int size);
    void (*softmax_back)(struct compute *c, void *dp, const void *p, size_t count, int size,
                         float scale);
    /* Mean of -ln p(next byte) over the rows. dlogits is the gradient of the sum, times `scale`. */
    void (*loss)(struct compute *c, double *mean, void *dlogits, const void *logits,
                 const unsigned char *tokens, struct dims d, float scale);

    /* ---- shards */
    void (*to_elements)(struct compute *c, void *dst, const float *src, size_t count);
    void (*adam)(struct compute *c, float *parameters, float *first, float *second,
                 const void *gradients, size_t count, const struct adam *a);

    /* ---- order between compute and communication streams. The next three functions are NULL if
     * compute is synchronous: then the host itself waits for the stream (comm.h). */
    void (*stream_after_compute)(struct compute *c, ceclStream_t stream);
    /* marks the end of all work that `stream` holds now */
    void (*mark)(struct compute *c, ceclStream_t stream, int lane);
    void (*compute_after_mark)(struct compute *c, int lane);

    /* ---- time: tick() records a time stamp at this point of the compute stream. ticks() waits for
     * compute, and writes the `count` stamps since its last call to `ms`. */
    void (*tick)(struct compute *c);
    bool (*ticks)(struct compute *c, double *ms, int count);
};

extern const struct compute compute_host;
#ifdef EXAMPLE_CUDA
const struct compute *compute_cuda(void);
#else
static inline const struct compute *compute_cuda(void)
{
    return NULL;
}
#endif

#ifdef __cplusplus
}
#endif
#endif
