/* Counters and cells: how a plan's signals and waits become words and values.
 *
 * A counter is a number by which one rank knows how far another one is; util/lane.h lists all
 * counters. Each has a row in a table, which says all that binding and issuing need to know: where
 * its words lie, who writes them, how a value travels, and what value stands for +k. To add a kind
 * of counter, add a row.
 *
 * A cell is a value in a bound plan that is known only when the plan is issued: the value of a
 * flag, the place of that value in a table, a pointer into one of two halves, a number of bytes, an
 * address. Cells are filled each time that the plan is issued, or once, if the same commands run
 * repeatedly with fixed values. */
#ifndef CECL_FLAGS_COUNTERS_H
#define CECL_FLAGS_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/lane.h"

/* How a call with fixed values can run again, as far as a counter is concerned. Values would be
 * fixed if a graph captured the call. */
enum cecl_replay {
    CECL_REPLAY_NEVER, /* not at all: a later run would take an earlier run's values for its own */
    /* the lane that waits for the word sets it to 0 behind the wait; only one lane waits for each
     * signal */
    CECL_REPLAY_RESET,
    CECL_REPLAY_KERNEL /* kernels count by themselves, in memory of the device */
};

struct cecl_counter {
    /* The words that rank 0 holds: one for each rank that writes. Those of rank r lie r * apart
     * bytes further. NULL: only kernels know the words. With `own` there is a single word, which
     * the rank writes for its own host. */
    char *words;
    uint64_t apart;
    bool own;
    uint8_t replay; /* enum cecl_replay */
    /* the value at +k is unit * (the counter's epoch + k), modulo 2^32 */
    uint32_t unit;
    /* Not 0: there are several such words, in slots so many bytes apart. Slot and value are given late, as
     * numbers k - 1 and k of those that the caller gives. */
    uint32_t slot_bytes;
    /* [CECL_FLAG_VALUES] the table out of which a copy engine copies values. NULL: a stream writes
     * the values, or a kernel does */
    uint32_t *values;
    /* [nranks] the last values for which streams wait; NULL: not noted */
    _Atomic uint32_t *awaited;
};

#define CECL_CELL_GIVEN 255 /* instead of a counter: the caller gives the value */

/* A cell that is a word holds scale * input. Any other cell is a pointer or a number of bytes, and
 * holds base + scale * input. The input is the epoch of `counter` plus k; in a cell that is no
 * word, only its bits in `mask`. With CECL_CELL_GIVEN the input is value number k of those that the
 * caller gives. */
struct cecl_cell {
    void *at;
    uintptr_t base;
    uint64_t scale;
    uint32_t k;
    uint16_t mask;
    uint8_t counter; /* or CECL_CELL_GIVEN */
    bool is_word;    /* 32 bits, else 64 */
};
_Static_assert(sizeof(struct cecl_cell) == 32, "every call reads all of its cells");
_Static_assert(sizeof(uintptr_t) == 8 && sizeof(size_t) == 8, "what is no word has 64 bits");

/* Fills cells, also while earlier calls of the same plan are pending, because a device copies its
 * arguments when it enqueues.
 *
 * epoch  where counters stand before the call: those of the communicator, or fixed ones
 * given  the values of cells with CECL_CELL_GIVEN; NULL if there are no such cells */
void cecl_cells_fill(const struct cecl_cell *cells, uint32_t count, const uint32_t *epoch,
                     const uint64_t *given);

#endif
