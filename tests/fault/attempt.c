/* One attempt of each call. */
#include "life.h"

#define GROWTH (20 << 20) /* bytes; larger than a segment of this suite's pools */

static void within(struct life *life)
{
    misdeed_at(life, WITHIN);
}

/* Signals to each rank that this rank's memory may be written, and puts into the memory of all others. */
static ceclResult_t put_all(struct life *life, ceclWindow_t window)
{
    const size_t mine = (size_t)life->me * CALL_BLOCK;
    ceclSignalWait_t waits[MOST_RANKS];
    ceclResult_t result =
        ceclMemcpyAsync(life->comm, life->out + mine, life->in + mine, CALL_BLOCK * sizeof(int), 0);
    int n = 0;
    for (int r = 0; r < life->n; r++)
        if (r != life->me)
            waits[n++] = (ceclSignalWait_t){r, 0, 1};
    for (int i = 0; i < n && result == ceclSuccess; i++)
        result = ceclSignal(waits[i].peer, 0, life->comm, 0);
    if (result == ceclSuccess)
        result = ceclWaitSignal(n, waits, life->comm, 0);
    misdeed_at(life, WITHIN);
    for (int i = 0; i < n && result == ceclSuccess; i++)
        result = ceclPutSignal(life->in + waits[i].peer * CALL_BLOCK, CALL_BLOCK, ceclInt32,
                               waits[i].peer, window, mine * sizeof(int), 1, life->comm, 0);
    for (int i = 0; i < n; i++)
        waits[i].signal = 1;
    return result == ceclSuccess ? ceclWaitSignal(n, waits, life->comm, 0) : result;
}

static ceclResult_t attempt_growth(struct life *life);

/* The next attempt frees the window. Sharing and freeing are collective, so in these two calls ranks notice that one of
 * them makes another call. */
static ceclResult_t make_put_to_each(struct player *p, const struct call *call, int *in, int *out,
                                     ceclStream_t stream)
{
    static ceclWindow_t window;
    static ceclComm_t of;
    struct life *life = (struct life *)(void *)p;
    ceclResult_t result = ceclSuccess;
    (void)call, (void)in, (void)out, (void)stream;
    if (window && of == life->comm)
        result = ceclWindowFree(of, window);
    window = NULL;
    of = life->comm;
    if (result == ceclSuccess)
        result = ceclWindowShare(life->comm, life->out, INTS * sizeof(int), &window);
    return result == ceclSuccess ? put_all(life, window) : result;
}

static struct memory memory_open(struct life *life, size_t bytes)
{
    struct memory memory = {.fd = memfd_create("registered", MFD_CLOEXEC), .bytes = bytes};
    if (memory.fd < 0 || ftruncate(memory.fd, (off_t)bytes) != 0)
        life_fail(life, "no memory to register");
    memory.ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
    if (memory.ptr == MAP_FAILED)
        life_fail(life, "no mapping to register");
    return memory;
}

static void memory_close(const struct memory *memory)
{
    munmap(memory->ptr, memory->bytes);
    close(memory->fd);
}

void attempt_clean(struct life *life)
{
    while (life->nkept > 0)
        memory_close(&life->kept[--life->nkept]);
}

static ceclResult_t gather(struct life *life, int *in, int *out)
{
    return call_make(life->gets_wrong ? &call_exchange : &call_gather, &life->player, in, out, 0);
}

/* Every other attempt registers the memory before the call. A WITHIN fault comes between registration and call. */
static ceclResult_t gather_registered(struct life *life, int *in, int *out)
{
    ceclRegistration_t handle;
    if (life->attempt % 2)
        TRY(ceclCommRegister(life->comm, out, (size_t)life->n * CALL_BLOCK * sizeof(int), &handle));
    misdeed_at(life, WITHIN);
    return gather(life, in, out);
}

static ceclResult_t finish(struct life *life, const int *out, const struct call *call);

