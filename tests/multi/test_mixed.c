/* 10,000 random calls of all collectives on communicators that are split and shrunk out of one
 * another all the time. Each rank draws the kinds of memory of its buffers and their places by
 * itself, frees memory and allocates it anew, registers some, and comes late. CECL_TEST_CALLS and
 * CECL_TEST_SEED override the number and the seed.
 *
 * Calls come in bursts. The calls of a burst go to any communicators and to two streams of each,
 * one by one or in groups, which may have calls on several communicators. Every byte that a call
 * may write is checked, and so are the bytes around its blocks and between them. In the end, no
 * mappings or descriptors may be left over. */
#include "teams.h"

#include <malloc.h>

#define SLOTS 8
#define BANKS 2
#define PARTS (2 * SLOTS) /* of each bank: one for each buffer of a burst */
#define SPREAD 5000       /* bytes beyond what a buffer needs: offsets differ by as much */

/* The communicators live in ages: at the end of each, all of them end. In one age ranks compare
 * their calls (CECL_CHECK=1). */
#define AGES 10
#define AGE_CHECKED 5

/* What is set up once is there after so many ages. All later ages together may add so much. Drivers
 * of GPUs and sanitizers keep mappings of their own; in 10,000 calls one left by each communicator
 * would be more. */
#define AGES_WARM 3
#define SLACK_DESCRIPTORS 2
#define SLACK_MAPPINGS 10
#define SLACK_MAPPINGS_OTHERS 200

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* Kinds of memory beyond those of enum memory_kind: pool memory of any communicator. */
enum { LENT = MEMORY_KINDS, SOURCES };

/* A call, and memory in its communicator's pool that is allocated for this call. */
struct slot {
    struct random_slot random;
    const struct team *team;
    struct memory send, recv;
};

static ceclComm_t home; /* of all ranks: it only serves to allocate memory */
static struct slot slots[SLOTS];
/* Memory of each kind but the pool. No two buffers of a burst use the same part. */
static struct memory banks[MEMORY_KINDS][BANKS];
static unsigned char *host; /* [random_room()] */
static uint64_t y;          /* this rank's own generator of random numbers; teams.h has the rest */

static size_t room(void)
{
    return random_room() + SPREAD;
}

static void open_slots(uint64_t x)
{
    random_take_limits_of(home);
    teams_lent = PARTS * room();
    y = 0x9e3779b97f4a7c15u + 77u * (uint64_t)multi_rank;
    y ^= x << 7;
    assert_non_null(host = malloc(random_room()));
    for (int i = 0; i < SLOTS; i++)
        assert_non_null(slots[i].random.want = malloc(random_room()));
    for (int kind = MEMORY_POOL + 1; kind < MEMORY_KINDS; kind++)
        for (int i = 0; i < BANKS; i++)
            banks[kind][i] = memory_new(home, (enum memory_kind)kind, PARTS * room());
}

static void close_slots(void)
{
    for (int i = 0; i < SLOTS; i++)
        free(slots[i].random.want);
    for (int kind = MEMORY_POOL + 1; kind < MEMORY_KINDS; kind++)
        for (int i = 0; i < BANKS; i++)
            memory_free(home, &banks[kind][i]);
    free(host);
}

/* ---- memory that comes and goes */

/* Now and then a rank has other memory than before, at the same address or elsewhere. */
static void renew_some(void)
{
    const int kinds = MEMORY_KINDS - 1;
    const enum memory_kind kind =
        (enum memory_kind)(MEMORY_POOL + 1 + random_next(&y) % (uint64_t)kinds);
    struct memory *m = &banks[kind][random_next(&y) % BANKS];
    const uint64_t what = random_next(&y) % 8;
    if (what == 0 && kind != MEMORY_PRIVATE) {
        memory_renew(home, m, kind);
    } else if (what < 2) {
        memory_free(home, m);
        *m = memory_new(home, kind, PARTS * room());
    }
}

