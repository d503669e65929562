/* One attempt of each call. Inputs differ from attempt to attempt and from rank to rank, so what an
 * earlier attempt left is never right by chance. */
#include "attempt.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "misdeed.h"

#define BLOCK                                                                                      \
    4000 /* ints of a gather's block: too large for a small call, too small for a large one */
#define SMALL 500
#define LARGE 30000
#define STAGED 20000
#define SCATTERED 10000
#define GROWTH (20 << 20) /* bytes; larger than a segment of this suite's pools */

int attempt_value(int rank, int attempt, int index)
{
    return rank * 1000003 + attempt * 7919 + index;
}

/* ---- checking the result of a successful call */

static void expect(struct life *life, const int *at, int index, int wanted)
{
    if (at[index] != wanted)
        life_fail(life, "success in attempt %d, but element %d is %d and not %d", life->attempt,
                  index, at[index], wanted);
}

static void check_gathered(struct life *life, const int *out)
{
    for (int r = 0; r < life->n; r++)
        for (int i = 0; i < BLOCK; i++)
            expect(life, out, r * BLOCK + i, attempt_value(r, life->attempt, i));
}

static void check_small_gathered(struct life *life, const int *out)
{
    for (int i = 0; i < life->n * SMALL; i++)
        expect(life, out, i, attempt_value(i / SMALL, life->attempt, i % SMALL));
}

static void check_exchanged(struct life *life, const int *out)
{
    for (int r = 0; r < life->n; r++)
        for (int i = 0; i < BLOCK; i++)
            expect(life, out, r * BLOCK + i, attempt_value(r, life->attempt, life->me * BLOCK + i));
}

static void check_sums(struct life *life, const int *out, int first, int count)
{
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int r = 0; r < life->n; r++)
            sum += attempt_value(r, life->attempt, first + i);
        expect(life, out, i, sum);
    }
}

static int root_of(const struct life *life)
{
    return life->attempt % life->n;
}

static void check_received(struct life *life, const int *out)
{
    for (int i = 0; i < LARGE; i++)
        expect(life, out, i, attempt_value(root_of(life), life->attempt, i));
}

static void check_group(struct life *life, const int *out)
{
    check_gathered(life, out);
    check_exchanged(life, out + life->n * BLOCK);
    check_sums(life, out + 2 * life->n * BLOCK, life->me * BLOCK, BLOCK);
}

static void check_small(struct life *life, const int *out)
{
    check_sums(life, out, 0, SMALL);
}

static void check_large(struct life *life, const int *out)
{
    check_sums(life, out, 0, LARGE);
}

static void check_staged(struct life *life, const int *out)
{
    check_sums(life, out, 0, STAGED);
}

static void check_scattered(struct life *life, const int *out)
{
    check_sums(life, out, life->me * SCATTERED, SCATTERED);
}

/* ---- calls that only enqueue */

static ceclResult_t gather_on(struct life *life, ceclStream_t stream)
{
    return life->gets_wrong
               ? ceclAlltoAll(life->in, life->out, BLOCK, ceclInt32, life->comm, stream)
               : ceclAllGather(life->in, life->out, BLOCK, ceclInt32, life->comm, stream);
}

static ceclResult_t gather(struct life *life)
{
    return gather_on(life, 0);
}

static ceclResult_t small_gather(struct life *life)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = life->op == SMALL_GATHER ? CECL_SM_ALLOW : CECL_UNDEF;
    const ceclResult_t set = ceclSetOptions(life->comm, &options);
    return set != ceclSuccess ? set
                              : ceclAllGather(life->in, life->out, life->gets_wrong ? 1 : SMALL,
                                              ceclInt32, life->comm, 0);
}

static ceclResult_t all_to_all(struct life *life)
{
    return life->gets_wrong ? ceclAllGather(life->in, life->out, BLOCK, ceclInt32, life->comm, 0)
                            : ceclAlltoAll(life->in, life->out, BLOCK, ceclInt32, life->comm, 0);
}

/* The splits follow the blocks of the input. */
static ceclResult_t all_to_all_by_splits(struct life *life)
{
    enum { WORDS = 16 };
    const size_t rows = (size_t)life->n * BLOCK;
    uint64_t splits[WORDS];
    int *const words = life->in + INTS - 4 * WORDS;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_ALLOW;
    for (int r = 0; r < WORDS; r++)
        splits[r] = BLOCK;
    ceclResult_t result = life_put(life->comm, words, (const int *)splits, 2 * WORDS);
    if (result == ceclSuccess && !life->gets_wrong)
        result = ceclSetOptions(life->comm, &options);
    if (result != ceclSuccess)
        return result;
    return life->gets_wrong
               ? ceclAllGather(life->in, life->out, BLOCK, ceclInt32, life->comm, 0)
               : ceclAlltoAllvDevice(life->in, rows, (const uint64_t *)words, life->out, rows,
                                     (uint64_t *)(life->out + INTS - 4 * WORDS), 1, ceclInt32,
                                     life->comm, 0);
}

