/* Sums of rows: for each token, adds the rows that belong to the token, each times its weight.
 *
 *     sums[t] = weights[t][0] * rows[places[t][0]] + weights[t][1] * rows[places[t][1]] + ...
 *
 * Products and sums are computed in fp32, from left to right, each rounded to nearest even and
 * never fused. The result is rounded once, to the type of the elements; sm/reduce.h says how, and
 * what NaN and overflow give. Without weights rows are added as they are. A place that is not the
 * number of a row is skipped. A token without any row gets +0.
 *
 * This file knows pointers, but no communicator. Host and GPU give the same bits. */
#ifndef CECL_SM_SUMS_H
#define CECL_SM_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cecl_row_sums {
    const void *rows;       /* [nrows][count] */
    const uint64_t *places; /* [tokens][each] */
    const float *weights;   /* [tokens][each], or NULL */
    void *sums;             /* [tokens][count]; must not overlap the other arrays */
    uint64_t nrows, count, tokens;
    uint32_t each;
    ceclDataType_t type; /* see cecl_row_sums_adds */
    uint32_t max_sms;    /* CUDA: the most SMs to use; 0: CECL_ROW_SUMS_SMS */
};
#define CECL_ROW_SUMS_SMS 16u

/* Whether rows of a type can be added: only types that are accumulated in fp32. */
bool cecl_row_sums_adds(ceclDataType_t type);

/* Adds on the calling thread. */
void cecl_row_sums_host(const struct cecl_row_sums *sums);

/* Loads the kernels onto the calling thread's current GPU: see cecl_reduce_cuda_prepare. */
ceclResult_t cecl_row_sums_cuda_prepare(void);
/* Enqueues the sums on `stream` of the calling thread's current GPU. */
ceclResult_t cecl_row_sums_cuda(ceclStream_t stream, const struct cecl_row_sums *sums);

#ifdef __cplusplus
}
#endif
/* -- what the kernels of sums.cu and the code that launches them share -- */

#define CECL_ROW_SUMS_THREADS 1024
#define CECL_ROW_SUMS_TEAMS 4 /* teams of threads, each of which takes a token */

/* X(name of the type, type) for each type that has a kernel */
#define CECL_ROW_SUMS_TYPES(X) \
    X(float32, ceclFloat32) \
    X(float16, ceclFloat16) \
    X(bfloat16, ceclBfloat16) \
    X(float8e4m3, ceclFloat8e4m3) \
    X(float8e5m2, ceclFloat8e5m2)

#endif
