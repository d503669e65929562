/* Ranks tell each other where their buffers lie: the outcome of each call, what each rank knows after it, and that no
 * record is overwritten while a rank may read it. Ranks are threads, views that one thread uses in turn, or a
 * forked process. */
#include "../with_cmocka.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "alloc/places.h"
#include "util/clock.h"

#define MOST_RANKS 80
#define GUARD 64 /* bytes behind the shared memory that no rank may write */
#define AT_ONCE 0
#define FOR_EVER UINT64_MAX

/* ---- the shared memory, and records whose words any test can compute */

static void *new_shared(int nranks, int value)
{
    const size_t bytes = cecl_places_bytes(nranks);
    assert_int_equal(bytes % 64, 0);
    char *shared = aligned_alloc(64, bytes + GUARD);
    assert_non_null(shared);
    memset(shared, value, bytes);
    memset(shared + bytes, 0x5a, GUARD);
    return shared;
}

static void free_shared(void *shared, int nranks)
{
    const char *guard = (char *)shared + cecl_places_bytes(nranks);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(guard[i], 0x5a);
    free(shared);
}

/* nentries: entries of the ring; 0: as many as the library takes */
static void open_one(struct cecl_places *places, void *shared, int rank, int nranks,
                     uint32_t nentries)
{
    cecl_places_open(places, shared, rank, nranks);
    if (nentries > 0)
        places->room_for = places->nentries = nentries;
}

static void open_all(struct cecl_places *places, void *shared, int nranks, uint32_t nentries)
{
    for (int r = 0; r < nranks; r++)
        open_one(&places[r], shared, r, nranks, nentries);
}

static uint64_t word_of(uint64_t call, int rank, int i)
{
    return call * 1000003 + (uint64_t)rank * 8191 + (uint64_t)i * 127;
}

static void fill(struct cecl_place_record *record, int nranks, uint64_t call, int rank)
{
    record->send_window = word_of(call, rank, 0);
    record->send_offset = word_of(call, rank, 1);
    record->recv_window = word_of(call, rank, 2);
    record->recv_offset = word_of(call, rank, 3);
    record->version = word_of(call, rank, 4);
    record->flags = (uint32_t)word_of(call, rank, 5);
    for (int i = 0; i < nranks; i++)
        record->per_peer[i] = word_of(call, rank, 6 + i);
}

static bool is_right(const struct cecl_place_record *record, int nranks, uint64_t call, int rank)
{
    bool right = record->send_window == word_of(call, rank, 0) &&
                 record->send_offset == word_of(call, rank, 1) &&
                 record->recv_window == word_of(call, rank, 2) &&
                 record->recv_offset == word_of(call, rank, 3) &&
                 record->version == word_of(call, rank, 4) &&
                 record->flags == (uint32_t)word_of(call, rank, 5);
    for (int i = 0; i < nranks; i++)
        right = right && record->per_peer[i] == word_of(call, rank, 6 + i);
    return right;
}

static bool go_on_always(void *context)
{
    return true;
}

static bool stop(void *context)
{
    return false;
}

static bool publish(struct cecl_places *places, uint32_t count, cecl_places_go_on *go_on,
                    void *context, struct cecl_places_group *group)
{
    if (!cecl_places_begin(places, count, go_on, context))
        return false;
    for (uint32_t i = 0; i < count; i++)
        fill(cecl_places_own(places, i), places->nranks, places->published + 1 + i, places->rank);
    cecl_places_publish(places, count, group);
    return true;
}

/* Meets a group. The rank has no pending call. */
static enum cecl_places_outcome meet(struct cecl_places *places, struct cecl_places_group *group,
                                     uint64_t wait_ns, cecl_places_go_on *go_on, void *context)
{
    struct cecl_places_patience patience = {.wait_ns = wait_ns};
    return cecl_places_meet(places, group, &patience, go_on, context);
}

/* Counts wrong records among those that a rank knows after it met a group. */
static int count_wrong(const struct cecl_places *places, const struct cecl_places_group *group)
{
    int wrong = 0;
    for (uint64_t call = group->first; call < group->first + group->count; call++)
        for (int r = 0; r < places->nranks; r++)
            if (cecl_places_knows(places, group, r))
                wrong += !is_right(cecl_places_of(places, call, r), places->nranks, call, r);
    return wrong;
}

