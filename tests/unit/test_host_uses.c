/* The host device checks the program's memory that a call uses: it must still belong to one mapping, and using it must
 * raise no signal that would end the process. */
#include "host_file.h"

#include "../open_descriptors.h"
#include "util/fds.h"

static struct cecl_use use_of(const void *buffer, size_t bytes, bool written)
{
    const uint64_t low = (uintptr_t)buffer;
    return (struct cecl_use){
        .name = "sendbuff", .buffer = buffer, .low = low, .high = low + bytes, .written = written};
}

/* Returns the id of the used bytes. Fails the test if a call could not use them. */
static uint64_t id_of_use(struct cecl_use use)
{
    uint64_t id = 1;
    if (dev->ops->region_id(dev, use.buffer, &use, &id) != ceclSuccess)
        fail_msg("region_id: %s", cecl_message());
    return id;
}

static void assert_refused(ceclResult_t result, const void *buffer, const char *words)
{
    char start[64];
    snprintf(start, sizeof(start), "sendbuff %p: ", buffer);
    assert_int_equal(result, ceclInvalidArgument);
    if (strncmp(cecl_message(), start, strlen(start)) != 0 || !strstr(cecl_message(), words))
        fail_msg("\"%s\" and \"%s\" are not in \"%s\"", start, words, cecl_message());
}

/* Asserts that region_id and check_uses refuse the use. */
static void assert_use_refused(struct cecl_use use, const char *words)
{
    const char other[100] = "a use that is right, on the stack";
    struct cecl_use uses[] = {use_of(other, sizeof(other), true), use};
    uint64_t id;
    assert_refused(dev->ops->region_id(dev, use.buffer, &use, &id), use.buffer, words);
    assert_refused(dev->ops->check_uses(dev, &use, 1), use.buffer, words);
    assert_refused(dev->ops->check_uses(dev, uses, 2), use.buffer, words);
    assert_int_equal(dev->ops->check_uses(dev, uses, 1), ceclSuccess);
}

/* Maps over pages [first, first + pages) at `memory`: the same pages of a file, or anonymous memory if fd < 0. */
static void map_over(char *memory, size_t first, size_t pages, int rights, int flags, int fd)
{
    char *at = memory + first * page();
    assert_ptr_equal(mmap(at, pages * page(), rights, flags | MAP_FIXED, fd,
                          fd < 0 ? 0 : (off_t)(first * page())),
                     at);
}

TEST_BETWEEN(an_id_is_of_all_bytes_that_are_used, set_up, tear_down)
{
    enum { RIGHTS = PROT_READ | PROT_WRITE };
    const int fd = new_file(), other = new_file();
    char *memory = map_shared(fd, NULL, 0, PAGES);
    const struct cecl_use all = use_of(memory, PAGES * page(), true),
                          first = use_of(memory, page(), true);
    const uint64_t id = region_at(memory).id;
    assert_int_equal(id_of_use(all), id);
    const struct {
        int flags, fd;
    } over[] = {{MAP_SHARED, other},
                {MAP_PRIVATE, fd},
                {MAP_PRIVATE, other},
                {MAP_PRIVATE | MAP_ANONYMOUS, -1},
                {MAP_SHARED | MAP_ANONYMOUS, -1}};
    for (size_t i = 0; i < sizeof(over) / sizeof(over[0]); i++)
        for (size_t at = 0; at < PAGES; at++) {
            map_over(memory, at, 1, RIGHTS, over[i].flags, over[i].fd);
            assert_int_not_equal(id_of_use(all), id);
            assert_int_equal(id_of_use(first) == id, at != 0);
            map_over(memory, at, 1, RIGHTS, MAP_SHARED, fd); /* as at first */
            assert_int_equal(id_of_use(all), id);
        }
    map_over(memory, 0, PAGES, RIGHTS, MAP_PRIVATE, fd);
    assert_int_not_equal(id_of_use(all), id);
}

TEST_BETWEEN(an_id_tells_pages_of_a_file_apart, set_up, tear_down)
{
    const int fd = new_file();
    char *memory = map_shared(fd, NULL, 0, PAGES);
    const struct cecl_use all = use_of(memory, PAGES * page(), false);
    const uint64_t id = id_of_use(all);
    map_shared(fd, memory + page(), 2, 1);
    assert_int_not_equal(id_of_use(all), id);
}

TEST_BETWEEN(a_mapping_that_the_kernel_splits_is_one_region, set_up, tear_down)
{
    const int fd = new_file();
    char *memory = map_shared(fd, NULL, 0, PAGES);
    const struct cecl_region whole = region_at(memory);
    assert_int_equal(mprotect(memory + page(), page(), PROT_READ), 0);
    for (size_t at = 0; at < PAGES; at++) {
        const struct cecl_region region = region_at(memory + at * page());
        assert_memory_equal(&region, &whole, REGION_BYTES);
    }
    assert_int_equal(id_of_use(use_of(memory, PAGES * page(), false)), whole.id);
    const struct cecl_region_export exported = export_of(memory + 2 * page());
    assert_int_equal(exported.base, whole.base);
    assert_int_equal(exported.bytes, whole.bytes);
    assert_int_equal(exported.offset, 0);
    cecl_fds_close(exported.fd);
}

