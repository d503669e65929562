/* Flags: the words by which ranks signal their progress to each other. This folder has all code that
 * counts, reads and releases these words. It knows the pool and the device, but no plan and no
 * collective. counters.h has the table of how each counter's words are used.
 *
 * For each lane a rank has a row of 32-bit words in its symmetric memory. The row has a word for each peer. Only that
 * peer writes the word, and the word only grows, modulo 2^32. A lane's epoch tells which value its flags have when all
 * calls so far are done. A call with n phases on a lane adds n to the lane's epoch, on all ranks alike.
 *
 * Flags travel in one of two ways: a copy engine copies the word to the peer from a table of all values that
 * a flag can have; or the rows lie in memory of the host, and a stream writes the word there.
 *
 * The word `done` shows the host the progress of this rank's calls, in phases of the main lane. The stream that runs a
 * call writes it. A call without phases (any call of a single rank; a group of messages) signals nothing to peers by
 * flags. It adds one to `done` and nothing to the epochs, so some ranks may make the call and others not.
 *
 * Which thread may call what: docs/architecture.md, "Threads". */
#ifndef CECL_FLAGS_FLAGS_H
#define CECL_FLAGS_FLAGS_H

#include <stdatomic.h>

#include "alloc/hosted.h"
#include "alloc/pool.h"
#include "boot/rank_list.h"
#include "flags/counters.h"
#include "util/clock.h"

/* The upper half of a flag holds the low 16 bits of its epoch. So flags can be compared cyclically as
 * 32-bit words, and a table of all values has only 65,536 entries. */
#define CECL_FLAG_VALUES 65536u
static inline uint32_t cecl_flag_value(uint32_t epoch)
{
    return epoch << 16;
}

/* Counters start close to the wrap-around. So every program wraps them early, and errors in wrapping show. */
#define CECL_FIRST_EPOCH 0xffffff00u

/* The kinds of captured calls that are one kernel. Each kind has its own numbers without gaps: a small call's number
 * selects the row of slots that it renews (sm/small.h), and no row may be left out. */
enum cecl_numbering { CECL_NUMBERED_SMALL, CECL_NUMBERED_REDUCTION, CECL_NUMBERINGS };

/* How many one-sided calls of each stream are done: see lines.c below. */
#define CECL_LINES 32
struct cecl_lines {
    struct cecl_line {
        uint64_t stream; /* id of the stream whose calls the line counts; 0: unknown */
        /* how many calls so far, including the one that is being enqueued */
        _Atomic uint64_t calls;
    } list[CECL_LINES];
    uint32_t next;  /* the line to take over if no line is free */
    uint32_t *done; /* [CECL_LINES] host-visible: how many calls of each line are done */
};

/* A one-sided call of this rank. */
struct cecl_line_at {
    uint32_t line;
    uint64_t call; /* the call's number on that line, from 1 on; 0: no call */
};

/* What this rank has done with one signal number and one peer. */
struct cecl_signal {
    uint32_t sent; /* how many signals were sent to the peer */
    /* the call that sent the last signal, and the call that waited last */
    struct cecl_line_at last_sent, last_wait;
};

#define CECL_NOTES 512u /* a power of two */

/* The words for which streams of this rank wait: see awaited.h. Arrays are [CECL_ROWS][nranks]; NULL: not used. */
struct cecl_awaited {
    uint32_t *words; /* this rank's words; peer i % nranks writes word i */
    /* both host-visible. begun: the value that `done` will have at the end of the group of messages that began last.
     * now: the value for which a stream waits now */
    uint32_t *begun, *now;
    /* the value for which the latest enqueued wait waits; not used for captured messages */
    _Atomic uint32_t *last;
    struct cecl_clock *seen; /* for the watchdog: when the wait for each word began */
    /* waits of recent groups of messages: see cecl_awaited_note */
    _Atomic uint64_t notes[CECL_NOTES];
    uint32_t noted;           /* how many notes were made so far */
    _Atomic bool is_captured; /* a message was captured */
};

