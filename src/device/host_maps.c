/* Reading /proc/self/maps; see host_maps.h. */
#include "device/host_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The start of the line that is being read: all numbers are in it; the path at the end may be cut
 * off. */
struct line {
    char text[128];
    size_t filled;
};

static void add(struct line *line, const char *bytes, size_t count)
{
    const size_t room = sizeof(line->text) - 1 - line->filled, added = count < room ? count : room;
    memcpy(line->text + line->filled, bytes, added);
    line->filled += added;
}

/* Reads a complete line. Returns false if its mapping does not end above `low`, as most do not. Of
 * these lines only the addresses are read, because sscanf takes longer to read a line than the
 * kernel takes to write it. */
static bool parse(struct line *line, uint64_t low, struct host_mapping *mapping)
{
    char rights[5], *rest;
    line->text[line->filled] = '\0';
    line->filled = 0;
    mapping->start = strtoull(line->text, &rest, 16);
    if (*rest != '-')
        return false;
    mapping->end = strtoull(rest + 1, &rest, 16);
    if (mapping->end <= low ||
        sscanf(rest, " %4s %" SCNx64 " %x:%x %" SCNu64, rights, &mapping->offset, &mapping->major,
               &mapping->minor, &mapping->inode) != 5)
        return false;
    mapping->readable = rights[0] == 'r';
    mapping->writable = rights[1] == 'w';
    mapping->shared = rights[3] == 's';
    return true;
}

/* Hands over the mappings whose lines end in this part of the file. Returns false once `take` has
 * enough. */
static bool take_part(struct line *line, const char *part, size_t bytes, uint64_t low,
                      host_mapping_taker *take, void *context)
{
    while (bytes > 0) {
        struct host_mapping mapping;
        const char *newline = memchr(part, '\n', bytes);
        const size_t count = newline ? (size_t)(newline - part) : bytes,
                     passed = newline ? count + 1 : count;
        add(line, part, count);
        if (newline && parse(line, low, &mapping) && !take(context, &mapping))
            return false;
        part += passed;
        bytes -= passed;
    }
    return true;
}

ceclResult_t host_maps_read(uint64_t low, host_mapping_taker *take, void *context)
{
    struct line line = {.filled = 0};
    char part[4096];
    ssize_t got;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "open /proc/self/maps: %s", strerror(errno));
    do
        got = read(fd, part, sizeof(part));
    while (got > 0 && take_part(&line, part, (size_t)got, low, take, context));
    const int error = errno;
    close(fd);
    if (got < 0)
        return cecl_fail(ceclSystemError, "read /proc/self/maps: %s", strerror(error));
    return ceclSuccess;
}