static ceclResult_t small_reduction(struct life *life)
{
    return ceclAllReduce(life->in, life->out, SMALL, ceclInt32,
                         life->gets_wrong ? ceclMax : ceclSum, life->comm, 0);
}

static ceclResult_t large_reduction(struct life *life)
{
    return ceclAllReduce(life->in, life->out, life->gets_wrong ? LARGE - 1 : LARGE, ceclInt32,
                         ceclSum, life->comm, 0);
}

static ceclResult_t staged_reduction(struct life *life)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = CECL_DIRECTION_PUSH;
    const ceclResult_t set = ceclSetOptions(life->comm, &options);
    return set != ceclSuccess ? set
                              : ceclAllReduce(life->in, life->out, STAGED, ceclInt32,
                                              life->gets_wrong ? ceclMax : ceclSum, life->comm, 0);
}

static ceclResult_t reduce_scatter(struct life *life)
{
    return life->gets_wrong
               ? ceclAllReduce(life->in, life->out, SCATTERED, ceclInt32, ceclSum, life->comm, 0)
               : ceclReduceScatter(life->in, life->out, SCATTERED, ceclInt32, ceclSum, life->comm,
                                   0);
}

static ceclResult_t broadcast(struct life *life)
{
    const int root = root_of(life), other = (root + 1) % life->n;
    return ceclBroadcast(life->in, life->out, LARGE, ceclInt32, life->gets_wrong ? other : root,
                         life->comm, 0);
}

static ceclResult_t barrier(struct life *life)
{
    return life->gets_wrong ? small_reduction(life) : ceclBarrier(life->comm, 0);
}

/* A WITHIN fault comes while the group is open. */
static ceclResult_t group(struct life *life)
{
    ceclResult_t result = ceclGroupStart();
    if (result == ceclSuccess)
        result = ceclAllGather(life->in, life->out, BLOCK, ceclInt32, life->comm, 0);
    if (result == ceclSuccess && !life->gets_wrong)
        result =
            ceclAlltoAll(life->in, life->out + life->n * BLOCK, BLOCK, ceclInt32, life->comm, 0);
    if (result == ceclSuccess && !life->gets_wrong)
        result = ceclReduceScatter(life->in, life->out + 2 * life->n * BLOCK, BLOCK, ceclInt32,
                                   ceclSum, life->comm, 0);
    misdeed_at(life, WITHIN);
    const ceclResult_t ended = ceclGroupEnd();
    return result == ceclSuccess ? ended : result;
}

/* Captures calls, and launches the graph twice. */
static ceclResult_t in_graph(struct life *life,
                             ceclResult_t (*make)(struct life *life, ceclStream_t stream))
{
    ceclGraph_t graph = NULL;
    ceclStream_t stream;
    ceclResult_t result = ceclStreamCreate(life->comm, &stream);
    if (result != ceclSuccess)
        return result;
    result = ceclStreamBeginCapture(life->comm, stream);
    const ceclResult_t made = result == ceclSuccess ? make(life, stream) : result;
    if (result == ceclSuccess)
        result = ceclStreamEndCapture(life->comm, stream, &graph);
    result = made != ceclSuccess ? made : result;
    for (int i = 0; i < 2 && result == ceclSuccess; i++)
        result = ceclGraphLaunch(graph, 0);
    const ceclResult_t freed = graph ? ceclGraphDestroy(graph) : ceclSuccess;
    const ceclResult_t ended = ceclStreamDestroy(life->comm, stream);
    return result != ceclSuccess ? result : freed != ceclSuccess ? freed : ended;
}

static ceclResult_t gather_in_graph(struct life *life)
{
    if (life->gets_wrong)
        return gather(life);
    return in_graph(life, gather_on);
}

static ceclResult_t exchange(struct life *life, int peer, ceclStream_t stream)
{
    const size_t count = life->gets_wrong && peer != life->me ? BLOCK - 1 : BLOCK;
    const ceclResult_t result =
        ceclSend(life->in + peer * BLOCK, count, ceclInt32, peer, life->comm, stream);
    return result == ceclSuccess
               ? ceclRecv(life->out + peer * BLOCK, count, ceclInt32, peer, life->comm, stream)
               : result;
}

static ceclResult_t exchange_all(struct life *life, ceclStream_t stream)
{
    ceclResult_t result = ceclGroupStart();
    for (int r = 0; r < life->n && result == ceclSuccess; r++)
        result = exchange(life, r, stream);
    const ceclResult_t ended = ceclGroupEnd();
    return result == ceclSuccess ? ended : result;
}

