/* 10,000 random calls of all collectives that move data on one communicator: size, type, placement, stream and offset vary,
 * memory comes and goes between them.
 * CECL_TEST_CALLS and CECL_TEST_SEED override. Calls run in bursts, so that several are in flight
 * at once; half of the bursts are groups. */
#include "multi.h"

#define SLOTS 8
#define MAX_BLOCK 6000

enum kind {
    ALL_GATHER,
    ALL_TO_ALL,
    ALL_GATHERV,
    BROADCAST,
    ALL_TO_ALLV,
    GATHER,
    SCATTER,
    ALL_GATHER_STRIDED, /* out of place, along the last dimension */
    ALL_TO_ALL_STRIDED, /* from the last dimension to the first; in place it stays there */
    KINDS
};
#define RANKS 64

/* What a call is, in elements: what each rank sends to each, and where it is there and here. */
struct slot {
    enum kind kind;
    ceclDataType_t type;
    bool in_place; /* of rooted calls: on the root */
    bool exchange; /* of a variable all-to-all: ranks tell each other the places */
    int root;
    size_t count, size; /* elements of a block, where all are equal; bytes of one */
    size_t width;       /* elements of a row of a strided block; 0: it is none */
    size_t counts[RANKS][RANKS], sent_at[RANKS][RANKS], wanted_at[RANKS][RANKS]; /* [from][to] */
    ceclStream_t stream;
    unsigned char *send, *recv, *in, *out;
    uint64_t seed;
};

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Whether a rank's block for each is the same one. */
static bool repeats(const struct slot *s)
{
    return s->kind == ALL_GATHER || s->kind == ALL_GATHERV || s->kind == BROADCAST ||
           s->kind == ALL_GATHER_STRIDED;
}

/* Where byte `i` of a strided block is whose rows lie beside those of others. */
static size_t beside(const struct slot *s, int block, size_t i)
{
    const size_t width = s->width * s->size;
    return i / width * (size_t)multi_nranks * width + (size_t)block * width + i % width;
}

/* Where byte `i` from a rank is in recvbuff, and in that rank's sendbuff. */
static size_t wanted_byte(const struct slot *s, int from, size_t i)
{
    if (s->width > 0 && (s->kind == ALL_GATHER_STRIDED || s->in_place))
        return beside(s, from, i);
    return s->wanted_at[from][multi_rank] * s->size + i;
}

static size_t sent_byte(const struct slot *s, int from, size_t i)
{
    if (s->kind == ALL_TO_ALL_STRIDED)
        return beside(s, multi_rank, i);
    return s->sent_at[from][multi_rank] * s->size + i;
}

static bool differ(const struct slot *s)
{
    return s->kind == ALL_GATHERV || s->kind == ALL_TO_ALLV;
}

static size_t drawn_count(const struct slot *s, uint64_t *x, int from, int to, size_t most)
{
    if (s->kind == ALL_GATHERV && to > 0)
        return s->counts[from][0];
    if (differ(s))
        return next(x) % 3 == 0 ? 0 : next(x) % (most + 1);
    const bool none = ((s->kind == BROADCAST || s->kind == SCATTER) && from != s->root) ||
                      (s->kind == GATHER && to != s->root);
    return none ? 0 : s->count;
}

/* Ranks draw alike. Blocks one behind the other, and with gaps where they differ. */
static void draw(struct slot *s, uint64_t *x)
{
    const int n = multi_nranks;
    s->kind = (enum kind)(next(x) % KINDS);
    s->type = (ceclDataType_t)(next(x) % CECL_NUM_TYPES);
    s->size = multi_type_bytes(s->type);
    s->in_place = next(x) % 2 && s->kind != ALL_TO_ALLV && s->kind != ALL_GATHER_STRIDED;
    s->exchange = next(x) % 2;
    s->root = (int)(next(x) % (uint64_t)n);
    const size_t most = (next(x) % 4 == 0 ? MAX_BLOCK : 64) / s->size; /* mostly small */
    s->count = next(x) % (most + 1);
    s->width = s->kind >= ALL_GATHER_STRIDED ? 1 + next(x) % 20 : 0;
    if (s->width > 0)
        s->count -= s->count % s->width;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            s->counts[from][to] = drawn_count(s, x, from, to, most);
    for (int r = 0; r < n; r++) {
        size_t sent = 0, wanted = 0;
        for (int p = 0; p < n; p++) {
            wanted += differ(s) && !(s->kind == ALL_GATHERV && r > 0) ? next(x) % 3 : 0;
            s->sent_at[r][p] = repeats(s) ? 0 : sent;
            s->wanted_at[p][r] = s->kind == ALL_GATHERV && r > 0 ? s->wanted_at[p][0] : wanted;
            sent += s->counts[r][p];
            wanted += s->counts[p][r];
        }
    }
}

