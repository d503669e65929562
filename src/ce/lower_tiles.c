/* Copies of tiles to staging, where they lie densely. Copy engines move the rows, so no kernel packs them. A
 * reduction finds one dense block in staging, however many tiles it has. */
#include "call/tiles.h"
#include "ce/lowering.h"

void cecl_lower_tiles(const struct cecl_part *part, struct cecl_plan *plan, struct cecl_place dst,
                      int to, uint64_t first, uint64_t bytes)
{
    const struct cecl_call *call = &part->call;
    const uint64_t size = call->view.shape.width * cecl_tile_rows(call), end = first + bytes;
    for (uint64_t at = first; at < end;) {
        const uint64_t tile = at / size, within = at % size, rest = size - within,
                       count = rest < end - at ? rest : end - at;
        const struct cecl_extent source = {.at = cecl_place_at(CECL_AREA_SEND, call->rank,
                                                               cecl_tile_begin(call, to, tile)),
                                           .pitch = call->view.shape.send_pitch},
                                 target = {.at = dst, .from = within};
        cecl_lower_copy(part, plan, target, source, within, count);
        dst.offset += count;
        at += count;
    }
}
