/* The host device's memory: memfd files, mapped shared into reserved ranges. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/host.h"

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static int fd_of(const struct cecl_mem *mem)
{
    return (int)mem->handle - 1;
}

ceclResult_t host_reserve(struct cecl_device *dev, size_t bytes, void **base)
{
    (void)dev;
    void *range = mmap(NULL, bytes, PROT_NONE, RESERVED, -1, 0);
    if (range == MAP_FAILED)
        return cecl_fail(ceclOutOfMemory, "no address range of %zu bytes: %s", bytes,
                         strerror(errno));
    *base = range;
    return ceclSuccess;
}

void host_unreserve(struct cecl_device *dev, void *base, size_t bytes)
{
    (void)dev;
    munmap(base, bytes);
}

/* Sparse pages would be promised here and missing later, as a fault in somebody's copy: a request
 * beyond what the machine has
 * available is refused now. */
static ceclResult_t check_available(size_t bytes)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0 && bytes / (size_t)page > (size_t)pages)
        return cecl_fail(ceclOutOfMemory, "%zu bytes: this machine has %zu in all", bytes,
                         (size_t)pages * (size_t)page);
    return ceclSuccess;
}

ceclResult_t host_mem_create(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem)
{
    (void)dev;
    CECL_TRY(check_available(bytes));
    int fd = memfd_create("cecl", MFD_CLOEXEC);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "memfd_create: %s", strerror(errno));
    if (ftruncate(fd, (off_t)bytes) != 0) {
        ceclResult_t result =
            cecl_fail(errno == ENOMEM || errno == ENOSPC || errno == EFBIG ? ceclOutOfMemory
                                                                           : ceclSystemError,
                      "ftruncate to %zu bytes: %s", bytes, strerror(errno));
        close(fd);
        return result;
    }
    *mem = (struct cecl_mem){.handle = (uint64_t)fd + 1, .bytes = bytes};
    return ceclSuccess;
}

ceclResult_t host_mem_export(struct cecl_device *dev, const struct cecl_mem *mem, int *fd)
{
    (void)dev;
    int copy = fcntl(fd_of(mem), F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return cecl_fail(ceclSystemError, "no descriptor to share memory with: %s",
                         strerror(errno));
    *fd = copy;
    return ceclSuccess;
}

ceclResult_t host_mem_import(struct cecl_device *dev, int fd, size_t bytes, struct cecl_mem *mem)
{
    struct stat info;
    int copy;
    if (fstat(fd, &info) != 0)
        return cecl_fail(ceclSystemError, "a peer's descriptor %d: %s", fd, strerror(errno));
    if ((uint64_t)info.st_size < bytes)
        return cecl_fail(ceclInvalidUsage, "a peer's memory has %lld bytes, %zu expected",
                         (long long)info.st_size, bytes);
    const struct cecl_mem theirs = {.handle = (uint64_t)fd + 1};
    CECL_TRY(host_mem_export(dev, &theirs, &copy));
    *mem = (struct cecl_mem){.handle = (uint64_t)copy + 1, .bytes = bytes};
    return ceclSuccess;
}

ceclResult_t host_mem_map(struct cecl_device *dev, void *addr, const struct cecl_mem *mem)
{
    (void)dev;
    if (mmap(addr, mem->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_of(mem), 0) ==
        MAP_FAILED)
        return cecl_fail(ceclSystemError, "mmap of %zu bytes: %s", mem->bytes, strerror(errno));
    return ceclSuccess;
}

void host_mem_unmap(struct cecl_device *dev, void *addr, size_t bytes)
{
    (void)dev;
    /* The range stays reserved. */
    if (mmap(addr, bytes, PROT_NONE, RESERVED | MAP_FIXED, -1, 0) == MAP_FAILED)
        munmap(addr, bytes);
}

void host_mem_release(struct cecl_device *dev, struct cecl_mem *mem)
{
    (void)dev;
    if (mem->handle)
        close(fd_of(mem));
    *mem = (struct cecl_mem){0};
}

ceclResult_t host_mem_set(struct cecl_device *dev, void *addr, int value, size_t bytes)
{
    (void)dev;
    memset(addr, value, bytes);
    return ceclSuccess;
}

ceclResult_t host_check_pointer(struct cecl_device *dev, const void *ptr, size_t bytes,
                                const char *name)
{
    (void)dev;
    (void)bytes;
    return ptr ? ceclSuccess : cecl_fail(ceclInvalidArgument, "%s: NULL", name);
}
