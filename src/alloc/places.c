/* Ranks publish in shared memory where their buffers lie in each call; see places.h. */
#include "alloc/places.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/fds.h"

#define LINE 64u /* bytes of a cache line */
#define RING_BYTES (UINT64_C(8) << 20)
#define MOST_ENTRIES 8192u
#define FEWEST_ENTRIES 4u

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "libatomic's lock would not reach other processes");

/* Words that one rank writes and all may read. Each rank's words have a cache line of their own, because the rank
 * writes them at each call. */
struct rank_words {
    _Alignas(LINE) _Atomic uint64_t published; /* number of its last published call */
    _Atomic uint64_t thread;                   /* the thread that published it */
    _Atomic uint64_t finished;                 /* number of its last finished call */
};

/* Words that all ranks write, at the start of each entry. Both share a cache line, because the last rank to arrive
 * writes both. */
struct agreement {
    /* With up to 64 ranks, each rank flips its bit when it arrives, so all bits are equal before the first and after
     * the last arrival of a group. With more ranks, the word counts arrivals. */
    _Alignas(LINE) _Atomic uint64_t arrivals;
    /* The last call of a group, and how the group was decided. Until a group is decided, the word holds the decision on
     * an older group. */
    _Atomic uint64_t decision;
};

/* ---- where things lie */

static size_t record_stride(int nranks)
{
    return (cecl_place_record_bytes(nranks) + LINE - 1) / LINE * LINE;
}

static size_t entry_stride(int nranks)
{
    return sizeof(struct agreement) + (size_t)nranks * record_stride(nranks);
}

static uint32_t entries_for(int nranks)
{
    uint32_t entries = MOST_ENTRIES;
    while (entries > FEWEST_ENTRIES && entries * entry_stride(nranks) > RING_BYTES)
        entries /= 2;
    return entries;
}

static struct rank_words *words_of(const struct cecl_places *places, int rank)
{
    return (struct rank_words *)(void *)places->shared + rank;
}

static struct agreement *agreement_of(const struct cecl_places *places, uint64_t call)
{
    char *ring = places->shared + (size_t)places->nranks * sizeof(struct rank_words);
    return (void *)(ring + (call & (places->nentries - 1)) * places->entry_bytes);
}

static struct cecl_place_record *record_of(const struct cecl_places *places, uint64_t call,
                                           int rank)
{
    char *records = (char *)(agreement_of(places, call) + 1);
    return (void *)(records + (size_t)rank * places->record_bytes);
}

static uint64_t last_call(const struct cecl_places_group *group)
{
    return group->first + group->count - 1;
}

static bool has_order(const struct cecl_places *places)
{
    return places->nranks <= CECL_PLACES_ORDERED_RANKS;
}

size_t cecl_places_bytes(int nranks)
{
    return (size_t)nranks * sizeof(struct rank_words) + entries_for(nranks) * entry_stride(nranks);
}

void cecl_places_open(struct cecl_places *places, void *shared, int rank, int nranks)
{
    *places = (struct cecl_places){.shared = shared,
                                   .rank = rank,
                                   .nranks = nranks,
                                   .nentries = entries_for(nranks),
                                   .entry_bytes = entry_stride(nranks),
                                   .record_bytes = record_stride(nranks)};
    if (has_order(places))
        places->others = ~UINT64_C(0) >> (64 - nranks) & ~(UINT64_C(1) << rank);
    places->room_for = places->nentries;
}

uint32_t cecl_places_entries(const struct cecl_places *places)
{
    return places->nentries;
}

/* ---- waiting */

/* After so many polls a wait yields the core to other threads. (Peers usually come within microseconds.) */
#define POLLS_BEFORE_YIELD 2048u
#define POLLS_PER_QUESTION 64u

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits a little. Returns false if the wait must end. */
static bool linger(uint32_t *polls, cecl_places_go_on *go_on, void *context)
{
    if (*polls < POLLS_BEFORE_YIELD)
        relax();
    else
        sched_yield();
    ++*polls;
    return *polls % POLLS_PER_QUESTION != 0 || go_on(context);
}

/* ---- publishing */

/* A number for the calling thread that no other thread of any process has; not 0. */
static uint64_t this_thread(void)
{
    static _Thread_local uint64_t number;
    if (number == 0)
        number = (uint64_t)syscall(SYS_gettid) << 1; /* glibc before 2.30 has no gettid */
    return (cecl_fork_process() + number) | 1;
}

/* The last call that all ranks have finished, according to their words. A peer may write anything, but the result is at
 * most the last call that this rank itself has finished. */
