/* Calls by splits on the device: what their layout says. */
#ifndef CECL_PLAN_SPLITS_H
#define CECL_PLAN_SPLITS_H

#include "plan/call.h"
#include "sm/splits.h"

static inline struct cecl_splits_form cecl_call_splits(const struct cecl_call *call)
{
    const uint64_t *words = call->view.layout;
    return (struct cecl_splits_form){.nranks = (uint32_t)call->nranks,
                                     .experts = (uint32_t)words[CECL_LAYOUT_EXPERTS],
                                     .back = call->op->goes_back,
                                     .align = (uint32_t)words[CECL_LAYOUT_ALIGN],
                                     .send_rows = words[CECL_LAYOUT_SEND_ROWS],
                                     .recv_rows = words[CECL_LAYOUT_RECV_ROWS],
                                     .row_bytes = words[CECL_LAYOUT_ROW_BYTES],
                                     .scale_bytes = words[CECL_LAYOUT_SCALE_BYTES]};
}

/* An address on this rank: one of the layout's words from CECL_LAYOUT_SPLITS_ALIKE on. */
static inline void *cecl_call_address(const struct cecl_call *call, int word)
{
    return (void *)(uintptr_t)call->view.layout[word];
}

/* The offsets at which blocks begin in sendbuff. ceclCombine reads them from behind the splits, where ceclDispatch
 * wrote them. NULL: blocks lie one after another. */
static inline const uint64_t *cecl_call_offsets(const struct cecl_call *call)
{
    const uint64_t *splits = cecl_call_address(call, CECL_LAYOUT_SPLITS);
    return call->op->goes_back
               ? splits + (uint64_t)call->nranks * call->view.layout[CECL_LAYOUT_EXPERTS]
               : NULL;
}

/* The arrays that only kernels use; touched.c fills in the list. Arrays that the call lacks have 0 bytes. */
struct cecl_splits_array {
    int word; /* the layout's word that holds the array's address */
    uint64_t bytes;
    const char *name;
    bool written;
};
#define CECL_SPLITS_ARRAYS 4
void cecl_call_splits_arrays(const struct cecl_call *call,
                             struct cecl_splits_array arrays[CECL_SPLITS_ARRAYS]);

#endif
