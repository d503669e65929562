/* See meeting_rows.h. Each load is an acquire, and each store a release. So a reader of a slot that is written again sees
 * afterwards that the version has changed. */
#include "boot/meeting_rows.h"

#define WORD sizeof(uint64_t)
#define LINE 8 /* words of a cache line */

_Static_assert(sizeof(struct head) % WORD == 0 && sizeof(struct failure) % WORD == 0 &&
                   sizeof(struct call) % WORD == 0,
               "they are copied as words");

static size_t slot_words(int nranks)
{
    return sizeof(struct call) / WORD + (size_t)nranks;
}

static size_t row_words(int nranks)
{
    return (LINE + 2 * slot_words(nranks) + LINE - 1) / LINE * LINE;
}

size_t cecl_meetings_bytes(int nranks)
{
    return (size_t)nranks * row_words(nranks) * WORD;
}

/* A row begins with its version. */
static _Atomic uint64_t *row_of(const struct cecl_meeting_plan *plan, int rank)
{
    return (_Atomic uint64_t *)plan->memory + (size_t)rank * row_words(plan->nranks);
}

/* The slot that counts at this version. */
static _Atomic uint64_t *slot_of(const struct cecl_meeting_plan *plan, int rank, uint64_t version)
{
    return row_of(plan, rank) + LINE + version % 2 * slot_words(plan->nranks);
}

static _Atomic uint64_t *over_in(_Atomic uint64_t *slot)
{
    return slot + sizeof(struct call) / WORD;
}

static void load(void *to, const _Atomic uint64_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / WORD; i++) {
        const uint64_t word = atomic_load_explicit(&from[i], memory_order_acquire);
        memcpy((char *)to + i * WORD, &word, WORD);
    }
}

static void store(_Atomic uint64_t *to, const void *from, size_t bytes)
{
    uint64_t word;
    for (size_t i = 0; i < bytes / WORD; i++) {
        memcpy(&word, (const char *)from + i * WORD, WORD);
        atomic_store_explicit(&to[i], word, memory_order_release);
    }
}

uint64_t meeting_read(const struct cecl_meeting_plan *plan, int rank, void *to, size_t bytes,
                      int of)
{
    uint64_t version, over;
    do {
        version = atomic_load(row_of(plan, rank));
        _Atomic uint64_t *slot = slot_of(plan, rank, version);
        load(to, slot, bytes);
        over = atomic_load_explicit(&over_in(slot)[of], memory_order_acquire);
    } while (atomic_load(row_of(plan, rank)) != version);
    return over;
}

uint64_t meeting_changes(const struct cecl_meeting_plan *plan)
{
    uint64_t count = 0;
    for (int r = 0; r < plan->nranks; r++)
        count += atomic_load(row_of(plan, r));
    return count;
}

void meeting_begin(const struct cecl_meeting_plan *plan, struct draft *draft)
{
    const uint64_t version = atomic_load(row_of(plan, plan->rank));
    _Atomic uint64_t *from = slot_of(plan, plan->rank, version);
    draft->over = over_in(slot_of(plan, plan->rank, version + 1));
    load(&draft->call, from, sizeof(draft->call));
    for (int r = 0; r < plan->nranks; r++)
        atomic_store_explicit(&draft->over[r], atomic_load(&over_in(from)[r]),
                              memory_order_release);
}

void meeting_publish(const struct cecl_meeting_plan *plan, const struct draft *draft)
{
    const uint64_t version = atomic_load(row_of(plan, plan->rank));
    store(slot_of(plan, plan->rank, version + 1), &draft->call, sizeof(draft->call));
    atomic_store(row_of(plan, plan->rank), version + 1);
}

void meeting_end_calls(const struct draft *draft, int rank, uint64_t number)
{
    if (number > atomic_load(&draft->over[rank]))
        atomic_store_explicit(&draft->over[rank], number, memory_order_release);
}

bool meeting_agrees(const struct cecl_meeting_plan *plan, int member, const struct draft *draft)
{
    uint64_t version;
    bool same;
    do {
        struct head its;
        version = atomic_load(row_of(plan, member));
        _Atomic uint64_t *slot = slot_of(plan, member, version);
        load(&its, slot, sizeof(its));
        same = its.number == atomic_load(&draft->over[member]);
        for (int r = 0; r < plan->nranks && same; r++) {
            const uint64_t over = atomic_load(&over_in(slot)[r]),
                           number = atomic_load(&draft->over[r]);
            if (r != member && cecl_rank_set_has(&plan->members, r))
                same = its.state == MET ? over == number : over < number;
        }
    } while (atomic_load(row_of(plan, member)) != version);
    return same;
}
