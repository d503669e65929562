/* A program's own memory, on the host device: peers can map shared mappings of open files; all other memory is
 * recognized as private. test_host_uses.c tests the ids that tell memory from earlier memory at the same address. */
#include "host_file.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include "util/fds.h"

static uint64_t id_at(const void *ptr)
{
    uint64_t id = 1;
    assert_int_equal(dev->ops->region_id(dev, ptr, NULL, &id), ceclSuccess);
    return id;
}

/* Imports into a reservation of the region's size, and returns its address. */
static char *import_of(const struct cecl_region_export *exported)
{
    void *base = NULL, *addr = NULL;
    assert_int_equal(dev->ops->reserve(dev, exported->bytes, &base), ceclSuccess);
    if (dev->ops->region_import(dev, exported, base, &addr) != ceclSuccess)
        fail_msg("region_import: %s", cecl_message());
    assert_int_equal(dev->ops->region_access(dev, addr, exported->bytes), ceclSuccess);
    assert_ptr_equal(addr, base);
    return addr;
}

static void end_import(const struct cecl_region_export *exported, char *addr)
{
    dev->ops->region_close(dev, exported, addr);
    dev->ops->unreserve(dev, addr, exported->bytes);
}

TEST_BETWEEN(a_shared_mapping_is_one_region_from_any_of_its_bytes, set_up, tear_down)
{
    const int fd = new_file();
    char *memory = map_shared(fd, NULL, 0, PAGES);
    const char *bytes[] = {memory, memory + page() + 5, memory + PAGES * page() - 1};
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        const struct cecl_region region = region_at(bytes[i]);
        assert_int_equal(region.kind, CECL_REGION_FILE);
        assert_int_equal(region.base, (uintptr_t)memory);
        assert_int_equal(region.bytes, PAGES * page());
        assert_int_equal(region.home, region.base);
        assert_int_equal(region.home_bytes, region.bytes);
        assert_int_not_equal(region.id, 0);
        assert_int_equal(region.id, id_at(bytes[i]));
    }
}

static void assert_private(const void *ptr)
{
    struct cecl_region region = region_at(ptr);
    struct cecl_region_export exported;
    assert_int_equal(region.kind, CECL_REGION_NONE);
    assert_true(region.base <= (uintptr_t)ptr && (uintptr_t)ptr - region.base < region.bytes);
    assert_int_equal(dev->ops->region_export(dev, &region, &exported), ceclInvalidUsage);
}

/* [file | hole | file]. The hole is empty, or memory without access rights. Accessible memory there ends the region. */
TEST_BETWEEN(a_mapping_with_a_hole_is_one_region, set_up, tear_down)
{
    const int fd = new_file();
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *memory = map_shared(fd, NULL, 0, PAGES), *middle = memory + page();
    struct cecl_region region, whole = region_at(memory);
    assert_int_equal(munmap(middle, page()), 0);
    for (int i = 0; i < 2; i++) {
        for (size_t at = 0; at < PAGES; at += 2) {
            region = region_at(memory + at * page());
            assert_memory_equal(&region, &whole, REGION_BYTES);
        }
        if (i == 0)
            assert_int_equal(dev->ops->region_find(dev, middle, &region), ceclInvalidArgument);
        assert_ptr_equal(mmap(middle, page(), PROT_NONE, flags, -1, 0), middle);
    }
    assert_int_equal(mprotect(middle, page(), PROT_READ), 0);
    assert_private(middle);
    assert_int_equal(region_at(memory).bytes, page());
}

TEST_BETWEEN(private_and_anonymous_mappings_are_private, set_up, tear_down)
{
    const int fd = new_file();
    char *copy = mmap(NULL, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *nameless = mmap(NULL, page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(copy, MAP_FAILED);
    assert_ptr_not_equal(nameless, MAP_FAILED);
    assert_private(copy);
    assert_private(nameless);
}

TEST_BETWEEN(a_mapping_whose_file_was_closed_is_private, set_up, tear_down)
{
    const int fd = new_file();
    char *memory = map_shared(fd, NULL, 0, PAGES);
    struct cecl_region region = region_at(memory);
    struct cecl_region_export exported;
    assert_int_equal(region.kind, CECL_REGION_FILE);
    close(fd);
    assert_private(memory);
    /* A region that was found earlier is refused, too. */
    assert_int_equal(dev->ops->region_export(dev, &region, &exported), ceclInvalidUsage);
}

/* Peers cannot map a sealed file, although this process can read it, and an older mapping can write it. */
TEST_BETWEEN(a_file_that_is_sealed_against_writing_is_private, set_up, tear_down)
{
    const struct {
        int seal, rights;
        enum cecl_region_kind kind;
    } cases[] = {{F_SEAL_GROW, PROT_READ | PROT_WRITE, CECL_REGION_FILE},
                 {F_SEAL_FUTURE_WRITE, PROT_READ | PROT_WRITE, CECL_REGION_NONE},
                 {F_SEAL_WRITE, PROT_READ, CECL_REGION_NONE}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int fd = memfd_create("program", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)page()), 0);
        if (cases[i].seal == F_SEAL_WRITE) /* a mapped file cannot get this seal */
            assert_int_equal(fcntl(fd, F_ADD_SEALS, cases[i].seal), 0);
        char *memory = mmap(NULL, page(), cases[i].rights, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED) /* older kernels refuse such a mapping */
            assert_int_equal(cases[i].seal, F_SEAL_WRITE);
        else {
            assert_int_equal(fcntl(fd, F_ADD_SEALS, cases[i].seal), 0);
            assert_int_equal(region_at(memory).kind, cases[i].kind);
            munmap(memory, page());
        }
        close(fd);
    }
}

