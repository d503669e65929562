/* Reads /proc/PID/maps, the list of a process's mappings: most often this process's. Since Linux 6.11 the kernel answers questions about
 * single mappings, so only those that are needed are read. Allocates nothing, because calls look at the memory of
 * their buffers each time. */
#ifndef CECL_DEVICE_HOST_MAPS_H
#define CECL_DEVICE_HOST_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

/* A line of the file. The kernel splits a mapping into several lines where its parts differ, for
 * example in access rights, and joins equal neighbours. */
struct host_mapping {
    uint64_t start, end;
    uint64_t offset, inode; /* inode 0: memory of no file */
    unsigned major, minor;
    bool readable, writable, shared;
};

/* Takes one mapping. Returns whether to go on with the next one. */
typedef bool host_mapping_taker(void *context, const struct host_mapping *mapping);

/* Hands the mappings that end above `low` to `take`, in the order of addresses, until it has
 * enough. */
ceclResult_t host_maps_read(uint64_t low, host_mapping_taker *take, void *context);

/* The same for the mappings of the process `pid` of this namespace. */
ceclResult_t host_maps_read_of(int32_t pid, uint64_t low, host_mapping_taker *take, void *context);

/* As host_maps_read, from a lower address on: the kernel may have split the mapping that has the byte at `at` into lines, and
 * none of them comes before that address. */
ceclResult_t host_maps_read_around(uint64_t at, host_mapping_taker *take, void *context);

#endif
