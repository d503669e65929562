/* The host device's memory is shared by descriptor, and mapped into reservations; an allocation fails if the machine has
 * too little memory. (tests/exhaust refuses each request to the system; tests/multi/test_join.c looks for leaks.) */
#include "host_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

/* Whether the kernel can read a byte at `addr`: write() refuses an unreadable address, without a fault. */
static bool is_readable(const void *addr)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const ssize_t sent = write(ends[1], addr, 1);
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    if (sent != 1)
        assert_int_equal(error, EFAULT);
    return sent == 1;
}

static bool is_taken(void *addr)
{
    void *got = mmap(addr, dev->granularity, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED) {
        munmap(got, dev->granularity);
        return false;
    }
    return errno == EEXIST;
}

static struct cecl_mem new_granule(void)
{
    struct cecl_mem mem = {0};
    assert_int_equal(dev->ops->mem_create(dev, dev->granularity, &mem), ceclSuccess);
    return mem;
}

TEST_BETWEEN(descriptors_are_closed_on_exec, set_up, tear_down)
{
    struct cecl_mem mine = new_granule(), theirs = {0};
    int fd = -1;
    assert_int_equal(dev->ops->mem_export(dev, &mine, &fd), ceclSuccess);
    assert_int_equal(dev->ops->mem_import(dev, fd, dev->granularity, &theirs), ceclSuccess);
    const int all[] = {(int)mine.handle - 1, fd, (int)theirs.handle - 1};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_int_equal(fcntl(all[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    dev->ops->mem_release(dev, &mine);
    dev->ops->mem_release(dev, &theirs);
    close(fd);
}

TEST_BETWEEN(a_mapping_outlives_the_release_of_its_handle, set_up, tear_down)
{
    struct cecl_mem mem = new_granule();
    char *base = map_granule(&mem);
    strcpy(base, "still here");
    dev->ops->mem_release(dev, &mem);
    assert_int_equal(mem.handle, 0);
    assert_int_equal(mem.bytes, 0);
    dev->ops->mem_release(dev, &mem); /* a zeroed handle: no effect */
    assert_string_equal(base, "still here");
    unmap_granule(base);
}

TEST_BETWEEN(an_unmapped_range_is_unreadable_and_stays_reserved, set_up, tear_down)
{
    struct cecl_mem mem = new_granule();
    const size_t granule = dev->granularity;
    void *base = NULL;
    assert_int_equal(dev->ops->reserve(dev, 2 * granule, &base), ceclSuccess);
    char *second = (char *)base + granule;
    assert_false(is_readable(second));
    assert_int_equal(dev->ops->mem_map(dev, second, &mem), ceclSuccess);
    assert_true(is_readable(second));
    assert_false(is_readable(base)); /* only mapped ranges have memory */
    dev->ops->mem_unmap(dev, second, granule);
    assert_false(is_readable(second));
    assert_true(is_taken(second));
    assert_int_equal(dev->ops->mem_map(dev, second, &mem), ceclSuccess);
    dev->ops->mem_unmap(dev, second, granule);
    dev->ops->unreserve(dev, base, 2 * granule);
    assert_false(is_taken(second));
    dev->ops->mem_release(dev, &mem);
}

TEST_BETWEEN(more_than_is_available_is_out_of_memory_and_says_how_much, set_up, tear_down)
{
    struct cecl_mem mem = {0};
    struct sysinfo info;
    char number[32];
    assert_int_equal(sysinfo(&info), 0);
    /* Just below the machine's total memory, of which the kernel and this program already use some. */
    const size_t all = (size_t)(info.totalram + info.totalswap) * info.mem_unit,
                 bytes = all / dev->granularity * dev->granularity - dev->granularity;
    assert_int_equal(dev->ops->mem_create(dev, bytes, &mem), ceclOutOfMemory);
    snprintf(number, sizeof(number), "%zu", bytes);
    assert_non_null(strstr(cecl_message(), number));
    assert_int_equal(mem.handle, 0);
}

TEST_BETWEEN(an_address_range_too_large_is_out_of_memory, set_up, tear_down)
{
    void *base = NULL;
    assert_int_equal(dev->ops->reserve(dev, (size_t)1 << 62, &base), ceclOutOfMemory);
    assert_non_null(strstr(cecl_message(), "4611686018427387904"));
    assert_null(base);
}

TEST_BETWEEN(an_import_of_what_is_no_memory_is_refused, set_up, tear_down)
{
    struct cecl_mem mem = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dev->ops->mem_import(dev, ends[0], dev->granularity, &mem), ceclInvalidUsage);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(dev->ops->mem_import(dev, -1, dev->granularity, &mem), ceclSystemError);
    assert_int_equal(mem.handle, 0);
}

TEST_BETWEEN(exported_memory_is_imported_as_no_more_and_never_gets_shorter, set_up, tear_down)
{
    struct cecl_mem mine = new_granule(), theirs = {0};
    int fd = -1;
    assert_int_equal(dev->ops->mem_export(dev, &mine, &fd), ceclSuccess);
    assert_int_equal(dev->ops->mem_import(dev, fd, 2 * dev->granularity, &theirs),
                     ceclInvalidUsage);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
    dev->ops->mem_release(dev, &mine);
}

TEST_BETWEEN(a_null_pointer_is_refused_by_its_name, set_up, tear_down)
{
    int plain = 0;
    assert_int_equal(dev->ops->check_pointer(dev, NULL, 4, "recvbuff"), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), "recvbuff"));
    assert_int_equal(dev->ops->check_pointer(dev, &plain, sizeof(plain), "sendbuff"), ceclSuccess);
}

