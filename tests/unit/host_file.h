/* Mappings of files, and the regions that the host device finds in them. A test is linked with --wrap=ioctl. */
#ifndef CECL_TESTS_UNIT_HOST_FILE_H
#define CECL_TESTS_UNIT_HOST_FILE_H

#include "host_fixture.h"

#include <errno.h>
#include <sys/mman.h>

/* How the wrapped ioctl answers questions about single mappings. NO_ANSWERS: it refuses them, as a kernel before Linux
 * 6.11 does, so the library reads the list of mappings. SOME_ANSWERS and the next two values: it refuses every third,
 * beginning with the third, second or first one; then the library changes over to the list. */
enum answers { ALL_ANSWERS, NO_ANSWERS, SOME_ANSWERS, SOME_LAST = SOME_ANSWERS + 2 };
static int answers;

WRAPPED(int, ioctl, (int fd, unsigned long request, void *argument))
{
    static unsigned asked;
    if (answers == ALL_ANSWERS ||
        (answers >= SOME_ANSWERS && (++asked + (unsigned)answers - SOME_ANSWERS) % 3 != 0))
        return __real_ioctl(fd, request, argument);
    errno = ENOTTY;
    return -1;
}

/* Runs the tests once for each value of `answers`. Each run is a process, whose end closes files and mappings. */
int main(void)
{
    int failed = 0;
    for (answers = ALL_ANSWERS; answers <= SOME_LAST; answers++)
        failed += tests_run_apart();
    return failed;
}

#define PAGES 3

/* Bytes of a region without the padding at its end, which comparisons leave out. */
#define REGION_BYTES (offsetof(struct cecl_region, kind) + sizeof(uint32_t))

static inline size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static inline int new_file(void)
{
    const int fd = memfd_create("program", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(PAGES * page())), 0);
    return fd;
}

/* Maps `pages` pages of a file, from page `first` on. at: an address to map over, or NULL. */
static inline char *map_shared(int fd, void *at, size_t first, size_t pages)
{
    char *mapped = mmap(at, pages * page(), PROT_READ | PROT_WRITE,
                        MAP_SHARED | (at ? MAP_FIXED : 0), fd, (off_t)(first * page()));
    assert_ptr_not_equal(mapped, MAP_FAILED);
    return mapped;
}

static inline struct cecl_region region_at(const void *ptr)
{
    struct cecl_region region = {0};
    if (dev->ops->region_find(dev, ptr, &region) != ceclSuccess)
        fail_msg("region_find: %s", cecl_message());
    return region;
}

static inline struct cecl_region_export export_of(const void *ptr)
{
    const struct cecl_region region = region_at(ptr);
    struct cecl_region_export exported = {.fd = -1};
    if (dev->ops->region_export(dev, &region, &exported) != ceclSuccess)
        fail_msg("region_export: %s", cecl_message());
    return exported;
}

#endif
