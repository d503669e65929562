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
    /* called between the transfers; may be NULL */
    void (*between)(void *context, int transfer);
    void *context;
};

/* Draws and carries out a program, waits for it, and checks what came of it. All ranks of comm call; two at least. x: the generator, alike on
 * all ranks. */
void puts_round(struct puts *puts, uint64_t *x);

#endif
