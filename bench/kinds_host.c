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

/* Shared mappings with their descriptors, which stay open, because peers open the memory by them. */
struct shared {
    void *ptr;
    int fd;
    struct shared *next;
};
static struct shared *taken;

static struct memory_failure take_shared(ceclComm_t comm, size_t bytes, void **ptr)
{
    (void)comm;
    struct shared *shared = malloc(sizeof(*shared));
    if (!shared)
        return result(false, "malloc");
    const int fd = memfd_create("cecl-bench", MFD_CLOEXEC);
    const bool grown = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0;
    *ptr = grown ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (*ptr == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        free(shared);
        return result(false, grown ? "mmap" : "memfd_create");
    }
    *shared = (struct shared){*ptr, fd, taken};
    taken = shared;
    return result(true, NULL);
}

static void give_shared(ceclComm_t comm, size_t bytes, void *ptr)
{
    struct shared **at = &taken;
    (void)comm;
    munmap(ptr, bytes);
    while (*at && (*at)->ptr != ptr)
        at = &(*at)->next;
    if (*at) {
        struct shared *shared = *at;
        *at = shared->next;
        close(shared->fd);
        free(shared);
    }
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
