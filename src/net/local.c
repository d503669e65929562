/* Mailboxes between pretended nodes of one host: for each pair of ranks and direction a ring of bytes, in
 * memory that all ranks share, with one writer and one reader. See pipes.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "net/net.h"

#define LINE 64

struct mailbox {
    _Alignas(LINE) _Atomic uint64_t written; /* bytes, since the communicator was made */
    _Alignas(LINE) _Atomic uint64_t taken;
    _Alignas(LINE) char ring[];
};

struct mailboxes {
    char *memory;
    size_t room; /* bytes of each ring, a power of two */
    int rank, nranks;
};

#define RINGS_BYTES (UINT64_C(16) << 20) /* of all rings together, about */
#define RING_MIN_BYTES 1024u
#define RING_MAX_BYTES 65536u

static size_t room_of(int nranks)
{
    size_t room = RING_MAX_BYTES;
    while (room > RING_MIN_BYTES && room * (size_t)nranks * (size_t)nranks > RINGS_BYTES)
        room /= 2;
    return room;
}

size_t cecl_net_local_bytes(int nranks)
{
    return (size_t)nranks * (size_t)nranks * (sizeof(struct mailbox) + room_of(nranks));
}

static struct mailbox *mailbox_of(const struct mailboxes *local, int from, int to)
{
    return (void *)(local->memory + ((size_t)from * (size_t)local->nranks + (size_t)to) *
                                        (sizeof(struct mailbox) + local->room));
}

/* Copies to (puts) or from a ring, from position `at` on, and wraps around at the ring's end. */
static void copy_ring(const struct mailboxes *local, struct mailbox *box, uint64_t at, void *bytes,
                      size_t count, bool puts)
{
    char *mine = bytes;
    while (count > 0) {
        const size_t first = (size_t)(at & (local->room - 1)), left = local->room - first,
                     now = count < left ? count : left;
        memcpy(puts ? box->ring + first : mine, puts ? mine : box->ring + first, now);
        at += now;
        mine += now;
        count -= now;
    }
}

static size_t put(void *context, int peer, const void *bytes, size_t count, size_t least)
{
    const struct mailboxes *local = context;
    struct mailbox *box = mailbox_of(local, local->rank, peer);
    const uint64_t written = atomic_load_explicit(&box->written, memory_order_relaxed);
    const size_t free_bytes =
        local->room - (size_t)(written - atomic_load_explicit(&box->taken, memory_order_acquire));
    const size_t now = count < free_bytes ? count : free_bytes;
    if (now < least || now == 0)
        return 0;
    copy_ring(local, box, written, (void *)(uintptr_t)bytes, now, true);
    atomic_store_explicit(&box->written, written + now, memory_order_release);
    return now;
}

static size_t take(void *context, int peer, void *bytes, size_t count, size_t least)
{
    const struct mailboxes *local = context;
    struct mailbox *box = mailbox_of(local, peer, local->rank);
    const uint64_t taken = atomic_load_explicit(&box->taken, memory_order_relaxed);
    const size_t there =
        (size_t)(atomic_load_explicit(&box->written, memory_order_acquire) - taken);
    const size_t now = count < there ? count : there;
    if (now < least || now == 0)
        return 0;
    copy_ring(local, box, taken, bytes, now, false);
    atomic_store_explicit(&box->taken, taken + now, memory_order_release);
    return now;
}

ceclResult_t cecl_net_local_open(struct cecl_device *dev, void *memory, int rank, int nranks,
                                 struct cecl_net **net)
{
    struct mailboxes *local = calloc(1, sizeof(*local));
    if (!local)
        return cecl_fail(ceclOutOfMemory, "no host memory for a network of %d ranks", nranks);
    *local = (struct mailboxes){memory, room_of(nranks), rank, nranks};
    const struct cecl_net_pipes pipes = {.context = local, .put = put, .take = take, .close = free};
    const ceclResult_t result = cecl_net_pipes_open(dev, "shared memory between pretended nodes",
                                                    &pipes, rank, nranks, net);
    if (result != ceclSuccess)
        free(local);
    return result;
}
