/* The operations of cecl_zerosm's cases. */
#include "zerosm_ops.h"

int zerosm_parts(const struct zerosm_case *c, int gpus, struct zerosm_part *parts)
{
    if (c->op != ZEROSM_GROUP) {
        parts[0] = (struct zerosm_part){c->op, c->in_place, gpus, c->bytes, 0};
        return 1;
    }
    const size_t bytes = c->bytes / ZEROSM_PARTS;
    for (int i = 0; i < ZEROSM_PARTS; i++) {
        const enum zerosm_op op = (enum zerosm_op)i;
        /* in place, two all-to-alls would need too many copies */
        const bool in_place = c->in_place && op != ZEROSM_ALL_TO_ALL_STRIDED;
        parts[i] =
            (struct zerosm_part){op, in_place, gpus, bytes, (size_t)i * (size_t)gpus * bytes};
    }
    return ZEROSM_PARTS;
}
_Static_assert(ZEROSM_GROUP == ZEROSM_PARTS, "a group has one call of each operation before it");

static struct zerosm_block contiguous(size_t bytes, size_t sent_at, size_t wanted_at)
{
    return (struct zerosm_block){.bytes = bytes, .sent_at = sent_at, .wanted_at = wanted_at};
}

/* The rows of a strided operation. In place, both buffers are [rows][GPUs][width]. */
static struct zerosm_block strided_block(const struct zerosm_part *p, size_t from, size_t to)
{
    const size_t width = p->bytes >= 4096 ? 2048 : p->bytes / 2, pitch = (size_t)p->gpus * width;
    const bool gathers = p->op == ZEROSM_ALL_GATHER_STRIDED;
    const size_t bytes = p->bytes / width * width;
    if (gathers)
        return (struct zerosm_block){bytes, 0, from * width, width, p->in_place ? pitch : width,
                                     pitch};
    return (struct zerosm_block){bytes, to * width, from * (p->in_place ? width : bytes),
                                 width, pitch,      p->in_place ? pitch : width};
}

struct zerosm_block zerosm_block(const struct zerosm_part *p, int from, int to)
{
    const size_t n = (size_t)p->gpus, f = (size_t)from, t = (size_t)to, bytes = p->bytes;
    const bool from_root = from == ZEROSM_ROOT, to_root = to == ZEROSM_ROOT;
    switch (p->op) {
    case ZEROSM_ALL_GATHER: return contiguous(bytes, 0, f * bytes);
    case ZEROSM_ALL_TO_ALL: return contiguous(bytes, t * bytes, f * bytes);
    case ZEROSM_ALL_GATHERV: return contiguous(bytes * (f + 1) / n, 0, f * bytes);
    case ZEROSM_BROADCAST: return contiguous(from_root ? bytes : 0, 0, 0);
    case ZEROSM_ALL_TO_ALLV: /* a GPU's own block is the largest */
        return contiguous(bytes * ((t + n - f + n - 1) % n + 1) / n, t * bytes, f * bytes);
    case ZEROSM_GATHER: return contiguous(to_root ? bytes : 0, 0, f * bytes);
    case ZEROSM_SCATTER: /* in place, recvbuff is the root's block */
        return contiguous(from_root ? bytes : 0, t * bytes, p->in_place ? ZEROSM_ROOT * bytes : 0);
    case ZEROSM_ALL_GATHER_STRIDED:
    case ZEROSM_ALL_TO_ALL_STRIDED: return strided_block(p, f, t);
    case ZEROSM_REDUCE_SCATTER: return contiguous(bytes, t * bytes, 0); /* blocks are added up */
    case ZEROSM_GROUP: break;
    }
    return (struct zerosm_block){0};
}

size_t zerosm_input_bytes(const struct zerosm_part *p, int g)
{
    size_t end = 0;
    for (int to = 0; to < p->gpus; to++) {
        const struct zerosm_block block = zerosm_block(p, g, to);
        const size_t rows = zerosm_rows(&block);
        const size_t last = rows > 1 ? (rows - 1) * block.sent_pitch : 0;
        if (rows > 0 && block.sent_at + last + zerosm_width(&block) > end)
            end = block.sent_at + last + zerosm_width(&block);
    }
    return end;
}