/* Ends a registration if there is one, and else registers a part of some memory. */
static void register_or_not(struct team *t)
{
    ceclRegistration_t *r = &t->registrations[random_next(&y) % TEAM_REGISTRATIONS];
    const int kind = random_next(&y) % 2 ? MEMORY_SHARED : MEMORY_PIECES;
    const struct memory *m = &banks[kind][random_next(&y) % BANKS];
    const size_t at = random_next(&y) % m->bytes;
    if (*r) {
        multi_ok(t->comm, ceclCommDeregister(t->comm, *r));
        *r = NULL;
        return;
    }
    multi_ok(t->comm,
             ceclCommRegister(t->comm, m->at + at, 1 + random_next(&y) % (m->bytes - at), r));
}

static void register_some(void)
{
    struct team *t = &teams[random_next(&y) % TEAMS];
    if (t->alive && t->me >= 0 && random_next(&y) % 2)
        register_or_not(t);
}

/* ---- buffers */

/* Memory of the call's own in its communicator's pool: as much on all members. */
static struct memory fresh(const struct team *t, size_t bytes, uint64_t *x)
{
    const size_t spread = random_next(x) % SPREAD;
    struct memory none = {.fd = -1};
    return t->me < 0 ? none : memory_new(t->comm, MEMORY_POOL, bytes + spread);
}

static void allocate(struct slot *s, uint64_t *x)
{
    const struct random_call *c = &s->random.call;
    size_t most = 0;
    for (int r = 0; r < c->nranks; r++)
        if (random_bytes_sent(c, r) > most)
            most = random_bytes_sent(c, r);
    s->send = fresh(s->team, most, x);
    s->recv = fresh(s->team, random_bytes_received(c), x);
}

/* Memory of any communicator's pool. */
static const struct memory *lent(void)
{
    const struct team *t;
    do
        t = &teams[random_next(&y) % TEAMS];
    while (!t->alive || t->me < 0);
    return &t->lent;
}

/* A part of memory, with its first seam. */
static struct memory part_of(const struct memory *m, size_t index)
{
    const size_t at = index * room();
    struct memory part = {.kind = m->kind, .at = m->at + at, .bytes = room(), .fd = -1};
    const size_t seam = m->seam > 0 ? m->seam - at % m->seam : 0;
    part.seam = seam < part.bytes ? seam : 0;
    return part;
}

/* Memory for buffer `index` of the burst: `fresh`, or a part of any other. */
static struct memory choose(const struct memory *fresh, size_t index)
{
    const uint64_t source = random_next(&y) % SOURCES;
    if (source == MEMORY_POOL)
        return *fresh;
    return part_of(source == LENT ? lent() : &banks[source][random_next(&y) % BANKS], index);
}

static void prepare(struct slot *s)
{
    const size_t index = 2 * (size_t)(s - slots);
    const struct memory send = choose(&s->send, index), recv = choose(&s->recv, index + 1);
    random_prepare(s->team->comm, &s->random, &send, &recv, &y, host);
}

/* ---- calls */

/* Draws a call on any communicator, with its buffers. */
static void draw(struct slot *s, uint64_t *x)
{
    struct random_call *c = &s->random.call;
    s->team = teams_pick(x);
    c->rank = s->team->me;
    c->nranks = s->team->n;
    c->seed = random_next(x);
    random_draw(c, x);
    allocate(s, x);
    if (s->team->me >= 0)
        prepare(s);
}

/* A call, with options that are equal on all ranks, and now and then after a barrier. Kernels of
 * several communicators wait for peers at the same time, so each takes few SMs of a GPU. */
static void call(struct slot *s, int stream, bool grouped, uint64_t *x)
{
    static const int sms[] = {1, 2, 8};
    ceclComm_t comm = s->team->comm;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = random_next(x) % 2 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
    options.direction = (int)(random_next(x) % 3);
    options.maxSms = sms[random_next(x) % 3];
    const bool barrier = random_next(x) % 16 == 0;
    if (s->team->me < 0)
        return;
    s->random.call.stream = s->team->streams[stream];
    multi_ok(comm, ceclSetOptions(comm, &options));
    if (barrier)
        multi_ok(comm, ceclBarrier(comm, s->random.call.stream));
    multi_ok(comm, random_make(comm, &s->random.call, grouped));
}