static uint64_t finished_by_all(const struct cecl_places *places)
{
    uint64_t least = places->finished;
    for (int r = 0; r < places->nranks; r++) {
        /* Acquire: the peer's reads of entries, its arrivals and its decisions happen before this rank
         * overwrites those entries. */
        const uint64_t finished =
            atomic_load_explicit(&words_of(places, r)->finished, memory_order_acquire);
        if (finished < least)
            least = finished;
    }
    return least;
}

/* Waits until the entries of calls up to `last` are free. Reads the peers' words only about once in each round of the
 * ring. */
static bool wait_for_room(struct cecl_places *places, uint64_t last, cecl_places_go_on *go_on,
                          void *context)
{
    uint32_t polls = 0;
    while (last > places->room_for) {
        places->room_for = finished_by_all(places) + places->nentries;
        if (last > places->room_for && !linger(&polls, go_on, context))
            return false;
    }
    return true;
}

/* Decides a group, unless a rank has decided it already. */
static void decide(const struct cecl_places *places, uint64_t call,
                   enum cecl_places_outcome outcome)
{
    _Atomic uint64_t *decision = &agreement_of(places, call)->decision;
    uint64_t before = atomic_load_explicit(decision, memory_order_relaxed);
    /* Compare and swap: only the first decision is stored. Release: a rank that reads FULL sees all that this rank has
     * seen, which is the records of all ranks. */
    if (before >> 1 != call)
        atomic_compare_exchange_strong_explicit(decision, &before,
                                                call << 1 | (outcome == CECL_PLACES_LATE),
                                                memory_order_release, memory_order_relaxed);
}

/* The ranks whose bits differ from this rank's. */
static uint64_t differing(const struct cecl_places *places, uint64_t arrivals)
{
    const bool own = arrivals >> places->rank & 1;
    return (own ? ~arrivals : arrivals) & places->others;
}

/* Arrives, and returns the ranks that came before. Release: ranks that come later see this rank's
 * records. Acquire: this rank sees the records of all ranks that came before. */
static uint64_t arrive(const struct cecl_places *places, uint64_t call)
{
    _Atomic uint64_t *arrivals = &agreement_of(places, call)->arrivals;
    uint64_t earlier = 0;
    bool is_last;
    if (has_order(places)) {
        const uint64_t bit = UINT64_C(1) << places->rank;
        /* Each rank flips its bit as it arrives. So until this rank flips its own bit, the ranks with other bits are
         * those that came before. */
        earlier = differing(places, atomic_fetch_xor_explicit(arrivals, bit, memory_order_acq_rel));
        is_last = earlier == places->others;
    } else {
        const uint64_t nranks = (uint64_t)places->nranks;
        is_last =
            atomic_fetch_add_explicit(arrivals, 1, memory_order_acq_rel) % nranks == nranks - 1;
    }
    if (is_last)
        decide(places, call, CECL_PLACES_FULL);
    return earlier;
}

bool cecl_places_begin(struct cecl_places *places, uint32_t count, cecl_places_go_on *go_on,
                       void *context)
{
    return count >= 1 && count <= places->nentries &&
           wait_for_room(places, places->published + count, go_on, context);
}

struct cecl_place_record *cecl_places_own(const struct cecl_places *places, uint32_t index)
{
    return record_of(places, places->published + 1 + index, places->rank);
}

void cecl_places_publish(struct cecl_places *places, uint32_t count,
                         struct cecl_places_group *group)
{
    const uint64_t first = places->published + 1, last = places->published + count;
    struct rank_words *own = words_of(places, places->rank);
    /* Relaxed: peers use this word only to guess whether to wait. */
    atomic_store_explicit(&own->thread, this_thread(), memory_order_relaxed);
    /* Release: a rank that reads the number sees the records. */
    atomic_store_explicit(&own->published, last, memory_order_release);
    places->published = last;
    *group = (struct cecl_places_group){first, count, arrive(places, last)};
}

/* ---- meeting */

static bool is_decided(const struct cecl_places *places, uint64_t call,
                       enum cecl_places_outcome *outcome)
{
    /* Acquire: after FULL this rank sees the records of all ranks. */
    const uint64_t word =
        atomic_load_explicit(&agreement_of(places, call)->decision, memory_order_acquire);
    *outcome = word & 1 ? CECL_PLACES_LATE : CECL_PLACES_FULL;
    return word >> 1 == call;
}

/* A guess at when the missing ranks will come. SOON: all of them have published the call before the group. BEHIND: one
 * of them has not. NEVER: this thread makes, or may make, the calls of one of them. Loads are relaxed, because after a
 * wrong guess this rank only waits in vain, or decides LATE too early. */
