/* Counters and cells: how a plan's signals and waits become words and values.
 *
 * A counter is a number by which one rank knows how far another one is; util/lane.h lists them. Here
 * each has a row of a table, which says all that binding and issuing need to know: where its words lie,
 * who writes them, how a value travels, and what value stands for +k. So a counter of a new kind is a
 * row, and nothing else changes.
 *
 * A cell is a value in a bound plan that is known late: the value of a flag, or where that value is
 * stored, a pointer into one of two halves, a number of bytes, an address. It is filled each time
 * that the plan is issued; or once, with fixed values, where the same commands run again and again. */
#ifndef CECL_FLAGS_COUNTERS_H
#define CECL_FLAGS_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/lane.h"

/* What happens to a counter with fixed values when its call runs again. Values are fixed where a
 * graph captured the call. */
enum cecl_replay {
    CECL_REPLAY_NEVER, /* a later run would take an earlier one's values for its own */
    /* whoever waits for the word sets it to 0 behind the wait, and only one lane waits for a signal */
    CECL_REPLAY_RESET,
    CECL_REPLAY_KERNEL /* kernels count by themselves, in memory of the device */
};

struct cecl_counter {
    /* The words that rank 0 holds, one for each rank that writes. The words of rank r lie r * apart
     * bytes further. NULL: only kernels know the words. With `own` there is only this word, which
     * the rank writes for its own host. */
    char *words;
    uint64_t apart;
    bool own;
    uint8_t replay; /* enum cecl_replay */
    /* the value at +k is so many times the sum of k and where the counter stands, modulo 2^32 */
    uint32_t unit;
    /* Not 0: there are several such words, in slots so many bytes apart. Slot and value are given late, as
     * numbers k - 1 and k of those that the caller gives. */
    uint32_t slot_bytes;
    /* [CECL_FLAG_VALUES] the table out of which a copy engine copies values. NULL: a stream writes
     * them, or the kernel to which the counter belongs */
    uint32_t *values;
    /* [nranks] the values for which streams wait last, as the watchdog reads them; NULL: not noted */
    _Atomic uint32_t *awaited;
};

#define CECL_CELL_GIVEN 255 /* instead of a counter */

/* A cell that is a word holds scale * input. Any other cell is a pointer or a number of bytes, and
 * holds base + scale * input. The input is what `counter` has come to at +k, for a cell that is no
 * word only the bits in `mask`. With CECL_CELL_GIVEN the input is number k of the values that the
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

/* Fills cells. This is allowed while earlier calls of the same plan are pending, because a device
 * copies what it is given when it enqueues.
 *
 * epoch  where counters stand before the call: those of the communicator, or fixed ones
 * given  what cells with CECL_CELL_GIVEN name; NULL if none does */
void cecl_cells_fill(const struct cecl_cell *cells, uint32_t count, const uint32_t *epoch,
                     const uint64_t *given);

#endif
