/* The shared table of meetings. Ranks take no lock, because a rank that is stopped would keep it. The memory holds
 * several copies of the table, and `newest` says which of them counts. To change the table, a rank
 * 1. copies the newest table into its own memory (meeting_read),
 * 2. changes that,
 * 3. writes it into a free copy, and makes this the newest copy, if no other rank was faster (meeting_publish).
 * So all other ranks see the whole change or nothing of it, even if this rank ends or is stopped amid it.
 * Also what all waits of meetings need: whether a rank has gone, and the sleep between two looks. */
#include "boot/meeting_internal.h"

#include <stddef.h>
#include <time.h>

#include "util/clock.h"

#define FREE_MS 5000 /* ms for which other ranks may keep all copies that do not count */
#define NAP_MIN_NS 20000
#define NAP_MAX_NS 1000000 /* or, if that is longer, NAP_RANK_NS for each rank */
#define NAP_RANK_NS 20000

/* What a rank brought last. Only that rank writes it. */
struct part {
    uint64_t serial; /* the meeting to which the rank brought it; 0: it is being written */
    char bytes[CECL_MEETING_PART_BYTES];
};

#define WORD sizeof(uint64_t)
#define PART_WORDS (sizeof(struct part) / WORD)
_Static_assert(sizeof(struct meeting) % WORD == 0 &&
                   sizeof(struct cecl_meeting_table) % WORD == 0 && sizeof(struct part) % WORD == 0,
               "they are copied as words");

size_t cecl_meeting_table_bytes(int nranks)
{
    return sizeof(struct cecl_meeting_table) + ((size_t)nranks + OUTCOMES) * sizeof(struct meeting);
}

/* Bytes before the list that are in use. */
static size_t table_head_bytes(const struct cecl_meeting_plan *plan)
{
    return offsetof(struct cecl_meeting_table, last_of) + (size_t)plan->nranks * WORD;
}

static struct shared_table *shared_of(const struct cecl_meeting_plan *plan)
{
    return plan->memory;
}

static _Atomic uint64_t *copy_of(const struct cecl_meeting_plan *plan, uint64_t copy)
{
    return shared_of(plan)->words + copy * (cecl_meeting_table_bytes(plan->nranks) / WORD);
}

/* Where the list of meetings begins in a copy. */
static _Atomic uint64_t *list_in(_Atomic uint64_t *copy)
{
    return copy + offsetof(struct cecl_meeting_table, list) / WORD;
}

static _Atomic uint64_t *part_of(const struct cecl_meeting_plan *plan, int rank)
{
    return copy_of(plan, COPIES) + (size_t)rank * PART_WORDS;
}

size_t cecl_meetings_bytes(int nranks)
{
    return sizeof(struct shared_table) + COPIES * cecl_meeting_table_bytes(nranks) +
           (size_t)nranks * sizeof(struct part);
}

/* ---- other ranks */

void meeting_nap(const struct cecl_meeting_plan *plan, int64_t *ns)
{
    const int64_t share = (int64_t)plan->nranks * NAP_RANK_NS,
                  most = share > NAP_MAX_NS ? share : NAP_MAX_NS;
    *ns = *ns == 0 ? NAP_MIN_NS : *ns < most / 2 ? 2 * *ns : most;
    nanosleep(&(struct timespec){.tv_nsec = (long)*ns}, NULL);
}

ceclResult_t meeting_check_there(const struct cecl_meeting_plan *plan, int rank)
{
    const ceclResult_t there =
        plan->mesh ? cecl_mesh_check_peer(plan->mesh, rank, "") : ceclSuccess;
    return there == ceclSuccess ? ceclSuccess
                                : cecl_fail(there, "%s; it is not excluded", cecl_message());
}

/* ---- words. Another rank may write what this rank reads. Then this rank sees, at the end, that `newest` or the
 * part's serial has changed: each load is an acquire, and each store a release. */

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

/* ---- the table */

void meeting_forget(const struct cecl_meeting_plan *plan)
{
    plan->table->seen = UINT64_MAX;
}

void meeting_read(const struct cecl_meeting_plan *plan)
{
    const struct shared_table *shared = shared_of(plan);
    struct cecl_meeting_table *table = plan->table;
    uint64_t newest = atomic_load(&shared->newest);
    while (newest != table->seen) {
        _Atomic uint64_t *from = copy_of(plan, newest % COPIES);
        load(table, from, table_head_bytes(plan));
        load(table->list, list_in(from), table->used * sizeof(struct meeting));
        table->seen = newest;
        /* is another one if the copy may have been written meanwhile */
        newest = atomic_load(&shared->newest);
    }
}

