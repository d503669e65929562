/* Kinds of memory on the host device, where a shared mapping is what cudaMalloc is on GPUs. */
#include "kinds.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct memory_failure result(bool fine, const char *call)
{
    return (struct memory_failure){fine ? NULL : call, "no memory"};
}

static struct memory_failure take_shared(ceclComm_t comm, size_t bytes, void **ptr)
{
    (void)comm;
    const int fd = memfd_create("cecl-bench", MFD_CLOEXEC); /* stays open: peers open it by this */
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return result(false, "memfd_create");
    *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return result(*ptr != MAP_FAILED, "mmap");
}

static void give_shared(ceclComm_t comm, size_t bytes, void *ptr)
{
    (void)comm;
    munmap(ptr, bytes);
}

static struct memory_failure take_private(ceclComm_t comm, size_t bytes, void **ptr)
{
    (void)comm;
    *ptr = malloc(bytes);
    return result(*ptr != NULL, "malloc");
}

static void give_private(ceclComm_t comm, size_t bytes, void *ptr)
{
    (void)comm;
    (void)bytes;
    free(ptr);
}

const struct memory_kind memory_on_host[MEMORY_KINDS] = {
    [MEMORY_POOL] = MEMORY_OF_POOL,
    [MEMORY_MALLOC] = {"malloc", "a shared mapping", take_shared, give_shared},
    [MEMORY_PIECES] = {"pieces", "a shared mapping", take_shared, give_shared},
    [MEMORY_PRIVATE] = {"private", "malloc", take_private, give_private},
};