enum missing { SOON, BEHIND, NEVER };

static enum missing what_is_missing(const struct cecl_places *places,
                                    const struct cecl_places_group *group)
{
    /* This rank has flipped its bit, so the ranks with other bits have not arrived. */
    uint64_t missing =
        differing(places, atomic_load_explicit(&agreement_of(places, last_call(group))->arrivals,
                                               memory_order_relaxed));
    const uint64_t thread = this_thread();
    enum missing what = SOON;
    for (; missing != 0; missing &= missing - 1) {
        const struct rank_words *peer = words_of(places, __builtin_ctzll(missing));
        const uint64_t its = atomic_load_explicit(&peer->thread, memory_order_relaxed);
        const bool is_behind =
            atomic_load_explicit(&peer->published, memory_order_relaxed) + 1 < group->first;
        /* its == 0: the peer has made no call yet, so its calls may come from this thread */
        if (its == thread || (is_behind && its == 0))
            return NEVER;
        if (is_behind)
            what = BEHIND;
    }
    return what;
}

/* A longer wait begins only if at least this much time is left: in less time no rank would arrive. */
#define LEAST_WAIT_NS 10000u

static uint64_t unspent(const struct cecl_places *places)
{
    return places->most_spent_ns > places->spent_ns ? places->most_spent_ns - places->spent_ns : 0;
}