struct cecl_flags {
    struct cecl_device *dev;
    struct cecl_pool *pool;
    int rank, nranks;
    bool on_host; /* the rows lie in memory of the host */
    struct cecl_counter counters[CECL_COUNTERS_MAX];
    const struct cecl_hosted *hosted; /* the ranks' memory of the host; NULL: there are no peers */
    struct cecl_lines lines;
    struct cecl_signal *signals; /* [CECL_SIGNALS][nranks]; NULL: there are none */
    struct cecl_awaited awaited;
    /* offset of [CECL_LANES][CECL_FLAG_VALUES] words, from which flags are copied */
    uint64_t values_offset;
    uint64_t pads_offset; /* offset of the words that kernels use: see pads.c */
    /* offset of [nranks] pointers to the ranks' slices, for kernels: see pads.c */
    uint64_t slices_offset;
    /* the counters' values once all calls so far are done */
    uint32_t epoch[CECL_COUNTERS_MAX];
    /* like `epoch`, but including the call that is being enqueued */
    _Atomic uint32_t target[CECL_LANES];
    /* the number of calls without phases, including the call that is being enqueued. `done` counts these
     * calls, but epochs do not */
    _Atomic uint32_t unsignalled_target;
    /* the largest number of side phases per main phase in a call so far */
    _Atomic uint32_t side_a_main;
    _Atomic uint32_t releases; /* after a failure: how often waits were released */
    _Atomic bool silent;       /* after a failure: no call may begin any more */
    uint32_t *done; /* host-visible: how many main phases and calls without phases have ended */
    uint32_t *late; /* host-visible: see cecl_flags_gave_up_on */
    struct cecl_splits_trouble *trouble; /* host-visible: see cecl_flags_trouble */
    /* for turns.h. numbered: the number of the last captured call. tries: how often waits for numbers were released */
    _Atomic uint32_t numbered, tries;
    /* host-visible: whether a captured call runs, for calls whose signals do not show that; see turns.h */
    uint32_t *replay;
};

/* Fills in the rows of the table of counters for the flags of both lanes (their words begin at `rows`), for the slots
 * and for `done`. */
void cecl_flags_describe(struct cecl_flags *flags, char *rows, uint64_t apart);

/* Collective. Takes flags, pads and the table of slices from the pool, and checks that copied flags arrive.
 * cecl_flags_close also accepts flags that are zeroed or that failed to open.
 *
 * hosted  memory for awaited words, and for flags if `on_host`. Its words must be zero on every rank. Without such
 *         memory the struct is zeroed */
ceclResult_t cecl_flags_open(struct cecl_flags *flags, struct cecl_pool *pool,
                             const struct cecl_hosted *hosted, bool on_host);

/* Local. No work may be pending. */
void cecl_flags_close(struct cecl_flags *flags);

/* The word of a counter that rank `holder` holds and rank `writer` writes. */
static inline uint32_t *cecl_flags_word(const struct cecl_flags *flags, int holder, int writer,
                                        int counter)
{
    const struct cecl_counter *row = &flags->counters[counter];
    const int at = row->own ? writer : holder;
    uint32_t *words = (uint32_t *)(void *)(row->words + (uint64_t)at * row->apart);
    return row->own ? words : words + writer;
}

/* The word of this rank's table of values that holds a lane's flag at `epoch`. */
static inline void *cecl_flags_source(const struct cecl_flags *flags, int lane, uint32_t epoch)
{
    return (uint32_t *)cecl_pool_at(flags->pool, flags->rank, flags->values_offset) +
           (uint32_t)lane * CECL_FLAG_VALUES + epoch % CECL_FLAG_VALUES;
}

/* -- advance.c: one call: begin, fill the call's cells, enqueue, then commit or roll back -- */

