/* Counters and cells: how a plan's signals and waits become words and values.
 *
 * A counter is a number by which one rank knows how far another rank is; util/lane.h lists all counters. A table has a
 * row for each counter, with all that binding and issuing need: where the counter's words lie, which rank writes these
 * words, how a value travels, and which value stands for the number k of a step. To add a kind of counter, add a row.
 *
 * A cell is a value in a program that is known only when the program is issued: a flag's value, that value's place in a
 * table, a pointer into one of two halves that calls use in turn, a number of bytes, or an address. Cells are filled
 * each time the program is issued, or only once if the same commands run repeatedly with fixed values. */
#ifndef CECL_FLAGS_COUNTERS_H
#define CECL_FLAGS_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/lane.h"

/* Whether a program with fixed values, such as a captured call, may run repeatedly if it uses the counter. */
enum cecl_replay {
    CECL_REPLAY_NEVER, /* no: a later run would mistake an earlier run's values for its own */
    /* yes: a wait ends only at the exact value, and the lane that waits then sets the word to 0, so each signal may
     * have only one wait */
    CECL_REPLAY_RESET,
    /* yes: a value is a set of bits, a wait is for one bit, and each run ends as the run before ended
     * (flags/turns.h) */
    CECL_REPLAY_BITS,
    /* yes: a wait ends only at the exact value, and each run leaves another value in the word */
    CECL_REPLAY_SAME,
    CECL_REPLAY_KERNEL /* yes: kernels count by themselves, in memory of the device */
};

struct cecl_counter {
    /* The words in rank 0's memory, one for each rank that writes them. Those in rank r's memory lie r * apart bytes
     * further. NULL: only kernels know where the words are. `own`: each rank has a single word, which it writes itself:
     * for its own host (apart 0) or for all peers. */
    char *words;
    uint64_t apart;
    bool own;
    uint8_t replay; /* enum cecl_replay */
    /* the value for +k is unit * (the counter's epoch + k), modulo 2^32 */
    uint32_t unit;
    /* Not 0: the counter has several slots. Each slot has words of its own, this many bytes after the previous
     * slot's. The caller of cecl_cells_fill gives the slot as given[k - 1] and the value as given[k]. */
    uint32_t slot_bytes;
    /* [CECL_FLAG_VALUES] the table from which a copy engine copies values. NULL: a stream or a kernel
     * writes the values */
    uint32_t *values;
    /* [nranks] the last values for which streams wait; NULL: these values are not noted */
    _Atomic uint32_t *awaited;
};

#define CECL_CELL_GIVEN 255 /* in `counter`: the caller gives the input */

/* A cell that is a word holds scale * input. Any other cell is a pointer, and holds base + scale * input. The input is
 * given[k] if `counter` is CECL_CELL_GIVEN. Otherwise it is the epoch of `counter` plus k; a pointer takes only those
 * bits of it that are in `mask`. */
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
_Static_assert(sizeof(uintptr_t) == 8 && sizeof(size_t) == 8, "other cells have 64 bits");

/* Fills cells. Earlier runs of the same program may be pending, because a device copies a command's arguments when it
 * enqueues the command.
 *
 * epoch  the values of counters before the call: the communicator's, or fixed ones
 * given  inputs of cells with CECL_CELL_GIVEN; NULL if there are none */
void cecl_cells_fill(const struct cecl_cell *cells, uint32_t count, const uint32_t *epoch,
                     const uint64_t *given);

#endif