/* How much time longer waits may still take; see cecl_places_patience. */
static uint64_t left_of(struct cecl_places *places, uint64_t now)
{
    const uint64_t regained = (now - places->waited_at) / CECL_PLACES_SHARE;
    places->spent_ns -= regained < places->spent_ns ? regained : places->spent_ns;
    places->waited_at = now;
    const uint64_t left = unspent(places);
    return left < LEAST_WAIT_NS ? 0 : left;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Counts `spent` ns of a longer wait, of which this rank waited `pending` ns only because its GPU had work. `spent` may
 * exceed what is left: if this rank got no core, or if there are more than CECL_PLACES_ORDERED_RANKS ranks. */
static void note_spent(struct cecl_places *places, struct cecl_places_patience *patience,
                       uint64_t spent, uint64_t pending)
{
    const uint64_t most = unspent(places);
    places->latest_ns = least_of(pending, most);
    places->spent_ns += least_of(spent, most);
    places->waited_at += spent;
    patience->pending_ns -= least_of(spent, patience->pending_ns);
}

/* If this rank's GPU has run out of work, the wait for the previous group counts CECL_PLACES_DRY times. `spent_ns` is
 * limited to CECL_PLACES_DRY times most_spent_ns, so that a rank regains all of it within CECL_PLACES_SHARE times this
 * limit. */
static void note_dry(struct cecl_places *places, const struct cecl_places_patience *patience,
                     void *context)
{
    const uint64_t more = (CECL_PLACES_DRY - 1) * places->latest_ns,
                   limit = places->most_spent_ns < UINT64_MAX / CECL_PLACES_DRY
                               ? CECL_PLACES_DRY * places->most_spent_ns
                               : UINT64_MAX;
    if (patience->is_pending && !patience->is_pending(context))
        places->spent_ns = more < limit - places->spent_ns ? places->spent_ns + more : limit;
    places->latest_ns = 0;
}

/* The number of the last call that all ranks have published. */
static uint64_t published_by_all(const struct cecl_places *places)
{
    uint64_t least = places->published;
    for (int r = 0; r < places->nranks; r++)
        least = least_of(
            least, atomic_load_explicit(&words_of(places, r)->published, memory_order_relaxed));
    return least;
}

/* The first part of a wait, which costs nothing: while this rank's GPU is behind (see cecl_places_patience). */
struct free_wait {
    bool goes_on;
    uint32_t to_do;    /* how much the GPU had to do when this rank looked last */
    uint64_t moved_ns; /* when `to_do` changed last, in ns since the wait began */
    uint64_t ns;       /* how long this part of the wait has lasted */
};

/* Updates *wait: finds whether the GPU is still behind. The wait began `spent` ns ago. */
static void look(struct cecl_places *places, const struct cecl_places_patience *patience,
                 void *context, struct free_wait *wait, uint64_t spent)
{
    const uint32_t to_do = patience->behind(context, published_by_all(places));
    if (to_do != wait->to_do)
        wait->moved_ns = spent;
    wait->to_do = to_do;
    const bool stands_still = to_do > 0 && spent - wait->moved_ns >= patience->behind_ns;
    if (stands_still)
        places->stood_still = (uint64_t)cecl_now_ns() + CECL_PLACES_SHARE * patience->behind_ns;
    wait->goes_on = to_do > 0 && !stands_still;
    wait->ns = spent;
}

/* How long a rank waits before it decides LATE, in ns; see struct cecl_places_patience. */
struct limits {
    bool may_decide;
    bool may_be_free; /* the wait may go on while this rank's GPU is behind */
    uint64_t least;   /* a wait of up to this time does not count as spent */
    /* -- how much longer the rank then waits -- */
    uint64_t worth; /* in any case: a LATE call would cost the GPUs this time */
    uint64_t more;  /* only while this rank's GPU has work */
};

static struct limits limits_of(struct cecl_places *places, const struct cecl_places_group *group,
                               const struct cecl_places_patience *patience, uint64_t start)
{
    const enum missing missing = has_order(places) ? what_is_missing(places, group) : SOON;
    const bool must_meet = patience->wait_ns == CECL_PLACES_MUST_MEET,
               may_decide = has_order(places) && !must_meet;
    const uint64_t left = missing == NEVER ? 0 : left_of(places, start);
    return (struct limits){.may_decide = may_decide,
                           .may_be_free = may_decide && patience->behind && missing != NEVER &&
                                          start >= places->stood_still,
                           .least = missing == SOON || must_meet ? patience->wait_ns : 0,
                           .worth = missing == SOON ? least_of(patience->worth_ns, left) : 0,
                           .more = patience->is_pending ? least_of(patience->pending_ns, left) : 0};
}

/* Meets a group that no rank had decided when this rank looked. */
static enum cecl_places_outcome wait_for_decision(struct cecl_places *places,
                                                  const struct cecl_places_group *group,
                                                  struct cecl_places_patience *patience,
                                                  cecl_places_go_on *go_on, void *context)
{
    const uint64_t call = last_call(group), start = (uint64_t)cecl_now_ns();
    const struct limits limits = limits_of(places, group, patience, start);
    const uint64_t worth = limits.worth, more = limits.more;
    struct free_wait behind = {.goes_on = limits.may_be_free};
    uint64_t longer = 0;
    uint32_t polls = 0;
    enum cecl_places_outcome outcome;
    while (!is_decided(places, call, &outcome)) {
        const uint64_t spent = (uint64_t)cecl_now_ns() - start;
        if (behind.goes_on)
            look(places, patience, context, &behind, spent);
        const bool is_over = spent - behind.ns >= limits.least;
        longer = is_over ? spent - behind.ns - limits.least : 0;
        if (limits.may_decide && !behind.goes_on && is_over && longer >= worth &&
            (longer >= more || !patience->is_pending(context)))
            decide(places, call, CECL_PLACES_LATE);
        /* ends the wait even if a hostile peer overwrites each decision */
        if (!linger(&polls, go_on, context))
            return CECL_PLACES_STOPPED;
    }
    const bool has_gained = outcome == CECL_PLACES_FULL && longer <= worth;
    note_spent(places, patience, has_gained ? longer / CECL_PLACES_GAINED : longer,
               more > worth && longer > worth ? longer - worth : 0);
    return outcome;
}

enum cecl_places_outcome cecl_places_meet(struct cecl_places *places,
                                          struct cecl_places_group *group,
                                          struct cecl_places_patience *patience,
                                          cecl_places_go_on *go_on, void *context)
{
    enum cecl_places_outcome outcome;
    if (places->latest_ns > 0)
        note_dry(places, patience, context);
    if (!is_decided(places, last_call(group), &outcome))
        outcome = wait_for_decision(places, group, patience, go_on, context);
    if (outcome == CECL_PLACES_FULL)
        group->earlier = places->others;
    places->nmet += outcome != CECL_PLACES_STOPPED;
    places->nlate += outcome == CECL_PLACES_LATE;
    return outcome;
}

int cecl_places_missing(const struct cecl_places *places, const struct cecl_places_group *group,
                        int rank)
{
    for (int r = rank; r < places->nranks && group->count > 0; r++)
        if (atomic_load_explicit(&words_of(places, r)->published, memory_order_relaxed) <
            last_call(group))
            return r;
    return -1;
}

const struct cecl_place_record *cecl_places_of(const struct cecl_places *places, uint64_t call,
                                               int rank)
{
    return record_of(places, call, rank);
}

void cecl_places_finish(struct cecl_places *places, const struct cecl_places_group *group)
{
    places->finished = last_call(group);
    /* Release: this rank's reads of the entries happen before any rank overwrites them. */
    atomic_store_explicit(&words_of(places, places->rank)->finished, places->finished,
                          memory_order_release);
}
