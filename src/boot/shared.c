/* See shared.h. The memory lies behind the mesh's rows. */
#include "boot/shared.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "util/fds.h"
#include "util/file.h"

#define LINE 64 /* bytes of a cache line */

static ceclResult_t map(int fd, size_t before, size_t bytes, char **base)
{
    struct stat info = {.st_size = -1};
    if (fstat(fd, &info) != 0 || info.st_size < (off_t)(before + bytes))
        return cecl_fail(ceclInternalError, "the ranks' shared memory: %lld bytes, %zu expected",
                         (long long)info.st_size, before + bytes);
    /* No MAP_POPULATE: most of the memory is rings, and a program may use few of their entries.
     * Allocating all pages here would take half of the time of an init. */
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)before);
    if (at == MAP_FAILED)
        return cecl_fail(ceclSystemError, "mmap of %zu shared bytes: %s", bytes, strerror(errno));
    *base = at;
    return ceclSuccess;
}

ceclResult_t cecl_shared_open(struct cecl_mesh *mesh, int rank, const size_t *sizes, int count,
                              struct cecl_shared *shared)
{
    size_t before;
    *shared = (struct cecl_shared){0};
    for (int i = 0; i < count; i++) {
        shared->offsets[i] = shared->bytes;
        shared->bytes += (sizes[i] + LINE - 1) / LINE * LINE;
    }
    const int fd = cecl_mesh_take_memory(mesh, &before);
    ceclResult_t result = rank == 0 ? cecl_file_grow(fd, before + shared->bytes) : ceclSuccess;
    result = cecl_mesh_agree(mesh, result);
    if (result == ceclSuccess)
        result = cecl_mesh_agree(mesh, map(fd, before, shared->bytes, &shared->base));
    cecl_fds_close(fd); /* the mapping keeps the memory */
    if (result != ceclSuccess)
        cecl_shared_close(shared);
    return result;
}

void cecl_shared_close(struct cecl_shared *shared)
{
    if (shared->base)
        munmap(shared->base, shared->bytes);
    *shared = (struct cecl_shared){0};
}
