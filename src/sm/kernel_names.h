/* The kernels of reductions by name: the host finds them in the embedded images by these names. This file is plain C,
 * so that host code and kernels can include it. Pairs of type and operation that give the same bits share a kernel:
 * averages use the kernels of sums; sums and products of signed integers use the kernels of unsigned integers. */
#ifndef CECL_SM_KERNEL_NAMES_H
#define CECL_SM_KERNEL_NAMES_H

#include <cecl/cecl.h>

/* The kernel type for sums of fp16 or bf16 with results in fp32. Kernels of `type` itself round their results to it. */
#define CECL_TO_FLOAT32(type) (CECL_NUM_TYPES + (type))
#define CECL_KERNEL_TYPES (2 * CECL_NUM_TYPES)

/* X(name of the type, type, name of the operation, operation) for each pair that has kernels */
#define CECL_REDUCE_PAIRS(X) \
    CECL_REDUCE_ORDERED(X, int8, ceclInt8) \
    CECL_REDUCE_ORDERED(X, int32, ceclInt32) \
    CECL_REDUCE_ORDERED(X, int64, ceclInt64) \
    CECL_REDUCE_ALL_OPS(X, uint8, ceclUint8) \
    CECL_REDUCE_ALL_OPS(X, uint32, ceclUint32) \
    CECL_REDUCE_ALL_OPS(X, uint64, ceclUint64) \
    CECL_REDUCE_ALL_OPS(X, float16, ceclFloat16) \
    CECL_REDUCE_ALL_OPS(X, float32, ceclFloat32) \
    CECL_REDUCE_ALL_OPS(X, float64, ceclFloat64) \
    CECL_REDUCE_ALL_OPS(X, bfloat16, ceclBfloat16) \
    CECL_REDUCE_ALL_OPS(X, float8e4m3, ceclFloat8e4m3) \
    CECL_REDUCE_ALL_OPS(X, float8e5m2, ceclFloat8e5m2) \
    X(float16_to_float32, CECL_TO_FLOAT32(ceclFloat16), sum, ceclSum) \
    X(bfloat16_to_float32, CECL_TO_FLOAT32(ceclBfloat16), sum, ceclSum)
#define CECL_REDUCE_ORDERED(X, name, type) \
    X(name, type, max, ceclMax) \
    X(name, type, min, ceclMin)
#define CECL_REDUCE_ALL_OPS(X, name, type) \
    X(name, type, sum, ceclSum) \
    X(name, type, prod, ceclProd) \
    CECL_REDUCE_ORDERED(X, name, type)

/* X(name of the type, type, sources) for sums of floating-point numbers. Sums are the usual reductions, so they have a
 * kernel of their own for each usual number of ranks. */
#define CECL_REDUCE_SUMS(X) \
    CECL_REDUCE_SUMS_OF(X, float16, ceclFloat16) \
    CECL_REDUCE_SUMS_OF(X, bfloat16, ceclBfloat16) \
    CECL_REDUCE_SUMS_OF(X, float32, ceclFloat32) \
    CECL_REDUCE_SUMS_OF(X, float64, ceclFloat64) \
    CECL_REDUCE_SUMS_OF(X, float16_to_float32, CECL_TO_FLOAT32(ceclFloat16)) \
    CECL_REDUCE_SUMS_OF(X, bfloat16_to_float32, CECL_TO_FLOAT32(ceclBfloat16))
#define CECL_REDUCE_SUMS_OF(X, name, type) \
    X(name, type, 2) \
    X(name, type, 3) \
    X(name, type, 4) \
    X(name, type, 8)

#define CECL_REDUCE_SUMS_MOST 8 /* sources */

/* X(name of the type, type): sums that also have kernels for captured calls, which count their own runs
 * (cecl_reduction_counts). */
#define CECL_REDUCE_COUNTED(X) \
    X(float16, ceclFloat16) \
    X(bfloat16, ceclBfloat16) \
    X(float32, ceclFloat32) \
    X(float64, ceclFloat64) \
    X(float16_to_float32, CECL_TO_FLOAT32(ceclFloat16)) \
    X(bfloat16_to_float32, CECL_TO_FLOAT32(ceclBfloat16))

static inline int cecl_kernel_type(ceclDataType_t type, int widens)
{
    return widens ? CECL_TO_FLOAT32((int)type) : (int)type;
}

#endif
