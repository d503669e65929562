/* Random programs of one-sided calls (puts, gets, signals) between the ranks of a communicator, on several streams. Some
 * streams send on what they received, and no host waits. All ranks draw the same program. Tests compare every byte. */
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
    /* PUTS_BYTES each: this rank's memory in the window, and any other memory */
    unsigned char *shared, *local;
    ceclStream_t streams[PUTS_STREAMS];
    uint64_t seed; /* of the bytes; differs from round to round */
};

/* puts_prepare draws the program, equally on all ranks of comm (at least two), and fills in memory. puts_make makes the
 * calls, up to the first error. puts_finish waits, and checks the results if there is no error. One program at a time. */
void puts_prepare(const struct puts *puts, uint64_t *x);
ceclResult_t puts_make(const struct puts *puts);
ceclResult_t puts_finish(const struct puts *puts);

#endif
