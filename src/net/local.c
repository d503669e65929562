/* The network between pretended nodes of one host, for the host device; see net.h.
 *
 * A mailbox is a ring of bytes, with a writer and a reader. Each transfer begins with its size, so the
 * receiver finds out if both ends do not agree. A stream's thread carries out an exchange: it goes through
 * all transfers again and again, and moves what the mailboxes let it move. So a transfer waits
 * only for earlier transfers between the same two ranks. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <inttypes.h>

#include "net/net.h"
#include "util/clock.h"

#define LINE 64
#define SETS (CECL_MAX_RANKS / 64)

struct mailbox {
    _Alignas(LINE) _Atomic uint64_t written; /* bytes, since the communicator was made */
    _Alignas(LINE) _Atomic uint64_t taken;
    _Alignas(LINE) char ring[];
};

struct local {
    struct cecl_net net;
    struct cecl_device *dev;
    char *memory;
    size_t room; /* bytes of each ring, a power of two */
    int rank, nranks;
    _Atomic bool failed;
    /* -- written by the stream's thread that carries out the exchange -- */
    _Atomic bool runs;
    _Atomic uint32_t passes, moved;
    _Atomic uint64_t
        waits[SETS];   /* a bit for each rank whose transfers did not end in the last pass */
    _Atomic int error; /* ceclResult_t; `words` is written before */
    char words[CECL_MESSAGE_BYTES];
};

/* ---- mailboxes */

#define RINGS_BYTES (UINT64_C(16) << 20) /* of all together, about */
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

static struct mailbox *mailbox_of(const struct local *local, int from, int to)
{
    return (void *)(local->memory + ((size_t)from * (size_t)local->nranks + (size_t)to) *
                                        (sizeof(struct mailbox) + local->room));
}

