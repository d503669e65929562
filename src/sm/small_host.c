/* Small calls on the host: one thread for each rank does what the kernel of small.cu does. Ranks
 * may be threads or processes; slots are memory that they share.
 *
 * A line is 12 bytes of data and then its epoch, which is written by a release store. A reader that sees the epoch by
 * an acquire load also sees the data. It need not check the epoch again after it has read the data, because no rank
 * overwrites a line before it was read (see small.h). A line could be overwritten earlier only if two waits in a row
 * ended without data, and by then the communicator has failed.
 *
 * On a GPU each warp moves a group of a block. Here one thread moves the groups one after another. It sends all groups
 * before it waits for any, so no peer's data is held up by a wait of this rank. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "sm/small_args.h"
#include "util/clock.h"

#define NOBODY (-1)
#define VECTOR_WORDS 4
#define LINE_WORDS 3
#define GROUP_WORDS (CECL_SMALL_GROUP_BYTES / sizeof(uint32_t))

/* Peers often come within microseconds, and may need this core, so a wait yields at first. (A sleep would take longer:
 * Linux adds 50 us.) After YIELDS_NS a waiting rank sleeps, and leaves the core to ranks that work. Each sleep is a
 * fraction of the time waited so far, so it adds little. */
#define YIELDS_NS 1000000
#define NAP_PART 8
#define NAP_MOST_NS 1000000

_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "words of slots are read as atomics");
_Static_assert(CECL_SMALL_VECTORS *VECTOR_WORDS == CECL_SMALL_LINES * LINE_WORDS,
               "a thread's vectors fill its lines");

static _Atomic uint32_t *atomic_of(const void *word)
{
    return (_Atomic uint32_t *)(uintptr_t)word;
}

static bool is_set(const uint32_t *word)
{
    return atomic_load_explicit(atomic_of(word), memory_order_acquire) != 0;
}

/* ---- lines */

/* The data is atomic too, because peers may still write after a wait has ended early. */
static void line_store(unsigned char *at, const uint32_t data[LINE_WORDS], uint32_t epoch)
{
    _Atomic uint32_t *line = atomic_of(at);
    for (int w = 0; w < LINE_WORDS; w++)
        atomic_store_explicit(&line[w], data[w], memory_order_relaxed);
    atomic_store_explicit(&line[LINE_WORDS], epoch, memory_order_release);
}

static bool line_is_here(const unsigned char *at, uint32_t epoch)
{
    return atomic_load_explicit(atomic_of(at) + LINE_WORDS, memory_order_acquire) == epoch;
}

/* Must be called after line_is_here. */
static void line_load(const unsigned char *at, uint32_t data[LINE_WORDS])
{
    for (int w = 0; w < LINE_WORDS; w++)
        data[w] = atomic_load_explicit(atomic_of(at) + w, memory_order_relaxed);
}

/* ---- groups: 1536 bytes of a block, or the rest of the block. A group has 32 shares. A share is what one thread of a
 * GPU moves: share i is vectors i, i + 32 and i + 64 of the group. Its words fill its lines one after another. */

struct group {
    uint64_t offset;  /* bytes from the start of the block */
    uint32_t bytes;   /* how many bytes the block has in this group */
    uint32_t vectors; /* number of vectors, of which the last may be short */
    uint32_t line;    /* offset of the group's first row in a slot */
};

static struct group group_at(const struct cecl_small_args *args, uint32_t index)
{
    const uint64_t offset = (uint64_t)index * CECL_SMALL_GROUP_BYTES, left = args->bytes - offset;
    const uint32_t bytes = left < CECL_SMALL_GROUP_BYTES ? (uint32_t)left : CECL_SMALL_GROUP_BYTES;
    return (struct group){.offset = offset,
                          .bytes = bytes,
                          .vectors = (bytes + 15) / 16,
                          .line = index * CECL_SMALL_LINES * CECL_SMALL_ROW};
}

static uint32_t group_count(const struct cecl_small_args *args)
{
    return (args->bytes + CECL_SMALL_GROUP_BYTES - 1) / CECL_SMALL_GROUP_BYTES;
}

