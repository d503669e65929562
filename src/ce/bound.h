/* A bound plan: the plan's copies and flags with addresses, ready to be handed to the device. Internal to src/ce. */
#ifndef CECL_CE_BOUND_H
#define CECL_CE_BOUND_H

#include "ce/engine.h"

/* A stretch of one kind, issued by one call to the device. */
enum cecl_piece_kind { CECL_PIECE_MEMOPS, CECL_PIECE_COPIES };
struct cecl_piece {
    uint32_t kind;
    uint32_t first, count; /* in ops, or in batch */
};

struct cecl_bound {
    struct cecl_request request;
    uint64_t generation;      /* of the pool when it was bound */
    uint32_t advance;         /* of the epoch by this call */
    uint32_t npieces, nops, ncopies;
    struct cecl_piece *pieces;
    struct cecl_memop *ops;   /* value: the phase; the call's first epoch is added when it is issued */
    struct cecl_batch batch;  /* all copies of all pieces */
    ceclExplanation_t explanation;
};

void cecl_bound_free(struct cecl_bound *bound); /* NULL has no effect */

/* The word at rank `holder` that rank `writer` writes. */
uint32_t *cecl_engine_flag(const struct cecl_engine *engine, int holder, int writer);
/* The word that CECL_FLAGS_COPY sends from. */
uint32_t *cecl_engine_flag_source(const struct cecl_engine *engine);

#endif