static struct cecl_places views[3];
static void *viewed; /* the memory that they share */
static int nviews;

static int close_views(void **state)
{
    if (viewed)
        free_shared(viewed, nviews);
    viewed = NULL;
    return 0;
}

static void open_views(int nranks, uint32_t nentries)
{
    (void)close_views(NULL);
    nviews = nranks;
    viewed = new_shared(nranks, 0);
    open_all(views, viewed, nranks, nentries);
}

#define TEST_OF_VIEWS(name) TEST_BETWEEN(name, NULL, close_views)

TEST_OF_VIEWS(more_calls_than_the_ring_has_entries_are_refused)
{
    struct cecl_places_group group;
    open_views(2, 4);
    assert_int_equal(cecl_places_entries(&views[0]), 4);
    assert_false(publish(&views[0], 0, go_on_always, NULL, &group));
    assert_false(publish(&views[0], 5, go_on_always, NULL, &group));
    assert_true(publish(&views[0], 4, go_on_always, NULL, &group));
    assert_int_equal(group.first, 1);
}

/* ---- when to wait. A wait asks `stop`, so the outcome STOPPED shows that a rank waited. */

struct other {
    struct cecl_places *places;
    int calls;
};

static void *publish_and_finish(void *argument)
{
    struct other *other = argument;
    struct cecl_places_group group;
    for (int i = 0; i < other->calls; i++)
        if (publish(other->places, 1, stop, NULL, &group))
            cecl_places_finish(other->places, &group);
    return NULL;
}

static void in_another_thread(struct cecl_places *places, int calls)
{
    pthread_t thread;
    struct other other = {places, calls};
    assert_int_equal(pthread_create(&thread, NULL, publish_and_finish, &other), 0);
    pthread_join(thread, NULL);
}

/* Rank 0's outcome of its call number `call` when rank 1 has made `peer_calls` calls. */
static enum cecl_places_outcome outcome_of(int call, int peer_calls, bool same_thread)
{
    struct cecl_places_group group;
    enum cecl_places_outcome outcome = CECL_PLACES_STOPPED;
    open_views(2, 0);
    struct other other = {&views[1], peer_calls};
    if (same_thread)
        publish_and_finish(&other);
    else
        in_another_thread(&views[1], peer_calls);
    for (int i = 0; i < call; i++) {
        assert_true(publish(&views[0], 1, stop, NULL, &group));
        outcome = i < call - 1 ? meet(&views[0], &group, AT_ONCE, go_on_always, NULL)
                               : meet(&views[0], &group, FOR_EVER, stop, NULL);
        cecl_places_finish(&views[0], &group);
    }
    return outcome;
}

TEST(a_rank_waits_for_a_peer_of_another_thread_that_is_one_call_behind)
{
    assert_int_equal(outcome_of(1, 0, false), CECL_PLACES_STOPPED);
    assert_int_equal(outcome_of(4, 3, false), CECL_PLACES_STOPPED);
    assert_int_equal(outcome_of(2, 0, false), CECL_PLACES_LATE);
    assert_int_equal(outcome_of(5, 3, false), CECL_PLACES_LATE);
    assert_int_equal(outcome_of(4, 3, true), CECL_PLACES_LATE);
}

