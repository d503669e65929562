/* Calls on memory that a test changes between calls. Each call gives the right bytes, or its error names the buffer. */
#ifndef CECL_TEST_GIVEN_H
#define CECL_TEST_GIVEN_H

#include "memory.h"

enum given_mode { ON_USE, REGISTERED, PRIVATE };
/* RECV: the memory has both buffers of an in-place all-gather; SEND: the sendbuff of an all-to-all into the pool. */
enum given_role { RECV, SEND, ROLES };

extern ceclComm_t given_comm;
extern enum given_mode given_mode;

/* Makes the communicator, for calls on at most `bytes` bytes. Collective. */
void given_open(enum given_mode how, size_t bytes);
void given_close(void);

/* Calls on `bytes` bytes, a multiple of the ranks' number, at `at`. given_check checks every byte of input and result. */
ceclResult_t given_call(enum given_role role, unsigned char *at, size_t bytes);
void given_fill(enum given_role role, unsigned char *at, size_t bytes, uint64_t seed);
void given_check(enum given_role role, const unsigned char *at, size_t bytes, uint64_t seed);
/* Makes the call, which must be refused with a message that has the buffer's name and `words`. */
void given_refused(enum given_role role, unsigned char *at, size_t bytes, const char *words);

/* What the message says if memory is refused because it consists of several mappings. */
#define GIVEN_ENDS "before its range does"

#endif
