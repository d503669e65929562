/* The words of messages; see pairs.h. */
#include "flags/pairs.h"

#include <stdlib.h>

/* Counters for a pair of ranks: the sender has two, and the receiver has two. */
#define PAIR_COUNTERS (CECL_COUNTER_SIGNAL - CECL_COUNTER_READY)
_Static_assert(CECL_COUNTER_MOVED - CECL_COUNTER_READY == CECL_ROLES, "a counter for each role");
_Static_assert(PAIR_COUNTERS == 4, "cecl_hosted_pair_words has room for so many");

static uint32_t words_of_peers(const struct cecl_flags *flags)
{
    return PAIR_COUNTERS * (uint32_t)flags->nranks;
}

/* After the words of the counters comes a word that the rank itself writes: how far its messages have
 * begun. At first this word has the value of `done`, which means that no message is in progress. */
ceclResult_t cecl_pairs_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    const uint32_t count = words_of_peers(flags);
    flags->hosted = hosted;
    flags->awaited = calloc(count, sizeof(*flags->awaited));
    if (!flags->awaited)
        return cecl_fail(ceclOutOfMemory, "no host memory for the flags of %d ranks",
                         flags->nranks);
    for (uint32_t i = 0; i < count; i++)
        atomic_init(&flags->awaited[i], CECL_FIRST_EPOCH);
    for (int c = 0; c < PAIR_COUNTERS; c++)
        flags->counters[CECL_COUNTER_READY + c] = (struct cecl_counter){
            .words = (char *)(cecl_hosted_pairs(hosted, 0) + c * flags->nranks),
            .apart = hosted->apart,
            .unit = 1,
            .awaited = flags->awaited + c * flags->nranks};
    flags->counters[CECL_COUNTER_BEGUN] =
        (struct cecl_counter){.words = (char *)(cecl_hosted_pairs(hosted, 0) + count),
                              .apart = hosted->apart,
                              .own = true,
                              .unit = 1};
    cecl_hosted_begin(cecl_hosted_pairs(hosted, flags->rank), cecl_hosted_pair_words(flags->nranks),
                      CECL_FIRST_EPOCH);
    return ceclSuccess;
}

void cecl_pairs_forget(struct cecl_flags *flags)
{
    free(flags->awaited);
}

/* A note has the target in its upper half, and the peer and the role in its lower half. 0: no note. */
#define NOTED 0x80000000u
#define SENDS 0x40000000u

void cecl_pair_note(struct cecl_flags *flags, enum cecl_role role, int peer)
{
    const uint32_t target = flags->epoch[CECL_COUNTER_DONE] + 1,
                   what = NOTED | (role == CECL_SENDER ? SENDS : 0) | (uint32_t)peer;
    atomic_store_explicit(&flags->notes[target % CECL_PAIR_NOTES], (uint64_t)target << 32 | what,
                          memory_order_relaxed);
}

/* Messages between two looks at how far words are behind. Far fewer messages are pending, so no stream waits for a
 * value as old as this, and no peer still writes one. */
#define NEAR (UINT32_C(1) << 29)

/* The peer may write the word at the same time; then its value stays. */
static void raise_word(uint32_t *word, uint32_t value)
{
    uint32_t now = cecl_word_read(word);
    if ((int32_t)(value - now) > 0)
        atomic_compare_exchange_strong((_Atomic uint32_t *)word, &now, value);
}

void cecl_pair_keep_near(const struct cecl_flags *flags, enum cecl_role role, int peer,
                         uint64_t number)
{
    const enum cecl_role theirs = cecl_role_other(role);
    if (number % NEAR != 0 || !flags->awaited)
        return;
    const uint32_t near = CECL_FIRST_EPOCH + (uint32_t)number - NEAR;
    for (int c = 0; c < PAIR_COUNTERS; c += CECL_ROLES)
        raise_word(cecl_flags_word(flags, flags->rank, peer, CECL_COUNTER_READY + c + (int)theirs),
                   near);
}

