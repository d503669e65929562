/* See trial_period.h. Hashes are polynomials, so two entries of `hashes` give the hash of any part of the sequence. */
#include "nccl/trial_period.h"

#define BASE CECL_PERIOD_BASE
#define GRAM 32u /* a period is guessed when this many calls repeat */
#define SQUARE(x) ((x) * (x))
#define RAISED_TO_GRAM SQUARE(SQUARE(SQUARE(SQUARE(SQUARE(BASE)))))
#define LEAST_CALLS 64u
#define REPEATS 3u
#define REMEMBERED \
    (UINT64_C(4) * CECL_PERIOD_MOST) /* calls after which a run that broke off is forgotten */
#define SHORT_RUN 8u                 /* a run of fewer periods than this is short */
#define MOST_STRIKES 3u

static uint64_t power(uint32_t exponent)
{
    uint64_t result = 1, square = BASE;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            result *= square;
        square *= square;
    }
    return result;
}

static uint64_t *hash_at(struct cecl_period *period, uint64_t call)
{
    return &period->hashes[call % CECL_PERIOD_RING];
}

/* The hash of the `length` calls before call number `end`. `raised` is BASE to the power of `length`. */
static uint64_t part(struct cecl_period *period, uint64_t end, uint32_t length, uint64_t raised)
{
    return *hash_at(period, end) - *hash_at(period, end - length) * raised;
}

static uint64_t token_at(struct cecl_period *period, uint64_t call)
{
    return part(period, call + 1, 1, BASE);
}

static uint64_t mix(uint64_t hash)
{
    hash = (hash ^ hash >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 29;
}

/* ---- the search */

static void forget(struct cecl_period *period)
{
    period->length = period->candidate = 0;
}

/* How many calls a run needs before `candidate` is taken as the period. */
static uint64_t calls_needed(const struct cecl_period *period)
{
    const bool counts = period->broken > 0 && period->searched - period->broken_at < REMEMBERED;
    uint64_t needed = (uint64_t)REPEATS * period->candidate;
    if (needed < LEAST_CALLS)
        needed = LEAST_CALLS;
    if (counts && needed < 3 * period->broken)
        needed = 3 * period->broken;
    return needed;
}

/* Whether the `length` calls before call number `end` equal the `length` calls before those. */
static bool is_repeated(struct cecl_period *period, uint64_t end, uint32_t length, uint64_t raised)
{
    return end >= 2 * (uint64_t)length &&
           part(period, end, length, raised) == part(period, end - length, length, raised);
}

/* Guesses a period: how many calls ago the latest GRAM calls came the last time. The guess becomes the candidate if the
 * last two periods of this length are equal. */
static void guess(struct cecl_period *period)
{
    if (period->searched < GRAM)
        return;
    const uint32_t gram = (uint32_t)mix(part(period, period->searched, GRAM, RAISED_TO_GRAM));
    const uint32_t at = gram % CECL_PERIOD_SEEN, before = period->seen[at].gram,
                   length = (uint32_t)period->searched - period->seen[at].at;
    period->seen[at].gram = gram;
    period->seen[at].at = (uint32_t)period->searched;
    if (period->candidate > 0 || before != gram || length > CECL_PERIOD_MOST)
        return;
    const uint64_t raised = power(length);
    if (!is_repeated(period, period->searched, length, raised))
        return;
    period->candidate = length;
    period->run = 2 * (uint64_t)length;
    while (period->run < LEAST_CALLS &&
           is_repeated(period, period->searched + length - period->run, length, raised))
        period->run += length;
}

/* Called when the next call differs from the one `candidate` calls earlier: the run breaks off. */
static void break_off(struct cecl_period *period)
{
    if (period->run >= period->broken || period->searched - period->broken_at >= REMEMBERED) {
        period->broken = period->run;
        period->broken_at = period->searched;
    }
    period->candidate = 0;
}

/* Takes the candidate as the period. A period may begin with any call that begins a group. The chosen first call is the
 * one that gives the smallest hash, so the same sequence always gets the same first call. */
static void take(struct cecl_period *period)
{
    const uint32_t length = period->candidate;
    const uint64_t raised = power(length), end = period->calls;
    bool has_one = false;
    for (uint32_t back = 1; back <= length; back++) {
        const uint64_t pattern = part(period, end - back, length, raised);
        if ((token_at(period, end - back) & 1) != 0 && (!has_one || pattern < period->pattern)) {
            period->pattern = pattern;
            has_one = true;
        }
    }
    if (!has_one)
        return;
    period->length = length;
    period->raised = raised;
    period->strikes = 0;
    period->begun = end;
}

/* Looks at the next call: counts how many calls in a row equal the one `candidate` calls earlier. If the repetition of
 * a period that was found breaks off several times, forgets the period and searches for a longer one. */
static void follow(struct cecl_period *period, uint64_t token)
{
    const uint32_t length = period->candidate;
    if (length == 0)
        return;
    if (token == token_at(period, period->searched - length)) {
        period->run++;
        return;
    }
    if (period->length == 0) {
        break_off(period);
        return;
    }
    if (period->run >= length) {
        period->strikes = period->run < (uint64_t)SHORT_RUN * length ? period->strikes + 1 : 0;
        if (period->strikes == MOST_STRIKES) {
            break_off(period);
            forget(period);
            return;
        }
    }
    period->run = 0;
}

/* Looks at all calls that the search has not seen. */
static void search(struct cecl_period *period)
{
    while (period->searched < period->calls) {
        follow(period, token_at(period, period->searched));
        period->searched++;
        guess(period);
    }
    if (period->candidate > 0 && period->run >= calls_needed(period))
        take(period);
}

static bool begins(struct cecl_period *period)
{
    const uint32_t length = period->length;
    if (length == 0 || part(period, period->calls, length, period->raised) != period->pattern)
        return false;
    period->was_whole = period->calls - period->begun == length;
    period->begun = period->calls;
    return true;
}

static void add(struct cecl_period *period, uint64_t token)
{
    const uint64_t hash = *hash_at(period, period->calls);
    *hash_at(period, ++period->calls) = hash * BASE + token;
}

bool cecl_period_next(struct cecl_period *period, uint64_t token)
{
    if (period->length == 0) {
        add(period, token);
        if (period->calls % CECL_PERIOD_SEARCH == 0)
            search(period);
        return false;
    }
    const bool is_first = begins(period);
    follow(period, token);
    add(period, token);
    period->searched = period->calls;
    if (period->length > 0 && period->calls - period->begun > 4 * (uint64_t)period->length + 512)
        forget(period);
    return is_first;
}
