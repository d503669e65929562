/* What the kernels of splits.cu and the code that launches them share. Plain C. */
#ifndef CECL_SM_SPLITS_ARGS_H
#define CECL_SM_SPLITS_ARGS_H

#include "sm/splits.h"

#define CECL_SPLITS_THREADS 512
#define CECL_SPLITS_CHUNK 8192u   /* bytes that a warp copies at a time */
#define CECL_SPLITS_SHARED 45648u /* bytes of shared memory of a block that moves rows */

#endif
