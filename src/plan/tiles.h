/* Tiles: the blocks of a call whose input is parts of a matrix. Each rank receives some tiles of one shape,
 * one behind the other. The layout of such a call has the number of tiles for each rank, and then where each
 * tile begins in this rank's sendbuff: first the tiles for rank 0, then the tiles for rank 1, and so on. The
 * call's shape counts the rows of all tiles of a rank. */
#ifndef CECL_PLAN_TILES_H
#define CECL_PLAN_TILES_H

#include "plan/call.h"

/* How many tiles each rank receives. */
static inline uint64_t cecl_call_tiles(const struct cecl_call *call)
{
    return call->view.layout[0];
}
static inline uint64_t cecl_tile_rows(const struct cecl_call *call)
{
    return call->view.shape.rows / cecl_call_tiles(call);
}
/* Where a tile for rank `to` begins in sendbuff. */
static inline uint64_t cecl_tile_begin(const struct cecl_call *call, int to, uint64_t tile)
{
    return call->view.layout[1 + (uint64_t)to * cecl_call_tiles(call) + tile];
}
/* Where byte `at` of the tiles for rank `to`, counted as if they were dense, lies in sendbuff. */
static inline uint64_t cecl_tile_byte(const struct cecl_call *call, int to, uint64_t at)
{
    const uint64_t bytes = call->view.shape.width * cecl_tile_rows(call);
    return cecl_tile_begin(call, to, at / bytes) +
           cecl_offset_within(call, call->view.shape.send_pitch, at % bytes);
}

#endif
