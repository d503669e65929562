#include "random_call.h"

#include "../try.h"

#define POISON 0x5A

void random_take_limits_of(ceclComm_t comm)
{
    random_largest = random_limits[!multi_on_gpus(comm) ? 0 : multi_nranks == 2 ? 4 : 2];
}

size_t random_room(void)
{
    const size_t block = random_largest + 64 > MAX_ROOM ? random_largest + 64 : MAX_ROOM;
    return (size_t)(multi_nranks + 1) * block + 2 * RANDOM_GUARD;
}

void random_draw(struct random_call *c, uint64_t *x)
{
    random_draw_of(c, (enum kind)(random_next(x) % KINDS), x);
}

/* Captures the call, and launches the graph once. A default stream cannot capture, so another one does. */
static ceclResult_t make_in_graph(ceclComm_t comm, const struct random_call *c)
{
    struct random_call captured = *c;
    ceclGraph_t graph = NULL;
    TRY(ceclStreamCreate(comm, &captured.stream));
    ceclResult_t result = ceclStreamBeginCapture(comm, captured.stream);
    const ceclResult_t made = result != ceclSuccess ? result : random_call(comm, &captured, false);
    if (result == ceclSuccess)
        result = ceclStreamEndCapture(comm, captured.stream, &graph);
    if (made == ceclSuccess && result == ceclSuccess)
        result = ceclGraphLaunch(graph, c->stream);
    if (graph)
        multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, captured.stream));
    return first_of(made, result);
}

bool (*random_carries)(const struct random_call *c, bool together);

static bool may_capture(ceclComm_t comm)
{
    return !random_carries && (!multi_on_gpus(comm) || getenv("CECL_TEST_CAPTURE"));
}

/* Makes the call: once, or up to 3 times if it is out of place and so leaves its input as it is. */
ceclResult_t random_make(ceclComm_t comm, const struct random_call *c, bool grouped)
{
    const int times = c->repeats && !c->in_place && !grouped ? 1 + (int)(c->seed % 3) : 1;
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < times && result == ceclSuccess; i++)
        /* on GPUs only with CECL_TEST_CAPTURE, because a captured call takes milliseconds there */
        result = !grouped && may_capture(comm) && (c->seed / 1024 + (uint64_t)i) % 8 == 0
                     ? make_in_graph(comm, c)
                     : random_call(comm, c, grouped);
    return result;
}

void random_expect(const struct random_slot *s, unsigned char *want)
{
    const struct random_call *c = &s->call;
    memset(want, POISON, s->bytes);
    if (c->in >= c->recv && c->in < c->recv + s->bytes)
        model_fill(want + (c->in - c->recv), c->seed, c->rank, random_sent(c, c->rank));
    random_result(c, want + (c->out - c->recv));
}

void random_put(ceclComm_t comm, struct random_slot *s, unsigned char *host)
{
    const struct random_call *c = &s->call;
    const size_t mine = random_sent(c, c->rank);
    memset(s->want, POISON, s->bytes);
    multi_put(comm, c->recv, s->want, s->bytes);
    model_fill(host, c->seed, c->rank, mine);
    multi_put(comm, c->in, host, mine);
    random_expect(s, s->want);
    if (c->kind == BY_SPLITS) {
        uint64_t words[2 * RANDOM_SPLITS_RANKS];
        random_fill_words(c, true, words);
        multi_put(comm, random_words_at(c, c->in, c->send_rows), words, random_words_bytes(c));
    }
}

void random_expect_no_words(struct random_slot *s)
{
    const struct random_call *c = &s->call;
    if (c->kind == BY_SPLITS)
        memset(s->want + (random_words_at(c, c->out, c->recv_rows) - c->recv), POISON,
               random_words_bytes(c));
}

/* Draws a place for `bytes`: half the time at a multiple of 16, otherwise at a multiple of `align`. If the memory has
 * two pieces, the place often lies across both. */
static unsigned char *place_in(const struct memory *m, size_t bytes, size_t align, uint64_t *y)
{
    size_t at = random_next(y) % (m->bytes - bytes + 1);
    if (m->seam > 0 && random_next(y) % 2)
        at = m->seam - random_next(y) % (bytes < m->seam ? bytes : m->seam);
    at = at + bytes > m->bytes ? m->bytes - bytes : at;
    return m->at + at - at % (random_next(y) % 2 ? 16 : align);
}

size_t random_bytes_sent(const struct random_call *c, int r)
{
    return random_sent(c, r) + 8 + random_words_bytes(c) + RANDOM_GUARD;
}

size_t random_bytes_received(const struct random_call *c)
{
    return random_received(c) + 2 * RANDOM_GUARD;
}

