/* See calls.h. */
#include "calls.h"

#define PUSHED 20000
#define SCATTERED 10000

int call_value(int rank, int attempt, int index)
{
    return rank * 1000003 + attempt * 7919 + index;
}

int call_root(const struct player *p)
{
    return p->attempt % p->n;
}

/* ---- checking */

void check_element(struct player *p, const int *out, int index, int wanted)
{
    if (out[index] != wanted)
        life_fail((struct life *)(void *)p,
                  "success in attempt %d, but element %d is %d and not %d", p->attempt, index,
                  out[index], wanted);
}

/* Blocks of all ranks, one behind the other. `first`: where a block begins in its rank's input. */
static void check_blocks(struct player *p, const int *out, int count, int first)
{
    for (int i = 0; i < p->n * count; i++)
        check_element(p, out, i, call_value(i / count, p->attempt, first + i % count));
}

static void check_gathered(struct player *p, const int *out)
{
    check_blocks(p, out, CALL_BLOCK, 0);
}

static void check_gathered_few(struct player *p, const int *out)
{
    check_blocks(p, out, CALL_SMALL, 0);
}

static void check_exchanged(struct player *p, const int *out)
{
    check_blocks(p, out, CALL_BLOCK, p->me * CALL_BLOCK);
}

static void check_sums(struct player *p, const int *out, int first, int count)
{
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int r = 0; r < p->n; r++)
            sum += call_value(r, p->attempt, first + i);
        check_element(p, out, i, sum);
    }
}

static void check_reduced_small(struct player *p, const int *out)
{
    check_sums(p, out, 0, CALL_SMALL);
}

static void check_reduced_large(struct player *p, const int *out)
{
    check_sums(p, out, 0, CALL_LARGE);
}

static void check_reduced_pushed(struct player *p, const int *out)
{
    check_sums(p, out, 0, PUSHED);
}

static void check_scattered(struct player *p, const int *out)
{
    check_sums(p, out, p->me * SCATTERED, SCATTERED);
}

static void check_reduced_to_one(struct player *p, const int *out)
{
    if (p->me == call_root(p))
        check_reduced_large(p, out);
}

static void check_broadcast(struct player *p, const int *out)
{
    for (int i = 0; i < CALL_LARGE; i++)
        check_element(p, out, i, call_value(call_root(p), p->attempt, i));
}

static void check_group(struct player *p, const int *out)
{
    check_gathered(p, out);
    check_exchanged(p, out + p->n * CALL_BLOCK);
    check_sums(p, out + 2 * p->n * CALL_BLOCK, p->me * CALL_BLOCK, CALL_BLOCK);
}

/* ---- collectives */

static ceclResult_t gather(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclAllGather(in, out, CALL_BLOCK, ceclInt32, p->comm, stream);
}

static ceclResult_t gather_few(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclAllGather(in, out, CALL_SMALL, ceclInt32, p->comm, stream);
}

static ceclResult_t allow_sms(struct player *p)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_ALLOW;
    return ceclSetOptions(p->comm, &options);
}

static ceclResult_t push(struct player *p)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = CECL_DIRECTION_PUSH;
    return ceclSetOptions(p->comm, &options);
}

static ceclResult_t gather_by_kernel(struct player *p, int *in, int *out, ceclStream_t stream)
{
    const ceclResult_t set = allow_sms(p);
    return set == ceclSuccess ? gather_few(p, in, out, stream) : set;
}

static ceclResult_t exchange(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclAlltoAll(in, out, CALL_BLOCK, ceclInt32, p->comm, stream);
}

static ceclResult_t exchange_sizes(struct player *p, int *in, int *out, ceclStream_t stream)
{
    size_t counts[PLAYERS_MOST];
    for (int r = 0; r < p->n; r++)
        counts[r] = CALL_BLOCK;
    return ceclAlltoAllv(in, counts, NULL, out, counts, NULL, ceclInt32, p->comm, stream);
}

/* Block r goes to the only expert of rank r. The splits are behind the blocks of the input. */
static ceclResult_t dispatch(struct player *p, int *in, int *out, ceclStream_t stream)
{
    enum { WORDS = 16 };
    static uint64_t splits[WORDS];
    const size_t rows = (size_t)p->n * CALL_BLOCK;
    const ceclExperts_t one = {.experts = 1, .align = 1};
    int *const words = in + INTS - 4 * WORDS;
    for (int r = 0; r < WORDS; r++)
        splits[r] = CALL_BLOCK;
    ceclResult_t result = allow_sms(p);
    if (result == ceclSuccess)
        result = ceclMemcpyAsync(p->comm, words, splits, sizeof(splits), stream);
    return result == ceclSuccess
               ? ceclDispatch(in, rows, (const uint64_t *)(const void *)words, out, rows,
                              (uint64_t *)(void *)(out + INTS - 4 * WORDS), &one, 1, ceclInt32,
                              p->comm, stream)
               : result;
}

static ceclResult_t reduce_small(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclAllReduce(in, out, CALL_SMALL, ceclInt32, ceclSum, p->comm, stream);
}

static ceclResult_t reduce_large(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclAllReduce(in, out, CALL_LARGE, ceclInt32, ceclSum, p->comm, stream);
}