/* Tries to take a copy from the rank `from`, or from NOBODY. */
static bool take(const struct cecl_meeting_plan *plan, uint64_t copy, int from)
{
    uint32_t writer = (uint32_t)(from + 1);
    return atomic_compare_exchange_strong(&shared_of(plan)->writer[copy], &writer,
                                          (uint32_t)plan->rank + 1);
}

/* Takes a copy that is not the newest one and has no writer. If all have writers, takes one whose writer has ended,
 * because that rank writes no more. Returns the copy's number, or -1 if there is none.
 * writers  [out] the living ranks that keep the copies */
static int take_any(const struct cecl_meeting_plan *plan, struct cecl_rank_set *writers)
{
    const uint64_t newest = plan->table->seen % COPIES;
    *writers = nobody;
    for (uint64_t copy = 0; copy < COPIES; copy++)
        if (copy != newest && take(plan, copy, NOBODY))
            return (int)copy;
    for (uint64_t copy = 0; copy < COPIES; copy++) {
        const int writer = (int)atomic_load(&shared_of(plan)->writer[copy]) - 1;
        if (copy == newest || writer == NOBODY)
            continue;
        if (meeting_check_there(plan, writer) == ceclSuccess)
            cecl_rank_set_add(writers, writer);
        else if (take(plan, copy, writer))
            return (int)copy;
    }
    return -1;
}

static bool is_newest(const struct cecl_meeting_plan *plan)
{
    return atomic_load(&shared_of(plan)->newest) == plan->table->seen;
}

/* Takes a copy. *copy is -1 if the table has changed meanwhile. */
static ceclResult_t await_copy(const struct cecl_meeting_plan *plan, int *copy)
{
    const int64_t deadline = cecl_deadline(FREE_MS);
    struct cecl_rank_set writers;
    int64_t rest = 0;
    for (;; meeting_nap(plan, &rest)) {
        const bool is_last = cecl_ms_left(deadline) == 0;
        *copy = take_any(plan, &writers);
        if (*copy >= 0 || !is_newest(plan))
            return ceclSuccess;
        if (is_last && !equal(&writers, &nobody)) {
            struct cecl_rank_list names = list_of(&writers, plan->nranks, true);
            return cecl_fail(ceclTimeout, "%s stopped inside a call for more than %d ms",
                             cecl_rank_list_words(&names), FREE_MS);
        }
    }
}

/* Writes this rank's table into a copy that it has taken, and makes that the newest one. Once this rank has taken the
 * copy, only this rank can make it the newest. So it must look only then whether the table has changed. */
static bool write_copy(const struct cecl_meeting_plan *plan, uint64_t copy)
{
    const struct cecl_meeting_table *table = plan->table;
    _Atomic uint64_t *to = copy_of(plan, copy);
    uint64_t seen = table->seen;
    if (!is_newest(plan))
        return false;
    store(to, table, table_head_bytes(plan));
    store(list_in(to), table->list, table->used * sizeof(struct meeting));
    return atomic_compare_exchange_strong(&shared_of(plan)->newest, &seen,
                                          (seen / COPIES + 1) * COPIES + copy);
}

ceclResult_t meeting_publish(const struct cecl_meeting_plan *plan, bool *published)
{
    int copy;
    *published = false;
    const ceclResult_t result = await_copy(plan, &copy);
    if (result == ceclSuccess && copy >= 0) {
        *published = write_copy(plan, (uint64_t)copy);
        atomic_store(&shared_of(plan)->writer[copy], 0);
    }
    meeting_forget(plan);
    return result;
}

/* ---- parts */

void meeting_bring(const struct cecl_meeting_plan *plan, uint64_t serial)
{
    struct part part = {.serial = serial};
    _Atomic uint64_t *mine = part_of(plan, plan->rank);
    if (plan->bytes > 0) /* a rank that refuses brings nothing */
        memcpy(part.bytes, plan->part, plan->bytes);
    atomic_store(&mine[0], 0);
    store(mine + 1, part.bytes, sizeof(part.bytes));
    atomic_store(&mine[0], serial);
}

bool meeting_take(const struct cecl_meeting_plan *plan, int rank, uint64_t serial, void *bytes)
{
    struct part part;
    const _Atomic uint64_t *its = part_of(plan, rank);
    load(&part, its, sizeof(part));
    if (part.serial != serial || atomic_load(&its[0]) != serial)
        return false;
    memcpy(bytes, part.bytes, plan->bytes);
    return true;
}
