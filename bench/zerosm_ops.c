/* The operations of cecl_zerosm's cases. */
#include "zerosm_ops.h"

int zerosm_parts(const struct zerosm_case *c, int gpus, struct zerosm_part *parts)
{
    if (c->op != ZEROSM_GROUP) {
        parts[0] = (struct zerosm_part){c->op, c->in_place, gpus, c->bytes, 0};
        return 1;
    }
    const size_t bytes = c->bytes / ZEROSM_PARTS;
    for (int i = 0; i < ZEROSM_PARTS; i++)
        parts[i] = (struct zerosm_part){(enum zerosm_op)i, c->in_place, gpus, bytes,
                                        (size_t)i * (size_t)gpus * bytes};
    return ZEROSM_PARTS;
}
_Static_assert(ZEROSM_GROUP == ZEROSM_PARTS, "a group has one call of each other operation");

struct zerosm_block zerosm_block(const struct zerosm_part *p, int from, int to)
{
    const size_t n = (size_t)p->gpus, f = (size_t)from, t = (size_t)to, bytes = p->bytes;
    const bool from_root = from == ZEROSM_ROOT, to_root = to == ZEROSM_ROOT;
    switch (p->op) {
    case ZEROSM_ALL_GATHER: return (struct zerosm_block){bytes, 0, f * bytes};
    case ZEROSM_ALL_TO_ALL: return (struct zerosm_block){bytes, t * bytes, f * bytes};
    case ZEROSM_ALL_GATHERV: return (struct zerosm_block){bytes * (f + 1) / n, 0, f * bytes};
    case ZEROSM_BROADCAST: return (struct zerosm_block){from_root ? bytes : 0, 0, 0};
    case ZEROSM_ALL_TO_ALLV: /* the largest is a GPU's own */
        return (struct zerosm_block){bytes * ((t + n - f + n - 1) % n + 1) / n, t * bytes,
                                     f * bytes};
    case ZEROSM_GATHER: return (struct zerosm_block){to_root ? bytes : 0, 0, f * bytes};
    case ZEROSM_SCATTER: /* in place, recvbuff is the root's block */
        return (struct zerosm_block){from_root ? bytes : 0, t * bytes,
                                     p->in_place ? ZEROSM_ROOT * bytes : 0};
    case ZEROSM_GROUP: break;
    }
    return (struct zerosm_block){0};
}

size_t zerosm_input_bytes(const struct zerosm_part *p, int g)
{
    size_t end = 0;
    for (int to = 0; to < p->gpus; to++) {
        const struct zerosm_block block = zerosm_block(p, g, to);
        if (block.bytes > 0 && block.sent_at + block.bytes > end)
            end = block.sent_at + block.bytes;
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
    return p->at + (zerosm_input_is_recv(p, g) && own ? (size_t)g * p->bytes : 0);
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
    /* The other form waits for hosts, which are one thread here. */
    return ceclAlltoAllvAt(in, sends, from, out, receives, to, at_peers, ceclUint8, comm, stream);
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
    default: return call_variable(p, g, in, out, comm, stream);
    }
}
