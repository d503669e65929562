/* Calls on memory of any kind, at any offset, both different on each rank; ranks that come late;
 * memory that is freed and allocated anew. CECL_TEST_CALLS and CECL_TEST_SEED override the number
 * of random calls and the seed.
 *
 * The tests have two generators of random numbers. All ranks draw the same calls from `x`. Each
 * rank draws its buffers and its lateness from its own generator `y`. */
#include "memory.h"
#include "random_call.h"

#include <unistd.h>

#define SLOTS 8
#define SPREAD 5000 /* bytes beyond what a buffer needs, so that offsets can differ */
#define LATE_US 2000

/* A call, with memory of each kind for its buffers. */
struct slot {
    struct random_slot random;
    struct memory send[MEMORY_KINDS], recv[MEMORY_KINDS];
};

static ceclComm_t comm;
static struct slot slots[SLOTS];
static unsigned char *host; /* [random_room()] */
static uint64_t y;

static void open_slots(void)
{
    comm = multi_comm(NULL);
    host = malloc(random_room());
    assert_non_null(host);
    y = 0x9e3779b97f4a7c15u + 77u * (uint64_t)multi_rank;
    for (int i = 0; i < SLOTS; i++) {
        slots[i].random.call.rank = multi_rank;
        slots[i].random.call.nranks = multi_nranks;
        assert_non_null(slots[i].random.want = malloc(random_room()));
        for (int kind = 0; kind < MEMORY_KINDS; kind++) {
            slots[i].send[kind] = memory_new(comm, (enum memory_kind)kind, random_room() + SPREAD);
            slots[i].recv[kind] = memory_new(comm, (enum memory_kind)kind, random_room() + SPREAD);
        }
    }
}

static int set_up(void **state)
{
    open_slots();
    return 0;
}

static int set_up_checked(void **state)
{
    multi_setenv("CECL_CHECK", "1");
    open_slots();
    multi_setenv("CECL_CHECK", NULL);
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < SLOTS; i++) {
        free(slots[i].random.want);
        for (int kind = 0; kind < MEMORY_KINDS; kind++) {
            memory_free(comm, &slots[i].send[kind]);
            memory_free(comm, &slots[i].recv[kind]);
        }
    }
    free(host);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

/* ---- buffers */

/* Chooses the buffers of a drawn call in memory of these kinds, and writes its input. */
static void prepare(struct slot *s, int send_kind, int recv_kind)
{
    random_prepare(comm, &s->random, &s->send[send_kind], &s->recv[recv_kind], &y, host);
}

/* Draws the options of the next call; equal on all ranks. */
static void choose(uint64_t *x)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = random_next(x) % 2 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
    options.direction = (int)(random_next(x) % 3);
    multi_ok(comm, ceclSetOptions(comm, &options));
}

static void run_one(struct slot *s)
{
    multi_ok(comm, random_make(comm, &s->random.call, false));
    multi_ok(comm, ceclStreamSynchronize(comm, s->random.call.stream));
    random_compare(comm, &s->random, host);
}

/* ---- all kinds */

static void draw_full(struct random_call *c, enum kind kind, bool in_place, uint64_t *x)
{
    do
        random_draw_of(c, kind, x);
    while (random_received(c) == 0 || c->in_place != in_place);
    c->seed = random_next(x);
    c->stream = NULL;
}

/* One call on memory of two kinds. They are equal on all ranks, or each rank uses the next kind
 * after the rank before it. */
static void run_combination(enum kind kind, bool in_place, int combination, uint64_t *x)
{
    const int step = combination / (MEMORY_KINDS * MEMORY_KINDS) * multi_rank;
    const int send_kind = (combination / MEMORY_KINDS + step) % MEMORY_KINDS,
              recv_kind = (combination + step) % MEMORY_KINDS;
    draw_full(&slots[0].random.call, kind, in_place, x);
    prepare(&slots[0], send_kind, recv_kind);
    choose(x);
    run_one(&slots[0]);
}

TEST_BETWEEN(every_collective_takes_every_combination_of_kinds, set_up, tear_down)
{
    uint64_t x = 41;
    for (int kind = 0; kind < KINDS; kind++) {
        const bool never_in_place = random_never_in_place((enum kind)kind);
        for (int in_place = 0; in_place < (never_in_place ? 1 : 2); in_place++)
            for (int i = 0; i < 2 * MEMORY_KINDS * MEMORY_KINDS; i++)
                run_combination((enum kind)kind, in_place, i, &x);
    }
}

