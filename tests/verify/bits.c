/* The words of captured calls (CECL_COUNTER_TURN, CECL_COUNTER_CALL). A rank writes one word for all its peers, and a
 * wait is for one bit of it. The number of the call, in a word of its own, is treated as one more bit: it is set while
 * the number is there, and a wait is for exactly this number.
 *
 * Each time a bit is set in a word, each peer waits once for this bit. The n-th wait must end with the n-th setting in
 * every possible run. That needs two orders: the bit is cleared after all peers' waits for it, and a peer's next wait
 * for the bit comes after the clearing. With both, what a wait guarantees does not depend on the order of run.c's walk. */
#include "flags/turns.h"
#include "verify/internal.h"

#define CALL 14 /* the bit for the number; no phase has it */
#define VERIFY_LOW ((1u << VERIFY_BITS) - 1)

static struct verify_taken *taken_by(const struct verifier *v, int writer, int reader, int bit)
{
    return &v->taken[(writer * v->nranks + reader) * VERIFY_BITS + bit];
}

/* Sets the words as the last phase of an earlier call leaves them. */
void verify_bits_begin(struct verifier *v)
{
    for (int r = 0; r < v->nranks; r++)
        v->bits[r] = (struct verify_bits){.word = 1, .bit[0].raised = 1};
}

/* All peers' waits for a bit must come before the actor's last event, which clears the bit. */
static ceclResult_t check_clear(const struct verifier *v, int rank, int actor, int bit, uint32_t at)
{
    for (int r = 0; r < v->nranks; r++) {
        const struct verify_taken *taken = taken_by(v, rank, r, bit);
        if (r != rank && (taken->count != v->bits[rank].bit[bit].raised ||
                          !verify_is_after(v, actor, &taken->last)))
            return VERIFY_FAULT("launch %d, rank %d, step %u: clears bit %d, for which rank %d may "
                                "still wait",
                                v->ranks[rank].launch, rank, at, bit, r);
    }
    return ceclSuccess;
}

ceclResult_t verify_signal_bits(struct verifier *v, int rank, const struct cecl_step *step,
                                uint32_t at)
{
    const int actor = verify_actor(v, rank, step->lane);
    struct verify_bits *bits = &v->bits[rank];
    verify_event(v, actor, at);
    const struct verify_mark now = {(uint32_t)actor, v->actors[actor].nevents};
    if (!verify_is_after(v, actor, &bits->by))
        return VERIFY_FAULT(
            "launch %d, rank %d, step %u: the signal has no order with the one before",
            v->ranks[rank].launch, rank, at);
    const bool numbers = step->counter == CECL_COUNTER_CALL;
    const uint32_t call = 1u << CALL,
                   value = numbers ? (bits->word & ~call) | (step->phase ? call : 0)
                                   : (step->phase & ~VERIFY_LOW) |
                                         (step->phase & CECL_TURNS_PHASES) | (bits->word & call);
    for (int b = 0; b < VERIFY_BITS; b++) {
        const bool was = bits->word >> b & 1, is = value >> b & 1;
        if (was && !is) {
            CECL_TRY(check_clear(v, rank, actor, b, at));
            bits->bit[b].cleared = now;
        } else if (is && !was) {
            bits->bit[b].raised++;
            bits->bit[b].by = now;
        }
    }
    bits->word = value;
    if (numbers)
        bits->number = step->phase;
    bits->by = now;
    return ceclSuccess;
}

ceclResult_t verify_wait_bit(struct verifier *v, int rank, const struct cecl_step *step,
                             uint32_t at, bool *stuck)
{
    const int actor = verify_actor(v, rank, step->lane);
    const struct verify_bits *bits = &v->bits[step->peer];
    const bool numbers = step->counter == CECL_COUNTER_CALL;
    int b = numbers ? CALL : 0;
    while (!numbers && !(step->phase >> b & 1))
        b++;
    struct verify_taken *taken = taken_by(v, step->peer, rank, b);
    *stuck = numbers ? bits->number != step->phase : (bits->word & step->phase) == 0;
    /* the upper halves tell the watchdog which rank is late (flags/turns.h); at a wait for a number they may be equal */
    if (*stuck && (int16_t)((v->bits[rank].word >> 16) - (bits->word >> 16)) < !numbers)
        return VERIFY_FAULT(
            "launch %d, rank %d, step %u: waits for rank %u, which does not look late",
            v->ranks[rank].launch, rank, at, step->peer);
    if (*stuck)
        return ceclSuccess;
    if (taken->count >= bits->bit[b].raised || !verify_is_after(v, actor, &bits->bit[b].cleared))
        return VERIFY_FAULT(
            "launch %d, rank %d, step %u: may go on early, by an earlier bit %d of rank "
            "%u",
            v->ranks[rank].launch, rank, at, b, step->peer);
    uint32_t *clock = verify_event(v, actor, at);
    if (bits->bit[b].by.event)
        verify_join(v, clock, (int)bits->bit[b].by.actor, bits->bit[b].by.event);
    taken->count++;
    taken->last = (struct verify_mark){(uint32_t)actor, v->actors[actor].nevents};
    return ceclSuccess;
}