/* The child inherits the parent's thread-local variables, but is another thread. */
TEST(a_rank_waits_for_a_forked_peer)
{
    struct cecl_places places[2];
    struct cecl_places_group group;
    void *shared =
        mmap(NULL, cecl_places_bytes(2), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    open_all(places, shared, 2, 0);
    assert_true(publish(&places[0], 1, stop, NULL, &group));
    const pid_t child = fork();
    if (child == 0)
        _exit(publish(&places[1], 1, stop, NULL, &group) ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(meet(&places[0], &group, FOR_EVER, stop, NULL), CECL_PLACES_FULL);
    assert_int_equal(count_wrong(&places[0], &group), 0);
    cecl_places_finish(&places[0], &group);
    assert_true(publish(&places[0], 1, stop, NULL, &group));
    assert_int_equal(meet(&places[0], &group, FOR_EVER, stop, NULL), CECL_PLACES_STOPPED);
    munmap(shared, cecl_places_bytes(2));
}

TEST_OF_VIEWS(a_wait_lasts_as_long_as_the_caller_says)
{
    struct cecl_places_group group;
    open_views(2, 0);
    assert_true(publish(&views[0], 1, stop, NULL, &group));
    const int64_t start = cecl_now_ns();
    assert_int_equal(meet(&views[0], &group, 3000000, go_on_always, NULL), CECL_PLACES_LATE);
    const int64_t took = cecl_now_ns() - start;
    assert_true(took >= 3000000);
    assert_true(took < 60000000000);
}

/* Publishes a rank's next call, and meets it with this patience. Returns how long the meeting took. */
static uint64_t wait_with(struct cecl_places *places, struct cecl_places_patience *patience,
                          cecl_places_go_on *go_on, void *context,
                          enum cecl_places_outcome expected)
{
    struct cecl_places_group group;
    assert_true(publish(places, 1, stop, NULL, &group));
    const int64_t start = cecl_now_ns();
    assert_int_equal(cecl_places_meet(places, &group, patience, go_on, context), expected);
    cecl_places_finish(places, &group);
    return (uint64_t)(cecl_now_ns() - start);
}

/* As wait_with, with no patience, and without a context. */
static uint64_t wait_of_next(struct cecl_places *places, cecl_places_go_on *go_on,
                             enum cecl_places_outcome expected)
{
    struct cecl_places_patience none = {.wait_ns = AT_ONCE};
    return wait_with(places, &none, go_on, NULL, expected);
}

/* Opens views of `nranks` ranks, which have all made one call; rank 0 has met it. The other ranks belong to other
 * threads. most_spent_ns: how long all longer waits of rank 0 may take in total. */
static void open_behind_a_call(int nranks, uint64_t most_spent_ns)
{
    open_views(nranks, 0);
    views[0].most_spent_ns = most_spent_ns;
    for (int r = 1; r < nranks; r++)
        in_another_thread(&views[r], 1);
    (void)wait_of_next(&views[0], stop, CECL_PLACES_FULL);
}

/* ---- while this rank's GPU has work */

#define PENDING_NS 5000000u
#define MOST_OF(ns) ((ns) / 10 * 9)

static struct cecl_places_patience while_pending(uint64_t pending_ns, cecl_places_go_on *is_pending)
{
    return (struct cecl_places_patience){
        .wait_ns = AT_ONCE, .pending_ns = pending_ns, .is_pending = is_pending};
}

TEST_OF_VIEWS(a_late_peer_is_waited_for_longer_while_calls_are_pending)
{
    open_behind_a_call(2, FOR_EVER);
    for (int i = 0; i < 2; i++) { /* in round 1 the peer has not made the previous call either */
        struct cecl_places_patience patience = while_pending(PENDING_NS, go_on_always);
        assert_true(wait_with(&views[0], &patience, go_on_always, NULL, CECL_PLACES_LATE) >=
                    MOST_OF(PENDING_NS));
        assert_int_equal(patience.pending_ns, 0);
        /* The group's next launch has no patience left: a wait would end with STOPPED. */
        (void)wait_with(&views[0], &patience, stop, NULL, CECL_PLACES_LATE);
    }
    assert_int_equal(views[0].nmet, 5);
    assert_int_equal(views[0].nlate, 4);
}

TEST_OF_VIEWS(a_late_peer_is_waited_for_as_long_as_a_late_call_costs)
{
    open_behind_a_call(2, FOR_EVER);
    struct cecl_places_patience patience = {.wait_ns = AT_ONCE, .worth_ns = PENDING_NS};
    assert_true(wait_with(&views[0], &patience, go_on_always, NULL, CECL_PLACES_LATE) >=
                MOST_OF(PENDING_NS));
    assert_true(views[0].spent_ns >= PENDING_NS);
    /* 0: if the GPU now runs out of work, this wait is not counted again */
    assert_int_equal(views[0].latest_ns, 0);
    /* A peer that has not made the previous call either is too far behind. */
    (void)wait_with(&views[0], &patience, stop, NULL, CECL_PLACES_LATE);
}

/* Rank 0 asks this while it waits for a peer. The first time, time passes; the second time, the peer makes its call. */
static bool peer_comes(void *context)
{
    struct other *peer = context;
    if (peer->calls == 1)
        in_another_thread(peer->places, 1);
    else
        nanosleep(&(struct timespec){.tv_nsec = PENDING_NS}, NULL);
    peer->calls--;
    return true;
}

TEST_OF_VIEWS(a_wait_for_a_peer_counts_less_if_it_took_no_longer_than_it_was_worth)
{
    for (int is_worth = 0; is_worth < 2; is_worth++) {
        open_behind_a_call(2, FOR_EVER);
        struct cecl_places_patience patience = while_pending(FOR_EVER, go_on_always);
        patience.worth_ns = is_worth ? FOR_EVER : 1;
        struct other peer = {&views[1], 2};
        const uint64_t took = wait_with(&views[0], &patience, peer_comes, &peer, CECL_PLACES_FULL);
        assert_true(views[0].spent_ns >= PENDING_NS / (is_worth ? CECL_PLACES_GAINED : 1));
        assert_true(views[0].spent_ns <= took / (is_worth ? CECL_PLACES_GAINED : 1));
    }
}

static void *come_and_wait_for_nobody(void *argument)
{
    (void)wait_of_next(argument, go_on_always, CECL_PLACES_LATE);
    return NULL;
}

static bool impatient_peer_comes(void *context)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, come_and_wait_for_nobody, context), 0);
    pthread_join(thread, NULL);
    return true;
}

