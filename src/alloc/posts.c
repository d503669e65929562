/* Ranks publish in shared memory where the buffers of messages lie; see posts.h. */
#include "alloc/posts.h"

#include <stdatomic.h>
#include <stdlib.h>

#define LINE 64u /* bytes of a cache line */
#define ALL_BYTES (UINT64_C(2) << 20)
#define MOST_SLOTS 256u
#define FEWEST_SLOTS 16u

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "libatomic's lock would not reach other processes");

/* The words that one end of a ring, the sender or the receiver, writes, in a cache line of their own. */
struct end_words {
    /* number of the last message that this end finished */
    _Alignas(LINE) _Atomic uint64_t finished;
};

struct ring_words {
    struct end_words ends[CECL_ROLES];
};

struct slot {
    /* A bit for each role, which the rank in that role flips when it arrives. While no message uses the slot, both bits
     * are equal. */
    _Alignas(LINE) _Atomic uint32_t arrivals;
    struct cecl_post sent;
    _Alignas(LINE) struct cecl_post received;
};

static size_t ring_stride(uint32_t nslots)
{
    return sizeof(struct ring_words) + nslots * sizeof(struct slot);
}

static uint32_t slots_for(int nranks)
{
    const uint64_t rings = (uint64_t)nranks * (uint64_t)nranks;
    uint32_t slots = MOST_SLOTS;
    while (slots > FEWEST_SLOTS && rings * ring_stride(slots) > ALL_BYTES)
        slots /= 2;
    return nranks <= CECL_POSTS_RANKS ? slots : 0;
}

size_t cecl_posts_bytes(int nranks)
{
    const uint32_t slots = slots_for(nranks);
    return slots > 0 ? (size_t)nranks * (size_t)nranks * ring_stride(slots) + LINE : 0;
}

ceclResult_t cecl_posts_open(struct cecl_posts *posts, void *shared, int rank, int nranks,
                             uint32_t nslots)
{
    const uint32_t slots = nslots > 0 ? nslots : slots_for(nranks);
    *posts = (struct cecl_posts){.shared = shared,
                                 .rank = rank,
                                 .nranks = nranks,
                                 .nslots = slots,
                                 .ring_bytes = ring_stride(slots)};
    posts->numbers = calloc(CECL_ROLES * (size_t)nranks, sizeof(*posts->numbers));
    return posts->numbers
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for messages of %d ranks", nranks);
}

void cecl_posts_close(struct cecl_posts *posts)
{
    free(posts->numbers);
    *posts = (struct cecl_posts){0};
}

static uint64_t *number_of(const struct cecl_posts *posts, enum cecl_role role, int peer)
{
    return &posts->numbers[(int)role * posts->nranks + peer];
}

static struct ring_words *ring_of(const struct cecl_posts *posts, enum cecl_role role, int peer)
{
    const int from = role == CECL_SENDER ? posts->rank : peer,
              to = role == CECL_SENDER ? peer : posts->rank;
    const size_t index = (size_t)from * (size_t)posts->nranks + (size_t)to;
    return (void *)(posts->shared + index * posts->ring_bytes);
}

static struct slot *slot_of(const struct cecl_posts *posts, struct ring_words *ring,
                            uint64_t number)
{
    return (struct slot *)(void *)(ring + 1) + (number & (posts->nslots - 1));
}

static struct cecl_post *post_in(struct slot *slot, enum cecl_role role)
{
    return role == CECL_SENDER ? &slot->sent : &slot->received;
}

bool cecl_posts_room(const struct cecl_posts *posts, enum cecl_role role, int peer, uint32_t count)
{
    /* Acquire: the peer's reads of slots, and its arrivals there, happen before this rank overwrites those slots. */
    const uint64_t finished = atomic_load_explicit(
        &ring_of(posts, role, peer)->ends[cecl_role_other(role)].finished, memory_order_acquire);
    return *number_of(posts, role, peer) + count <= finished + posts->nslots;
}

/* Before the first rank arrives both bits are equal. */
static bool one_has_arrived(uint32_t arrivals)
{
    return (arrivals & 1) != (arrivals >> 1 & 1);
}

bool cecl_posts_came(const struct cecl_posts *posts, enum cecl_role role, int peer, uint32_t ahead)
{
    const struct slot *slot =
        slot_of(posts, ring_of(posts, role, peer), *number_of(posts, role, peer) + ahead);
    /* this rank has not arrived, so if one bit is flipped, it is the peer's */
    return one_has_arrived(atomic_load_explicit(&slot->arrivals, memory_order_relaxed));
}

/* The word for tickets lies after the rings. */
uint64_t cecl_posts_ticket(const struct cecl_posts *posts)
{
    const size_t rings = (size_t)posts->nranks * (size_t)posts->nranks;
    return atomic_fetch_add((_Atomic uint64_t *)(void *)(posts->shared + rings * posts->ring_bytes),
                            1);
}

/* Release: this rank's reads of the slots happen before any rank overwrites them. */
void cecl_posts_finish(const struct cecl_posts *posts, enum cecl_role role, int peer)
{
    atomic_store_explicit(&ring_of(posts, role, peer)->ends[role].finished,
                          *number_of(posts, role, peer), memory_order_release);
}

bool cecl_posts_put(struct cecl_posts *posts, enum cecl_role role, int peer,
                    const struct cecl_post *mine, uint64_t *number, struct cecl_post *theirs)
{
    struct ring_words *ring = ring_of(posts, role, peer);
    *number = ++*number_of(posts, role, peer);
    struct slot *slot = slot_of(posts, ring, *number);
    *post_in(slot, role) = *mine;
    /* Release: if the peer comes second, it sees this rank's post. Acquire: if this rank comes second, it
     * sees the peer's post. */
    const bool is_second = one_has_arrived(
        atomic_fetch_xor_explicit(&slot->arrivals, 1u << role, memory_order_acq_rel));
    if (is_second)
        *theirs = *post_in(slot, cecl_role_other(role));
    if (!mine->captured)
        cecl_posts_finish(posts, role, peer);
    return is_second;
}

bool cecl_posts_met(const struct cecl_posts *posts, enum cecl_role role, int peer, uint64_t number,
                    struct cecl_post *theirs)
{
    struct slot *slot = slot_of(posts, ring_of(posts, role, peer), number);
    if (one_has_arrived(atomic_load_explicit(&slot->arrivals, memory_order_acquire)))
        return false;
    *theirs = *post_in(slot, cecl_role_other(role));
    return true;
}
