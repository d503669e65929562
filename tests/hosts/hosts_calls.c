/* Calls over hosts; see hosts_calls.h. */
#include "hosts_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(const char *what, ceclComm_t comm)
{
    printf("failed: %s: %s\n", what, ceclGetLastError(comm));
    exit(1);
}

void must(ceclResult_t result, const char *what, ceclComm_t comm)
{
    if (result != ceclSuccess)
        fail(what, comm);
}

/* An element that tells the sender, the receiver and its place apart. */
static int element(int from, int to, size_t at)
{
    return from * 1000003 + to * 10007 + (int)at;
}

void copy(const struct rank *me, void *to, const void *from, size_t bytes)
{
    struct cecl_device *dev = me->comm->dev;
    must(dev->ops->memcpy_async(dev, to, from, bytes, NULL), "copying", me->comm);
    must(dev->ops->stream_synchronize(dev, NULL), "waiting for a copy", me->comm);
}

static void fill(const struct rank *me, const struct buffers *b, size_t count)
{
    const size_t bytes = (size_t)me->nranks * count * sizeof(int);
    for (int to = 0; to < me->nranks; to++)
        for (size_t i = 0; i < count; i++)
            b->in[(size_t)to * count + i] = element(me->rank, to, i);
    memset(b->out, 0xee, bytes);
    copy(me, b->send, b->in, bytes);
    copy(me, b->recv, b->out, bytes);
}

/* Waits for a call, and fetches what it brought: at most a block of `count` elements from each rank. */
static ceclResult_t fetch(const struct rank *me, const struct buffers *b, size_t count)
{
    CECL_TRY(ceclStreamSynchronize(me->comm, NULL));
    copy(me, b->out, b->recv, (size_t)me->nranks * count * sizeof(int));
    return ceclSuccess;
}

static void must_be(const struct rank *me, int got, int wanted, const char *what)
{
    if (got == wanted)
        return;
    printf("failed: %s on rank %d: %d instead of %d\n", what, me->rank, got, wanted);
    exit(1);
}

static int sum_of(const struct rank *me, int to, size_t at)
{
    int sum = 0;
    for (int from = 0; from < me->nranks; from++)
        sum += element(from, to, at);
    return sum;
}

/* Each of these makes its calls. A failed one returns its result. */
static ceclResult_t gather_and_spread(const struct rank *me, const struct buffers *b, size_t count)
{
    const int root = (int)count % me->nranks;
    fill(me, b, count);
    CECL_TRY(ceclAllGather(b->send, b->recv, count, ceclInt32, me->comm, NULL));
    CECL_TRY(fetch(me, b, count));
    for (int from = 0; from < me->nranks; from++)
        for (size_t i = 0; i < count; i++)
            must_be(me, b->out[(size_t)from * count + i], element(from, 0, i), "ceclAllGather");
    CECL_TRY(ceclBroadcast(b->send, b->recv, count, ceclInt32, root, me->comm, NULL));
    CECL_TRY(ceclBarrier(me->comm, NULL));
    CECL_TRY(fetch(me, b, count));
    for (size_t i = 0; i < count; i++)
        must_be(me, b->out[i], element(root, 0, i), "ceclBroadcast");
    return ceclSuccess;
}

static ceclResult_t exchange_all(const struct rank *me, const struct buffers *b, size_t count)
{
    fill(me, b, count);
    CECL_TRY(ceclAlltoAll(b->send, b->recv, count, ceclInt32, me->comm, NULL));
    CECL_TRY(fetch(me, b, count));
    for (int from = 0; from < me->nranks; from++)
        for (size_t i = 0; i < count; i++)
            must_be(me, b->out[(size_t)from * count + i], element(from, me->rank, i),
                    "ceclAlltoAll");
    return ceclSuccess;
}

/* Rank `from` sends `count` elements to the ranks behind it, and none to the others. */
static ceclResult_t exchange_some(const struct rank *me, const struct buffers *b, size_t count)
{
    size_t sends[64] = {0}, receives[64] = {0}, places[64] = {0};
    fill(me, b, count);
    for (int r = 0; r < me->nranks; r++) {
        sends[r] = r > me->rank ? count : 0;
        receives[r] = r < me->rank ? count : 0;
        places[r] = (size_t)r * count;
    }
    CECL_TRY(ceclAlltoAllv(b->send, sends, places, b->recv, receives, places, ceclInt32, me->comm,
                           NULL));
    CECL_TRY(fetch(me, b, count));
    for (int from = 0; from < me->rank; from++)
        for (size_t i = 0; i < count; i++)
            must_be(me, b->out[(size_t)from * count + i], element(from, me->rank, i),
                    "ceclAlltoAllv");
    return ceclSuccess;
}