/* Elements that rank `r` reads, or that a recvbuff needs. */
static size_t sent_by(const struct slot *s, int r)
{
    size_t end = 0;
    for (int p = 0; p < multi_nranks; p++)
        if (s->sent_at[r][p] + s->counts[r][p] > end)
            end = s->sent_at[r][p] + s->counts[r][p];
    return end;
}

static size_t most_received(const struct slot *s)
{
    size_t most = (size_t)multi_nranks * s->count;
    for (int from = 0; from < multi_nranks; from++)
        for (int to = 0; to < multi_nranks; to++)
            if (s->wanted_at[from][to] + s->counts[from][to] > most)
                most = s->wanted_at[from][to] + s->counts[from][to];
    return most;
}

/* Where this rank reads, and where it receives: both in recv, in place. */
static void set_places(struct slot *s, size_t shift)
{
    const size_t own = (size_t)multi_rank * s->count * s->size;
    s->out = s->recv + shift;
    s->in = s->send + shift;
    if (!s->in_place)
        return;
    if (s->kind == SCATTER) { /* recvbuff is inside what the root reads, at one offset on all */
        s->in = multi_rank == s->root ? s->out : s->in;
        s->out += (size_t)s->root * s->count * s->size;
    } else if (s->kind == GATHER) {
        s->in = multi_rank == s->root ? s->out + own : s->in;
    } else if (s->kind == ALL_GATHERV) {
        s->in = s->out + s->wanted_at[multi_rank][0] * s->size;
    } else {
        s->in = s->kind == ALL_GATHER ? s->out + own : s->out;
    }
}

/* Draws a call, and puts its input. */
static void prepare(ceclComm_t comm, struct slot *s, uint64_t *x, const ceclStream_t *streams,
                    unsigned char *host)
{
    const size_t shift = next(x) % 70;
    s->stream = streams[next(x) % 3];
    s->seed = next(x);
    draw(s, x);
    const size_t all = most_received(s) * s->size, mine = sent_by(s, multi_rank) * s->size;
    size_t most = 0; /* allocated alike on all ranks */
    for (int r = 0; r < multi_nranks; r++)
        if (sent_by(s, r) * s->size > most)
            most = sent_by(s, r) * s->size;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&s->recv, all + 1 + shift));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&s->send, most + 1 + shift));
    set_places(s, shift);
    memset(host, 0x5A, all);
    multi_put(comm, s->recv + shift, host, all);
    multi_fill(host, s->seed, multi_rank, mine);
    multi_put(comm, s->in, host, mine);
}

static ceclResult_t call_variable(ceclComm_t comm, const struct slot *s, bool grouped)
{
    const int me = multi_rank;
    size_t sends[RANKS], from[RANKS], receives[RANKS], to[RANKS], at_peers[RANKS];
    for (int p = 0; p < multi_nranks; p++) {
        sends[p] = s->counts[me][p];
        from[p] = s->sent_at[me][p];
        receives[p] = s->counts[p][me];
        to[p] = s->wanted_at[p][me];
        at_peers[p] = s->wanted_at[me][p];
    }
    if (s->kind == ALL_GATHERV)
        return ceclAllGatherv(s->in, receives[me], s->out, receives, to, s->type, comm, s->stream);
    if (s->exchange && !grouped)
        return ceclAlltoAllv(s->in, sends, from, s->out, receives, to, s->type, comm, s->stream);
    return ceclAlltoAllvAt(s->in, sends, from, s->out, receives, to, at_peers, s->type, comm,
                           s->stream);
}