TEST_OF_VIEWS(a_wait_that_another_rank_ended_as_late_counts)
{
    open_behind_a_call(3, FOR_EVER);
    struct cecl_places_patience patience = {.wait_ns = AT_ONCE, .worth_ns = FOR_EVER};
    (void)wait_with(&views[0], &patience, impatient_peer_comes, &views[1], CECL_PLACES_LATE);
    assert_true(views[0].spent_ns > 0);
}

TEST_OF_VIEWS(no_wait_is_worth_its_time_when_the_bound_of_all_waits_is_spent)
{
    open_behind_a_call(2, 0);
    struct cecl_places_patience patience = {.wait_ns = AT_ONCE, .worth_ns = FOR_EVER};
    (void)wait_with(&views[0], &patience, stop, NULL, CECL_PLACES_LATE);
}

/* Says that calls are pending, *context times. */
static bool count_down(void *context)
{
    int *left = context;
    return (*left)-- > 0;
}

TEST_OF_VIEWS(the_longer_wait_ends_with_the_pending_calls)
{
    open_behind_a_call(2, FOR_EVER);
    struct cecl_places_patience patience = while_pending(FOR_EVER, count_down);
    int left = 30;
    (void)wait_with(&views[0], &patience, go_on_always, &left, CECL_PLACES_LATE);
    assert_int_equal(left, -1);
}

/* The bound holds even if peers come in between, as in a loop in which each rank is late now and then. */
TEST_OF_VIEWS(all_longer_waits_are_a_bound_and_a_share_of_the_time)
{
    enum { BOUND_NS = 50000000, AWAY_NS = 320000000, SHARE_NS = AWAY_NS / 64 };
    open_behind_a_call(2, BOUND_NS);
    struct cecl_places_patience patience = while_pending(FOR_EVER, go_on_always);
    uint64_t least = UINT64_MAX;
    assert_true(wait_with(&views[0], &patience, go_on_always, NULL, CECL_PLACES_LATE) >=
                MOST_OF(BOUND_NS));
    /* Rank 0 has regained almost no patience, unless other work of the machine took time. */
    for (int i = 0; i < 3 || (i < 40 && least >= BOUND_NS / 2); i++) {
        const uint64_t more = wait_with(&views[0], &patience, go_on_always, NULL, CECL_PLACES_LATE);
        least = more < least ? more : least;
    }
    assert_true(least < BOUND_NS / 2);
    least = UINT64_MAX;
    for (int round = 0; round < 3 || (round < 40 && least >= BOUND_NS / 2); round++) {
        in_another_thread(&views[1], (int)(views[0].published - views[1].published) + 1);
        (void)wait_of_next(&views[0], stop, CECL_PLACES_FULL);
        /* Rank 0 regains a 64th of the elapsed time. */
        nanosleep(&(struct timespec){.tv_nsec = AWAY_NS}, NULL);
        const uint64_t again =
            wait_with(&views[0], &patience, go_on_always, NULL, CECL_PLACES_LATE);
        assert_true(again >= MOST_OF(SHARE_NS));
        least = again < least ? again : least; /* this machine may have had other work */
    }
    assert_true(least < BOUND_NS / 2);
}

