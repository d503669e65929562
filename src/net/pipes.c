/* Exchanges through pipes, for the host device; see pipes.h and net.h.
 *
 * Each transfer begins with its size, so the receiver notices if the two ends differ. A stream's thread
 * carries out an exchange: it passes through all transfers repeatedly, and moves the bytes that the pipes
 * take or have. So a transfer waits only for earlier transfers between the same two ranks in the same
 * direction. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <inttypes.h>

#include "net/net.h"
#include "net/pipes.h"
#include "util/clock.h"

#define SETS (CECL_MAX_RANKS / 64)

struct piped {
    struct cecl_net net;
    struct cecl_device *dev;
    struct cecl_net_pipes pipes;
    int rank, nranks;
    ceclStream_t work; /* the stream of the last exchange; NULL: there was none */
    _Atomic bool failed;
    /* -- written by the stream's thread that carries out the exchange -- */
    _Atomic bool runs;
    _Atomic uint32_t passes, moved;
    /* a bit for each rank with which a transfer has not ended in the last pass */
    _Atomic uint64_t waits[SETS];
    _Atomic int error; /* ceclResult_t; `words` is written before */
    char words[CECL_MESSAGE_BYTES];
};

/* ---- an exchange */

struct under_way {
    struct cecl_net_transfer transfer;
    uint64_t done;
    bool begun; /* the transfer's size was sent, or received */
    bool ended;
};

struct exchange {
    struct cecl_stream_call call;
    struct piped *piped;
    uint32_t count, ended;
    uint64_t blocked[2][SETS]; /* transfers to, or from, these ranks wait in this pass */
    struct under_way list[];
};

/* Keeps the first error, and the calling thread's last message as its text, which other threads may read from then
 * on. */
static void note_error(struct piped *piped, ceclResult_t error)
{
    if (atomic_load(&piped->error) != ceclSuccess)
        return;
    cecl_keep_message(piped->words);
    atomic_store(&piped->error, error);
    atomic_store(&piped->failed, true);
}

static size_t move(const struct piped *piped, const struct cecl_net_transfer *t, void *at,
                   uint64_t bytes, size_t least)
{
    const struct cecl_net_pipes *pipes = &piped->pipes;
    const size_t count = bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX;
    return t->sends ? pipes->put(pipes->context, t->peer, at, count, least)
                    : pipes->take(pipes->context, t->peer, at, count, least);
}

/* Sends the size of a transfer, or receives and checks it. Returns whether that is done. */
static bool begin(struct piped *piped, const struct cecl_net_transfer *t)
{
    uint64_t size = t->bytes;
    if (move(piped, t, &size, sizeof(size), sizeof(size)) == 0)
        return false;
    if (size == t->bytes)
        return true;
    note_error(piped, cecl_fail(ceclInvalidUsage,
                                "a message from rank %d to rank %d: ceclSend has %" PRIu64
                                " bytes, ceclRecv %" PRIu64 ", or these ranks made different calls",
                                (int)t->peer, piped->rank, size, t->bytes));
    return false;
}

/* Moves the bytes that can be moved now. Returns whether any were moved. */
static bool advance(struct piped *piped, struct under_way *way)
{
    const struct cecl_net_transfer *t = &way->transfer;
    const struct cecl_net_pipes *pipes = &piped->pipes;
    const bool began = !way->begun && begin(piped, t);
    way->begun = way->begun || began;
    size_t now = 0;
    if (way->begun && way->done < t->bytes)
        now = move(piped, t, (char *)t->at + way->done, t->bytes - way->done, 1);
    way->done += now;
    way->ended = way->done == t->bytes &&
                 (!t->sends || !pipes->has_left || pipes->has_left(pipes->context, t->peer));
    return began || now > 0;
}

static bool is_blocked(const struct exchange *x, const struct cecl_net_transfer *t)
{
    return (x->blocked[t->sends][t->peer / 64] >> t->peer % 64 & 1) != 0;
}

