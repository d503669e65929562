/* What the kernels of sums.cu and the code that launches them share. Plain C. */
#ifndef CECL_SM_SUMS_ARGS_H
#define CECL_SM_SUMS_ARGS_H

#define CECL_ROW_SUMS_THREADS 1024
#define CECL_ROW_SUMS_TEAMS 4 /* of threads; each has a token */

/* X(name of the type, type) for each type that has a kernel */
#define CECL_ROW_SUMS_TYPES(X)                                                                     \
    X(float32, ceclFloat32)                                                                        \
    X(float16, ceclFloat16)                                                                        \
    X(bfloat16, ceclBfloat16)                                                                      \
    X(float8e4m3, ceclFloat8e4m3)                                                                  \
    X(float8e5m2, ceclFloat8e5m2)

#endif
