/* Calls on memory that a test gives, and changes between them: each gives the right bytes, or refuses the
 * buffer by its name. */
#ifndef CECL_TEST_GIVEN_H
#define CECL_TEST_GIVEN_H

#include "memory.h"

/* How calls take memory. */
enum given_mode { ON_USE, REGISTERED, PRIVATE };
/* In which buffer the memory is: an all-gather in place, or an all-to-all to the pool. */
enum given_role { RECV, SEND, ROLES };

extern ceclComm_t given_comm;
extern enum given_mode given_mode;

/* Makes the communicator, for calls on so many bytes at most. Collective. */
void given_open(enum given_mode how, size_t bytes);
void given_close(void);

/* One call on `bytes` bytes at `at`, a multiple of the number of ranks; what it wants there, and what it
 * leaves: every byte is checked. */
ceclResult_t given_call(enum given_role role, unsigned char *at, size_t bytes);
void given_fill(enum given_role role, unsigned char *at, size_t bytes, uint64_t seed);
void given_check(enum given_role role, const unsigned char *at, size_t bytes, uint64_t seed);
/* Makes the call, which must be refused with the buffer's name and `words`. */
void given_refused(enum given_role role, unsigned char *at, size_t bytes, const char *words);

/* Memory is of several mappings. */
#define GIVEN_ENDS "before its range does"

#endif
