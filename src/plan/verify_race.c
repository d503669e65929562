/* No two uses of a byte, one of them a write, without an order between them that flags or a stream
 * guarantee. */
#include <inttypes.h>

#include "plan/verify_internal.h"

static bool before(const struct verifier *v, const struct verify_access *a,
                   const struct verify_access *b)
{
    return verify_clock(v, (int)b->actor, b->event)[a->actor] >= a->event;
}

/* Copies of one batch are one event and have no order among themselves. */
static bool ordered(const struct verifier *v, const struct verify_access *a,
                    const struct verify_access *b)
{
    if (a->actor == b->actor)
        return a->event != b->event;
    return before(v, a, b) || before(v, b, a);
}

ceclResult_t verify_races(const struct verifier *v)
{
    static const char *const names[CECL_WINDOW_COUNT] = {"sendbuff", "recvbuff", "staging"};
    for (int w = 0; w < CECL_WINDOW_COUNT; w++)
        for (int r = 0; r < v->nranks; r++) {
            const struct verify_accesses *all = &v->accesses[w * v->nranks + r];
            for (size_t i = 0; i < all->count; i++)
                for (size_t j = i + 1; j < all->count; j++) {
                    const struct verify_access *a = &all->list[i], *b = &all->list[j];
                    if ((!a->write && !b->write) || a->low >= b->high || b->low >= a->high ||
                        ordered(v, a, b))
                        continue;
                    return VERIFY_FAULT(
                        "race: %s of rank %d, bytes %" PRIu64 " to %" PRIu64 ": rank %" PRIu32
                        "'s %s and rank %" PRIu32 "'s %s have no order",
                        names[w], r, a->low > b->low ? a->low : b->low,
                        (a->high < b->high ? a->high : b->high) - 1, a->actor,
                        a->write ? "write" : "read", b->actor, b->write ? "write" : "read");
                }
        }
    return ceclSuccess;
}
