/* Building blocks of lowerings: copies of blocks, dense or of rows, and blocks in pieces. */
#include "ce/lowering.h"
#include "plan/block.h"
#include "util/grow.h"

static struct cecl_place place_of(const struct cecl_part *part, const struct cecl_extent *extent,
                                  uint64_t byte)
{
    struct cecl_place place = extent->at;
    place.offset +=
        extent->pitch ? cecl_offset_within(&part->call, extent->pitch, byte) : byte - extent->from;
    return place;
}

static void copy_rows(const struct cecl_part *part, struct cecl_plan *plan,
                      const struct cecl_extent *dst, const struct cecl_extent *src, uint64_t first,
                      uint64_t bytes, uint64_t rows)
{
    const uint64_t width = part->call.view.shape.width;
    const struct cecl_copy copy = {.dst = place_of(part, dst, first),
                                   .src = place_of(part, src, first),
                                   .bytes = bytes,
                                   .rows = rows,
                                   .dst_pitch = dst->pitch ? dst->pitch : width,
                                   .src_pitch = src->pitch ? src->pitch : width};
    if (bytes > 0 && rows > 0)
        cecl_plan_copy_rows(plan, &copy);
}

void cecl_lower_copy(const struct cecl_part *part, struct cecl_plan *plan, struct cecl_extent dst,
                     struct cecl_extent src, uint64_t first, uint64_t bytes)
{
    const uint64_t width = part->call.view.shape.width;
    if (width == 0 || (dst.pitch == 0 && src.pitch == 0)) {
        copy_rows(part, plan, &dst, &src, first, bytes, 1);
        return;
    }
    const uint64_t begun = first % width ? width - first % width : 0;
    const uint64_t head = begun < bytes ? begun : bytes, rows = (bytes - head) / width;
    copy_rows(part, plan, &dst, &src, first, head, 1);
    copy_rows(part, plan, &dst, &src, first + head, width, rows);
    copy_rows(part, plan, &dst, &src, first + head + rows * width, (bytes - head) % width, 1);
}

void cecl_lower_block(const struct cecl_part *part, struct cecl_plan *plan, int from, int to)
{
    cecl_lower_copy(part, plan, cecl_received(part, from, to), cecl_sent(part, from, to), 0,
                    cecl_call_block(&part->call, from, to).bytes);
}

void cecl_lower_alone(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (!part->call.in_place)
        cecl_lower_block(part, plan, part->call.rank, part->call.rank);
    cecl_plan_say(plan, "local copy");
}

struct cecl_pieces cecl_pieces_of(const struct cecl_part *part, uint64_t bytes, uint64_t most)
{
    const uint64_t width = part->call.view.shape.width, each = part->way.move.piece_worth;
    const uint64_t peers = (uint64_t)part->call.nranks - 1, worth = bytes / each + 1;
    const uint64_t count = worth < peers ? worth : peers;
    const uint64_t align = width ? width : each < CECL_PIECE_ALIGN ? 1 : CECL_PIECE_ALIGN;
    const uint64_t whole = cecl_round_up((bytes + count - 1) / count, align);
    const uint64_t room = most / count < align ? most / count : most / count / align * align;
    return (struct cecl_pieces){(int)count, whole < room ? whole : room};
}

/* Copies tiles to staging, where they lie densely. Copy engines move the rows, so no kernel needs to pack them. The
 * reduction reads one dense block, however many tiles the call has. */
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
