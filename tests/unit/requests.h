/* What the tests of requests share: all ranks in one thread, memory of all kinds, and the expected output
 * of a gather. */
#ifndef CECL_TESTS_UNIT_REQUESTS_H
#define CECL_TESTS_UNIT_REQUESTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANKS 3
#include "comms.h"

#define COUNT 1000
#define STARTS 20

enum memory { POOL, REGISTERED, PRIVATE, MEMORIES };

static ceclStream_t streams[RANKS];

static inline int open_ranks(void **state)
{
    open_all(state);
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamCreate(comms[r], &streams[r]));
    return 0;
}

static inline int close_ranks(void **state)
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamDestroy(comms[r], streams[r]));
    return close_all(state);
}

/* Peers can open a shared mapping of a file whose descriptor stays open. The descriptor is stored in front
 * of the mapping. */
static inline int *map_file(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int fd = memfd_create("request", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(page + bytes)), 0);
    char *mapped = mmap(NULL, page + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    *(int *)(void *)mapped = fd;
    return (void *)(mapped + page);
}

static inline void unmap_file(int *buffer, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *mapped = (char *)buffer - page;
    close(*(int *)(void *)mapped);
    assert_int_equal(munmap(mapped, page + bytes), 0);
}

/* Allocates buffers of `count` elements on all ranks. */
static inline void allocate(enum memory memory, size_t elements, int *buffers[RANKS])
{
    const size_t bytes = elements * sizeof(int);
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS && memory == POOL; r++)
        OK(ceclMemAlloc(comms[r], (void **)&buffers[r], bytes));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS && memory != POOL; r++) {
        buffers[r] = memory == PRIVATE ? malloc(bytes) : map_file(bytes);
        assert_non_null(buffers[r]);
    }
}

static inline void release(enum memory memory, size_t elements, int *buffers[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        if (memory == POOL)
            OK(ceclMemFree(comms[r], buffers[r]));
        else if (memory == PRIVATE)
            free(buffers[r]);
        else
            unmap_file(buffers[r], elements * sizeof(int));
}

static inline int value(int rank, int round, int i)
{
    return rank * 1000003 + round * 7919 + i;
}

/* The first element of a chunk of a block; for c = chunks the end of the block. */
static inline int begin_of(int chunks, int c)
{
    const int at = c * ((COUNT + chunks - 1) / chunks);
    return at < COUNT ? at : COUNT;
}

static inline void synchronize(void)
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamSynchronize(comms[r], streams[r]));
}

static inline void start_all(ceclRequest_t requests[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclStart(requests[r], streams[r]));
}

static inline void free_all(ceclRequest_t requests[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclRequestFree(requests[r]));
}

static inline void check_gathered(int *recv[RANKS], int round)
{
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(recv[r][from * COUNT + i], value(from, round, i));
}

static inline void fill(int *send[RANKS], int round)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++)
            send[r][i] = value(r, round, i);
}

static inline void is_refused(ceclResult_t result, ceclResult_t wanted, const char *words)
{
    assert_int_equal(result, wanted);
    if (!strstr(ceclGetLastError(NULL), words))
        fail_msg("\"%s\" is not in \"%s\"", words, ceclGetLastError(NULL));
}

#endif