/* Records the memory first, because a fault may end the attempt at any point. */
static ceclResult_t attempt_registered(struct life *life)
{
    const size_t bytes = (size_t)life->n * CALL_BLOCK * sizeof(int);
    struct memory *in = &life->kept[0], *out = &life->kept[1];
    *in = memory_open(life, bytes);
    *out = memory_open(life, bytes);
    life->nkept = 2;
    memcpy(in->ptr, life->in, bytes);
    TRY(gather_registered(life, in->ptr, out->ptr));
    TRY(finish(life, out->ptr, &call_gather));
    attempt_clean(life);
    return ceclSuccess;
}

static ceclResult_t async_of(struct life *life)
{
    ceclResult_t async = ceclSuccess;
    return ceclCommGetAsyncError(life->comm, &async) == ceclSuccess ? async : ceclInternalError;
}

static ceclResult_t attempt_growth(struct life *life)
{
    int *ptr = NULL;
    const size_t bytes = life->gets_wrong ? 2 * GROWTH : GROWTH;
    const ceclResult_t result = ceclMemAlloc(life->comm, (void **)&ptr, bytes);
    if (result != ceclSuccess && ptr)
        life_fail(life, "a failed allocation gave %p", (void *)ptr);
    TRY(result);
    TRY(life_put(life->comm, ptr, &life->me, 1));
    return life_put(life->comm, ptr + GROWTH / (int)sizeof(int) - 1, &life->me, 1);
}

/* Only destroys the new communicator: to use it, all of its ranks would have to live. */
static ceclResult_t end_new(struct life *life, ceclResult_t result, ceclComm_t made)
{
    int count = 0;
    if (result != ceclSuccess) {
        if (made)
            life_fail(life, "a failed call gave a communicator");
        return result;
    }
    if (ceclCommCount(made, &count) != ceclSuccess || count != life->n)
        life_fail(life, "%d ranks in the new communicator", count);
    (void)!ceclCommDestroy(made);
    return ceclSuccess;
}

/* Reorders the ranks, so that no rank keeps its number. */
static ceclResult_t attempt_split(struct life *life)
{
    ceclComm_t made = NULL;
    if (life->gets_wrong)
        return attempt_growth(life);
    const ceclResult_t result = ceclCommSplit(life->comm, 0, (life->me + 1) % life->n, &made, NULL);
    return end_new(life, result, made);
}

static ceclResult_t attempt_shrink(struct life *life)
{
    ceclComm_t made = NULL;
    const int other = (life->me + 1) % life->n;
    const ceclResult_t result = ceclCommShrink(life->comm, &other, life->gets_wrong, &made, NULL);
    return end_new(life, result, made);
}

/* Finalizes or destroys the communicator while the gather is pending. */
static ceclResult_t attempt_end(struct life *life)
{
    ceclResult_t result = gather(life, life->in, life->out);
    if (result != ceclSuccess || life->attempt != life->c->round)
        return result == ceclSuccess ? finish(life, life->out, &call_gather) : result;
    misdeed_at(life, WITHIN);
    life->is_over = true;
    if (life->op == FINALIZE) {
        result = ceclCommFinalize(life->comm);
        if (result == ceclSuccess &&
            !life_on_gpus()) /* on GPUs, a finalized communicator cannot copy */
            call_check(&call_gather, &life->player, life->out);
        return result;
    }
    misdeed_forget(life);
    result = ceclCommDestroy(life->comm);
    life->comm = NULL;
    return result;
}

/* Ends an attempt. Its result is valid, by the manual, if the communicator had not failed when it was copied. */
static ceclResult_t finish(struct life *life, const int *out, const struct call *call)
{
    static int copy[INTS];
    TRY(ceclStreamSynchronize(life->comm, 0));
    if (out)
        TRY(life_get(life->comm, copy, out,
                     life->op == REGISTER ? (size_t)life->n * CALL_BLOCK : INTS));
    TRY(async_of(life));
    if (!life->gets_wrong)
        call_check(call, &life->player, copy);
    return ceclSuccess;
}

