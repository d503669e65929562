#include "life.h"

#define SMALL 500
#define PUSHED 20000
#define SCATTERED 10000
#define LARGE 30000

int call_value(int rank, int attempt, int index)
{
    return rank * 1000003 + attempt * 7919 + index;
}

static int root_of(const struct player *p)
{
    return p->attempt % p->n;
}

void check_element(struct player *p, const int *out, int index, int wanted)
{
    if (out[index] != wanted)
        life_fail((struct life *)(void *)p,
                  "success in attempt %d, but element %d is %d and not %d", p->attempt, index,
                  out[index], wanted);
}

/* Checks the blocks of all ranks, one behind the other. `first`: where a block begins in its rank's input. */
static void check_blocks(struct player *p, const int *out, int count, int first)
{
    for (int i = 0; i < p->n * count; i++)
        check_element(p, out, i, call_value(i / count, p->attempt, first + i % count));
}

static void check_gathered(struct player *p, const struct call *call, const int *out)
{
    check_blocks(p, out, call->count, 0);
}

static void check_exchanged(struct player *p, const struct call *call, const int *out)
{
    check_blocks(p, out, call->count, p->me * call->count);
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

static void check_reduced(struct player *p, const struct call *call, const int *out)
{
    check_sums(p, out, 0, call->count);
}

static void check_scattered(struct player *p, const struct call *call, const int *out)
{
    check_sums(p, out, p->me * call->count, call->count);
}

static void check_reduced_to_one(struct player *p, const struct call *call, const int *out)
{
    if (p->me == root_of(p))
        check_reduced(p, call, out);
}

static void check_broadcast(struct player *p, const struct call *call, const int *out)
{
    for (int i = 0; i < call->count; i++)
        check_element(p, out, i, call_value(root_of(p), p->attempt, i));
}

static void check_group(struct player *p, const struct call *call, const int *out)
{
    const int each = p->n * call->count;
    check_gathered(p, call, out);
    check_exchanged(p, call, out + each);
    check_scattered(p, call, out + 2 * each);
}

#define ENQUEUE(name) \
    static ceclResult_t name(struct player *p, const struct call *call, int *in, int *out, \
                             ceclStream_t stream)

ENQUEUE(gather)
{
    return ceclAllGather(in, out, (size_t)call->count, ceclInt32, p->comm, stream);
}

ENQUEUE(exchange)
{
    return ceclAlltoAll(in, out, (size_t)call->count, ceclInt32, p->comm, stream);
}

ENQUEUE(exchange_sizes)
{
    size_t counts[PLAYERS_MOST];
    for (int r = 0; r < p->n; r++)
        counts[r] = (size_t)call->count;
    return ceclAlltoAllv(in, counts, NULL, out, counts, NULL, ceclInt32, p->comm, stream);
}

/* Block r goes to the only expert of rank r. In the input, the splits follow the blocks. */
ENQUEUE(dispatch)
{
    enum { WORDS = 16 };
    static uint64_t splits[WORDS];
    const size_t rows = (size_t)p->n * (size_t)call->count;
    const ceclExperts_t one = {.experts = 1, .align = 1};
    int *const words = in + INTS - 4 * WORDS;
    for (int r = 0; r < WORDS; r++)
        splits[r] = (uint64_t)call->count;
    TRY(ceclMemcpyAsync(p->comm, words, splits, sizeof(splits), stream));
    return ceclDispatch(in, rows, (const uint64_t *)(const void *)words, out, rows,
                        (uint64_t *)(void *)(out + INTS - 4 * WORDS), &one, 1, ceclInt32, p->comm,
                        stream);
}

ENQUEUE(reduce)
{
    return ceclAllReduce(in, out, (size_t)call->count, ceclInt32, call->op, p->comm, stream);
}

ENQUEUE(scatter)
{
    return ceclReduceScatter(in, out, (size_t)call->count, ceclInt32, call->op, p->comm, stream);
}

ENQUEUE(reduce_to_one)
{
    return ceclReduce(in, out, (size_t)call->count, ceclInt32, call->op, root_of(p), p->comm,
                      stream);
}

ENQUEUE(broadcast)
{
    return ceclBroadcast(in, out, (size_t)call->count, ceclInt32,
                         (root_of(p) + call->beside) % p->n, p->comm, stream);
}

ENQUEUE(barrier)
{
    (void)call, (void)in, (void)out;
    return ceclBarrier(p->comm, stream);
}

ENQUEUE(group)
{
    int *const second = out + p->n * call->count, *const third = second + p->n * call->count;
    TRY(ceclGroupStart());
    ceclResult_t result = gather(p, call, in, out, stream);
    if (result == ceclSuccess)
        result = exchange(p, call, in, second, stream);
    if (result == ceclSuccess)
        result = scatter(p, call, in, third, stream);
    if (p->within)
        p->within((struct life *)(void *)p);
    return first_of(result, ceclGroupEnd());
}

/* Each rank sends to each rank, including itself. */
ENQUEUE(messages)
{
    ceclResult_t result = ceclSuccess;
    TRY(ceclGroupStart());
    for (int r = 0; r < p->n; r++) {
        const size_t count = (size_t)(call->count - (r == p->me ? 0 : call->beside));
        if (result == ceclSuccess)
            result = ceclSend(in + r * call->count, count, ceclInt32, r, p->comm, stream);
        if (result == ceclSuccess)
            result = ceclRecv(out + r * call->count, count, ceclInt32, r, p->comm, stream);
    }
    return first_of(result, ceclGroupEnd());
}

/* If the end of the capture is refused, the stream goes on capturing. */
ENQUEUE(in_graph)
{
    ceclGraph_t graph = NULL;
    ceclStream_t captured;
    TRY(ceclStreamCreate(p->comm, &captured));
    ceclResult_t result = ceclStreamBeginCapture(p->comm, captured);
    if (result == ceclSuccess) {
        const ceclResult_t made = call->enqueue(p, call, in, out, captured);
        result = ceclStreamEndCapture(p->comm, captured, &graph);
        if (result == ceclOutOfMemory)
            result = ceclStreamEndCapture(p->comm, captured, &graph);
        result = first_of(made, result);
    }
    for (int i = 0; i <= p->replays && result == ceclSuccess; i++)
        result = ceclGraphLaunch(graph, stream);
    result = first_of(result, graph ? ceclGraphDestroy(graph) : ceclSuccess);
    return first_of(result, ceclStreamDestroy(p->comm, captured));
}

static ceclResult_t set_options(const struct call *call, struct player *p)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    if (call->by_kernel)
        options.smPolicy = CECL_SM_ALLOW;
    if (call->pushes)
        options.direction = CECL_DIRECTION_PUSH;
    return call->by_kernel || call->pushes ? ceclSetOptions(p->comm, &options) : ceclSuccess;
}