static void hear_error(struct piped *piped)
{
    const struct cecl_net_pipes *pipes = &piped->pipes;
    const char *words = pipes->error ? pipes->error(pipes->context) : NULL;
    if (words)
        note_error(piped, cecl_fail(ceclRemoteError, "%s: %s", piped->net.name, words));
}

/* One pass over all transfers that have not ended. Returns whether bytes moved. */
static bool pass(struct exchange *x)
{
    struct piped *piped = x->piped;
    bool moved = false;
    memset(x->blocked, 0, sizeof(x->blocked));
    for (uint32_t i = 0; i < x->count; i++) {
        struct under_way *way = &x->list[i];
        const struct cecl_net_transfer *t = &way->transfer;
        if (way->ended || is_blocked(x, t))
            continue;
        moved = advance(piped, way) || moved;
        if (way->ended)
            x->ended++;
        else
            x->blocked[t->sends][t->peer / 64] |= UINT64_C(1) << t->peer % 64;
    }
    for (size_t i = 0; i < SETS; i++)
        atomic_store_explicit(&piped->waits[i], x->blocked[0][i] | x->blocked[1][i],
                              memory_order_relaxed);
    if (moved)
        atomic_fetch_add(&piped->moved, 1);
    atomic_fetch_add(&piped->passes, 1);
    return moved;
}

#define PASSES_IN_A_ROW 50
#define PAUSE_NS 50000

/* Yields first, because peers may share this processor. */
static void pause_a_little(uint32_t idle)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (idle < PASSES_IN_A_ROW)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

static void run(struct cecl_stream_call *call)
{
    struct exchange *x = (struct exchange *)call;
    struct piped *piped = x->piped;
    uint32_t idle = 0;
    x->ended = 0; /* a graph carries out the same exchange again */
    for (uint32_t i = 0; i < x->count; i++)
        x->list[i] = (struct under_way){.transfer = x->list[i].transfer};
    atomic_store(&piped->runs, true);
    while (x->ended < x->count && !atomic_load(&piped->failed)) {
        idle = pass(x) ? 0 : idle + 1;
        hear_error(piped);
        if (idle > 0)
            pause_a_little(idle);
    }
    atomic_store(&piped->runs, false);
}

/* Also for a stream that captures. */
static ceclResult_t add_exchange(struct cecl_net *net, ceclStream_t work,
                                 const struct cecl_net_transfer *list, uint32_t count)
{
    struct piped *piped = (struct piped *)net;
    struct exchange *x = calloc(1, sizeof(*x) + count * sizeof(x->list[0]));
    if (!x)
        return cecl_fail(ceclOutOfMemory, "no host memory for an exchange of %" PRIu32 " transfers",
                         count);
    x->call.run = run;
    x->piped = piped;
    x->count = count;
    for (uint32_t i = 0; i < count; i++)
        x->list[i].transfer = list[i];
    return piped->dev->ops->call(piped->dev, work, &x->call);
}

static ceclResult_t exchange(struct cecl_net *net, ceclStream_t work,
                             const struct cecl_net_transfer *list, uint32_t count)
{
    ((struct piped *)net)->work = work;
    return add_exchange(net, work, list, count);
}

/* ---- what the watchdog asks */

#define FRESH_MS 20 /* a pass takes far less, unless the thread has no processor */

/* Waits for a pass that began after this call, and lists the ranks for which that pass still waited. So a rank
 * that sent all of its bytes before this call is not listed. */
static bool late(struct cecl_net *net, struct cecl_rank_list *list, uint32_t *moved)
{
    struct piped *piped = (struct piped *)net;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const uint32_t before = atomic_load(&piped->passes);
    const int64_t end = cecl_now_ms() + FRESH_MS;
    *moved += atomic_load(&piped->moved);
    while (atomic_load(&piped->runs) && atomic_load(&piped->passes) - before < 2)
        if (cecl_now_ms() >= end || nanosleep(&pause, NULL) != 0)
            return true;
    if (!atomic_load(&piped->runs))
        return false;
    for (int r = 0; r < piped->nranks; r++)
        if (atomic_load(&piped->waits[r / 64]) >> r % 64 & 1)
            cecl_rank_list_add(list, r);
    return true;
}