static void check_put(struct player *p, const struct call *call, const int *out)
{
    (void)call;
    call_check(&call_exchange, p, out);
}

static const struct call put_to_each = {make_put_to_each, check_put, .count = CALL_BLOCK};

struct row {
    ceclResult_t (*whole)(struct life *life); /* the whole attempt, or NULL */
    /* what an attempt enqueues before it synchronizes; other: on the rank that makes another call than its peers */
    const struct call *call, *other;
    bool has_own_point; /* the call itself contains the point of a WITHIN fault */
};
static const struct row rows[OPS] = {
    [JOIN] = {.call = &call_barrier, .other = &call_reduce_small},
    [JOIN_BY_CALLBACKS] = {.call = &call_barrier, .other = &call_reduce_small},
    [ALLOCATE] = {.whole = attempt_growth},
    [REGISTER] = {.whole = attempt_registered},
    [GATHER] = {.call = &call_gather, .other = &call_exchange},
    [SMALL_GATHER] = {.call = &call_gather_by_kernel, .other = &call_exchange},
    [URGENT_GATHER] = {.call = &call_gather_few, .other = &call_exchange},
    [ALL_TO_ALL] = {.call = &call_exchange, .other = &call_gather},
    [BY_SPLITS] = {.call = &call_dispatch, .other = &call_gather},
    [SMALL_REDUCTION] = {.call = &call_reduce_small, .other = &call_max_small},
    [LARGE_REDUCTION] = {.call = &call_reduce_large, .other = &call_reduce_fewer},
    [STAGED_REDUCTION] = {.call = &call_reduce_pushed, .other = &call_max_small},
    [REDUCE_SCATTER] = {.call = &call_scatter, .other = &call_reduce_fewer},
    [BROADCAST] = {.call = &call_broadcast, .other = &call_broadcast_of_another},
    [BARRIER] = {.call = &call_barrier, .other = &call_reduce_small},
    [GROUP] = {.call = &call_group, .other = &call_gather, .has_own_point = true},
    [MESSAGES] = {.call = &call_messages_by_turns, .other = &call_shorter_messages},
    [GRAPH] = {.call = &call_gather_in_graph, .other = &call_exchange},
    [PUTS] = {.call = &put_to_each, .has_own_point = true},
    [SPLIT] = {.whole = attempt_split},
    [SHRINK] = {.whole = attempt_shrink},
    [FINALIZE] = {.whole = attempt_end},
    [DESTROY] = {.whole = attempt_end},
};

static ceclResult_t enqueue(struct life *life, const struct row *row)
{
    if (row->whole || (life->gets_wrong && !row->other))
        return row->whole ? row->whole(life) : attempt_growth(life);
    life->within = within;
    return call_make(life->gets_wrong ? row->other : row->call, &life->player, life->in, life->out,
                     0);
}

static void check_begun(struct life *life)
{
    const int begun = atomic_load(&life->meeting->reports[life->c->faulty].begun);
    if (begun <= life->attempt)
        life_fail(life, "success in attempt %d, but rank %d began only %d", life->attempt,
                  life->c->faulty, begun);
}

static ceclResult_t fill(struct life *life)
{
    static int values[INTS];
    for (int i = 0; i < INTS && life->in; i++)
        values[i] = call_value(life->me, life->attempt, i);
    return life->in ? life_put(life->comm, life->in, values, INTS) : ceclSuccess;
}

ceclResult_t attempt_make(struct life *life)
{
    const struct row *row = &rows[life->op];
    ceclResult_t result = fill(life);
    misdeed_at(life, BEFORE);
    if (!life->gets_wrong)
        atomic_store(&life->report->begun, life->attempt + 1);
    if (result == ceclSuccess)
        result = enqueue(life, row);
    if (result == ceclSuccess && row->call) {
        if (!row->has_own_point)
            misdeed_at(life, WITHIN);
        result = finish(life, life->out, row->call);
    }
    if (result == ceclSuccess)
        check_begun(life);
    return result;
}