static void assert_pointer_refused(const void *ptr, size_t bytes)
{
    char place[32], number[32];
    snprintf(place, sizeof(place), "%p", ptr);
    snprintf(number, sizeof(number), "%zu", bytes);
    assert_int_equal(dev->ops->check_pointer(dev, ptr, bytes, "sendbuff"), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), "sendbuff"));
    assert_non_null(strstr(cecl_message(), place));
    assert_non_null(strstr(cecl_message(), number));
}

TEST_BETWEEN(a_range_that_wraps_around_is_refused, set_up, tear_down)
{
    const char plain = 0;
    assert_pointer_refused(&plain, SIZE_MAX);
    assert_pointer_refused(&plain, SIZE_MAX - (uintptr_t)&plain + 2); /* ends at address 0 */
    assert_pointer_refused((const void *)UINTPTR_MAX, 2);
}

/* [hole | memory | hole] */
TEST_BETWEEN(a_range_that_begins_or_ends_in_no_memory_is_refused, set_up, tear_down)
{
    struct cecl_mem mem = new_granule();
    const size_t granule = dev->granularity;
    void *base = NULL;
    assert_int_equal(dev->ops->reserve(dev, 3 * granule, &base), ceclSuccess);
    char *middle = (char *)base + granule;
    assert_int_equal(dev->ops->mem_map(dev, middle, &mem), ceclSuccess);

    assert_int_equal(dev->ops->check_pointer(dev, middle, granule, "sendbuff"), ceclSuccess);
    assert_int_equal(dev->ops->check_pointer(dev, middle + granule - 1, 1, "sendbuff"),
                     ceclSuccess);
    assert_int_equal(dev->ops->check_pointer(dev, base, 0, "sendbuff"), ceclSuccess);
    assert_pointer_refused(base, 1);
    assert_pointer_refused(middle - 1, 2);
    assert_pointer_refused(middle, granule + 1);
    assert_pointer_refused(middle + granule, 1);
    assert_pointer_refused((const void *)16, 4);
    dev->ops->mem_unmap(dev, middle, granule);
    assert_pointer_refused(middle, granule);
    dev->ops->unreserve(dev, base, 3 * granule);
    dev->ops->mem_release(dev, &mem);
}
