/* Random programs of one-sided calls, for tests: puts, gets and signals between the ranks of a communicator, on several
 * streams, some of which pass on what has come, without their hosts. All ranks draw the same program. Every byte is
 * compared. */
#ifndef CECL_TEST_PUTS_H
#define CECL_TEST_PUTS_H

#include "multi.h"

#define PUTS_TRANSFERS 24
#define PUTS_SLOT 9000 /* bytes in the window, and in other memory, for each transfer */
#define PUTS_BYTES ((size_t)PUTS_TRANSFERS * PUTS_SLOT)
#define PUTS_STREAMS 3

struct puts {
    ceclComm_t comm;
    int rank, n; /* of comm */
    ceclWindow_t window;
    unsigned char *shared, *local; /* PUTS_BYTES: this rank's in the window, and any other */
    ceclStream_t streams[PUTS_STREAMS];
    uint64_t seed; /* of the bytes; differs from round to round */
    int launches; /* 0: calls are made; else a graph captures them, and is launched so often. Equal on all ranks */
    /* called between the transfers; may be NULL */
    void (*between)(void *context, int transfer);
    void *context;
};

/* Draws and carries out a program, waits for it, and checks what came of it. All ranks of comm call; two at least. x: the generator, alike on
 * all ranks. */
void puts_round(const struct puts *puts, uint64_t *x);
/* The same in three parts, of which the last two may fail: draws, and fills in memory; makes the calls, up to the first that
 * fails; waits, and checks what came if there is no error. One program at a time. */
void puts_prepare(const struct puts *puts, uint64_t *x);
ceclResult_t puts_make(const struct puts *puts);
ceclResult_t puts_finish(const struct puts *puts);

#endif
