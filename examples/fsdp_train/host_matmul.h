/* Matrix products of the host, by OpenBLAS or by plain loops. */
#ifndef CECL_FSDP_HOST_MATMUL_H
#define CECL_FSDP_HOST_MATMUL_H

#include "compute.h"

/* The test of the gradients computes in double, because finite differences need the digits. */
#ifdef FSDP_DOUBLE
typedef double real;
#else
typedef float real;
#endif

extern const char host_matmul_name[];
void host_matmul(struct compute *c, const struct matmul *m);

#endif