/* The region is the middle page of the file. Then all pages are mapped, and later the last one is unmapped. */
TEST_BETWEEN(a_region_stays_when_its_mapping_grows_or_shrinks, set_up, tear_down)
{
    const int fd = new_file();
    char *place = mmap(NULL, PAGES * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(place, MAP_FAILED);
    char *memory = place + page();
    map_shared(fd, memory, 1, 1);
    const struct cecl_region region = region_at(memory);
    const struct cecl_use use = use_of(memory, page(), true);
    struct cecl_region_export exported;
    map_shared(fd, place, 0, PAGES); /* grown at both ends */
    assert_int_equal(id_of_use(use), region.id);
    assert_int_equal(region_at(memory).base, (uintptr_t)place);
    assert_int_equal(region_at(memory).bytes, PAGES * page());
    assert_int_equal(dev->ops->region_export(dev, &region, &exported), ceclSuccess);
    assert_int_equal(exported.base, (uintptr_t)memory);
    assert_int_equal(exported.offset, page());
    cecl_fds_close(exported.fd);
    assert_int_equal(munmap(memory + page(), page()), 0); /* shrunk */
    assert_int_equal(id_of_use(use), region.id);
}

TEST_BETWEEN(a_region_of_which_a_part_is_gone_is_not_exported, set_up, tear_down)
{
    const int fd = new_file();
    struct cecl_region_export exported;
    char *memory = map_shared(fd, NULL, 0, PAGES);
    const struct cecl_region region = region_at(memory);
    const int descriptors = open_descriptors();
    map_over(memory, 2, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    assert_int_equal(dev->ops->region_export(dev, &region, &exported), ceclInvalidUsage);
    assert_int_equal(open_descriptors(), descriptors);
}

/* What a program may do to its pages between two calls. */
static void unmap_the_last(char *memory, int fd)
{
    assert_int_equal(munmap(memory + 2 * page(), page()), 0);
}
static void unmap_the_middle(char *memory, int fd)
{
    assert_int_equal(munmap(memory + page(), page()), 0);
}
static void shrink(char *memory, int fd)
{
    assert_ptr_equal(mremap(memory, PAGES * page(), 2 * page(), 0), memory);
}
static void take_all_rights(char *memory, int fd)
{
    assert_int_equal(mprotect(memory + page(), page(), PROT_NONE), 0);
}
static void take_the_right_to_write(char *memory, int fd)
{
    assert_int_equal(mprotect(memory + page(), page(), PROT_READ), 0);
}
static void truncate_the_file(char *memory, int fd)
{
    assert_int_equal(ftruncate(fd, (off_t)(2 * page())), 0);
}

static const struct {
    void (*change)(char *memory, int fd);
    const char *words;
    size_t at;         /* the first unusable page; PAGES: page 2; the message names another byte */
    bool written_only; /* the page can still be read */
} troubles[] = {
    {unmap_the_last, "no memory of this process, at byte", 2, false},
    {unmap_the_middle, "no memory of this process, at byte", 1, false},
    {shrink, "no memory of this process, at byte", 2, false},
    {take_all_rights, "no memory of this process that can be read, at byte", 1, false},
    {take_the_right_to_write, "no memory of this process that can be written, at byte", 1, true},
    {truncate_the_file, "the file that is mapped here is too short", PAGES, false},
};
#define TROUBLES (sizeof(troubles) / sizeof(troubles[0]))

static void refuse_each_trouble(int flags)
{
    for (size_t i = 0; i < TROUBLES; i++) {
        const int fd = new_file();
        const bool shared_file = flags == MAP_SHARED;
        char *memory = mmap(NULL, PAGES * page(), PROT_READ | PROT_WRITE, flags, fd, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        const struct cecl_use all = use_of(memory + 5, PAGES * page() - 5, true);
        const size_t usable = troubles[i].at == PAGES ? 2 : troubles[i].at;
        const uint64_t id = id_of_use(all);
        char place[64];
        troubles[i].change(memory, fd);
        assert_use_refused(all, troubles[i].words);
        if (troubles[i].at < PAGES) {
            snprintf(place, sizeof(place), "at byte %zu of %zu", troubles[i].at * page() - 5,
                     PAGES * page() - 5);
            assert_use_refused(all, place);
        }
        struct cecl_use reads = all;
        reads.written = false;
        if (troubles[i].written_only)
            assert_int_equal(dev->ops->check_uses(dev, &reads, 1), ceclSuccess);
        else
            assert_use_refused(reads, troubles[i].words);
        if (shared_file) /* the pages before the unusable one keep their id */
            assert_int_equal(id_of_use(use_of(memory, usable * page(), true)), id);
        munmap(memory, PAGES * page());
        close(fd);
    }
}

TEST_BETWEEN(memory_that_would_end_the_process_is_refused_by_its_name, set_up, tear_down)
{
    refuse_each_trouble(MAP_SHARED);
    refuse_each_trouble(MAP_PRIVATE);
}

TEST_BETWEEN(bytes_that_are_not_used_may_be_gone, set_up, tear_down)
{
    const int fd = new_file();
    char *memory = map_shared(fd, NULL, 0, PAGES);
    struct cecl_use middle = use_of(memory, 2 * page(), true);
    const uint64_t id = id_of_use(middle);
    middle.low += page();
    assert_int_equal(mprotect(memory, page(), PROT_NONE), 0);
    assert_int_equal(munmap(memory + 2 * page(), page()), 0);
    assert_int_equal(id_of_use(middle), id);
    /* the list of mappings is read from the lowest use on, so also before `middle` */
    static char below;
    const struct cecl_use uses[] = {use_of(&below, 1, true), middle};
    assert_int_equal(dev->ops->check_uses(dev, uses, 2), ceclSuccess);
}
