/* The host device does what device.h specifies: streams are ordered and independent, waits compare words
 * cyclically, and memory is shared by descriptor. */
#include "host_fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

TEST_BETWEEN(a_held_stream_holds_no_other, set_up, tear_down)
{
    uint32_t gate = 0, passed = 0;
    ceclStream_t held = new_stream(), free_one = new_stream();
    memop(held, CECL_MEMOP_WAIT, &gate, 1);
    memop(free_one, CECL_MEMOP_WRITE, &passed, 7);
    assert_int_equal(dev->ops->stream_synchronize(dev, free_one), ceclSuccess);
    assert_int_equal(passed, 7);
    assert_int_equal(dev->ops->stream_query(dev, held), ceclInProgress);
    assert_int_equal(dev->ops->words_release(dev, &gate, 1, 5), ceclSuccess);
    assert_int_equal(dev->ops->stream_synchronize(dev, held), ceclSuccess);
    assert_int_equal(dev->ops->stream_query(dev, held), ceclSuccess);
}

/* Waits for a value, or, with CECL_MEMOP_WAIT_ANY, for one of its bits. */
TEST_BETWEEN(waits_end_by_their_kind, set_up, tear_down)
{
    static const struct {
        uint32_t have, want;
        bool over;
        enum cecl_memop_kind kind;
    } cases[] = {{5, 5, true, CECL_MEMOP_WAIT},
                 {6, 5, true, CECL_MEMOP_WAIT},
                 {4, 5, false, CECL_MEMOP_WAIT},
                 {1, 0xffffffffu, true, CECL_MEMOP_WAIT},
                 {0xffffffffu, 1, false, CECL_MEMOP_WAIT},
                 {0x80000000u, 1, true, CECL_MEMOP_WAIT},
                 {6, 2, true, CECL_MEMOP_WAIT_ANY},
                 {2, 6, true, CECL_MEMOP_WAIT_ANY},
                 {5, 2, false, CECL_MEMOP_WAIT_ANY},
                 {0x80000000u, 0x80000000u, true, CECL_MEMOP_WAIT_ANY}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t word = cases[i].have;
        _Atomic uint32_t begun = 0;
        ceclStream_t stream = new_stream();
        memop(stream, CECL_MEMOP_WRITE, (uint32_t *)&begun, 1);
        memop(stream, cases[i].kind, &word, cases[i].want);
        if (cases[i].over) {
            assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
        } else {
            while (!atomic_load(&begun))
                usleep(1000);
            usleep(20000); /* the stream would continue in this time */
            assert_int_equal(dev->ops->stream_query(dev, stream), ceclInProgress);
        }
        assert_int_equal(dev->ops->words_release(dev, &word, 1, cases[i].want), ceclSuccess);
        assert_int_equal(dev->ops->stream_destroy(dev, stream), ceclSuccess);
    }
}

TEST_BETWEEN(work_runs_in_stream_order, set_up, tear_down)
{
    enum { COUNT = 3000 };
    static uint64_t cells[COUNT + 1];
    ceclStream_t stream = new_stream();
    cells[0] = 42;
    for (int i = 0; i < COUNT; i++) {
        void *dst = &cells[i + 1], *src = &cells[i];
        size_t bytes = sizeof(cells[0]);
        const struct cecl_batch batch = {&dst, &src, &bytes, 1, false};
        assert_int_equal(dev->ops->copies(dev, stream, &batch), ceclSuccess);
    }
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    assert_int_equal(cells[COUNT], 42);
}

TEST_BETWEEN(the_queue_keeps_its_size_in_a_steady_state, set_up, tear_down)
{
    uint32_t word = 0;
    ceclStream_t stream = new_stream();
    const size_t before = host_stream_capacity(stream);
    for (uint32_t i = 0; i < 10000; i++) {
        memop(stream, CECL_MEMOP_WRITE, &word, i);
        if (i % 16 == 15)
            assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
    }
    assert_int_equal(host_stream_capacity(stream), before);
}

TEST_BETWEEN(streams_that_are_none_are_refused, set_up, tear_down)
{
    uint64_t stranger[32] = {0};
    ceclStream_t stream = new_stream();
    assert_int_equal(dev->ops->stream_destroy(dev, stream), ceclSuccess);
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_query(dev, (ceclStream_t)(void *)stranger),
                     ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_destroy(dev, NULL), ceclInvalidArgument);
}