/* Calls [first, end), as a group of their own, or alone. */
static void make_calls(int first, int end, uint64_t *x)
{
    const bool grouped = end - first > 1;
    const int stream = (int)(random_next(x) % TEAM_STREAMS);
    teams_come_late(&y, 8);
    if (grouped)
        multi_ok(NULL, ceclGroupStart());
    for (int i = first; i < end; i++)
        call(&slots[i], stream, grouped, x);
    if (grouped)
        multi_ok(NULL, ceclGroupEnd());
}

static void finish(struct slot *s)
{
    ceclComm_t comm = s->team->comm;
    if (s->team->me < 0)
        return;
    multi_ok(comm, ceclStreamSynchronize(comm, s->random.call.stream));
    random_compare(comm, &s->random, host);
    memory_free(comm, &s->send);
    memory_free(comm, &s->recv);
}

static void run_burst(uint64_t *x)
{
    const bool grouped = random_next(x) % 2;
    for (int i = 0; i < SLOTS; i++)
        draw(&slots[i], x);
    for (int first = 0, end; first < SLOTS; first = end) {
        end = first + (grouped ? 1 + (int)(random_next(x) % 5) : 1);
        end = end < SLOTS ? end : SLOTS;
        make_calls(first, end, x);
    }
    for (int i = 0; i < SLOTS; i++)
        finish(&slots[i]);
}

static void live(int age, int calls, uint64_t *x)
{
    multi_setenv("CECL_CHECK", age == AGE_CHECKED ? "1" : NULL);
    for (int done = 0; done < calls; done += SLOTS) {
        teams_change(x, &y);
        renew_some();
        register_some();
        run_burst(x);
    }
    teams_end_all(x);
    multi_setenv("CECL_CHECK", NULL);
}

static void live_all(int calls, uint64_t *x)
{
    const bool others = SANITIZED || multi_on_gpus(home);
    int descriptors = 0, mappings = 0;
    for (int age = 0; age < AGES; age++) {
        live(age, calls / AGES, x);
        if (age == AGES_WARM - 1) {
            descriptors = multi_descriptors();
            mappings = multi_mappings();
        }
    }
    multi_no_growth(multi_descriptors, descriptors, SLACK_DESCRIPTORS, "descriptors");
    multi_no_growth(multi_mappings, mappings, others ? SLACK_MAPPINGS_OTHERS : SLACK_MAPPINGS,
                    "mappings");
}

static void calls_on_communicators_that_come_and_go_are_right(void **state)
{
    (void)state;
    const ceclConfig_t config = teams_config();
    const char *calls = getenv("CECL_TEST_CALLS"), *given = getenv("CECL_TEST_SEED");
    uint64_t x = given ? strtoull(given, NULL, 10) : 1442695040888963407u;
    home = multi_comm(&config);
    /* elsewhere a fifth, so that all rank counts together do not take long */
    const int usual = multi_nranks == 4 || multi_on_gpus(home) ? 10000 : 2000;
    const int total = calls ? atoi(calls) : usual;
    print_message("seed %llu, %d calls\n", (unsigned long long)x, total);
    open_slots(x);
    live_all(total, &x);
    close_slots();
    multi_ok(NULL, ceclCommDestroy(home));
    print_message("communicators: %d of all ranks; %d by %d splits and %d shrinks\n", teams_worlds,
                  teams_children, teams_splits, teams_shrinks);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_on_communicators_that_come_and_go_are_right)};
    mallopt(M_ARENA_MAX, 2); /* otherwise arenas come and go with threads, and are mappings */
    return multi_main(argc, argv, tests, 1, 220);
}
