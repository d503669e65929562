/* Memory that a program already has, on the host device. A shared mapping of a file can be shared
 * while this process holds the file open; all other memory is private. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "device/host.h"
#include "util/fork.h"
#include "util/siphash.h"

/* A line of /proc/self/maps, up to its path. */
struct mapping {
    uint64_t start, end; /* end is 0 where nothing is mapped */
    uint64_t offset, inode;
    unsigned major, minor;
    char rights[5];
};

/* The start of the line that is being read. It holds all numbers; a path may be far longer. */
struct line {
    char text[128];
    size_t filled;
};

static bool parse(const char *text, struct mapping *mapping)
{
    return sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &mapping->start,
                  &mapping->end, mapping->rights, &mapping->offset, &mapping->major,
                  &mapping->minor, &mapping->inode) == 7;
}

/* Takes the next byte of the file. Returns true once the line that holds `at`, or one behind it, is
 * complete; only the former is stored. */
static bool take(struct line *line, char byte, uint64_t at, struct mapping *found)
{
    struct mapping mapping;
    if (byte != '\n') {
        if (line->filled < sizeof(line->text) - 1)
            line->text[line->filled++] = byte;
        return false;
    }
    line->text[line->filled] = '\0';
    line->filled = 0;
    if (!parse(line->text, &mapping) || mapping.end <= at)
        return false;
    if (mapping.start <= at)
        *found = mapping;
    return true;
}

/* Finds the mapping at `ptr`. Allocates nothing, because callers ask for ids on every call. */
static ceclResult_t look(const void *ptr, struct mapping *found)
{
    const uint64_t at = (uintptr_t)ptr;
    struct line line = {.filled = 0};
    char part[4096];
    ssize_t got = 0;
    bool passed = false;

    *found = (struct mapping){0};
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "open /proc/self/maps: %s", strerror(errno));
    while (!passed && (got = read(fd, part, sizeof(part))) > 0)
        for (ssize_t i = 0; i < got && !passed; i++)
            passed = take(&line, part[i], at, found);
    const int error = errno;
    close(fd);
    if (got < 0)
        return cecl_fail(ceclSystemError, "read /proc/self/maps: %s", strerror(error));
    return ceclSuccess;
}

static uint64_t id_of(const struct mapping *mapping)
{
    static const uint8_t key[16] = {0}; /* ids only have to differ */
    const uint64_t facts[] = {(uint64_t)mapping->major << 32 | mapping->minor, mapping->inode,
                              mapping->offset, mapping->start};
    const uint64_t id = cecl_siphash(key, facts, sizeof(facts));
    return id ? id : 1;
}

/* Whether peers can map the mapping's file through `fd`. On file systems that give a file another
 * device number in stat than in maps (btrfs), no descriptor fits. */
static bool opens(int fd, const struct mapping *mapping)
{
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_ino == mapping->inode &&
           major(info.st_dev) == mapping->major && minor(info.st_dev) == mapping->minor &&
           (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

/* A descriptor of this process for the mapping's file; *fd is -1 where there is none. */
static ceclResult_t descriptor_of(const struct mapping *mapping, int *fd)
{
    const struct dirent *entry;
    *fd = -1;
    if (mapping->rights[3] != 's' || mapping->inode == 0)
        return ceclSuccess;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return cecl_fail(ceclSystemError, "opendir /proc/self/fd: %s", strerror(errno));
    while (*fd < 0 && (entry = readdir(folder)))
        if (entry->d_name[0] != '.' && opens(atoi(entry->d_name), mapping))
            *fd = atoi(entry->d_name);
    closedir(folder);
    return ceclSuccess;
}

ceclResult_t host_region_find(struct cecl_device *dev, const void *ptr, struct cecl_region *region)
{
    struct mapping mapping;
    int fd;
    (void)dev;
    CECL_TRY(look(ptr, &mapping));
    if (mapping.end == 0 || mapping.rights[0] != 'r')
        return cecl_fail(ceclInvalidArgument,
                         "buffer %p: no memory of this process that can be read", ptr);
    CECL_TRY(descriptor_of(&mapping, &fd));
    *region = (struct cecl_region){.base = mapping.start,
                                   .bytes = mapping.end - mapping.start,
                                   .home = mapping.start,
                                   .home_bytes = mapping.end - mapping.start,
                                   .id = id_of(&mapping),
                                   .kind = fd < 0 ? CECL_REGION_NONE : CECL_REGION_FILE};
    return ceclSuccess;
}

ceclResult_t host_region_id(struct cecl_device *dev, const void *ptr, uint64_t *id)
{
    struct mapping mapping;
    (void)dev;
    CECL_TRY(look(ptr, &mapping));
    *id = mapping.end == 0 ? 0 : id_of(&mapping);
    return ceclSuccess;
}

ceclResult_t host_region_export(struct cecl_device *dev, const struct cecl_region *region,
                                struct cecl_region_export *exported)
{
    struct mapping mapping;
    CECL_TRY(look((const void *)(uintptr_t)region->base, &mapping));
    int fd, copy = -1;
    /* Another thread may close the descriptor between the two steps, and open another file. */
    do {
        if (copy >= 0)
            close(copy);
        CECL_TRY(descriptor_of(&mapping, &fd));
        copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    } while (fd >= 0 && (copy < 0 ? errno == EBADF : !opens(copy, &mapping)));
    if (region->kind != CECL_REGION_FILE || id_of(&mapping) != region->id || fd < 0) {
        if (copy >= 0)
            close(copy);
        return cecl_fail(ceclInvalidUsage,
                         "memory at %#llx: private, unmapped since it was found, or its file was "
                         "closed; a shared mapping of an open file is expected",
                         (unsigned long long)region->base);
    }
    if (copy < 0)
        return cecl_fail(ceclSystemError, "no descriptor to share memory with: %s",
                         strerror(errno));
    *exported = (struct cecl_region_export){.kind = CECL_REGION_FILE,
                                            .ordinal = dev->ordinal,
                                            .process = cecl_fork_process(),
                                            .base = region->base,
                                            .bytes = region->bytes,
                                            .id = region->id,
                                            .offset = mapping.offset,
                                            .fd = copy};
    return ceclSuccess;
}

ceclResult_t host_region_import(struct cecl_device *dev, const struct cecl_region_export *exported,
                                void *at, void **addr)
{
    (void)dev;
    if (exported->kind != CECL_REGION_FILE)
        return cecl_fail(ceclInvalidUsage,
                         "a peer's memory is shared in way %u; the host device expects %d, a file",
                         exported->kind, CECL_REGION_FILE);
    if (mmap(at, exported->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, exported->fd,
             (off_t)exported->offset) == MAP_FAILED)
        return cecl_fail(errno == ENOMEM ? ceclOutOfMemory : ceclSystemError,
                         "mmap of %llu bytes of a peer's memory: %s",
                         (unsigned long long)exported->bytes, strerror(errno));
    *addr = at;
    return ceclSuccess;
}

ceclResult_t host_region_access(struct cecl_device *dev, void *addr, size_t bytes)
{
    (void)dev; /* a mapping has its access from the start */
    (void)addr;
    (void)bytes;
    return ceclSuccess;
}

void host_region_close(struct cecl_device *dev, const struct cecl_region_export *exported,
                       void *addr)
{
    host_mem_unmap(dev, addr, exported->bytes);
}