/* The number of lines of a share: one more than its vectors, but 0 without vectors. */
static uint32_t lines_of(const struct group *group, uint32_t share)
{
    if (share >= group->vectors)
        return 0;
    return (group->vectors - share + CECL_SMALL_SHARES - 1) / CECL_SMALL_SHARES + 1;
}

/* The index of word `w` of a share among the group's words. */
static uint32_t word_at(uint32_t share, uint32_t w)
{
    return (w / VECTOR_WORDS * CECL_SMALL_SHARES + share) * VECTOR_WORDS + w % VECTOR_WORDS;
}

static void group_load(const unsigned char *block, const struct group *group,
                       uint32_t words[GROUP_WORDS])
{
    memset(words, 0, CECL_SMALL_GROUP_BYTES);
    memcpy(words, block + group->offset, group->bytes);
}

static void group_send(unsigned char *slot, const struct group *group,
                       const uint32_t words[GROUP_WORDS], uint32_t epoch)
{
    for (uint32_t share = 0; share < CECL_SMALL_SHARES; share++)
        for (uint32_t line = 0; line < lines_of(group, share); line++) {
            uint32_t data[LINE_WORDS];
            for (uint32_t w = 0; w < LINE_WORDS; w++)
                data[w] = words[word_at(share, line * LINE_WORDS + w)];
            line_store(slot + group->line + line * CECL_SMALL_ROW + share * 16, data, epoch);
        }
}

/* ---- waiting */