void random_prepare(ceclComm_t comm, struct random_slot *s, const struct memory *send,
                    const struct memory *recv, uint64_t *y, unsigned char *host)
{
    struct random_call *c = &s->call;
    const size_t align = random_reduces(c) ? random_result_size(c) : 1,
                 sent = random_bytes_sent(c, c->rank);
    s->bytes = random_bytes_received(c);
    assert_true(s->bytes <= random_room() && sent <= random_room());
    c->send = place_in(send, sent, align, y);
    c->recv = place_in(recv, s->bytes, align, y);
    s->send_kind = send->kind;
    s->recv_kind = recv->kind;
    random_set_places(c, RANDOM_GUARD);
    random_put(comm, s, host);
}

void random_check(const struct random_slot *s, const unsigned char *host)
{
    const struct random_call *c = &s->call;
    size_t i = 0;
    if (memcmp(host, s->want, s->bytes) == 0)
        return;
    while (host[i] == s->want[i])
        i++;
    fail_msg(
        "rank %d of %d (%d in the world): kind %d type %d op %d count %zu rows %zu root %d in "
        "place %d seed %llu, memory of kinds %d and %d: byte %td from recvbuff on is %02x, not "
        "%02x",
        c->rank, c->nranks, multi_rank, (int)c->kind, (int)c->type, (int)c->op, c->count, c->rows,
        c->root, random_is_in_place(c), (unsigned long long)c->seed, (int)s->send_kind,
        (int)s->recv_kind, c->recv + i - c->out, host[i], s->want[i]);
}

void random_compare(ceclComm_t comm, const struct random_slot *s, unsigned char *host)
{
    multi_get(comm, host, s->call.recv, s->bytes);
    random_check(s, host);
}

static void make_group(ceclComm_t comm, struct random_slot *slots, int size, bool captured,
                       unsigned char *host)
{
    ceclStream_t stream = slots[0].call.stream;
    ceclGraph_t graph;
    if (captured)
        multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    if (size > 1)
        multi_ok(comm, ceclGroupStart());
    for (int i = 0; i < size; i++)
        multi_ok(comm, random_make(comm, &slots[i].call, size > 1));
    if (size > 1)
        multi_ok(comm, ceclGroupEnd());
    if (captured) {
        multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
        multi_ok(comm, ceclGraphLaunch(graph, stream));
    }
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    for (int i = 0; i < size; i++)
        random_compare(comm, &slots[i], host);
    if (captured)
        multi_ok(comm, ceclGraphDestroy(graph));
}

void random_groups(ceclComm_t comm, enum kind first, enum kind last, int size, int rounds,
                   uint64_t seed)
{
    static struct random_slot slots[RANDOM_MOST];
    struct memory send[RANDOM_MOST], recv[RANDOM_MOST];
    unsigned char *host = malloc(random_room());
    ceclStream_t stream = random_carries ? multi_stream(comm) : NULL;
    assert_non_null(host);
    for (int i = 0; i < size; i++) {
        slots[i].call =
            (struct random_call){.rank = multi_rank, .nranks = multi_nranks, .stream = stream};
        assert_non_null(slots[i].want = malloc(random_room()));
        send[i] = memory_new(comm, MEMORY_POOL, random_room());
        recv[i] = memory_new(comm, MEMORY_POOL, random_room());
    }
    for (uint64_t x = seed; rounds > 0; rounds--) {
        const bool captured = random_carries && rounds % 4 == 0 && multi_on_gpus(comm);
        for (int i = 0; i < size; i++) {
            struct random_call *c = &slots[i].call;
            do {
                const uint64_t kind = random_next(&x) % (uint64_t)(last - first + 1);
                random_draw_of(c, (enum kind)((uint64_t)first + kind), &x);
            } while (random_carries && !random_carries(c, size > 1 || captured));
            c->seed = random_next(&x);
            uint64_t own = c->seed + (uint64_t)multi_rank;
            random_prepare(comm, &slots[i], &send[i], &recv[i], &own, host);
        }
        make_group(comm, slots, size, captured, host);
        for (int i = 0; i < size && rounds % 2; i++) {
            slots[i].call.seed = random_next(&x);
            random_put(comm, &slots[i], host);
        }
        if (rounds % 2)
            make_group(comm, slots, size, captured, host);
    }
    for (int i = 0; i < size; i++) {
        free(slots[i].want);
        multi_ok(comm, ceclMemFree(comm, send[i].at));
        multi_ok(comm, ceclMemFree(comm, recv[i].at));
    }
    if (stream)
        multi_ok(comm, ceclStreamDestroy(comm, stream));
    free(host);
}