static ceclResult_t reduce_pushed(struct player *p, int *in, int *out, ceclStream_t stream)
{
    const ceclResult_t set = push(p);
    return set == ceclSuccess ? ceclAllReduce(in, out, PUSHED, ceclInt32, ceclSum, p->comm, stream)
                              : set;
}

static ceclResult_t scatter(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclReduceScatter(in, out, SCATTERED, ceclInt32, ceclSum, p->comm, stream);
}

static ceclResult_t scatter_pushed(struct player *p, int *in, int *out, ceclStream_t stream)
{
    const ceclResult_t set = push(p);
    return set == ceclSuccess ? scatter(p, in, out, stream) : set;
}

static ceclResult_t reduce_to_one(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclReduce(in, out, CALL_LARGE, ceclInt32, ceclSum, call_root(p), p->comm, stream);
}

static ceclResult_t broadcast(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return ceclBroadcast(in, out, CALL_LARGE, ceclInt32, call_root(p), p->comm, stream);
}

static ceclResult_t barrier(struct player *p, int *in, int *out, ceclStream_t stream)
{
    (void)in;
    (void)out;
    return ceclBarrier(p->comm, stream);
}

/* ---- groups and graphs */

static ceclResult_t group(struct player *p, int *in, int *out, ceclStream_t stream)
{
    int *const second = out + p->n * CALL_BLOCK, *const third = second + p->n * CALL_BLOCK;
    ceclResult_t result = ceclGroupStart();
    if (result != ceclSuccess)
        return result;
    result = gather(p, in, out, stream);
    if (result == ceclSuccess)
        result = exchange(p, in, second, stream);
    if (result == ceclSuccess)
        result = ceclReduceScatter(in, third, CALL_BLOCK, ceclInt32, ceclSum, p->comm, stream);
    if (p->within)
        p->within((struct life *)(void *)p);
    const ceclResult_t ended = ceclGroupEnd();
    return result == ceclSuccess ? ended : result;
}

/* Each rank sends to each rank, including itself. */
static ceclResult_t messages(struct player *p, int *in, int *out, ceclStream_t stream)
{
    ceclResult_t result = ceclGroupStart();
    if (result != ceclSuccess)
        return result;
    for (int r = 0; r < p->n; r++) {
        if (result == ceclSuccess)
            result = ceclSend(in + r * CALL_BLOCK, CALL_BLOCK, ceclInt32, r, p->comm, stream);
        if (result == ceclSuccess)
            result = ceclRecv(out + r * CALL_BLOCK, CALL_BLOCK, ceclInt32, r, p->comm, stream);
    }
    const ceclResult_t ended = ceclGroupEnd();
    return result == ceclSuccess ? ended : result;
}

/* If the end of the capture is refused, the stream still captures. */
static ceclResult_t in_graph(struct player *p,
                             ceclResult_t (*make)(struct player *, int *, int *, ceclStream_t),
                             int *in, int *out, ceclStream_t stream)
{
    ceclGraph_t graph = NULL;
    ceclStream_t captured;
    ceclResult_t result = ceclStreamCreate(p->comm, &captured);
    if (result != ceclSuccess)
        return result;
    result = ceclStreamBeginCapture(p->comm, captured);
    if (result == ceclSuccess) {
        const ceclResult_t made = make(p, in, out, captured);
        result = ceclStreamEndCapture(p->comm, captured, &graph);
        if (result == ceclOutOfMemory)
            result = ceclStreamEndCapture(p->comm, captured, &graph);
        result = made != ceclSuccess ? made : result;
    }
    for (int i = 0; i <= p->replays && result == ceclSuccess; i++)
        result = ceclGraphLaunch(graph, stream);
    const ceclResult_t freed = graph ? ceclGraphDestroy(graph) : ceclSuccess,
                       ended = ceclStreamDestroy(p->comm, captured);
    return result != ceclSuccess ? result : freed != ceclSuccess ? freed : ended;
}

static ceclResult_t gather_in_graph(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return in_graph(p, gather, in, out, stream);
}

static ceclResult_t messages_in_graph(struct player *p, int *in, int *out, ceclStream_t stream)
{
    return in_graph(p, messages, in, out, stream);
}

const struct call call_gather = {gather, check_gathered};
const struct call call_gather_few = {gather_few, check_gathered_few};
const struct call call_gather_by_kernel = {gather_by_kernel, check_gathered_few};
const struct call call_exchange = {exchange, check_exchanged};
const struct call call_exchange_sizes = {exchange_sizes, check_exchanged};
const struct call call_dispatch = {dispatch, check_exchanged};
const struct call call_reduce_small = {reduce_small, check_reduced_small};
const struct call call_reduce_large = {reduce_large, check_reduced_large};
const struct call call_reduce_pushed = {reduce_pushed, check_reduced_pushed};
const struct call call_scatter = {scatter, check_scattered};
const struct call call_scatter_pushed = {scatter_pushed, check_scattered};
const struct call call_reduce_to_one = {reduce_to_one, check_reduced_to_one};
const struct call call_broadcast = {broadcast, check_broadcast};
const struct call call_barrier = {barrier, NULL};
const struct call call_group = {group, check_group};
const struct call call_messages = {messages, check_exchanged};
const struct call call_gather_in_graph = {gather_in_graph, check_gathered};
const struct call call_messages_in_graph = {messages_in_graph, check_exchanged};