TEST_OF_VIEWS(a_wait_after_which_the_gpu_is_out_of_work_counts_many_times)
{
    enum { WAIT_NS = 1000000 };
    for (int is_dry = 0; is_dry < 2; is_dry++) {
        open_behind_a_call(2, 1000 * (uint64_t)WAIT_NS);
        struct cecl_places_patience patience = while_pending(WAIT_NS, go_on_always);
        (void)wait_with(&views[0], &patience, go_on_always, NULL, CECL_PLACES_LATE);
        const uint64_t spent = views[0].spent_ns;
        assert_true(spent >= WAIT_NS);
        in_another_thread(&views[1], 2); /* the next call is met at once, so no time is regained */
        patience.is_pending = is_dry ? stop : go_on_always;
        (void)wait_with(&views[0], &patience, stop, NULL, CECL_PLACES_FULL);
        assert_int_equal(views[0].spent_ns, is_dry ? CECL_PLACES_DRY * spent : spent);
        in_another_thread(&views[1], 1); /* the wait is not counted again */
        (void)wait_with(&views[0], &patience, stop, NULL, CECL_PLACES_FULL);
        assert_int_equal(views[0].spent_ns, is_dry ? CECL_PLACES_DRY * spent : spent);
    }
}

/* A call of a thread must not wait for another call of that thread, whichever rank calls first. */
TEST_OF_VIEWS(nobody_is_waited_for_who_may_be_of_the_same_thread)
{
    open_views(3, 0);
    views[0].most_spent_ns = FOR_EVER;
    struct cecl_places_patience patience = while_pending(FOR_EVER, go_on_always);
    in_another_thread(&views[2], 1);
    (void)wait_of_next(&views[0], go_on_always, CECL_PLACES_LATE);
    for (int i = 0; i < 3; i++) /* rank 1 has made no call yet, and rank 2 falls behind */
        (void)wait_with(&views[0], &patience, stop, NULL, CECL_PLACES_LATE);
    struct other other = {&views[1], 1};
    publish_and_finish(&other);
    /* Rank 1 belongs to this thread. */
    (void)wait_with(&views[0], &patience, stop, NULL, CECL_PLACES_LATE);
}

static void *make_two_calls(void *argument)
{
    const struct timespec a_while = {.tv_nsec = 20000000};
    struct other *other = argument;
    nanosleep(&a_while, NULL);
    return publish_and_finish(other);
}

/* ---- while this rank's GPU is behind the late rank's calls */

/* A GPU with `to_do` calls left. Each time it is looked at, it does one, until `stuck_at` are left. */
struct gpu {
    uint32_t to_do, stuck_at;
    uint64_t last; /* the call up to which `is_behind` was last asked */
};

static uint32_t is_behind(void *context, uint64_t last)
{
    struct gpu *gpu = context;
    gpu->last = last;
    gpu->to_do -= gpu->to_do > gpu->stuck_at;
    return gpu->to_do;
}

static struct cecl_places_patience while_behind(uint64_t behind_ns)
{
    return (struct cecl_places_patience){
        .wait_ns = AT_ONCE, .behind_ns = behind_ns, .behind = is_behind};
}