/* Every other attempt is captured. */
static ceclResult_t messages(struct life *life)
{
    return life->attempt % 2 == 0 ? exchange_all(life, 0) : in_graph(life, exchange_all);
}

/* Each rank signals that its memory may be written, and puts into the memory of all others. */
static ceclResult_t put_all(struct life *life, ceclWindow_t window)
{
    const size_t mine = (size_t)life->me * BLOCK;
    ceclSignalWait_t waits[MOST_RANKS];
    ceclResult_t result =
        ceclMemcpyAsync(life->comm, life->out + mine, life->in + mine, BLOCK * sizeof(int), 0);
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
        result = ceclPutSignal(life->in + waits[i].peer * BLOCK, BLOCK, ceclInt32, waits[i].peer,
                               window, mine * sizeof(int), 1, life->comm, 0);
    for (int i = 0; i < n; i++)
        waits[i].signal = 1;
    return result == ceclSuccess ? ceclWaitSignal(n, waits, life->comm, 0) : result;
}

static ceclResult_t attempt_growth(struct life *life);

/* The next attempt frees the window. Ranks that call something else still meet this rank, so both notice
 * the difference. */
static ceclResult_t put_to_each(struct life *life)
{
    static ceclWindow_t window;
    static ceclComm_t of;
    ceclResult_t result = ceclSuccess;
    if (life->gets_wrong)
        return attempt_growth(life);
    if (window && of == life->comm)
        result = ceclWindowFree(of, window);
    window = NULL;
    of = life->comm;
    if (result == ceclSuccess)
        result = ceclWindowShare(life->comm, life->out, INTS * sizeof(int), &window);
    return result == ceclSuccess ? put_all(life, window) : result;
}

/* ---- registered memory */

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

/* Every other attempt registers the memory ahead of the call. A WITHIN fault comes between the registration
 * and the call. */
static ceclResult_t gather_registered(struct life *life, int *in, int *out)
{
    ceclRegistration_t handle;
    if (life->attempt % 2) {
        const ceclResult_t result =
            ceclCommRegister(life->comm, out, (size_t)life->n * BLOCK * sizeof(int), &handle);
        if (result != ceclSuccess)
            return result;
    }
    misdeed_at(life, WITHIN);
    return life->gets_wrong ? ceclAlltoAll(in, out, BLOCK, ceclInt32, life->comm, 0)
                            : ceclAllGather(in, out, BLOCK, ceclInt32, life->comm, 0);
}

static ceclResult_t finish(struct life *life, const int *out,
                           void (*check)(struct life *life, const int *out));

/* Records the memory first, because a fault may end the attempt at any point. */
static ceclResult_t attempt_registered(struct life *life)
{
    const size_t bytes = (size_t)life->n * BLOCK * sizeof(int);
    struct memory *in = &life->kept[0], *out = &life->kept[1];
    *in = memory_open(life, bytes);
    *out = memory_open(life, bytes);
    life->nkept = 2;
    memcpy(in->ptr, life->in, bytes);
    ceclResult_t result = gather_registered(life, in->ptr, out->ptr);
    if (result == ceclSuccess)
        result = finish(life, out->ptr, check_gathered);
    if (result == ceclSuccess)
        attempt_clean(life);
    return result;
}

/* ---- calls that block */

static ceclResult_t async_of(struct life *life)
{
    ceclResult_t async = ceclSuccess;
    return ceclCommGetAsyncError(life->comm, &async) == ceclSuccess ? async : ceclInternalError;
}

/* The graph is destroyed while it may still run. */
static ceclResult_t launch_gather(struct life *life, ceclStream_t stream)
{
    ceclGraph_t graph = NULL;
    ceclResult_t result = ceclStreamBeginCapture(life->comm, stream);
    if (result != ceclSuccess)
        return result;
    result = gather_on(life, stream);
    const ceclResult_t ended = ceclStreamEndCapture(life->comm, stream, &graph);
    result = result == ceclSuccess ? ended : result;
    for (int i = 0; i < 3 && result == ceclSuccess; i++)
        result = ceclGraphLaunch(graph, stream);
    (void)!ceclGraphDestroy(graph);
    return result;
}

/* On GPUs, CUDA captures streams, so there the call is not captured. */
static ceclResult_t attempt_replay(struct life *life)
{
    ceclStream_t stream = NULL;
    ceclResult_t result = ceclSuccess;
    if (!life_on_gpus())
        result = ceclStreamCreate(life->comm, &stream);
    if (result != ceclSuccess)
        return result;
    result = stream ? launch_gather(life, stream) : gather(life);
    misdeed_at(life, WITHIN);
    const ceclResult_t ended = ceclStreamSynchronize(life->comm, stream);
    result = result == ceclSuccess ? ended : result;
    if (stream)
        (void)!ceclStreamDestroy(life->comm, stream);
    return result == ceclSuccess ? finish(life, life->out, check_gathered) : result;
}