/* What a call adds to the counters. Phases are equal on all ranks. */
struct cecl_advance {
    uint32_t phases[CECL_LANES];
    /* the call has no phases, and only `done` reports its end. Other ranks need not make the call */
    bool unsignalled;
    /* the call uses slots or memory of the host, of which each has two halves: such calls use them in turn */
    bool small;
};

/* What the call adds to `done`. */
static inline uint32_t cecl_advance_end(const struct cecl_advance *advance)
{
    return advance->phases[CECL_LANE_MAIN] + advance->unsignalled;
}

/* Must be called before anything of the call is enqueued, because the watchdog must know the call before
 * the call can wait. Returns false if flags are silent; then nothing may be enqueued. */
bool cecl_flags_begin(struct cecl_flags *flags, const struct cecl_advance *advance);
/* Must be called if a part of the call was enqueued. */
void cecl_flags_commit(struct cecl_flags *flags, const struct cecl_advance *advance);
/* Must be called if nothing of the call was enqueued. */
void cecl_flags_roll_back(struct cecl_flags *flags);

/* The value that `done` has when all calls are done that were enqueued or are being enqueued. */
static inline uint32_t cecl_flags_done_target(const struct cecl_flags *flags)
{
    return atomic_load(&flags->target[CECL_LANE_MAIN]) + atomic_load(&flags->unsignalled_target);
}
/* An operation that waits until all calls before the one that has begun are done. */
struct cecl_memop cecl_flags_wait_last(const struct cecl_flags *flags);
/* An operation that marks all calls so far as done, including the call that has begun. */
struct cecl_memop cecl_flags_mark_end(const struct cecl_flags *flags);

/* Which half of the slots the next small call uses. */
static inline uint8_t cecl_flags_half(const struct cecl_flags *flags)
{
    return (flags->epoch[CECL_COUNTER_SLOTS] + 1) & 1;
}

/* -- release.c: whether calls are pending, and ending waits -- */

/* A word that other ranks, streams or kernels write. */
static inline uint32_t cecl_word_read(const uint32_t *word)
{
    return atomic_load_explicit((const _Atomic uint32_t *)word, memory_order_acquire);
}
static inline uint32_t cecl_flags_done(const struct cecl_flags *flags)
{
    return cecl_word_read(flags->done);
}
/* Whether `done` has reached `target`. Both count modulo 2^32. So the result is wrong if `done` is more than 2^31
 * beyond the target. */
static inline bool cecl_flags_reached(const struct cecl_flags *flags, uint32_t target)
{
    return (int32_t)(cecl_flags_done(flags) - target) >= 0;
}
/* The main epoch up to which calls are done. `done` also counts calls without phases. This function assumes
 * that all calls without phases are done. So the result may be too low by the number of such calls that are
 * pending, but never too high. */
static inline uint32_t cecl_flags_epoch_done(const struct cecl_flags *flags)
{
    return cecl_flags_done(flags) - atomic_load(&flags->unsignalled_target);
}
/* Whether the work up to `target` is done, however old the target is. While no call is pending, all work is done. */
bool cecl_flags_is_over(const struct cecl_flags *flags, uint32_t target);
/* Whether no call of this rank is pending. cecl_flags_calls_idle ignores one-sided calls. */
bool cecl_flags_idle(const struct cecl_flags *flags);
bool cecl_flags_calls_idle(const struct cecl_flags *flags);
/* The rank whose data did not reach the kernel of a small call in time, or -1. A thread that has seen the call's end in
 * `done` also sees this value. */
static inline int cecl_flags_gave_up_on(const struct cecl_flags *flags)
{
    return (int)cecl_word_read(flags->late) - 1;
}

/* Whether the kernels of a call with splits on the device have found that rows do not fit, or that splits are of
 * another call. If so, *trouble says which. */
bool cecl_flags_trouble(const struct cecl_flags *flags, struct cecl_splits_trouble *trouble);

/* Silences flags: from then on no call can begin, and copies of flags that are still enqueued carry values that end no
 * wait of a peer. Flags on the host cannot be silenced, because the stream holds their values; peers then learn of the
 * failure only from the mesh. */