/* Whether a word of this rank has not yet reached the last value for which a stream waits. */
static bool is_behind(const struct cecl_flags *flags, uint32_t index)
{
    const uint32_t awaited = atomic_load(&flags->awaited[index]);
    return (int32_t)(awaited -
                     cecl_word_read(cecl_hosted_pairs(flags->hosted, flags->rank) + index)) > 0;
}

bool cecl_pair_is_late(const struct cecl_flags *flags, int peer)
{
    bool late = false;
    for (uint32_t i = 0; flags->awaited && i < PAIR_COUNTERS; i++)
        late = late || is_behind(flags, i * (uint32_t)flags->nranks + (uint32_t)peer);
    return late;
}

/* Whether the launch that ends when `done` reaches this target is a single message. If so, sets that
 * message's role and peer. */
static bool read_note(const struct cecl_flags *flags, uint32_t target, enum cecl_role *role,
                      int *peer)
{
    const uint64_t note =
        atomic_load_explicit(&flags->notes[target % CECL_PAIR_NOTES], memory_order_relaxed);
    *role = (note & SENDS) != 0 ? CECL_SENDER : CECL_RECEIVER;
    *peer = (int)(note & (SENDS - 1));
    return note >> 32 == target && (note & NOTED) != 0;
}

/* If the group in progress is a single message, lists the message's peer. Otherwise lists the peers of all
 * pending groups, because no word says which group waits for which peer. */
static void name_peers(const struct cecl_flags *flags, uint32_t target,
                       struct cecl_progress *progress)
{
    enum cecl_role role;
    const bool known = read_note(flags, target, &role, &progress->message_peer);
    progress->message_peer = known ? progress->message_peer : -1;
    progress->message_sends = role == CECL_SENDER;
    for (int r = 0; r < flags->nranks; r++)
        if (cecl_pair_is_late(flags, r) && (!known || r == progress->message_peer))
            cecl_rank_list_add(&progress->late, r);
}

/* A group of messages is in progress if a stream has reached its start but not its end. */
void cecl_pair_progress(const struct cecl_flags *flags, struct cecl_progress *progress)
{
    if (!flags->awaited)
        return;
    const uint32_t *here = cecl_hosted_pairs(flags->hosted, flags->rank);
    for (uint32_t i = 0; i < words_of_peers(flags); i++)
        progress->messages += cecl_word_read(&here[i]);
    const uint32_t target = cecl_word_read(&here[words_of_peers(flags)]);
    if (cecl_flags_reached(flags, target))
        return;
    progress->started = true;
    progress->in_message = progress->late.count == 0;
    progress->message_target = target;
    if (progress->in_message)
        name_peers(flags, target, progress);
}

bool cecl_pair_is_mutual(const struct cecl_flags *flags, const struct cecl_posts *posts,
                         const struct cecl_progress *progress)
{
    const enum cecl_role back = progress->message_sends ? CECL_RECEIVER : CECL_SENDER;
    const uint32_t behind = cecl_flags_done_target(flags) - progress->message_target;
    bool is_mutual = false;
    for (int r = 0; r < flags->nranks;
         r++) /* the peer has posted, and this rank has not made its call yet */
        is_mutual = is_mutual || (r != flags->rank && cecl_posts_ahead(posts, back, r) > 0);
    for (uint32_t i = 1; i <= behind && i < CECL_PAIR_NOTES; i++) {
        enum cecl_role role;
        int peer;
        is_mutual = is_mutual ||
                    (read_note(flags, progress->message_target + i, &role, &peer) && role == back &&
                     peer != flags->rank && cecl_posts_ahead(posts, back, peer) >= 0);
    }
    return is_mutual;
}

void cecl_pair_release(const struct cecl_flags *flags)
{
    for (uint32_t i = 0; flags->awaited && i < words_of_peers(flags); i++)
        if (is_behind(flags, i))
            flags->dev->ops->host_write(flags->dev,
                                        cecl_hosted_pairs(flags->hosted, flags->rank) + i, 1,
                                        atomic_load(&flags->awaited[i]));
}