static ceclResult_t attempt_growth(struct life *life)
{
    int *ptr = NULL;
    const size_t bytes = life->gets_wrong ? 2 * GROWTH : GROWTH;
    const ceclResult_t result = ceclMemAlloc(life->comm, (void **)&ptr, bytes);
    if (result != ceclSuccess && ptr)
        life_fail(life, "a failed allocation gave %p", (void *)ptr);
    const ceclResult_t first =
        result == ceclSuccess ? life_put(life->comm, ptr, &life->me, 1) : result;
    return first == ceclSuccess
               ? life_put(life->comm, ptr + GROWTH / (int)sizeof(int) - 1, &life->me, 1)
               : first;
}

/* A new communicator is usable only if all its ranks live. This case only destroys it. */
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

/* The gather is pending when the communicator is finalized or destroyed. */
static ceclResult_t attempt_end(struct life *life)
{
    ceclResult_t result = gather(life);
    if (result != ceclSuccess || life->attempt != life->c->round)
        return result == ceclSuccess ? finish(life, life->out, check_gathered) : result;
    misdeed_at(life, WITHIN);
    life->is_over = true;
    if (life->op == FINALIZE) {
        result = ceclCommFinalize(life->comm);
        if (result == ceclSuccess &&
            !life_on_gpus()) /* on GPUs, a finalized communicator cannot copy */
            check_gathered(life, life->out);
        return result;
    }
    misdeed_forget(life);
    result = ceclCommDestroy(life->comm);
    life->comm = NULL;
    return result;
}

/* ---- any call */

/* The manual: a result is valid if the communicator had not failed when the result was copied. */
static ceclResult_t finish(struct life *life, const int *out,
                           void (*check)(struct life *life, const int *out))
{
    static int copy[INTS];
    ceclResult_t result = ceclStreamSynchronize(life->comm, 0);
    if (result == ceclSuccess && out)
        result =
            life_get(life->comm, copy, out, life->op == REGISTER ? (size_t)life->n * BLOCK : INTS);
    if (result != ceclSuccess)
        return result;
    result = async_of(life);
    if (result == ceclSuccess && check && !life->gets_wrong)
        check(life, copy);
    return result;
}

struct row {
    ceclResult_t (*whole)(struct life *life); /* the whole attempt, or NULL */
    ceclResult_t (*enqueue)(
        struct life *life); /* the part of the attempt before it synchronizes, or NULL */
    void (*check)(struct life *life, const int *out);
    bool has_own_point; /* the function itself calls the point at which a WITHIN fault comes */
};
static const struct row rows[OPS] = {
    [JOIN] = {.enqueue = barrier},
    [JOIN_BY_CALLBACKS] = {.enqueue = barrier},
    [ALLOCATE] = {.whole = attempt_growth},
    [REGISTER] = {.whole = attempt_registered},
    [GATHER] = {.enqueue = gather, .check = check_gathered},
    [SMALL_GATHER] = {.enqueue = small_gather, .check = check_small_gathered},
    [URGENT_GATHER] = {.enqueue = small_gather, .check = check_small_gathered},
    [ALL_TO_ALL] = {.enqueue = all_to_all, .check = check_exchanged},
    [BY_SPLITS] = {.enqueue = all_to_all_by_splits, .check = check_exchanged},
    [SMALL_REDUCTION] = {.enqueue = small_reduction, .check = check_small},
    [LARGE_REDUCTION] = {.enqueue = large_reduction, .check = check_large},
    [STAGED_REDUCTION] = {.enqueue = staged_reduction, .check = check_staged},
    [REDUCE_SCATTER] = {.enqueue = reduce_scatter, .check = check_scattered},
    [BROADCAST] = {.enqueue = broadcast, .check = check_received},
    [BARRIER] = {.enqueue = barrier},
    [GROUP] = {.enqueue = group, .check = check_group, .has_own_point = true},
    [MESSAGES] = {.enqueue = messages, .check = check_exchanged},
    [GRAPH] = {.enqueue = gather_in_graph, .check = check_gathered},
    [REPLAY] = {.whole = attempt_replay},
    [PUTS] = {.enqueue = put_to_each, .check = check_exchanged, .has_own_point = true},
    [SPLIT] = {.whole = attempt_split},
    [SHRINK] = {.whole = attempt_shrink},
    [FINALIZE] = {.whole = attempt_end},
    [DESTROY] = {.whole = attempt_end},
};

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
        values[i] = attempt_value(life->me, life->attempt, i);
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
        result = row->whole ? row->whole(life) : row->enqueue(life);
    if (result == ceclSuccess && row->enqueue) {
        if (!row->has_own_point)
            misdeed_at(life, WITHIN);
        result = finish(life, life->out, row->check);
    }
    if (result == ceclSuccess)
        check_begun(life);
    return result;
}
