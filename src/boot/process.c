/* Watching the process of another rank, by a descriptor of it (pidfd). */
#include "boot/process.h"
#include "util/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HASH_PRIME 0x100000001b3u

uint64_t cecl_namespace_id(const char *kind)
{
    uint64_t hash = 0xcbf29ce484222325u;
    char boot[64], path[32];
    struct stat space;
    ssize_t got = -1;
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, boot, sizeof(boot));
        close(fd);
    }
    snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    if (got <= 0 || stat(path, &space) != 0)
        return 0;
    for (ssize_t i = 0; i < got; i++)
        hash = (hash ^ (unsigned char)boot[i]) * HASH_PRIME;
    return (hash ^ (uint64_t)space.st_ino) * HASH_PRIME;
}

struct cecl_process cecl_process_self(void)
{
    return (struct cecl_process){.space = cecl_namespace_id("pid"), .pid = (int32_t)getpid()};
}

static int open_pid(pid_t pid)
{
    return CECL_FD((int)syscall(SYS_pidfd_open, pid, 0));
}

int cecl_process_open_self(void)
{
    return open_pid(getpid());
}

int cecl_process_watch(const struct cecl_process *process)
{
    errno = 0;
    if (process->space == 0 || process->space != cecl_namespace_id("pid") || process->pid <= 0 ||
        process->pid == (int32_t)getpid())
        return -1;
    const int fd = open_pid(process->pid);
    /* ESRCH: the process has ended, so the returned descriptor is readable at once */
    return fd < 0 && errno == ESRCH ? CECL_FD(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) : fd;
}

bool cecl_process_ends_within(int watched, int ms)
{
    struct pollfd poller = {.fd = watched, .events = POLLIN};
    return watched >= 0 && poll(&poller, 1, ms) > 0;
}