/* ---- random calls */

static void come_late(void)
{
    if (random_next(&y) % 4 == 0)
        usleep((unsigned)(random_next(&y) % LATE_US));
}

/* Sometimes replaces this rank's memory, at the same address or elsewhere. */
static void renew_some(void)
{
    struct slot *s = &slots[random_next(&y) % SLOTS];
    const int kind = random_next(&y) % 2 ? MEMORY_SHARED : MEMORY_PIECES;
    struct memory *m = random_next(&y) % 2 ? &s->send[kind] : &s->recv[kind];
    switch (random_next(&y) % 8) {
    case 0: memory_renew(comm, m, m->kind); break;
    case 1:
        memory_free(comm, m);
        *m = memory_new(comm, (enum memory_kind)kind, random_room() + SPREAD);
        break;
    default: break;
    }
}

/* Makes the calls [first, end), as one group, or a single call without a group. */
static void make_calls(uint64_t *x, int first, int end)
{
    const bool grouped = end - first > 1;
    come_late();
    if (grouped)
        multi_ok(comm, ceclGroupStart());
    for (int i = first; i < end; i++) {
        slots[i].random.call.stream = slots[first].random.call.stream;
        choose(x);
        multi_ok(comm, random_make(comm, &slots[i].random.call, grouped));
    }
    if (grouped)
        multi_ok(comm, ceclGroupEnd());
}

static void run_burst(const ceclStream_t *streams, uint64_t *x)
{
    const bool grouped = random_next(x) % 2;
    for (int i = 0; i < SLOTS; i++) {
        struct random_call *c = &slots[i].random.call;
        random_draw(c, x);
        c->stream = streams[random_next(x) % 2];
        c->seed = random_next(x);
        prepare(&slots[i], (int)(random_next(&y) % MEMORY_KINDS),
                (int)(random_next(&y) % MEMORY_KINDS));
    }
    for (int first = 0, end; first < SLOTS; first = end) {
        end = first + (grouped ? 1 + (int)(random_next(x) % 5) : 1);
        end = end < SLOTS ? end : SLOTS;
        make_calls(x, first, end);
    }
    for (int i = 0; i < 2; i++)
        multi_ok(comm, ceclStreamSynchronize(comm, streams[i]));
    for (int i = 0; i < SLOTS; i++)
        random_compare(comm, &slots[i].random, host);
}

TEST_BETWEEN(random_calls_with_late_ranks_are_right, set_up, tear_down)
{
    const char *calls = getenv("CECL_TEST_CALLS"), *given = getenv("CECL_TEST_SEED");
    const int usual = multi_nranks <= 3 ? 4000 : 12000 / multi_nranks;
    const int total = multi_share(calls ? atoi(calls) : usual);
    uint64_t x = given ? strtoull(given, NULL, 10) : 2463534242u;
    ceclStream_t streams[2] = {NULL};
    y ^= x << 7;
    print_message("seed %llu, %d calls\n", (unsigned long long)x, total);
    multi_ok(comm, ceclStreamCreate(comm, &streams[1]));
    for (int done = 0; done < total; done += SLOTS) {
        renew_some();
        run_burst(streams, &x);
    }
    multi_ok(comm, ceclStreamDestroy(comm, streams[1]));
}

/* ---- memory that is freed and allocated again */

/* Repeats the same calls with the same pointers, so that plans are kept. Rank after rank replaces
 * its memory at these addresses. */
