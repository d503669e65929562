#include "puts.h"

#include "../try.h"

#define GUARD 0xa5

struct transfer {
    int owner, mover, number;
    bool gets;
    size_t bytes;
    /* A put sends on what put number `relays` brought to the mover; -1: it sends the mover's own bytes. */
    int relays;
    int stream_of_owner, stream_of_mover;
    int source; /* the transfer that sent these bytes first */
};

static struct transfer transfers[PUTS_TRANSFERS];

/* The latest put to rank `mover`; -1: no put yet. */
static int find_relay(int count, int mover)
{
    int found = -1;
    for (int i = 0; i < count; i++)
        if (!transfers[i].gets && transfers[i].owner == mover)
            found = i;
    return found;
}

static void draw_ends(const struct puts *puts, struct transfer *t, uint64_t *x)
{
    const int n = puts->n;
    t->owner = (int)multi_draw_below(x, (uint64_t)n);
    t->mover = (t->owner + 1 + (int)multi_draw_below(x, (uint64_t)n - 1)) % n;
}

static void draw_transfers(const struct puts *puts, uint64_t *x)
{
    for (int i = 0; i < PUTS_TRANSFERS; i++) {
        struct transfer *t = &transfers[i];
        draw_ends(puts, t, x);
        t->gets = multi_draw_below(x, 2);
        t->number = (int)multi_draw_below(x, 3) * 31;
        t->bytes = 1 + (size_t)multi_draw_below(x, multi_draw_below(x, 2) ? 300 : PUTS_SLOT - 1);
        t->relays = !t->gets && multi_draw_below(x, 2) ? find_relay(i, t->mover) : -1;
        t->stream_of_owner = (int)multi_draw_below(x, PUTS_STREAMS);
        t->stream_of_mover = (int)multi_draw_below(x, PUTS_STREAMS);
        t->source = i;
        if (t->relays >= 0) { /* it uses the stream that waited for the earlier put */
            t->bytes = transfers[t->relays].bytes;
            t->stream_of_mover = transfers[t->relays].stream_of_owner;
            t->source = transfers[t->relays].source;
        }
    }
}

/* The rank from whose memory the bytes of a transfer came first. */
static int filler(const struct transfer *t)
{
    const struct transfer *source = &transfers[t->source];
    return source->gets ? source->owner : source->mover;
}

static uint64_t seed_of(const struct puts *puts, int transfer)
{
    return puts->seed * PUTS_TRANSFERS + (uint64_t)transfer;
}

/* Each rank fills in its own bytes; the rest is GUARD. */
static void prepare(const struct puts *puts)
{
    static unsigned char shared[PUTS_BYTES], local[PUTS_BYTES];
    memset(shared, GUARD, sizeof(shared));
    memset(local, GUARD, sizeof(local));
    for (int i = 0; i < PUTS_TRANSFERS; i++) {
        const struct transfer *t = &transfers[i];
        if (t->gets && t->owner == puts->rank)
            model_fill(shared + i * PUTS_SLOT, seed_of(puts, i), puts->rank, t->bytes);
        if (!t->gets && t->relays < 0 && t->mover == puts->rank)
            model_fill(local + i * PUTS_SLOT, seed_of(puts, i), puts->rank, t->bytes);
    }
    multi_put(puts->comm, puts->shared, shared, sizeof(shared));
    multi_put(puts->comm, puts->local, local, sizeof(local));
}

static ceclResult_t wait_for(const struct puts *puts, int peer, int number, ceclStream_t stream)
{
    const ceclSignalWait_t wait = {peer, number, 1};
    return ceclWaitSignal(1, &wait, puts->comm, stream);
}

static ceclResult_t own(const struct puts *puts, const struct transfer *t)
{
    ceclStream_t stream = puts->streams[t->stream_of_owner];
    TRY(ceclSignal(t->mover, t->number, puts->comm, stream));
    return wait_for(puts, t->mover, t->number, stream);
}

static ceclResult_t move(const struct puts *puts, int i)
{
    const struct transfer *t = &transfers[i];
    ceclComm_t comm = puts->comm;
    ceclStream_t stream = puts->streams[t->stream_of_mover];
    unsigned char *at =
        t->relays >= 0 ? puts->shared + t->relays * PUTS_SLOT : puts->local + i * PUTS_SLOT;
    const size_t offset = (size_t)i * PUTS_SLOT;
    TRY(wait_for(puts, t->owner, t->number, stream));
    if (!t->gets)
        return ceclPutSignal(at, t->bytes, ceclUint8, t->owner, puts->window, offset, t->number,
                             comm, stream);
    TRY(ceclGet(at, t->bytes, ceclUint8, t->owner, puts->window, offset, comm, stream));
    return ceclSignal(t->owner, t->number, comm, stream);
}

static void check_slot(const struct puts *puts, const unsigned char *at, int i)
{
    const struct transfer *t = &transfers[i];
    for (size_t b = 0; b < PUTS_SLOT; b++)
        if (at[b] != (b < t->bytes ? model_byte(seed_of(puts, t->source), filler(t), b) : GUARD))
            fail_msg("rank %d of %d, seed %llu, transfer %d: byte %zu of %zu", puts->rank, puts->n,
                     (unsigned long long)puts->seed, i, b, t->bytes);
}

/* What this rank has received, copied to the host. */
static unsigned char shared_now[PUTS_BYTES], local_now[PUTS_BYTES];

static void check(const struct puts *puts)
{
    for (int i = 0; i < PUTS_TRANSFERS; i++) {
        const struct transfer *t = &transfers[i];
        if (t->gets && t->mover == puts->rank)
            check_slot(puts, local_now + i * PUTS_SLOT, i);
        if (!t->gets && t->owner == puts->rank)
            check_slot(puts, shared_now + i * PUTS_SLOT, i);
    }
}

void puts_prepare(const struct puts *puts, uint64_t *x)
{
    draw_transfers(puts, x);
    prepare(puts);
}

/* Ranks synchronize on the device only: an owner signals when its memory is ready, and each transfer is acknowledged. */
ceclResult_t puts_make(const struct puts *puts)
{
    for (int i = 0; i < PUTS_TRANSFERS; i++) {
        if (transfers[i].owner == puts->rank)
            TRY(own(puts, &transfers[i]));
        if (transfers[i].mover == puts->rank)
            TRY(move(puts, i));
    }
    return ceclSuccess;
}

static ceclResult_t fetch(const struct puts *puts)
{
    ceclComm_t comm = puts->comm;
    for (int s = 0; s < PUTS_STREAMS; s++)
        TRY(ceclStreamSynchronize(comm, puts->streams[s]));
    TRY(multi_fetch(comm, 0, shared_now, puts->shared, PUTS_BYTES));
    return multi_fetch(comm, 0, local_now, puts->local, PUTS_BYTES);
}

ceclResult_t puts_finish(const struct puts *puts)
{
    TRY(fetch(puts));
    check(puts);
    return ceclSuccess;
}
