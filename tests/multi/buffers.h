/* A communicator and two buffers in its pool, for programs that test one collective. */
#ifndef CECL_TEST_BUFFERS_H
#define CECL_TEST_BUFFERS_H

#include "multi.h"

static ceclComm_t comm;
static unsigned char *send_buffer, *recv_buffer;
static unsigned char *host; /* [room], host memory */
static size_t room;         /* bytes of each buffer */

/* staging, policy: the communicator's settings, written as in the environment; NULL: the default. */
static inline void buffers_open(size_t bytes, const char *staging, const char *policy)
{
    room = bytes;
    multi_setenv("CECL_STAGING_BYTES", staging);
    multi_setenv("CECL_SM_POLICY", policy);
    comm = multi_comm(NULL);
    multi_setenv("CECL_STAGING_BYTES", NULL);
    multi_setenv("CECL_SM_POLICY", NULL);
    host = malloc(room);
    assert_non_null(host);
    send_buffer = multi_alloc(comm, room);
    recv_buffer = multi_alloc(comm, room);
}

static inline int tear_down(void **state)
{
    free(host);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

/* Ends the communicator, which must have failed. */
static inline int tear_down_failed(void **state)
{
    free(host);
    multi_ok(NULL, ceclCommAbort(comm));
    return 0;
}

#endif