/* The kernel reads a page of memfd_secret for no other process, not even by process_vm_readv. */
TEST_BETWEEN(memory_of_memfd_secret_can_be_used_and_is_private, set_up, tear_down)
{
    const int fd = (int)syscall(SYS_memfd_secret, 0);
    if (fd < 0) {
        skip_because("this kernel has no memfd_secret");
    }
    assert_int_equal(ftruncate(fd, (off_t)(PAGES * page())), 0);
    char *memory = map_shared(fd, NULL, 0, PAGES);
    const struct cecl_use all = {.name = "recvbuff",
                                 .buffer = memory,
                                 .low = (uintptr_t)memory,
                                 .high = (uintptr_t)memory + PAGES * page(),
                                 .written = true};
    assert_private(memory);
    assert_int_equal(dev->ops->check_pointer(dev, memory, PAGES * page(), "recvbuff"), ceclSuccess);
    assert_int_equal(dev->ops->check_uses(dev, &all, 1), ceclSuccess);
}

TEST_BETWEEN(a_file_open_for_reading_alone_is_private, set_up, tear_down)
{
    char path[64];
    const int fd = new_file();
    char *memory = map_shared(fd, NULL, 0, 1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int reader = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(reader >= 0);
    close(fd);
    assert_private(memory);
}

static void assert_no_memory(const void *ptr)
{
    struct cecl_region region;
    char place[32];
    snprintf(place, sizeof(place), "%p", ptr);
    assert_int_equal(dev->ops->region_find(dev, ptr, &region), ceclInvalidArgument);
    assert_non_null(strstr(cecl_message(), place));
}

TEST_BETWEEN(an_address_without_memory_is_refused_by_its_address, set_up, tear_down)
{
    void *reserved = NULL;
    char *gone = mmap(NULL, page(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gone, MAP_FAILED);
    munmap(gone, page());
    assert_int_equal(dev->ops->reserve(dev, page(), &reserved), ceclSuccess);
    assert_no_memory(NULL);
    assert_no_memory(gone);
    assert_no_memory(reserved);
    assert_no_memory((const void *)UINTPTR_MAX);
    dev->ops->unreserve(dev, reserved, page());
}

/* More mappings than one read of /proc/self/maps returns; a path longer than what the library keeps of a line. */
TEST_BETWEEN(regions_are_found_behind_many_mappings, set_up, tear_down)
{
    enum { MANY = 200 };
    char name[200], *many[MANY];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    const int fd = memfd_create(name, MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)page()), 0);
    for (int i = 0; i < MANY; i++)
        many[i] = map_shared(fd, NULL, 0, 1);
    for (int i = 0; i < MANY; i++) {
        const struct cecl_region region = region_at(many[i]);
        assert_int_equal(region.base, (uintptr_t)many[i]);
        assert_int_equal(region.bytes, page());
        assert_int_equal(region.kind, CECL_REGION_FILE);
    }
    for (int i = 0; i < MANY; i++)
        munmap(many[i], page());
}

TEST_BETWEEN(a_mapping_of_a_part_of_a_file_is_imported_at_that_part, set_up, tear_down)
{
    const int fd = new_file();
    char *whole = map_shared(fd, NULL, 0, PAGES), *part = map_shared(fd, NULL, 2, 1);
    const struct cecl_region_export exported = export_of(part);
    assert_int_equal(exported.bytes, page());
    assert_int_equal(exported.offset, 2 * page());
    strcpy(whole + 2 * page(), "the third page");
    char *there = import_of(&exported);
    assert_string_equal(there, "the third page");
    end_import(&exported, there);
    cecl_fds_close(exported.fd);
}

TEST_BETWEEN(a_closed_import_leaves_its_range_reserved, set_up, tear_down)
{
    const int fd = new_file();
    char *memory = map_shared(fd, NULL, 0, 1);
    const struct cecl_region_export exported = export_of(memory);
    char *there = import_of(&exported);
    dev->ops->region_close(dev, &exported, there);
    assert_no_memory(there);
    assert_ptr_equal(
        mmap(there, page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
        MAP_FAILED);
    assert_int_equal(errno, EEXIST);
    dev->ops->unreserve(dev, there, page());
    cecl_fds_close(exported.fd);
}

TEST_BETWEEN(an_export_of_another_kind_is_refused, set_up, tear_down)
{
    const struct cecl_region_export exported = {
        .kind = CECL_REGION_HANDLE, .bytes = 4096, .fd = -1};
    void *addr = NULL;
    assert_int_equal(dev->ops->region_import(dev, &exported, NULL, &addr), ceclInvalidUsage);
    assert_null(addr);
}
