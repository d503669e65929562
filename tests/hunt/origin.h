/* Finds out where wrong bytes come from. */
#ifndef CECL_TEST_HUNT_ORIGIN_H
#define CECL_TEST_HUNT_ORIGIN_H

#include "bursts.h"

/* Records the calls and messages that were drawn last, with the `name` of their burst. */
void origin_note(const char *name);
/* Prints what the wrong bytes from `first` on are: poison, or the data of a call or message of this run. */
void origin_tell(const unsigned char *got, size_t bytes, size_t first);

#endif