/* All other waits have a limit of 0 here. */
TEST_OF_VIEWS(a_late_peer_is_waited_for_while_the_gpu_is_behind_its_calls)
{
    open_behind_a_call(3, 0);
    struct cecl_places_patience patience = while_behind(FOR_EVER);
    for (int i = 0; i < 2; i++) { /* in round 1 the peers have not made the previous call either */
        struct gpu gpu = {.to_do = 300};
        (void)wait_with(&views[0], &patience, go_on_always, &gpu, CECL_PLACES_LATE);
        assert_int_equal(gpu.to_do, 0);
        assert_int_equal(gpu.last, 1); /* the last call that they have made */
        assert_int_equal(views[0].spent_ns, 0);
    }
    in_another_thread(&views[1], 2);
    struct gpu gpu = {.to_do = 300};
    (void)wait_with(&views[0], &patience, go_on_always, &gpu, CECL_PLACES_LATE);
    assert_int_equal(gpu.last, 1); /* rank 2's: it is further behind than rank 1 */
}

TEST_OF_VIEWS(the_wait_ends_with_the_peer_s_call)
{
    pthread_t thread;
    open_behind_a_call(2, 0);
    struct cecl_places_patience patience = while_behind(FOR_EVER);
    struct gpu gpu = {.to_do = 1, .stuck_at = 1};
    struct other other = {&views[1], 1};
    assert_int_equal(pthread_create(&thread, NULL, make_two_calls, &other), 0);
    (void)wait_with(&views[0], &patience, go_on_always, &gpu, CECL_PLACES_FULL);
    pthread_join(thread, NULL);
}

TEST_OF_VIEWS(a_gpu_that_stands_still_ends_the_wait_and_the_next_ones)
{
    open_behind_a_call(2, 0);
    struct cecl_places_patience patience = while_behind(PENDING_NS);
    struct gpu gpu = {.to_do = 100, .stuck_at = 7};
    const uint64_t pause = CECL_PLACES_SHARE * PENDING_NS, before = (uint64_t)cecl_now_ns();
    assert_true(wait_with(&views[0], &patience, go_on_always, &gpu, CECL_PLACES_LATE) >=
                PENDING_NS);
    assert_int_equal(gpu.to_do, 7);
    assert_true(views[0].stood_still >= before + PENDING_NS + pause);
    assert_true(views[0].stood_still <= (uint64_t)cecl_now_ns() + pause);
    views[0].stood_still = FOR_EVER; /* other work may have taken longer than the pause */
    (void)wait_with(&views[0], &patience, stop, &gpu, CECL_PLACES_LATE);
    views[0].stood_still = before;
    assert_true(wait_with(&views[0], &patience, go_on_always, &gpu, CECL_PLACES_LATE) >=
                PENDING_NS);
}

static bool time_passes(void *context)
{
    nanosleep(&(struct timespec){.tv_nsec = PENDING_NS}, NULL);
    return true;
}

TEST_OF_VIEWS(a_gpu_that_moves_makes_the_wait_longer)
{
    open_behind_a_call(2, 0);
    struct cecl_places_patience patience = while_behind(PENDING_NS);
    struct gpu gpu = {.to_do = 2000}; /* so many looks that time passes during some */
    assert_true(wait_with(&views[0], &patience, time_passes, &gpu, CECL_PLACES_LATE) >
                2 * PENDING_NS);
    assert_int_equal(gpu.to_do, 0);
    assert_int_equal(views[0].stood_still, 0);
}

TEST(the_ring_fits_its_memory_for_every_number_of_ranks)
{
    static const int counts[] = {1, 2, 3, 8, 63, 64, 65, 200, 1024};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        const int nranks = counts[i];
        struct cecl_places last;
        struct cecl_places_group group;
        void *shared = new_shared(nranks, 0);
        open_one(&last, shared, nranks - 1, nranks, 0);
        const uint32_t entries = cecl_places_entries(&last);
        assert_true(entries >= 4 && entries <= 8192);
        assert_int_equal(entries & (entries - 1), 0);
        assert_true(entries == 4 ||
                    cecl_places_bytes(nranks) <= ((size_t)8 << 20) + (size_t)nranks * 64);
        assert_true(entries == 8192 || 2 * cecl_places_bytes(nranks) > 8 << 20);
        assert_true(publish(&last, entries, stop, NULL, &group)); /* up to the last byte */
        assert_true(is_right(cecl_places_of(&last, entries - 1, nranks - 1), nranks, entries - 1,
                             nranks - 1));
        free_shared(shared, nranks);
    }
}

static bool thirty_times(void *context)
{
    return ++*(int *)context < 30;
}

