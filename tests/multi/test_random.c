/* 10,000 random calls of all collectives on one communicator. Size, type, placement, rows,
 * stream, offset and options vary, and memory is allocated and freed between calls.
 * CECL_TEST_CALLS and CECL_TEST_SEED override the number and the seed.
 *
 * Calls come in bursts, so that several are in flight at once. A third of the bursts are groups.
 * In another third, groups alternate with single calls, which are often small. During half of the
 * bursts, other copies keep the links busy. The test checks every byte that a call may write, and
 * the bytes around and between its blocks. */
#include "random_call.h"

#define SLOTS 8
#define MOST_SHIFT 70
#define CROWD_TIMES 4

/* The most bytes that any allocation needs. */
static size_t room(void)
{
    return random_room() + MOST_SHIFT;
}

/* Draws a call, and allocates and fills its buffers. Allocations are equal on all ranks. */
static void prepare(ceclComm_t comm, struct random_slot *s, uint64_t *x,
                    const ceclStream_t *streams, unsigned char *host)
{
    struct random_call *c = &s->call;
    size_t shift = random_next(x) % MOST_SHIFT, most = 0;
    c->rank = multi_rank;
    c->nranks = multi_nranks;
    c->stream = streams[random_next(x) % 3];
    c->seed = random_next(x);
    random_draw(c, x);
    if (random_reduces(c))
        shift -= shift % random_result_size(c); /* reductions need aligned buffers */
    for (int r = 0; r < multi_nranks; r++)
        if (random_sent(c, r) > most)
            most = random_sent(c, r);
    s->bytes = shift + random_received(c) + RANDOM_GUARD;
    assert_true(s->bytes <= room() && most <= room());
    multi_ok(comm, ceclMemAlloc(comm, (void **)&c->recv, s->bytes));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&c->send, most + 1 + shift));
    random_set_places(c, shift);
    random_put(comm, s, host);
}

static void check(ceclComm_t comm, const struct random_slot *s, unsigned char *host)
{
    random_compare(comm, s, host);
    multi_ok(comm, ceclMemFree(comm, s->call.send));
    multi_ok(comm, ceclMemFree(comm, s->call.recv));
}

/* Draws the options of the next call. Some of them make calls small. Equal on all ranks. */
static void choose(ceclComm_t comm, uint64_t *x)
{
    static const int sms[] = {CECL_UNDEF, 1, 2, 8};
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = random_next(x) % 3 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
    options.maxSms = sms[random_next(x) % 4];
    if (random_next(x) % 8 == 0)
        options.direction = CECL_DIRECTION_PUSH;
    multi_ok(comm, ceclSetOptions(comm, &options));
}

/* Makes the calls [first, end), as one group, or a single call without a group. */
static void make_calls(ceclComm_t comm, struct random_slot *slots, uint64_t *x, int first, int end)
{
    const bool grouped = end - first > 1;
    if (grouped)
        multi_ok(comm, ceclGroupStart());
    for (int i = first; i < end; i++) {
        slots[i].call.stream = slots[first].call.stream;
        choose(comm, x);
        multi_ok(comm, random_make(comm, &slots[i].call, grouped));
    }
    if (grouped)
        multi_ok(comm, ceclGroupEnd());
}

enum burst { ALONE, ONE_GROUP, GROUPS_BETWEEN, BURSTS };

static void run_burst(ceclComm_t comm, struct random_slot *slots, const ceclStream_t *streams,
                      const struct multi_crowd *crowd, uint64_t *x)
{
    multi_crowd_come(crowd, random_next(x) % 2 ? CROWD_TIMES : 0);
    const enum burst burst = (enum burst)(random_next(x) % BURSTS);
    for (int first = 0, end; first < SLOTS; first = end) {
        const int group = burst == ALONE ? 1 : burst == ONE_GROUP ? SLOTS : 1 + first % 3;
        end = first + group < SLOTS ? first + group : SLOTS;
        make_calls(comm, slots, x, first, end);
    }
    for (int i = 0; i < 3; i++)
        multi_ok(comm, ceclStreamSynchronize(comm, streams[i]));
}

TEST(random_calls_in_bursts_are_right)
{
    const char *calls = getenv("CECL_TEST_CALLS"), *given = getenv("CECL_TEST_SEED");
    const int total = multi_share(calls ? atoi(calls) : 10000);
    uint64_t x = given ? strtoull(given, NULL, 10) : 88172645463325252u;
    static struct random_slot slots[SLOTS];
    ceclComm_t comm = multi_comm(NULL);
    ceclStream_t streams[3] = {NULL};
    struct multi_crowd crowd;
    multi_crowd_open(&crowd, multi_on_gpus(comm) ? 8 << 20 : 16 << 10);
    random_take_limits_of(comm);
    unsigned char *host = malloc(room());
    assert_non_null(host);
    for (int i = 0; i < SLOTS; i++)
        assert_non_null(slots[i].want = malloc(room()));
    print_message("seed %llu, %d calls\n", (unsigned long long)x, total);
    multi_ok(comm, ceclStreamCreate(comm, &streams[1]));
    multi_ok(comm, ceclStreamCreate(comm, &streams[2]));
    for (int done = 0; done < total; done += SLOTS) {
        for (int i = 0; i < SLOTS; i++)
            prepare(comm, &slots[i], &x, streams, host);
        run_burst(comm, slots, streams, &crowd, &x);
        for (int i = 0; i < SLOTS; i++)
            check(comm, &slots[i], host);
    }
    multi_crowd_close(&crowd);
    multi_ok(comm, ceclStreamDestroy(comm, streams[1]));
    multi_ok(comm, ceclStreamDestroy(comm, streams[2]));
    multi_ok(NULL, ceclCommDestroy(comm));
    for (int i = 0; i < SLOTS; i++)
        free(slots[i].want);
    free(host);
}
