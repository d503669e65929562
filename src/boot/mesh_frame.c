/* Checks the frames of exchanges as they arrive. */
#include <string.h>

#include "boot/mesh_internal.h"

/* Whether the peer's frame belongs to the same exchange as ours. */
bool mesh_frame_matches(const struct mesh_header *theirs, const struct mesh_header *ours)
{
    return theirs->sequence == ours->sequence && theirs->bytes == ours->bytes &&
           memcmp(theirs->kind, ours->kind, sizeof(ours->kind)) == 0;
}

ceclResult_t mesh_judge_frame(int rank, const struct mesh_exchange *x, struct mesh_transfer *t,
                              size_t got, bool is_long)
{
    t->received = true;
    const bool is_whole = got == sizeof(t->header) + x->bytes && !is_long;
    return got < sizeof(t->header) || t->header.magic != MESH_FRAME_MAGIC ||
                   (mesh_frame_matches(&t->header, &x->header) && !is_whole)
               ? cecl_fail(ceclInternalError, "rank %d sent an invalid frame", rank)
               : ceclSuccess;
}

ceclResult_t mesh_take_frame(struct cecl_mesh *mesh, int rank, const struct mesh_exchange *x,
                             const char *packet, size_t bytes)
{
    struct mesh_transfer *t = &mesh->peers[rank].transfer;
    const size_t head = bytes < sizeof(t->header) ? bytes : sizeof(t->header), rest = bytes - head;
    memcpy(&t->header, packet, head);
    if (x->bytes > 0 && rest > 0)
        memcpy(x->recv + (size_t)rank * (size_t)x->header.bytes, packet + head,
               rest < x->bytes ? rest : x->bytes);
    return mesh_judge_frame(rank, x, t, bytes, rest > x->bytes);
}
