/* 10,000 random calls on one communicator: op, size, type, placement, stream and offset vary,
 * memory comes and goes between them.
 * CECL_TEST_CALLS and CECL_TEST_SEED override. Calls run in bursts, so that several are in flight
 * at once; half of the bursts are groups. */
#include "multi.h"

#define SLOTS 8
#define MAX_BLOCK 6000

struct slot {
    struct multi_case c;
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

static size_t block_of(const struct slot *s)
{
    return s->c.count * multi_type_bytes(s->c.type);
}

/* Draws a call, and puts its input. Ranks draw alike. */
static void prepare(ceclComm_t comm, struct slot *s, uint64_t *x, const ceclStream_t *streams,
                    unsigned char *host)
{
    const size_t n = (size_t)multi_nranks;
    s->c = (struct multi_case){.op = next(x) % 2 ? ceclOpAllGather : ceclOpAlltoAll,
                               .type = (ceclDataType_t)(next(x) % CECL_NUM_TYPES),
                               .in_place = next(x) % 2,
                               .stream = streams[next(x) % 3],
                               .shift = next(x) % 70};
    const size_t most = next(x) % 4 == 0 ? MAX_BLOCK : 64; /* mostly small */
    s->c.count = next(x) % (most / multi_type_bytes(s->c.type) + 1);
    s->seed = next(x);
    const size_t all = n * block_of(s), mine = s->c.op == ceclOpAllGather ? block_of(s) : all;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&s->recv, all + 1 + s->c.shift));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&s->send, mine + 1 + s->c.shift));
    s->out = s->recv + s->c.shift;
    s->in = !s->c.in_place               ? s->send + s->c.shift
            : s->c.op == ceclOpAllGather ? s->out + (size_t)multi_rank * block_of(s)
                                         : s->out;
    memset(host, 0x5A, all);
    multi_put(comm, s->out, host, all);
    multi_fill(host, s->seed, multi_rank, mine);
    multi_put(comm, s->in, host, mine);
}

static void check(ceclComm_t comm, struct slot *s, unsigned char *host)
{
    const size_t block = block_of(s);
    multi_get(comm, host, s->out, (size_t)multi_nranks * block);
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < block; i++)
            if (host[(size_t)r * block + i] !=
                multi_byte(s->seed, r,
                           s->c.op == ceclOpAllGather ? i : (size_t)multi_rank * block + i))
                fail_msg("rank %d: op %d type %d count %zu in place %d: byte %zu from rank %d",
                         multi_rank, (int)s->c.op, (int)s->c.type, s->c.count, s->c.in_place, i, r);
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
    unsigned char *host = malloc((size_t)multi_nranks * MAX_BLOCK * 8 + 1);
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
            struct slot *s = &slots[i];
            if (grouped)
                s->c.stream = slots[0].c.stream;
            if (s->c.op == ceclOpAllGather)
                multi_ok(comm,
                         ceclAllGather(s->in, s->out, s->c.count, s->c.type, comm, s->c.stream));
            else
                multi_ok(comm,
                         ceclAlltoAll(s->in, s->out, s->c.count, s->c.type, comm, s->c.stream));
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