static ceclResult_t call_strided(ceclComm_t comm, const struct slot *s)
{
    const size_t pitch = (size_t)multi_nranks * s->width;
    const ceclStrided_t strided = {.width = s->width,
                                   .rows = s->count / s->width,
                                   .recvPitch = s->in_place ? pitch : 0,
                                   .recvStride = s->in_place ? s->width : 0};
    if (s->kind == ALL_GATHER_STRIDED)
        return ceclAllGatherStrided(s->in, s->out, &strided, s->type, comm, s->stream);
    return ceclAlltoAllStrided(s->in, s->out, &strided, s->type, comm, s->stream);
}

static ceclResult_t call(ceclComm_t comm, const struct slot *s, bool grouped)
{
    switch (s->kind) {
    case ALL_GATHER: return ceclAllGather(s->in, s->out, s->count, s->type, comm, s->stream);
    case ALL_TO_ALL: return ceclAlltoAll(s->in, s->out, s->count, s->type, comm, s->stream);
    case BROADCAST:
        return ceclBroadcast(s->in, s->out, s->count, s->type, s->root, comm, s->stream);
    case GATHER: return ceclGather(s->in, s->out, s->count, s->type, s->root, comm, s->stream);
    case SCATTER: return ceclScatter(s->in, s->out, s->count, s->type, s->root, comm, s->stream);
    case ALL_GATHER_STRIDED:
    case ALL_TO_ALL_STRIDED: return call_strided(comm, s);
    default: return call_variable(comm, s, grouped);
    }
}

/* Every block that this rank receives. */
static void check(ceclComm_t comm, struct slot *s, unsigned char *host)
{
    size_t end = 0;
    for (int r = 0; r < multi_nranks; r++)
        if (s->wanted_at[r][multi_rank] + s->counts[r][multi_rank] > end)
            end = s->wanted_at[r][multi_rank] + s->counts[r][multi_rank];
    multi_get(comm, host, s->out, end * s->size);
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < s->counts[r][multi_rank] * s->size; i++)
            if (host[wanted_byte(s, r, i)] != multi_byte(s->seed, r, sent_byte(s, r, i)))
                fail_msg("rank %d: kind %d type %d count %zu root %d in place %d: byte %zu from "
                         "rank %d",
                         multi_rank, (int)s->kind, (int)s->type, s->count, s->root, s->in_place, i,
                         r);
    multi_ok(comm, ceclMemFree(comm, s->send));
    multi_ok(comm, ceclMemFree(comm, s->recv));
}

static void random_calls_in_bursts_are_right(void **state)
{
    (void)state;
    const char *calls = getenv("CECL_TEST_CALLS"), *given = getenv("CECL_TEST_SEED");
    const int total = calls ? atoi(calls) : 10000;
    uint64_t x = given ? strtoull(given, NULL, 10) : 88172645463325252u;
    static struct slot slots[SLOTS];
    ceclComm_t comm = multi_comm(NULL);
    ceclStream_t streams[3] = {NULL};
    unsigned char *host = malloc((size_t)multi_nranks * (MAX_BLOCK + 3 * 8) + 1);
    assert_non_null(host);
    print_message("seed %llu, %d calls\n", (unsigned long long)x, total);
    multi_ok(comm, ceclStreamCreate(comm, &streams[1]));
    multi_ok(comm, ceclStreamCreate(comm, &streams[2]));
    for (int done = 0; done < total; done += SLOTS) {
        for (int i = 0; i < SLOTS; i++)
            prepare(comm, &slots[i], &x, streams, host);
        const bool grouped = next(&x) % 2;
        if (grouped)
            multi_ok(comm, ceclGroupStart());
        for (int i = 0; i < SLOTS; i++) {
            if (grouped)
                slots[i].stream = slots[0].stream;
            multi_ok(comm, call(comm, &slots[i], grouped));
        }
        if (grouped)
            multi_ok(comm, ceclGroupEnd());
        for (int i = 0; i < 3; i++)
            multi_ok(comm, ceclStreamSynchronize(comm, streams[i]));
        for (int i = 0; i < SLOTS; i++)
            check(comm, &slots[i], host);
    }
    multi_ok(comm, ceclStreamDestroy(comm, streams[1]));
    multi_ok(comm, ceclStreamDestroy(comm, streams[2]));
    multi_ok(NULL, ceclCommDestroy(comm));
    free(host);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls_in_bursts_are_right)};
    return multi_main(argc, argv, tests, 1, 220);
}
