/* What the kernel that holds SMs and its host code share. Plain C, because both include it. */
#ifndef CECL_SM_HOLD_ARGS_H
#define CECL_SM_HOLD_ARGS_H

#include <stdint.h>

#define CECL_HOLD_BLOCKS_MAX 1022

/* Pinned memory, zeroed before a launch. Every word has one writer, the host or thread 0 of one
 * block, except `gave_up`: any block may write it, but always the same value. Atomic operations on
 * host memory are not available on every machine. */
struct cecl_hold_words {
    volatile uint32_t let_go;  /* set by the host: the kernel ends */
    volatile uint32_t gave_up; /* set by a block that ends because its time is over */
    volatile uint32_t runs[CECL_HOLD_BLOCKS_MAX];
};

#endif
