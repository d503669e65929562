/* One-sided calls of the fuzzer; see api_puts.h. The calls are drawn as transfers: a rank moves
 * bytes between its memory and a window, and signals; the window's owner waits for the signal.
 * Each transfer uses bytes that no other transfer of the batch uses, unless it passes on bytes of
 * an earlier transfer. */
#include "api_puts.h"

#include "ok.h"

#define TRANSFERS_MOST 10
/* Signals have the numbers 0, 31 and 62, and 63 for waits that are delayed: waits for one number
 * complete in the order of the calls. */
#define APART 31
#define PUT_OFF 63

struct transfer {
    int mover, owner, number;
    int first_stream; /* stream of the mover: 0 or 1 */
    /* stream of the owner: 0 or 1; 2: the wait comes in one call at the end, with others */
    int waits_on;
    bool gets;
    bool apart; /* a put and a signal, in two calls */
    size_t from, to, bytes;
    int where; /* the rank that has the bytes in its memory afterwards */
};

static ceclWindow_t windows[MODEL_RANKS];
static bool is_shared;
static struct transfer transfers[TRANSFERS_MOST];
static int ntransfers;
static const struct api_puts *of;

/* ---- the window: all memory that its rank can share */

void api_puts_begin(void)
{
    is_shared = false;
}

static void *share(void *argument)
{
    const int r = (int)(intptr_t)argument;
    OK(ceclWindowShare(of->comms[r], of->model->memory[r], of->shares[r] ? MODEL_BYTES : 0,
                       &windows[r]));
    return NULL;
}

static void *end(void *argument)
{
    const int r = (int)(intptr_t)argument;
    OK(ceclWindowFree(of->comms[r], windows[r]));
    return NULL;
}

static void renew_window(struct input *in)
{
    if (is_shared && take_below(in, 8) > 0)
        return;
    if (is_shared)
        of->run_threads(end);
    of->run_threads(share);
    is_shared = true;
}

/* ---- drawing */

static bool take_place(struct input *in, int rank, size_t bytes, size_t *at)
{
    *at = of->model->used[rank] + 1 + take_below(in, 16);
    of->model->used[rank] = *at + bytes;
    return *at + bytes < MODEL_BYTES;
}

/* The latest transfer that brought bytes to a stream of the mover; the mover passes these bytes
 * on. */
static const struct transfer *brought(int mover, int *stream)
{
    for (int i = ntransfers - 1; i >= 0; i--) {
        const struct transfer *t = &transfers[i];
        *stream = t->gets ? t->first_stream : t->waits_on;
        if (t->where == mover && *stream < 2)
            return t;
    }
    return NULL;
}

/* Whether the transfer has room, and its owner shares memory. */
static bool draw_transfer(struct input *in, struct transfer *t)
{
    const int n = of->model->nranks;
    const unsigned how = take_byte(in);
    int stream;
    *t = (struct transfer){.mover = (int)take_below(in, (unsigned)n),
                           .owner = (int)take_below(in, (unsigned)n),
                           .number = (int)take_below(in, 3) * APART,
                           .gets = how & 1,
                           .apart = how >> 1 & 1,
                           .first_stream = how >> 2 & 1,
                           .waits_on = (int)(how >> 3 & 3) % 3};
    t->bytes = how >> 5 & 1 ? take_below(in, 3000) : take_below(in, 40);
    t->where = t->gets ? t->mover : t->owner;
    if (!of->shares[t->owner] || t->mover == t->owner) /* some policies refuse a local copy */
        t->bytes = 0;
    if (t->waits_on == 2)
        t->number = PUT_OFF;
    const struct transfer *source = t->gets || how >> 6 & 1 ? NULL : brought(t->mover, &stream);
    if (source && source->bytes >= t->bytes) {
        t->from = source->to;
        t->first_stream = stream;
        return take_place(in, t->owner, t->bytes, &t->to);
    }
    return take_place(in, t->gets ? t->owner : t->mover, t->bytes, &t->from) &&
           take_place(in, t->where, t->bytes, &t->to);
}

static void apply(const struct transfer *t)
{
    memcpy(of->model->mirror[t->where] + t->to,
           of->model->mirror[t->gets ? t->owner : t->mover] + t->from, t->bytes);
}

/* ---- making calls */

static ceclStream_t stream_of(int rank, int which)
{
    return which == 1 ? of->streams[rank] : NULL;
}

/* The offset in the window; 0 if the rank shares no memory. */
static size_t offset_of(const struct transfer *t)
{
    return !of->shares[t->owner] ? 0 : t->gets ? t->from : t->to;
}

static void move(const struct transfer *t)
{
    const size_t at = offset_of(t);
    ceclComm_t comm = of->comms[t->mover];
    ceclStream_t stream = stream_of(t->mover, t->first_stream);
    uint8_t *memory = of->model->memory[t->mover];
    ceclWindow_t window = windows[t->mover];
    if (t->gets)
        OK(ceclGet(memory + t->to, t->bytes, ceclUint8, t->owner, window, at, comm, stream));
    else if (t->apart)
        OK(ceclPut(memory + t->from, t->bytes, ceclUint8, t->owner, window, at, comm, stream));
    else
        OK(ceclPutSignal(memory + t->from, t->bytes, ceclUint8, t->owner, window, at, t->number,
                         comm, stream));
    if (t->gets || t->apart)
        OK(ceclSignal(t->owner, t->number, comm, stream));
}

