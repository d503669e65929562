/* A host device for each test, and short names for frequent steps. */
#ifndef CECL_TESTS_UNIT_HOST_FIXTURE_H
#define CECL_TESTS_UNIT_HOST_FIXTURE_H

#include "../with_cmocka.h"

#include "device/host.h"
#include "util/clock.h"

static struct cecl_device *dev;

static inline int set_up(void **state)
{
    return cecl_host_open(&dev) != ceclSuccess;
}

static inline int tear_down(void **state)
{
    dev->ops->close(dev);
    return 0;
}

static inline ceclStream_t new_stream(void)
{
    ceclStream_t stream = NULL;
    assert_int_equal(dev->ops->stream_create(dev, false, &stream), ceclSuccess);
    return stream;
}

static inline void memop(ceclStream_t stream, enum cecl_memop_kind kind, uint32_t *word,
                         uint32_t value)
{
    const struct cecl_memop op = {word, value, kind};
    assert_int_equal(dev->ops->memops(dev, stream, &op, 1), ceclSuccess);
}

/* Writes a word as the watchdog does, which wakes whoever waits for it. */
static inline void release(uint32_t *word, uint32_t value)
{
    assert_int_equal(dev->ops->words_release(dev, word, 1, value), ceclSuccess);
}

static inline void copy(ceclStream_t stream, void *dst, const void *src, size_t bytes)
{
    void *from = (void *)(uintptr_t)src;
    const struct cecl_batch batch = {&dst, &from, &bytes, 1, false};
    assert_int_equal(dev->ops->copies(dev, stream, &batch), ceclSuccess);
}

static inline void synchronize(ceclStream_t stream)
{
    assert_int_equal(dev->ops->stream_synchronize(dev, stream), ceclSuccess);
}

/* Maps one granule of memory at a new reservation. */
static inline void *map_granule(const struct cecl_mem *mem)
{
    void *base = NULL;
    assert_int_equal(dev->ops->reserve(dev, dev->granularity, &base), ceclSuccess);
    assert_int_equal(dev->ops->mem_map(dev, base, mem), ceclSuccess);
    return base;
}

static inline void unmap_granule(void *base)
{
    dev->ops->mem_unmap(dev, base, dev->granularity);
    dev->ops->unreserve(dev, base, dev->granularity);
}

#endif