TEST(no_word_of_a_peer_leads_out_of_the_memory_or_into_an_endless_wait)
{
    static const int counts[] = {2, 5, 70};
    srand(1);
    for (int round = 0; round < 90; round++) {
        const int nranks = counts[round % 3];
        struct cecl_places places;
        struct cecl_places_group group;
        int asked = 0;
        unsigned char *shared = new_shared(nranks, 0xff);
        open_one(&places, shared, rand() % nranks, nranks, 4);
        for (int call = 0; call < 8; call++) {
            for (size_t i = 0; i < 20000; i++)
                shared[i] = (unsigned char)(round % 2 ? rand() : 0xff);
            if (!publish(&places, 1, thirty_times, &asked, &group))
                continue;
            meet(&places, &group, 1000, thirty_times, &asked);
            cecl_places_finish(&places, &group);
        }
        free_shared(shared, nranks);
    }
}

struct seen {
    enum cecl_places_outcome outcome;
    struct cecl_places_group group;
};

struct crowd {
    void *shared;
    int nranks, ngroups;
    uint32_t nentries;
    unsigned seed;
    uint64_t wait_ns;
    _Atomic int stopped, left; /* stopped: all waits end. left: ranks that come no more */
    struct seen *seen;         /* [ngroups][nranks] */
};

struct member {
    pthread_t thread;
    struct crowd *crowd;
    int rank, quits_after, wrong;
    _Atomic int done; /* number of groups */
};

static void dawdle(unsigned *seed)
{
    const int kind = rand_r(seed) % 16;
    if (kind == 0)
        usleep((unsigned)rand_r(seed) % 300);
    else if (kind < 4)
        sched_yield();
    else if (kind < 8)
        for (volatile int i = 0; i < rand_r(seed) % 3000; i++) {
        }
}

static bool nobody_stopped(void *context)
{
    const struct crowd *crowd = context;
    return !crowd->stopped;
}

/* Takes part in one group, and stores the outcome in `seen`. Returns false if the rank was stopped. */
static bool take_part(struct member *me, struct cecl_places *places, uint32_t count, unsigned *seed,
                      struct seen *seen)
{
    struct crowd *crowd = me->crowd;
    dawdle(seed);
    if (!publish(places, count, nobody_stopped, crowd, &seen->group))
        return false;
    dawdle(seed);
    seen->outcome = meet(places, &seen->group, crowd->wait_ns, nobody_stopped, crowd);
    if (seen->outcome == CECL_PLACES_STOPPED)
        return false;
    me->wrong += count_wrong(places, &seen->group);
    dawdle(seed);
    me->wrong +=
        count_wrong(places, &seen->group); /* records stay valid until this rank has finished */
    cecl_places_finish(places, &seen->group);
    return true;
}

static void *be_rank(void *argument)
{
    struct member *me = argument;
    struct crowd *crowd = me->crowd;
    struct cecl_places places;
    unsigned sizes = crowd->seed, seed = crowd->seed * 977 + (unsigned)me->rank;
    open_one(&places, crowd->shared, me->rank, crowd->nranks, crowd->nentries);
    for (int g = 0; g < crowd->ngroups && me->done < me->quits_after; g++) {
        const uint32_t count =
            rand_r(&sizes) % 3 ? 1 : 1 + (uint32_t)rand_r(&sizes) % places.nentries;
        if (!take_part(me, &places, count, &seed, &crowd->seen[g * crowd->nranks + me->rank]))
            break;
        me->done++;
    }
    crowd->left++;
    return NULL;
}

/* Counts ranks that disagree on the outcome, and late pairs in which not exactly one rank knows the other. */
static int count_disputes(const struct crowd *crowd, const struct seen *seen)
{
    int disputes = 0;
    for (int a = 0; a < crowd->nranks; a++)
        for (int b = 0; b < a; b++) {
            const bool a_first = seen[b].group.earlier >> a & 1;
            const bool b_first = seen[a].group.earlier >> b & 1;
            disputes += seen[a].outcome != seen[b].outcome;
            disputes += seen[a].outcome == CECL_PLACES_LATE && a_first == b_first;
            disputes += seen[a].outcome == CECL_PLACES_FULL && !(a_first && b_first);
        }
    return disputes;
}