/* Makes the owner's delayed waits, in one call. */
static void wait_at_the_end(int rank)
{
    ceclSignalWait_t waits[TRANSFERS_MOST];
    int n = 0;
    for (int i = 0; i < ntransfers; i++)
        if (transfers[i].owner == rank && transfers[i].waits_on == 2)
            waits[n++] = (ceclSignalWait_t){transfers[i].mover, transfers[i].number, 1};
    if (n > 0)
        OK(ceclWaitSignal(n, waits, of->comms[rank], of->streams[rank]));
}

static void make_calls(int rank)
{
    for (int i = 0; i < ntransfers; i++) {
        const struct transfer *t = &transfers[i];
        const ceclSignalWait_t wait = {t->mover, t->number, 1};
        if (t->mover == rank)
            move(t);
        if (t->owner == rank && t->waits_on < 2)
            OK(ceclWaitSignal(1, &wait, of->comms[rank], stream_of(rank, t->waits_on)));
    }
    wait_at_the_end(rank);
}

static void *make(void *argument)
{
    make_calls((int)(intptr_t)argument);
    return NULL;
}

void api_puts_step(struct input *in, const struct api_puts *ranks)
{
    const unsigned flags = take_byte(in);
    const int most = 1 + (int)(flags / 2 % TRANSFERS_MOST);
    of = ranks;
    renew_window(in);
    ntransfers = 0;
    model_begin(of->model, flags);
    while (ntransfers < most && draw_transfer(in, &transfers[ntransfers]))
        apply(&transfers[ntransfers++]);
    if (flags % 2)
        of->run_threads(make);
    for (int r = 0; r < of->model->nranks && flags % 2 == 0; r++)
        make((void *)(intptr_t)r);
}

/* ---- invalid calls */

static ceclResult_t misuse_copy(unsigned which, ceclComm_t comm, int rank, char *at)
{
    const int n = of->model->nranks, peer = (rank + 1) % n;
    uint64_t stranger[8] = {0};
    ceclWindow_t window = is_shared ? windows[rank] : NULL,
                 of_peer = is_shared && n > 1 ? windows[peer] : NULL;
    switch (which) {
    case 0: return ceclPut(at, 1, ceclUint8, n, window, 0, comm, NULL);
    case 1: return ceclGet(at, 1, ceclUint8, -1, window, 0, comm, NULL);
    case 2: return ceclPut(at, 1, ceclUint8, peer, NULL, 0, comm, NULL);
    case 3: return ceclPut(at, 1, ceclUint8, peer, (ceclWindow_t)(void *)stranger, 0, comm, NULL);
    case 4: return ceclGet(at, 1, ceclUint8, peer, of_peer, 0, comm, NULL);
    case 5: return ceclPut(at, 2, ceclUint8, peer, window, MODEL_BYTES - 1, comm, NULL);
    case 6: return ceclGet(at, SIZE_MAX / 2, ceclUint64, peer, window, 8, comm, NULL);
    case 7: return ceclPut(at, 1, (ceclDataType_t)CECL_NUM_TYPES, peer, window, 0, comm, NULL);
    case 8: return ceclPut(at, 1, ceclUint8, peer, window, SIZE_MAX, comm, NULL);
    default: return ceclPutSignal(at, 1, ceclUint8, peer, window, 0, 64, comm, NULL);
    }
}

ceclResult_t api_puts_misuse(unsigned which, const struct api_puts *ranks, int rank)
{
    const ceclSignalWait_t none = {0, 0, 0}, nobody = {ranks->model->nranks, 0, 1},
                           far = {0, 0, INT32_MAX}, good = {0, 63, 1},
                           mixed[2] = {good, {0, 64, 1}};
    ceclComm_t comm = ranks->comms[rank];
    uint64_t stranger[8] = {0};
    of = ranks;
    switch (which) {
    case 0: return ceclSignal(ranks->model->nranks, 0, comm, NULL);
    case 1: return ceclSignal(0, -1, comm, NULL);
    case 2: return ceclSignal(0, 0, comm, (ceclStream_t)(void *)stranger);
    case 3: return ceclWaitSignal(0, &good, comm, NULL);
    case 4: return ceclWaitSignal(1, NULL, comm, NULL);
    case 5: return ceclWaitSignal(1, &none, comm, NULL);
    case 6: return ceclWaitSignal(1, &nobody, comm, NULL);
    case 7: return ceclWaitSignal(1, &far, comm, NULL);
    case 8: return ceclWaitSignal(2, mixed, comm, NULL);
    case 9: return ceclWaitSignal(1, &good, comm, (ceclStream_t)(void *)stranger);
    default: return misuse_copy(which - 10, comm, rank, (char *)ranks->model->memory[rank]);
    }
}