static void rest(int64_t waited_ns)
{
    const int64_t part = waited_ns / NAP_PART;
    const struct timespec nap = {.tv_nsec = (long)(part < NAP_MOST_NS ? part : NAP_MOST_NS)};
    if (waited_ns < YIELDS_NS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* Waits for a line. Returns false if the wait has ended early. */
static bool line_await(const struct cecl_small_args *args, const unsigned char *at)
{
    int64_t begin = 0;
    while (!line_is_here(at, args->epoch ^ args->mark)) {
        const int64_t now = cecl_now_ns();
        begin = begin ? begin : now;
        if (is_set(args->end) || (args->timeout_ns > 0 && now - begin >= (int64_t)args->timeout_ns))
            return false;
        rest(now - begin);
    }
    return true;
}

/* Receives a group from a rank. Returns false if the wait has ended early. */
static bool group_receive(const struct cecl_small_args *args, uint32_t rank,
                          const struct group *group, uint32_t words[GROUP_WORDS])
{
    const unsigned char *const rows = args->from + rank * args->slot + group->line;
    for (uint32_t share = 0; share < CECL_SMALL_SHARES; share++)
        for (uint32_t line = 0; line < lines_of(group, share); line++) {
            const unsigned char *const at = rows + line * CECL_SMALL_ROW + share * 16;
            uint32_t data[LINE_WORDS];
            if (!line_await(args, at))
                return false;
            line_load(at, data);
            for (uint32_t w = 0; w < LINE_WORDS; w++)
                words[word_at(share, line * LINE_WORDS + w)] = data[w];
        }
    return true;
}

/* ---- the call */

/* Shows peers that this rank has begun. Only watchdogs read these words, so no thread is woken. */
static void tell(const struct cecl_meeting *meeting)
{
    if ((meeting->does & CECL_MEET_SIGNAL_FIRST) == 0)
        return;
    for (uint32_t i = 1; i < meeting->nranks; i++) {
        const uint32_t peer = (meeting->rank + i) % meeting->nranks;
        atomic_store_explicit(atomic_of((char *)meeting->word + peer * meeting->apart),
                              meeting->first, memory_order_release);
    }
}

/* Renews a row of this rank's slots, except lines that peers use in this call. Other ranks write the renewed
 * lines only after this call has ended. */
static void renew(const struct cecl_small_args *args)
{
    static const uint32_t nothing[LINE_WORDS];
    const uint32_t vectors = (args->bytes + 15) / 16;
    for (uint32_t share = 0; share < CECL_SMALL_SHARES; share++)
        if (args->renewed_vector + share >= vectors)
            line_store(args->renewed + share * 16, nothing, args->epoch ^ CECL_SMALL_FAR);
}

static void send_all(const struct cecl_small_args *args)
{
    uint32_t words[GROUP_WORDS];
    for (uint32_t g = 0; g < group_count(args); g++) {
        const struct group group = group_at(args, g);
        for (uint32_t k = 0; k + 1 < args->nranks; k++) {
            const uint32_t peer = (args->rank + 1 + k) % args->nranks;
            if (k == 0 || args->send_stride != 0)
                group_load(args->send + (uint64_t)peer * args->send_stride, &group, words);
            group_send(args->to[k], &group, words, args->epoch ^ args->mark);
        }
    }
}

/* Makes the result of a group from all ranks' data. */
static void group_use(const struct cecl_small *small, const struct cecl_small_args *args,
                      const struct group *group, const uint32_t got[][GROUP_WORDS])
{
    const void *src[CECL_SMALL_RANKS_MAX];
    for (uint32_t r = 0; r < args->nranks; r++) {
        src[r] = got[r];
        if (!cecl_small_reduces(small))
            memcpy(args->recv + (uint64_t)r * args->bytes + group->offset, src[r], group->bytes);
    }
    if (!cecl_small_reduces(small))
        return;
    const struct cecl_reduction reduction = {
        .dst = args->recv + cecl_reduction_result_bytes(small->widens, group->offset),
        .src = src,
        .nsrc = args->nranks,
        .count = group->bytes / cecl_reduction_element_bytes(small->type),
        .type = small->type,
        .op = small->op,
        .widens = small->widens,
        .divisor = args->nranks};
    cecl_reduce_host(&reduction);
}

/* Reads a group from all ranks, this one included, before it writes the group's result, so the call may be in place.
 * Returns a rank for whose data a wait has ended early, or NOBODY. */
static int receive_all(const struct cecl_small *small, const struct cecl_small_args *args)
{
    uint32_t got[CECL_SMALL_RANKS_MAX][GROUP_WORDS];
    for (uint32_t g = 0; g < group_count(args); g++) {
        const struct group group = group_at(args, g);
        for (uint32_t r = 0; r < args->nranks; r++)
            if (r == args->rank)
                group_load(args->send + (uint64_t)r * args->send_stride, &group, got[r]);
            else if (!group_receive(args, r, &group, got[r]))
                return (int)r;
        group_use(small, args, &group, (const uint32_t(*)[GROUP_WORDS])got);
    }
    return NOBODY;
}

/* Returns the rank for whose data the call gave up waiting, or NOBODY. If the communicator had
 * already failed, sends nothing and returns this rank. */
static int exchange(const struct cecl_small *small, const struct cecl_small_args *args)
{
    if (is_set(args->end))
        return (int)args->rank;
    tell(&args->meeting);
    renew(args);
    send_all(args);
    return receive_all(small, args);
}

/* For a captured call: takes the next number, marks the call as begun, and tells the number to all hosts. */
static uint32_t begin_counted(const struct cecl_meeting *meeting,
                              const struct cecl_counting *counting)
{
    const uint32_t epoch = atomic_load(atomic_of(counting->count)) + 1;
    atomic_store(atomic_of(meeting->done), counting->begun_value);
    for (uint32_t r = 0; r < meeting->nranks; r++)
        atomic_store(
            (_Atomic uint64_t *)(uintptr_t)((char *)counting->told + r * counting->told_apart),
            (uint64_t)counting->number << 32 | epoch);
    return epoch;
}

void cecl_small_host(const struct cecl_small *asked)
{
    struct cecl_small now = *asked, *const small = &now;
    struct cecl_small_args args;
    if (small->counting) {
        small->epoch = begin_counted(small->meeting, small->counting);
        small->counting = NULL; /* the epoch is known now */
    }
    cecl_small_args_make(small, &args);
    if (asked->counting)
        args.mark = cecl_small_mark(asked);
    const int late = exchange(small, &args);
    if (late != NOBODY)
        atomic_store_explicit(atomic_of(args.late), 1 + (uint32_t)late, memory_order_release);
    if (asked->counting)
        atomic_store(atomic_of(asked->counting->count), small->epoch);
    if (args.meeting.does & CECL_MEET_DONE)
        atomic_store_explicit(atomic_of(args.meeting.done), args.meeting.done_value,
                              memory_order_release);
}