static void start(struct crowd *crowd, struct member *members, int quitter, int quits_after)
{
    crowd->shared = new_shared(crowd->nranks, 0);
    crowd->seen = calloc((size_t)crowd->ngroups * (size_t)crowd->nranks, sizeof(struct seen));
    for (int r = 0; r < crowd->nranks; r++) {
        members[r] = (struct member){.crowd = crowd, .rank = r, .quits_after = INT_MAX};
        if (r == quitter)
            members[r].quits_after = quits_after;
    }
    for (int r = 0; r < crowd->nranks; r++)
        assert_int_equal(pthread_create(&members[r].thread, NULL, be_rank, &members[r]), 0);
}

static void end(struct crowd *crowd, struct member *members)
{
    for (int r = 0; r < crowd->nranks; r++) {
        pthread_join(members[r].thread, NULL);
        assert_int_equal(members[r].wrong, 0);
    }
    free_shared(crowd->shared, crowd->nranks);
}

static void run_crowd(int nranks, uint32_t nentries, int ngroups, uint64_t wait_ns,
                      int full_late[2])
{
    struct crowd crowd = {.nranks = nranks,
                          .ngroups = ngroups,
                          .nentries = nentries,
                          .seed = 15 + (unsigned)nranks + nentries,
                          .wait_ns = wait_ns};
    struct member members[MOST_RANKS];
    start(&crowd, members, -1, 0);
    end(&crowd, members);
    for (int g = 0; g < ngroups; g++) {
        const struct seen *seen = &crowd.seen[g * nranks];
        full_late[seen->outcome == CECL_PLACES_LATE]++;
        if (nranks <= CECL_PLACES_ORDERED_RANKS)
            assert_int_equal(count_disputes(&crowd, seen), 0);
        else
            for (int r = 0; r < nranks; r++)
                assert_int_equal(seen[r].outcome, CECL_PLACES_FULL);
    }
    for (int r = 0; r < nranks; r++)
        assert_int_equal(members[r].done, ngroups);
    free(crowd.seen);
}

TEST(ranks_agree_and_know_what_they_should)
{
    static const int counts[] = {2, 3, 5, 8};
    static const uint64_t waits[] = {0, 5000, 30000, 1000000};
    int full_late[2] = {0, 0};
    for (int i = 0; i < 4; i++)
        for (int w = 0; w < 4; w++) {
            run_crowd(counts[i], 4, 150, waits[w], full_late);
            run_crowd(counts[i], 16, 150, waits[w], full_late);
        }
    print_message("full: %d, late: %d\n", full_late[0], full_late[1]);
    assert_true(full_late[0] > 50); /* otherwise the test would show nothing */
    assert_true(full_late[1] > 50);
}

TEST(more_ranks_than_bits_always_meet_fully)
{
    int full_late[2] = {0, 0};
    run_crowd(70, 4, 25, AT_ONCE, full_late);
    assert_int_equal(full_late[0], 25);
}

/* Up to 64 ranks go on without the missing one until the ring is full; more than 64 wait for it at once. */
static void waits_for_a_rank_that_stopped_coming_end(int nranks, int most_alone)
{
    struct crowd crowd = {.nranks = nranks, .ngroups = 50, .nentries = 4, .seed = 3};
    struct member members[MOST_RANKS];
    start(&crowd, members, 1, 10);
    for (int r = 0; r < nranks; r++)
        while (members[r].done < 10)
            usleep(1000);
    while (crowd.left == 0) /* a moment after its last group */
        usleep(1000);
    usleep(20000);
    assert_int_equal(crowd.left, 1); /* the others wait, without a time limit */
    crowd.stopped = 1;
    end(&crowd, members);
    for (int r = 0; r < nranks; r++)
        assert_in_range(members[r].done, 10, r == 1 ? 10 : 10 + most_alone);
    free(crowd.seen);
}

TEST(waits_for_a_rank_that_stopped_coming_end_when_the_caller_says_so)
{
    waits_for_a_rank_that_stopped_coming_end(3, 4);
    waits_for_a_rank_that_stopped_coming_end(70, 0);
}
