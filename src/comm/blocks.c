/* Blocks that differ: from the caller's counts and displacements to bytes, and whether they fit their
 * buffers. */
#include <inttypes.h>
#include <stdlib.h>

#include "comm/variable.h"

struct block {
    uint64_t offset, bytes;
    int rank;
};

static int by_offset(const void *a, const void *b)
{
    const struct block *one = a, *other = b;
    return (one->offset > other->offset) - (one->offset < other->offset);
}

ceclResult_t cecl_given_apart(const struct cecl_given *given, int nranks, const uint64_t *bytes,
                              const uint64_t *offsets)
{
    struct block blocks[CECL_MAX_RANKS];
    int count = 0;
    for (int r = 0; r < nranks; r++)
        if (bytes[r] > 0)
            blocks[count++] = (struct block){offsets[r], bytes[r], r};
    qsort(blocks, (size_t)count, sizeof(*blocks), by_offset);
    for (int i = 1; i < count; i++)
        if (blocks[i - 1].offset + blocks[i - 1].bytes > blocks[i].offset)
            return cecl_fail(ceclInvalidArgument,
                             "%s and %s: the blocks of ranks %d and %d overlap at byte %" PRIu64
                             " of recvbuff",
                             given->counts_name, given->displs_name, blocks[i - 1].rank,
                             blocks[i].rank, blocks[i].offset);
    return ceclSuccess;
}

ceclResult_t cecl_given_bytes(const struct cecl_given *given, int nranks, size_t size,
                              uint64_t *bytes, uint64_t *offsets, bool *in_order)
{
    const size_t *counts = given->counts, *displs = given->displs;
    uint64_t next = 0, end;
    *in_order = true;
    for (int r = 0; r < nranks; r++) {
        const bool placed = displs && !(given->empty_anywhere && counts[r] == 0);
        offsets[r] = displs ? 0 : next;
        if (__builtin_mul_overflow(counts[r], size, &bytes[r]) ||
            (placed && __builtin_mul_overflow(displs[r], size, &offsets[r])) ||
            __builtin_add_overflow(bytes[r], offsets[r], &end) || end > PTRDIFF_MAX)
            return cecl_fail(ceclInvalidArgument,
                             "%s[%d] %zu, %s[%d] %zu, of %zu bytes: beyond an address space",
                             given->counts_name, r, counts[r], given->displs_name, r,
                             displs ? displs[r] : (size_t)(next / size), size);
        *in_order = *in_order && offsets[r] >= next;
        next = end;
    }
    return ceclSuccess;
}

/* ---- layouts of one's own */

/* Of blocks that are not empty: where the first begins, and where the last ends. */
struct extent {
    uint64_t low, high; /* equal: there is none */
    int blocks;         /* how many */
};

static struct extent extent_of(const uint64_t *bytes, const uint64_t *offsets, int nranks)
{
    struct extent extent = {.low = UINT64_MAX};
    for (int r = 0; r < nranks; r++) {
        if (bytes[r] == 0)
            continue;
        if (offsets[r] < extent.low)
            extent.low = offsets[r];
        if (offsets[r] + bytes[r] > extent.high)
            extent.high = offsets[r] + bytes[r];
        extent.blocks++;
    }
    if (extent.blocks == 0)
        extent.low = 0;
    return extent;
}

static struct extent sent(ceclComm_t comm, const struct cecl_item *item)
{
    return extent_of(item->layout, item->layout + comm->nranks, comm->nranks);
}

static struct extent received(ceclComm_t comm, const struct cecl_item *item)
{
    return extent_of(item->layout + 3 * comm->nranks, item->layout + 4 * comm->nranks,
                     comm->nranks);
}

/* Where this rank's own block is, and where it belongs. */
static uintptr_t own_from(ceclComm_t comm, const struct cecl_item *item)
{
    return (uintptr_t)item->send + item->layout[comm->nranks + comm->rank];
}
static uintptr_t own_to(ceclComm_t comm, const struct cecl_item *item)
{
    return (uintptr_t)item->recv + item->layout[4 * comm->nranks + comm->rank];
}

ceclResult_t cecl_variable_complete(ceclComm_t comm, struct cecl_item *item)
{
    item->send_bytes = sent(comm, item).high;
    item->recv_bytes = received(comm, item).high;
    if (item->reach < item->recv_bytes)
        item->reach = item->recv_bytes;
    if (item->send_bytes > 0 && !item->send)
        return cecl_fail(ceclInvalidArgument, "sendbuff: NULL");
    if (item->count > 0 && !item->recv)
        return cecl_fail(ceclInvalidArgument, "recvbuff: NULL");
    item->in_place = item->layout[comm->rank] > 0 && own_from(comm, item) == own_to(comm, item);
    return ceclSuccess;
}

/* In place the own block is in both buffers; that nothing else is can be told where one of them has
 * no other block. */
static ceclResult_t check_overlap(ceclComm_t comm, const struct cecl_item *item,
                                  const struct extent *out, const struct extent *in)
{
    const uintptr_t send = (uintptr_t)item->send, recv = (uintptr_t)item->recv;
    if (send + out->low >= recv + in->high || recv + in->low >= send + out->high)
        return ceclSuccess;
    if (item->in_place && (out->blocks == 1 || in->blocks == 1))
        return ceclSuccess;
    if (item->called != CECL_CALLED_GATHER && item->called != CECL_CALLED_SCATTER)
        return cecl_fail(ceclInvalidArgument,
                         "sendbuff %p and recvbuff %p overlap: bytes %" PRIu64 " to %" PRIu64
                         " are sent, bytes %" PRIu64 " to %" PRIu64 " received; they must be apart",
                         item->send, item->recv, out->low, out->high - 1, in->low, in->high - 1);
    return cecl_fail(ceclInvalidArgument,
                     "sendbuff %p and recvbuff %p overlap; in place, on root, the block of root is "
                     "at the same place in both: sendbuff is %p",
                     item->send, item->recv,
                     (void *)(own_to(comm, item) - (own_from(comm, item) - send)));
}

ceclResult_t cecl_variable_buffers(ceclComm_t comm, const struct cecl_item *item)
{
    const struct extent out = sent(comm, item), in = received(comm, item);
    const char *first = (const char *)item->send + out.low;
    const size_t bytes = (size_t)(out.high - out.low);
    uint64_t offset;

    CECL_TRY(cecl_pool_locate(&comm->pool, item->recv, item->reach, "recvbuff", &offset));
    if (bytes == 0)
        return ceclSuccess;
    if ((uintptr_t)item->send + out.high < (uintptr_t)item->send)
        return cecl_fail(ceclInvalidArgument,
                         "sendbuff %p: %" PRIu64 " bytes end beyond the last address", item->send,
                         out.high);
    CECL_TRY(check_overlap(comm, item, &out, &in));
    return cecl_buffer_check(comm, first, bytes, "sendbuff");
}
