/* The host device's memory: memfd files, mapped shared into reserved ranges. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/host.h"
#include "util/fds.h"
#include "util/file.h"

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static int fd_of(const struct cecl_mem *mem)
{
    return (int)mem->handle - 1;
}

ceclResult_t host_reserve(struct cecl_device *dev, size_t bytes, void **base)
{
    void *range = mmap(NULL, bytes, PROT_NONE, RESERVED, -1, 0);
    if (range == MAP_FAILED)
        return cecl_fail(ceclOutOfMemory, "no address range of %zu bytes: %s", bytes,
                         strerror(errno));
    *base = range;
    return ceclSuccess;
}

void host_unreserve(struct cecl_device *dev, void *base, size_t bytes)
{
    munmap(base, bytes);
}

/* The result for an errno of a call that allocates memory. */
static ceclResult_t result_of(int error)
{
    return error == ENOMEM || error == ENOSPC || error == EFBIG ? ceclOutOfMemory : ceclSystemError;
}

/* The value of a line "key   N kB", in bytes; 0 if there is no such line. */
static uint64_t meminfo_bytes(const char *text, const char *key)
{
    const char *line = strstr(text, key);
    return line ? (uint64_t)strtoull(line + strlen(key), NULL, 10) * 1024 : 0;
}

/* How many bytes the machine could give now: unused, reclaimable and swap. UINT64_MAX if the kernel does not say. */
static uint64_t available_bytes(void)
{
    char text[4096] = "";
    const int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        const ssize_t got = read(fd, text, sizeof(text) - 1);
        close(fd);
        text[got > 0 ? got : 0] = '\0';
    }
    const uint64_t available =
        meminfo_bytes(text, "MemAvailable:") + meminfo_bytes(text, "SwapFree:");
    return available > 0 ? available : UINT64_MAX;
}

/* Refuses memory that the machine cannot give. Many ranks share the machine's memory, so a page is allocated only when
 * a copy first touches it. Without this check memory could run out during a copy. */
static ceclResult_t check_available(size_t bytes)
{
    const uint64_t available = available_bytes();
    if (bytes > available)
        return cecl_fail(ceclOutOfMemory, "%zu bytes: this machine has %llu available", bytes,
                         (unsigned long long)available);
    return ceclSuccess;
}

ceclResult_t host_mem_create(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem)
{
    CECL_TRY(check_available(bytes));
    int fd = CECL_FD(memfd_create("cecl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return cecl_fail(result_of(errno), "memfd_create for %zu bytes: %s", bytes,
                         strerror(errno));
    ceclResult_t result = cecl_file_grow(fd, bytes);
    /* peers write to the memory without asking, so nobody may make the file shorter */
    if (result == ceclSuccess && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        result = cecl_fail(ceclSystemError, "sealing %zu bytes: %s", bytes, strerror(errno));
    if (result != ceclSuccess) {
        cecl_fds_close(fd);
        return result;
    }
    *mem = (struct cecl_mem){.handle = (uint64_t)fd + 1, .bytes = bytes};
    return ceclSuccess;
}

ceclResult_t host_mem_export(struct cecl_device *dev, const struct cecl_mem *mem, int *fd)
{
    int copy = CECL_FD(fcntl(fd_of(mem), F_DUPFD_CLOEXEC, 0));
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

ceclResult_t host_map(void *addr, size_t bytes, int fd, int64_t offset, const char *whose)
{
    if (mmap(addr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) != MAP_FAILED)
        return ceclSuccess;
    return cecl_fail(result_of(errno), "mmap of %zu bytes%s: %s%s", bytes, whose, strerror(errno),
                     errno == ENOMEM ? " (vm.max_map_count limits mappings)" : "");
}

ceclResult_t host_mem_map(struct cecl_device *dev, void *addr, const struct cecl_mem *mem)
{
    return host_map(addr, mem->bytes, fd_of(mem), 0, "");
}

void host_mem_unmap(struct cecl_device *dev, void *addr, size_t bytes)
{
    /* Keeps the range reserved. If it were unmapped, the range could be given to another mapping, which unreserve would
     * then remove. If mmap fails here, the pages stay until unreserve. */
    (void)mmap(addr, bytes, PROT_NONE, RESERVED | MAP_FIXED, -1, 0);
}

void host_mem_release(struct cecl_device *dev, struct cecl_mem *mem)
{
    if (mem->handle)
        cecl_fds_close(fd_of(mem));
    *mem = (struct cecl_mem){0};
}

ceclResult_t host_mem_set(struct cecl_device *dev, void *addr, int value, size_t bytes)
{
    memset(addr, value, bytes);
    return ceclSuccess;
}

/* Whether the kernel can read the eight aligned bytes around an address, which are on one page. The system call
 * rt_sigprocmask copies these bytes before it refuses its first argument, so a bad address gives the error EFAULT, and
 * no signal. (process_vm_readv does not serve: it reads no page of memfd_secret.) */
static bool is_readable(uintptr_t address)
{
    return syscall(SYS_rt_sigprocmask, -1, address & ~(uintptr_t)7, NULL, 8) == 0 ||
           errno != EFAULT;
}

bool host_ends_readable(const void *ptr, size_t bytes)
{
    return is_readable((uintptr_t)ptr) && is_readable((uintptr_t)ptr + bytes - 1);
}

ceclResult_t host_check_pointer(struct cecl_device *dev, const void *ptr, size_t bytes,
                                const char *name)
{
    if (!ptr)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", name);
    if (bytes == 0)
        return ceclSuccess;
    if (bytes - 1 > UINTPTR_MAX - (uintptr_t)ptr)
        return cecl_fail(ceclInvalidArgument, "%s %p: %zu bytes pass the end of the address space",
                         name, ptr, bytes);
    if (!host_ends_readable(ptr, bytes))
        return cecl_fail(ceclInvalidArgument,
                         "%s %p: no memory of this process at the first or last of its %zu bytes",
                         name, ptr, bytes);
    return ceclSuccess;
}

/* Nothing to do: streams of this device run on the host. */
ceclResult_t host_host_share(struct cecl_device *dev, void *addr, size_t bytes)
{
    return ceclSuccess;
}

void host_host_unshare(struct cecl_device *dev, void *addr, size_t bytes)
{
}
