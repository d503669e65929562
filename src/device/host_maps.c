/* Reading /proc/self/maps; see host.h. */
#include "device/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- asking for single mappings */

/* The kernel's interface PROCMAP_QUERY, since Linux 6.11 (linux/fs.h, proc(5)), declared here because older headers
 * lack it. The first three fields are the question. */
struct query {
    uint64_t bytes, flags, at;
    uint64_t start, end, rights, page_bytes, offset, inode;
    uint32_t major, minor;
    uint32_t name_bytes, build_id_bytes; /* 0: not wanted */
    uint64_t name, build_id;
};
#define QUERY _IOWR('f', 17, struct query)
enum { READABLE = 1, WRITABLE = 2, SHARED = 8, THIS_OR_NEXT = 16 };

enum answer { FOUND, NONE, UNKNOWN };

static enum answer ask(int fd, uint64_t at, struct host_mapping *mapping)
{
    struct query query = {.bytes = sizeof(query), .flags = THIS_OR_NEXT, .at = at};
    if (ioctl(fd, QUERY, &query) != 0)
        return errno == ENOENT ? NONE : UNKNOWN;
    *mapping = (struct host_mapping){.start = query.start,
                                     .end = query.end,
                                     .offset = query.offset,
                                     .inode = query.inode,
                                     .major = query.major,
                                     .minor = query.minor,
                                     .readable = query.rights & READABLE,
                                     .writable = query.rights & WRITABLE,
                                     .shared = query.rights & SHARED};
    return FOUND;
}

/* ---- reading the list */

/* The start of the line that is being read. It has room for all numbers; the path at the line's end may be cut off. */
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

/* Reads a complete line. Returns false if its mapping does not end above `low`. That is so for most lines, so this
 * function first reads only the addresses: sscanf takes longer to read a line than the kernel takes to write it. */
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

/* Calls `take` for the mappings whose lines end in this part of the file. Returns false once `take` has. */
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

static ceclResult_t read_list(int fd, uint64_t low, host_mapping_taker *take, void *context)
{
    struct line line = {.filled = 0};
    char part[4096];
    ssize_t got;
    do
        got = read(fd, part, sizeof(part));
    while (got > 0 && take_part(&line, part, (size_t)got, low, take, context));
    return got < 0 ? cecl_fail(ceclSystemError, "read the list of mappings: %s", strerror(errno))
                   : ceclSuccess;
}

ceclResult_t host_maps_read(uint64_t low, host_mapping_taker *take, void *context)
{
    struct host_mapping mapping;
    enum answer answer;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "open /proc/self/maps: %s", strerror(errno));
    while ((answer = ask(fd, low, &mapping)) == FOUND && take(context, &mapping))
        low = mapping.end;
    const ceclResult_t result = answer == UNKNOWN ? read_list(fd, low, take, context) : ceclSuccess;
    close(fd);
    return result;
}