/* Copies to or from the bytes of a ring that begin at `at`, around its end. */
static void copy_ring(const struct local *local, struct mailbox *box, uint64_t at, void *bytes,
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

/* Puts at most `count` bytes, and at least `least` or none. Returns how many. */
static size_t put(const struct local *local, struct mailbox *box, void *bytes, size_t count,
                  size_t least)
{
    const uint64_t written = atomic_load_explicit(&box->written, memory_order_relaxed);
    const size_t free_bytes =
        local->room - (size_t)(written - atomic_load_explicit(&box->taken, memory_order_acquire));
    const size_t now = count < free_bytes ? count : free_bytes;
    if (now < least || now == 0)
        return 0;
    copy_ring(local, box, written, bytes, now, true);
    atomic_store_explicit(&box->written, written + now, memory_order_release);
    return now;
}

static size_t take(const struct local *local, struct mailbox *box, void *bytes, size_t count,
                   size_t least)
{
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

/* ---- an exchange */

struct under_way {
    struct cecl_net_transfer transfer;
    uint64_t done;
    bool begun; /* its size has been told, or heard */
};

struct exchange {
    struct cecl_stream_call call;
    struct local *local;
    uint32_t count, ended;
    uint64_t blocked[2][SETS]; /* transfers to, or from, these ranks wait in this pass */
    struct under_way list[];
};

static void note_error(struct local *local, const struct cecl_net_transfer *t, uint64_t theirs)
{
    cecl_fail(ceclInvalidUsage,
              "a message from rank %d to rank %d: ceclSend has %" PRIu64
              " bytes, ceclRecv %" PRIu64,
              (int)t->peer, local->rank, theirs, t->bytes);
    cecl_keep_message(local->words);
    atomic_store(&local->error, ceclInvalidUsage);
    atomic_store(&local->failed, true);
}

/* Tells the size of a transfer, or hears it. */
static bool begin(struct local *local, struct mailbox *box, struct under_way *way)
{
    uint64_t size = way->transfer.bytes;
    if (way->transfer.sends)
        return put(local, box, &size, sizeof(size), sizeof(size)) > 0;
    if (take(local, box, &size, sizeof(size), sizeof(size)) == 0)
        return false;
    if (size != way->transfer.bytes)
        note_error(local, &way->transfer, size);
    return size == way->transfer.bytes;
}

/* Moves what can be moved now. Returns whether anything was. */
static bool advance(struct local *local, struct under_way *way)
{
    const struct cecl_net_transfer *t = &way->transfer;
    struct mailbox *box = t->sends ? mailbox_of(local, local->rank, t->peer)
                                   : mailbox_of(local, t->peer, local->rank);
    if (!way->begun && !begin(local, box, way))
        return false;
    const bool began = !way->begun;
    way->begun = true;
    const uint64_t left = t->bytes - way->done;
    char *at = (char *)t->at + way->done;
    const size_t now = t->sends ? put(local, box, at, left, 1) : take(local, box, at, left, 1);
    way->done += now;
    return began || now > 0;
}

static bool is_blocked(const struct exchange *x, const struct cecl_net_transfer *t)
{
    return (x->blocked[t->sends][t->peer / 64] >> t->peer % 64 & 1) != 0;
}

/* One pass over all transfers that have not ended. Returns whether bytes moved. */
static bool pass(struct exchange *x)
{
    struct local *local = x->local;
    bool moved = false;
    memset(x->blocked, 0, sizeof(x->blocked));
    for (uint32_t i = 0; i < x->count; i++) {
        struct under_way *way = &x->list[i];
        const struct cecl_net_transfer *t = &way->transfer;
        if (way->done == t->bytes || is_blocked(x, t))
            continue;
        moved = advance(local, way) || moved;
        if (way->done == t->bytes)
            x->ended++;
        else
            x->blocked[t->sends][t->peer / 64] |= UINT64_C(1) << t->peer % 64;
    }
    for (size_t i = 0; i < SETS; i++)
        atomic_store_explicit(&local->waits[i], x->blocked[0][i] | x->blocked[1][i],
                              memory_order_relaxed);
    if (moved)
        atomic_fetch_add(&local->moved, 1);
    atomic_fetch_add(&local->passes, 1);
    return moved;
}

#define PASSES_IN_A_ROW 50
#define PAUSE_NS 50000

/* Peers may share this processor. */
static void pause_a_little(uint32_t idle)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (idle < PASSES_IN_A_ROW)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

static void run(struct cecl_stream_call *call, const _Atomic bool *abandon)
{
    struct exchange *x = (struct exchange *)call;
    struct local *local = x->local;
    uint32_t idle = 0;
    atomic_store(&local->runs, true);
    while (x->ended < x->count && !atomic_load(&local->failed) && !atomic_load(abandon)) {
        idle = pass(x) ? 0 : idle + 1;
        if (idle > 0)
            pause_a_little(idle);
    }
    atomic_store(&local->runs, false);
}

static ceclResult_t exchange(struct cecl_net *net, ceclStream_t work,
                             const struct cecl_net_transfer *list, uint32_t count)
{
    struct local *local = (struct local *)net;
    struct exchange *x = calloc(1, sizeof(*x) + count * sizeof(x->list[0]));
    if (!x)
        return cecl_fail(ceclOutOfMemory, "no host memory for an exchange of %" PRIu32 " transfers",
                         count);
    x->call.run = run;
    x->local = local;
    x->count = count;
    for (uint32_t i = 0; i < count; i++)
        x->list[i].transfer = list[i];
    return local->dev->ops->call(local->dev, work, &x->call);
}

/* ---- what the watchdog asks */

#define FRESH_MS 20 /* a pass takes far less, unless the thread has no processor */

/* Lists whom a pass still waited for that began after this call. So a rank that sent all of its bytes before
 * the call is not listed. */
static bool late(struct cecl_net *net, struct cecl_rank_list *list, uint32_t *moved)
{
    struct local *local = (struct local *)net;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const uint32_t before = atomic_load(&local->passes);
    const int64_t end = cecl_now_ms() + FRESH_MS;
    *moved += atomic_load(&local->moved);
    while (atomic_load(&local->runs) && atomic_load(&local->passes) - before < 2)
        if (cecl_now_ms() >= end || nanosleep(&pause, NULL) != 0)
            return true;
    if (!atomic_load(&local->runs))
        return false;
    for (int r = 0; r < local->nranks; r++)
        if (atomic_load(&local->waits[r / 64]) >> r % 64 & 1)
            cecl_rank_list_add(list, r);
    return true;
}

static ceclResult_t error_of(struct cecl_net *net)
{
    struct local *local = (struct local *)net;
    const ceclResult_t error = (ceclResult_t)atomic_load(&local->error);
    return error == ceclSuccess ? ceclSuccess : cecl_fail_with(error, local->words);
}

static void fail_net(struct cecl_net *net)
{
    atomic_store(&((struct local *)net)->failed, true);
}

/* ---- life */

static void close_net(struct cecl_net *net)
{
    free(net);
}

static const struct cecl_net_ops ops = {
    .exchange = exchange, .late = late, .error = error_of, .fail = fail_net, .close = close_net};

ceclResult_t cecl_net_local_open(struct cecl_device *dev, void *memory, int rank, int nranks,
                                 struct cecl_net **net)
{
    struct local *local = calloc(1, sizeof(*local));
    if (!local)
        return cecl_fail(ceclOutOfMemory, "no host memory for a network of %d ranks", nranks);
    local->net = (struct cecl_net){
        .ops = &ops, .name = "shared memory between pretended nodes", .is_exact = true};
    local->dev = dev;
    local->memory = memory;
    local->room = room_of(nranks);
    local->rank = rank;
    local->nranks = nranks;
    *net = &local->net;
    return ceclSuccess;
}