static ceclResult_t error_of(struct cecl_net *net)
{
    struct piped *piped = (struct piped *)net;
    const ceclResult_t error = (ceclResult_t)atomic_load(&piped->error);
    return error == ceclSuccess ? ceclSuccess : cecl_fail_with(error, piped->words);
}

static void fail_net(struct cecl_net *net)
{
    atomic_store(&((struct piped *)net)->failed, true);
}

/* ---- life */

/* Waits for the stream first: in a failed communicator, exchanges of a call that has ended may still be in
 * the stream's queue, and they use the transport. */
static void close_net(struct cecl_net *net)
{
    struct piped *piped = (struct piped *)net;
    if (piped->work)
        (void)!piped->dev->ops->stream_synchronize(piped->dev, piped->work);
    piped->pipes.close(piped->pipes.context);
    free(piped);
}

/* ---- what children are lent */

/* Pipes for a child communicator, between some ranks of its parent's pipes. */
static ceclResult_t open_for_child(const struct cecl_net_lender *lender, struct cecl_mesh *mesh,
                                   int rank, int nranks, struct cecl_net_pipes *pipes)
{
    const struct piped *parent = lender->context;
    const struct cecl_net_pipes *from = &parent->pipes;
    int number = rank == 0 ? from->draw(from->context) : 0,
        *all = calloc((size_t)nranks, sizeof(*all));
    ceclResult_t result = cecl_mesh_agree(
        mesh,
        all ? ceclSuccess : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", nranks));
    if (result == ceclSuccess)
        result = cecl_mesh_allgather(mesh, "number", &number, all, sizeof(number));
    if (result == ceclSuccess)
        number = all[0];
    free(all);
    CECL_TRY(result);
    return number < 0 ? cecl_fail(ceclSystemError,
                                  "%s has no tag left for one more communicator; make it by other "
                                  "means than ceclCommSplit and ceclCommShrink",
                                  lender->name)
                      : from->split(from->context, number, lender->ranks, nranks, pipes);
}

static bool lend(struct cecl_net *net, struct cecl_net_lender *lender)
{
    struct piped *piped = (struct piped *)net;
    *lender = (struct cecl_net_lender){.name = net->name, .context = piped, .open = open_for_child};
    return piped->pipes.split != NULL;
}

static const struct cecl_net_ops ops = {.exchange = exchange,
                                        .capture = add_exchange,
                                        .late = late,
                                        .error = error_of,
                                        .fail = fail_net,
                                        .close = close_net,
                                        .lend = lend};

ceclResult_t cecl_net_pipes_open(struct cecl_device *dev, const char *name,
                                 const struct cecl_net_pipes *pipes, int rank, int nranks,
                                 struct cecl_net **net)
{
    struct piped *piped = calloc(1, sizeof(*piped));
    if (!piped)
        return cecl_fail(ceclOutOfMemory, "no host memory for a network of %d ranks", nranks);
    piped->net = (struct cecl_net){.ops = &ops, .is_exact = true};
    snprintf(piped->net.name, sizeof(piped->net.name), "%s", name);
    piped->dev = dev;
    piped->pipes = *pipes;
    piped->rank = rank;
    piped->nranks = nranks;
    *net = &piped->net;
    return ceclSuccess;
}

/* ---- what the calling thread was lent */

static _Thread_local const struct cecl_net_lender *lent;

CECL_API void cecl_net_lend(const struct cecl_net_lender *lender)
{
    lent = lender;
}

const struct cecl_net_lender *cecl_net_lent(void)
{
    return lent;
}