ceclResult_t call_make(const struct call *call, struct player *p, int *in, int *out,
                       ceclStream_t stream)
{
    const bool captured = call->captured == BY_TURNS ? p->attempt % 2 != 0 : call->captured;
    TRY(set_options(call, p));
    return captured ? in_graph(p, call, in, out, stream) : call->enqueue(p, call, in, out, stream);
}

void call_check(const struct call *call, struct player *p, const int *out)
{
    if (call->check)
        call->check(p, call, out);
}

const struct call call_gather = {gather, check_gathered, .count = CALL_BLOCK};
const struct call call_gather_few = {gather, check_gathered, .count = SMALL};
const struct call call_gather_by_kernel = {gather, check_gathered, .count = SMALL,
                                           .by_kernel = true};
const struct call call_exchange = {exchange, check_exchanged, .count = CALL_BLOCK};
const struct call call_exchange_sizes = {exchange_sizes, check_exchanged, .count = CALL_BLOCK};
const struct call call_dispatch = {dispatch, check_exchanged, .count = CALL_BLOCK,
                                   .by_kernel = true};
const struct call call_reduce_small = {reduce, check_reduced, .count = SMALL};
const struct call call_reduce_large = {reduce, check_reduced, .count = LARGE};
const struct call call_reduce_pushed = {reduce, check_reduced, .count = PUSHED, .pushes = true};
const struct call call_scatter = {scatter, check_scattered, .count = SCATTERED};
const struct call call_scatter_pushed = {scatter, check_scattered, .count = SCATTERED,
                                         .pushes = true};
const struct call call_reduce_to_one = {reduce_to_one, check_reduced_to_one, .count = LARGE};
const struct call call_broadcast = {broadcast, check_broadcast, .count = LARGE};
const struct call call_barrier = {barrier, NULL, .count = 0};
const struct call call_group = {group, check_group, .count = CALL_BLOCK};
const struct call call_messages = {messages, check_exchanged, .count = CALL_BLOCK};
const struct call call_messages_by_turns = {messages, check_exchanged, .count = CALL_BLOCK,
                                            .captured = BY_TURNS};
const struct call call_gather_in_graph = {gather, check_gathered, .count = CALL_BLOCK,
                                          .captured = ALWAYS};
const struct call call_messages_in_graph = {messages, check_exchanged, .count = CALL_BLOCK,
                                            .captured = ALWAYS};
const struct call call_max_small = {reduce, NULL, .count = SMALL, .op = ceclMax};
const struct call call_reduce_fewer = {reduce, NULL, .count = LARGE - 1};
const struct call call_broadcast_of_another = {broadcast, NULL, .count = LARGE, .beside = 1};
const struct call call_shorter_messages = {messages, NULL, .count = CALL_BLOCK, .beside = 1};