ceclResult_t cecl_flags_silence(struct cecl_flags *flags);
/* Ends the waits for flags. Must be called repeatedly until nothing is pending. */
ceclResult_t cecl_flags_release(struct cecl_flags *flags);
/* The first function reads words of rows, the second one writes a row of this rank. Both use the driver only if rows
 * lie in memory of the device. */
ceclResult_t cecl_flags_read(const struct cecl_flags *flags, const uint32_t *words, size_t count,
                             uint32_t *out);
ceclResult_t cecl_flags_write_row(const struct cecl_flags *flags, int lane, uint32_t value);

/* -- lines.c: how far one-sided calls are. Those on one stream run in order; those on different streams have no order.
 * So each stream has a line: a word of this rank that counts how many of the stream's calls are done.
 *
 * There are CECL_LINES lines. A line whose calls are all done is free for another stream. If more than CECL_LINES
 * streams have pending calls, a stream takes over another one's line; its first call there waits for the earlier calls
 * on that line. If a stream's id is not known, each call on it counts as a call on a new stream. -- */

/* For cecl_flags_open. words: [CECL_LINES], host-visible. */
void cecl_lines_describe(struct cecl_flags *flags, uint32_t *words);

/* Gives a call on a stream a line, and a number on that line. *after: an earlier call on the line, for
 * which this call must wait first; it may be "no call". Call this function before anything of the call is
 * enqueued. From then on the call is pending. */
struct cecl_line_at cecl_line_begin(struct cecl_flags *flags, uint64_t stream,
                                    struct cecl_line_at *after);
/* Undoes cecl_line_begin for the latest call, of which nothing was enqueued. */
void cecl_line_roll_back(struct cecl_flags *flags, struct cecl_line_at at);

/* The value that the line's word has when a call is done. */
static inline uint32_t cecl_line_value(struct cecl_line_at at)
{
    return CECL_FIRST_EPOCH + (uint32_t)at.call;
}
/* Whether a call is done. "No call" counts as done. */
bool cecl_line_is_done(const struct cecl_flags *flags, struct cecl_line_at at);
/* The number of one-sided calls so far. */
uint64_t cecl_lines_made(const struct cecl_flags *flags);
/* Whether all one-sided calls are done. */
bool cecl_lines_idle(const struct cecl_flags *flags);

/* -- pads.c: words by which kernels wait for each other, separate from the rows of flags. The user's own kernels
 * (ceclDeviceComm_t) and cecl's kernels use them. -- */

/* Fills in *dc, except the time limit of kernels' waits. */
void cecl_pads_describe(const struct cecl_flags *flags, ceclDeviceComm_t *dc);

/* Ends all waits of kernels on this rank's pads, also the waits of kernels that start later. So one call of this
 * function is enough. */
ceclResult_t cecl_pads_end(const struct cecl_flags *flags);

/* The word that is not 0 once the communicator has failed or ended. */
uint32_t *cecl_pads_ended(const struct cecl_flags *flags);
/* The word in which kernels of a lane count their blocks: see struct cecl_meeting. */
uint32_t *cecl_pads_leaving(const struct cecl_flags *flags, int lane);
/* The first function returns the word in which kernels count captured calls of a kind (struct
 * cecl_counting). The second one returns a rank's row of words for captured calls, whose kernels wait for
 * each other by these words (struct cecl_meeting). */
uint32_t *cecl_pads_count(const struct cecl_flags *flags, enum cecl_numbering kind);
uint32_t *cecl_pads_row(const struct cecl_flags *flags, int holder);
/* The word in which kernels count calls by splits on the device (struct cecl_splits). */
uint32_t *cecl_pads_splits(const struct cecl_flags *flags);

/* For cecl_flags_open: the size of the pads in bytes, and a function that zeroes them. */
uint64_t cecl_pads_bytes(int nranks);
ceclResult_t cecl_pads_clear(const struct cecl_flags *flags);

#endif
