/* Shared memory is a memfd that rank 0 makes and sends to all ranks. It is sealed, so no rank can remove pages that another rank has mapped. */
#include "boot/shared.h"
#include "util/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/file.h"

#define LINE 64 /* bytes of a cache line */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static ceclResult_t create(size_t bytes, int *out)
{
    const int fd = CECL_FD(memfd_create("cecl-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return cecl_fail(ceclSystemError, "memfd_create for %zu bytes: %s", bytes, strerror(errno));
    ceclResult_t result = cecl_file_grow(fd, bytes);
    if (result == ceclSuccess && fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        result =
            cecl_fail(ceclSystemError, "sealing a memfd of %zu bytes: %s", bytes, strerror(errno));
    if (result != ceclSuccess)
        cecl_fds_close(fd);
    else
        *out = fd;
    return result;
}

/* Makes the memory on rank 0, and sends its descriptor to all. */
static ceclResult_t hand_out(struct cecl_mesh *mesh, int rank, size_t bytes, int *fd)
{
    char words[CECL_MESSAGE_BYTES];
    const ceclResult_t made = rank == 0 ? create(bytes, fd) : ceclSuccess;
    cecl_keep_message(words);
    const ceclResult_t sent = cecl_mesh_share_fd(mesh, 0, fd);
    return made != ceclSuccess ? cecl_fail_with(made, words) : sent;
}

static ceclResult_t map(int fd, size_t bytes, char **base)
{
    struct stat info = {.st_size = -1};
    const int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info) != 0 || (size_t)info.st_size != bytes || (seals & SEALS) != SEALS)
        return cecl_fail(ceclInternalError,
                         "the ranks' shared memory: %lld bytes with seals %#x, %zu bytes with %#x "
                         "expected",
                         (long long)info.st_size, (unsigned)seals, bytes, (unsigned)SEALS);
    /* No MAP_POPULATE: most of the memory is rings, and a program may use few of their entries.
     * Allocating all pages here would take half of the time of an init. */
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return cecl_fail(ceclSystemError, "mmap of %zu shared bytes: %s", bytes, strerror(errno));
    *base = at;
    return ceclSuccess;
}

ceclResult_t cecl_shared_open(struct cecl_mesh *mesh, int rank, const size_t *sizes, int count,
                              struct cecl_shared *shared)
{
    int fd = -1;
    *shared = (struct cecl_shared){0};
    for (int i = 0; i < count; i++) {
        shared->offsets[i] = shared->bytes;
        shared->bytes += (sizes[i] + LINE - 1) / LINE * LINE;
    }
    ceclResult_t result = hand_out(mesh, rank, shared->bytes, &fd);
    if (result == ceclSuccess)
        result = map(fd, shared->bytes, &shared->base);
    if (fd >= 0)
        cecl_fds_close(fd); /* the mapping keeps the memory */
    result = cecl_mesh_agree(mesh, result);
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