static ceclResult_t reduce_in_a_group(const struct rank *me, const struct buffers *b, size_t count)
{
    fill(me, b, count);
    CECL_TRY(ceclGroupStart());
    const ceclResult_t first = ceclReduceScatter(b->send, b->recv, count, ceclInt32, ceclSum,
                                                 me->comm, NULL),
                       second = ceclAllReduce(b->send, b->recv + count, count, ceclInt32, ceclSum,
                                              me->comm, NULL);
    CECL_TRY(ceclGroupEnd());
    CECL_TRY(first);
    CECL_TRY(second);
    CECL_TRY(fetch(me, b, count));
    for (size_t i = 0; i < count; i++) {
        must_be(me, b->out[i], sum_of(me, me->rank, i), "ceclReduceScatter");
        must_be(me, b->out[count + i], sum_of(me, 0, i), "ceclAllReduce");
    }
    return ceclSuccess;
}

static ceclResult_t pass_on(const struct rank *me, const struct buffers *b, size_t count)
{
    const int to = (me->rank + 1) % me->nranks, from = (me->rank + me->nranks - 1) % me->nranks;
    fill(me, b, count);
    CECL_TRY(ceclGroupStart());
    const ceclResult_t sent = ceclSend(b->send, count, ceclInt32, to, me->comm, NULL),
                       received = ceclRecv(b->recv, count, ceclInt32, from, me->comm, NULL);
    CECL_TRY(ceclGroupEnd());
    CECL_TRY(sent);
    CECL_TRY(received);
    CECL_TRY(fetch(me, b, count));
    for (size_t i = 0; i < count; i++)
        must_be(me, b->out[i], element(from, 0, i), "ceclRecv");
    return ceclSuccess;
}

ceclResult_t round_of_calls(const struct rank *me, const struct buffers *b, size_t count)
{
    CECL_TRY(gather_and_spread(me, b, count));
    CECL_TRY(exchange_all(me, b, count));
    CECL_TRY(exchange_some(me, b, count));
    CECL_TRY(reduce_in_a_group(me, b, count));
    return pass_on(me, b, count);
}

#define ROW 12 /* elements of a row */

/* Splits and offsets lie behind what the call sends. `at`: the beginning of either sendbuff. */
static uint64_t *splits_at(const struct rank *me, int *at)
{
    return (uint64_t *)(at + (size_t)me->nranks * MOST) - 256;
}

ceclResult_t dispatch(const struct rank *me, const struct buffers *b, const struct dispatch *d)
{
    uint64_t *splits = splits_at(me, b->send), *out = splits + 128, *given = splits_at(me, b->in);
    const size_t blocks = (size_t)me->nranks * d->experts;
    const ceclExperts_t experts = {.experts = d->experts, .align = d->align};
    fill(me, b, ROW);
    for (size_t i = 0; i < blocks; i++) {
        given[i] = 1;
        given[blocks + i] = i; /* where blocks lie, for ceclCombine */
    }
    copy(me, splits, given, 2 * blocks * sizeof(*given));
    CECL_TRY((d->combines ? ceclCombine : ceclDispatch)(b->send, d->sendrows, splits, b->recv,
                                                        d->recvrows, out, &experts, ROW, ceclInt32,
                                                        me->comm, NULL));
    return ceclStreamSynchronize(me->comm, NULL);
}

void must_be_dispatched(const struct rank *me, const struct buffers *b, bool has_come)
{
    int none;
    memset(&none, 0xee, sizeof(none));
    copy(me, b->out, b->recv, (size_t)me->nranks * ROW * sizeof(int));
    for (int from = 0; from < me->nranks; from++)
        for (int i = 0; i < ROW; i++)
            must_be(me, b->out[from * ROW + i],
                    has_come ? element(from, me->rank, (size_t)i) : none, "ceclDispatch");
}

struct buffers take_buffers(const struct rank *me)
{
    const size_t bytes = (size_t)me->nranks * MOST * sizeof(int);
    struct buffers b;
    must(ceclMemAlloc(me->comm, (void **)&b.send, bytes), "ceclMemAlloc", me->comm);
    must(ceclMemAlloc(me->comm, (void **)&b.recv, bytes), "ceclMemAlloc", me->comm);
    b.in = malloc(bytes);
    b.out = malloc(bytes);
    if (!b.in || !b.out)
        fail("no host memory", NULL);
    return b;
}