TEST_BETWEEN(memory_allocated_anew_at_the_same_address_is_used, set_up, tear_down)
{
    enum { CALLS = 4, SLACK = 10 };
    static const enum kind kinds[CALLS] = {ALL_GATHER, ALL_TO_ALL, ALL_REDUCE, BROADCAST};
    const int rounds = multi_share(300);
    uint64_t x = 7;
    int descriptors = 0, lines = 0;
    for (int round = 0; round < rounds; round++) {
        struct slot *s = &slots[round % CALLS];
        struct random_call *c = &s->random.call;
        struct memory *send = &s->send[MEMORY_SHARED], *recv = &s->recv[MEMORY_SHARED];
        if (round < CALLS)
            draw_full(c, kinds[round], false, &x);
        if (round >= CALLS && round / CALLS % multi_nranks == multi_rank) {
            memory_renew(comm, send, round % 3 == 0 ? MEMORY_PRIVATE : MEMORY_SHARED);
            memory_renew(comm, recv, MEMORY_SHARED);
        }
        ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
        options.smPolicy = CECL_SM_ALLOW;
        options.direction = round / CALLS % 2 ? CECL_DIRECTION_PULL : CECL_DIRECTION_PUSH;
        multi_ok(comm, ceclSetOptions(comm, &options));
        c->seed = random_next(&x);
        c->send = send->at + 256;
        c->recv = recv->at + 512 + 256 * multi_rank;
        s->random.bytes = random_bytes_received(c);
        random_set_places(c, RANDOM_GUARD);
        random_put(comm, &s->random, host);
        run_one(s);
        if (round == rounds / 5) { /* one-time setup is complete now */
            descriptors = multi_descriptors();
            lines = multi_mappings();
        }
    }
    multi_no_growth(multi_descriptors, descriptors, SLACK, "descriptors");
    multi_no_growth(multi_mappings, lines, SLACK, "mappings");
}

static size_t some_bytes(size_t least)
{
    return least + random_next(&y) % 100000;
}

/* Memory of random sizes, new in each round. One rank has more memory, and frees it in another
 * order. */
TEST_BETWEEN(ranks_whose_allocators_diverge_understand_each_other, set_up, tear_down)
{
    enum { EXTRA = 5 };
    struct memory extra[EXTRA];
    memset(extra, 0, sizeof(extra));
    uint64_t x = 19;
    for (int round = multi_share(100); round > 0; round--) {
        struct slot fresh = slots[0];
        if (multi_rank == 1) {
            struct memory *m = &extra[random_next(&y) % EXTRA];
            memory_free(comm, m);
            *m = memory_new(comm, MEMORY_SHARED, some_bytes(1));
        }
        fresh.send[MEMORY_SHARED] = memory_new(comm, MEMORY_SHARED, some_bytes(random_room()));
        fresh.recv[MEMORY_SHARED] = memory_new(comm, MEMORY_SHARED, some_bytes(random_room()));
        random_draw(&fresh.random.call, &x);
        fresh.random.call.stream = NULL;
        fresh.random.call.seed = random_next(&x);
        prepare(&fresh, MEMORY_SHARED, MEMORY_SHARED);
        choose(&x);
        run_one(&fresh);
        memory_free(comm, &fresh.recv[MEMORY_SHARED]);
        memory_free(comm, &fresh.send[MEMORY_SHARED]);
    }
    for (int i = 0; i < EXTRA; i++)
        memory_free(comm, &extra[i]);
}

/* ---- time on the host */

TEST_BETWEEN(a_late_rank_does_not_hold_up_its_peers_hosts, set_up, tear_down)
{
    enum { TRIES = 11, CALLS = 3, BLOCK = 1000 };
    const unsigned late_us = 100000;
    const double limit = 40e-3;
    const struct memory *m = &slots[0].recv[MEMORY_SHARED];
    double least = 1;
    for (int try = -1; try < TRIES; try++) { /* the first try opens the memory on peers */
        const bool late = (try + multi_nranks) % multi_nranks == multi_rank;
        MPI_Barrier(MPI_COMM_WORLD);
        if (late)
            usleep(late_us);
        const double begin = multi_seconds();
        for (int i = 0; i < CALLS; i++)
            multi_ok(comm,
                     ceclAllGather(m->at + multi_rank * BLOCK, m->at, BLOCK, ceclInt8, comm, NULL));
        const double took = multi_seconds() - begin;
        if (!late && try >= 0 && took < least)
            least = took;
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    }
    /* A busy machine delays most tries; waiting for a late rank would delay every try. */
    if (least > limit)
        fail_msg("rank %d: %d early calls take their host %.3f ms, a rank is late by %.0f ms",
                 multi_rank, CALLS, least * 1e3, late_us * 1e-3);
}

TEST_BETWEEN(where_buffers_lie_is_no_difference_between_calls, set_up_checked, tear_down)
{
    uint64_t x = 23;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < MEMORY_KINDS; i++) {
            draw_full(&slots[0].random.call, (enum kind)kind, false, &x);
            prepare(&slots[0], (i + multi_rank) % MEMORY_KINDS,
                    (i / 2 + multi_rank) % MEMORY_KINDS);
            run_one(&slots[0]);
        }
}