bool zerosm_input_is_recv(const struct zerosm_part *p, int g)
{
    const bool rooted = p->op == ZEROSM_GATHER || p->op == ZEROSM_SCATTER;
    return p->in_place && p->op != ZEROSM_ALL_TO_ALLV && (!rooted || g == ZEROSM_ROOT);
}

size_t zerosm_input_at(const struct zerosm_part *p, int g)
{
    const bool own =
        p->op == ZEROSM_ALL_GATHER || p->op == ZEROSM_ALL_GATHERV || p->op == ZEROSM_GATHER;
    if (!zerosm_input_is_recv(p, g))
        return p->at;
    if (p->op == ZEROSM_ALL_GATHER_STRIDED)
        return p->at + zerosm_block(p, g, g).wanted_at;
    return p->at + (own ? (size_t)g * p->bytes : 0);
}

static ceclResult_t call_variable(const struct zerosm_part *p, int g, const void *in, void *out,
                                  ceclComm_t comm, ceclStream_t stream)
{
    size_t sends[ZEROSM_MAX_GPUS], from[ZEROSM_MAX_GPUS], receives[ZEROSM_MAX_GPUS],
        to[ZEROSM_MAX_GPUS], at_peers[ZEROSM_MAX_GPUS];
    for (int r = 0; r < p->gpus; r++) {
        const struct zerosm_block sent = zerosm_block(p, g, r), received = zerosm_block(p, r, g);
        sends[r] = sent.bytes;
        from[r] = sent.sent_at;
        at_peers[r] = sent.wanted_at;
        receives[r] = received.bytes;
        to[r] = received.wanted_at;
    }
    if (p->op == ZEROSM_ALL_GATHERV)
        return ceclAllGatherv(in, receives[g], out, receives, to, ceclUint8, comm, stream);
    /* ceclAlltoAllv waits for the peers' host threads, and here one thread makes all calls. */
    return ceclAlltoAllvAt(in, sends, from, out, receives, to, at_peers, ceclUint8, comm, stream);
}

static ceclResult_t call_strided(const struct zerosm_part *p, const void *in, void *out,
                                 ceclComm_t comm, ceclStream_t stream)
{
    const struct zerosm_block block = zerosm_block(p, 0, 0), next = zerosm_block(p, 1, 1);
    const ceclStrided_t strided = {.width = block.width,
                                   .rows = zerosm_rows(&block),
                                   .sendPitch = block.sent_pitch,
                                   .sendStride = next.sent_at - block.sent_at,
                                   .recvPitch = block.wanted_pitch,
                                   .recvStride = next.wanted_at - block.wanted_at};
    if (p->op == ZEROSM_ALL_GATHER_STRIDED)
        return ceclAllGatherStrided(in, out, &strided, ceclUint8, comm, stream);
    return ceclAlltoAllStrided(in, out, &strided, ceclUint8, comm, stream);
}

ceclResult_t zerosm_call(const struct zerosm_part *p, int g, unsigned char *send,
                         unsigned char *recv, ceclComm_t comm, ceclStream_t stream)
{
    const unsigned char *in = (zerosm_input_is_recv(p, g) ? recv : send) + zerosm_input_at(p, g);
    unsigned char *out = recv + p->at;
    const size_t count = p->bytes;
    switch (p->op) {
    case ZEROSM_ALL_GATHER: return ceclAllGather(in, out, count, ceclUint8, comm, stream);
    case ZEROSM_ALL_TO_ALL: return ceclAlltoAll(in, out, count, ceclUint8, comm, stream);
    case ZEROSM_BROADCAST:
        return ceclBroadcast(in, out, count, ceclUint8, ZEROSM_ROOT, comm, stream);
    case ZEROSM_GATHER: return ceclGather(in, out, count, ceclUint8, ZEROSM_ROOT, comm, stream);
    case ZEROSM_SCATTER:
        return ceclScatter(in, out + zerosm_block(p, ZEROSM_ROOT, g).wanted_at, count, ceclUint8,
                           ZEROSM_ROOT, comm, stream);
    case ZEROSM_REDUCE_SCATTER:
        return ceclReduceScatter(in, out, count, ceclUint8, ceclSum, comm, stream);
    case ZEROSM_ALL_GATHER_STRIDED:
    case ZEROSM_ALL_TO_ALL_STRIDED: return call_strided(p, in, out, comm, stream);
    default: return call_variable(p, g, in, out, comm, stream);
    }
}
