/* Calls whose splits are on the device: what their layout says. */
#ifndef CECL_CALL_SPLITS_H
#define CECL_CALL_SPLITS_H

#include "call/call.h"
#include "sm/splits.h"

static inline struct cecl_splits_form cecl_call_splits(const struct cecl_call *call)
{
    const uint64_t *words = call->view.layout;
    return (struct cecl_splits_form){.nranks = (uint32_t)call->nranks,
                                     .experts = 1,
                                     .align = 1,
                                     .send_rows = words[CECL_LAYOUT_SEND_ROWS],
                                     .recv_rows = words[CECL_LAYOUT_RECV_ROWS],
                                     .row_bytes = words[CECL_LAYOUT_ROW_BYTES]};
}

/* An address of this rank: CECL_LAYOUT_SPLITS or CECL_LAYOUT_SPLITS_OUT. */
static inline void *cecl_call_address(const struct cecl_call *call, int word)
{
    return (void *)(uintptr_t)call->view.layout[word];
}

#endif