TEST_BETWEEN(closing_does_not_wait_for_a_held_stream, set_up, tear_down)
{
    struct cecl_device *other;
    ceclStream_t stream;
    static uint32_t never; /* the thread that waits for it is left */
    const struct cecl_memop wait = {&never, 1, CECL_MEMOP_WAIT};
    assert_int_equal(cecl_host_open(&other), ceclSuccess);
    assert_int_equal(other->ops->stream_create(other, false, &stream), ceclSuccess);
    assert_int_equal(other->ops->memops(other, stream, &wait, 1), ceclSuccess);
    other->ops->close(other); /* the test is that this returns */
}

TEST_BETWEEN(stream_ids_are_never_used_again, set_up, tear_down)
{
    uint64_t last = 0;
    for (int i = 0; i < 50; i++) {
        ceclStream_t stream = new_stream();
        assert_true(dev->ops->stream_id(dev, stream) > last);
        last = dev->ops->stream_id(dev, stream);
        assert_int_equal(dev->ops->stream_destroy(dev, stream), ceclSuccess);
    }
}

TEST_BETWEEN(an_import_of_too_little_memory_is_refused, set_up, tear_down)
{
    struct cecl_mem mine = {0}, theirs = {0};
    int fd = -1;
    assert_int_equal(dev->ops->mem_create(dev, dev->granularity, &mine), ceclSuccess);
    assert_int_equal(dev->ops->mem_export(dev, &mine, &fd), ceclSuccess);
    assert_int_equal(dev->ops->mem_import(dev, fd, 2 * dev->granularity, &theirs),
                     ceclInvalidUsage);
    close(fd);
    dev->ops->mem_release(dev, &mine);
}

TEST_BETWEEN(more_than_the_machine_has_is_out_of_memory, set_up, tear_down)
{
    struct cecl_mem mem = {0};
    assert_int_equal(dev->ops->mem_create(dev, (size_t)1 << 50, &mem), ceclOutOfMemory);
    assert_int_equal(mem.handle, 0);
}

/* Two processes share a page: one waits for a word and reads the data in front of it, the other copies data
 * and then the word. Each process opens its device after the fork, so that the fork happens without
 * threads. */
static int send_across(int fd)
{
    struct cecl_device *other;
    struct cecl_mem mem = {0};
    void *there = NULL;
    static char text[] = "across";
    if (cecl_host_open(&other) || other->ops->mem_import(other, fd, other->granularity, &mem) ||
        other->ops->reserve(other, other->granularity, &there) ||
        other->ops->mem_map(other, there, &mem))
        return 1;
    const struct cecl_memop flag = {(uint32_t *)there, 9, CECL_MEMOP_WRITE};
    return other->ops->memcpy_async(other, (char *)there + 64, text, sizeof(text), NULL) ||
           other->ops->memops(other, NULL, &flag, 1) || other->ops->stream_synchronize(other, NULL);
}

TEST(memory_and_words_work_across_processes)
{
    struct cecl_mem mine = {0};
    void *base = NULL;
    char got[8] = "";
    int status = -1;
    const int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, sysconf(_SC_PAGESIZE)), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        _exit(send_across(fd));
    set_up(state);
    assert_int_equal(dev->ops->mem_import(dev, fd, dev->granularity, &mine), ceclSuccess);
    assert_int_equal(dev->ops->reserve(dev, dev->granularity, &base), ceclSuccess);
    assert_int_equal(dev->ops->mem_map(dev, base, &mine), ceclSuccess);
    memop(NULL, CECL_MEMOP_WAIT, base, 9);
    assert_int_equal(dev->ops->memcpy_async(dev, got, (char *)base + 64, 7, NULL), ceclSuccess);
    assert_int_equal(dev->ops->stream_synchronize(dev, NULL), ceclSuccess);
    assert_string_equal(got, "across");
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    dev->ops->mem_unmap(dev, base, dev->granularity);
    dev->ops->unreserve(dev, base, dev->granularity);
    dev->ops->mem_release(dev, &mine);
    close(fd);
    tear_down(state);
}
