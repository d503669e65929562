/* Calls of a group have no order among themselves: what one writes no other may use. */
#include <stdlib.h>

#include "comm/collective.h"
#include "comm/variable.h"

/* A buffer of a call of a group. */
struct range {
    uintptr_t low, high;
    size_t width,
        pitch; /* only so many bytes of every `pitch` from `low` on; pitch 0: all of them */
    uint32_t call;
    bool written;
};

static int by_low(const void *a, const void *b)
{
    const struct range *one = a, *other = b;
    return (one->low > other->low) - (one->low < other->low);
}

static bool shares(const struct range *earlier, const struct range *now)
{
    return earlier && earlier->call != now->call && now->low < earlier->high;
}

/* A range that one of an earlier low meets, one of them written. Ranges come by their low ends, so it
 * is enough to know which ends last: of those written, which are apart as long as nothing is found,
 * and of two calls among all. */
static const struct range *find_clash(const struct range *ranges, size_t count,
                                      const struct range **other)
{
    const struct range *writer = NULL, *last = NULL, *second = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct range *now = &ranges[i];
        *other = shares(writer, now)                   ? writer
                 : now->written && shares(last, now)   ? last
                 : now->written && shares(second, now) ? second
                                                       : NULL;
        if (*other)
            return now;
        if (now->written && (!writer || now->high > writer->high))
            writer = now;
        if (!last || now->high > last->high) {
            if (last && last->call != now->call)
                second = last;
            last = now;
        } else if (now->call != last->call && (!second || now->high > second->high)) {
            second = now;
        }
    }
    return NULL;
}

/* Whether two ranges share a byte, as far as can be told from rows of equal pitch. */
static bool meet(const struct range *a, const struct range *b)
{
    if (a->low >= b->high || b->low >= a->high)
        return false;
    if (a->pitch == 0 || a->pitch != b->pitch)
        return true;
    const struct range *first = a->low <= b->low ? a : b, *second = first == a ? b : a;
    const size_t column = (second->low - first->low) % a->pitch;
    return column < first->width || column + second->width > a->pitch;
}

/* Where there are rows: each with each, since ranges that interleave may be apart. */
static const struct range *find_clash_of_rows(const struct range *ranges, size_t count,
                                              const struct range **other)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            *other = &ranges[j];
            if (ranges[i].call != ranges[j].call && (ranges[i].written || ranges[j].written) &&
                meet(&ranges[i], &ranges[j]))
                return &ranges[i];
        }
    return NULL;
}

/* Blocks of rows, from the first row's first byte on: side by side they are as wide as all of them,
 * one behind the other as wide as one, if all begin in the same column. */
static void set_rows(struct range *range, uint64_t blocks, uint64_t stride, uint64_t width,
                     uint64_t rows, uint64_t pitch)
{
    const uint64_t beside = (blocks - 1) * stride + width;
    if (rows > 1 && beside <= pitch)
        range->width = (size_t)beside;
    else if (rows > 1 && (blocks == 1 || stride % pitch == 0))
        range->width = (size_t)width;
    else
        return;
    range->pitch = (size_t)pitch;
}

/* What a call writes, and what it reads beside that. */
static size_t ranges_of(const struct cecl_item *item, int nranks, uint32_t call, struct range *out)
{
    const uintptr_t recv = (uintptr_t)item->recv, send = (uintptr_t)item->send;
    const struct cecl_shape *s = &item->shape;
    const uint64_t all = (uint64_t)nranks, sent = item->op == ceclOpAllGather ? 1 : all;
    const bool sends = !item->in_place || cecl_item_varies(item);
    size_t n = 0;
    if (item->recv_bytes > 0) {
        out[n] = (struct range){recv, recv + item->recv_bytes, 0, 0, call, true};
        if (s->width > 0)
            set_rows(&out[n], all, s->recv_stride, s->width, s->rows, s->recv_pitch);
        n++;
    }
    if (sends && item->send_bytes > 0) {
        out[n] = (struct range){send, send + item->send_bytes, 0, 0, call, false};
        if (s->width > 0)
            set_rows(&out[n], sent, s->send_stride, s->width, s->rows, s->send_pitch);
        n++;
    }
    return n;
}

ceclResult_t cecl_items_check_apart(const struct cecl_item *items, uint32_t count, int nranks)
{
    struct range *ranges = calloc(2 * (size_t)count, sizeof(*ranges));
    size_t n = 0;
    bool rows = false;
    if (!ranges)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls", count);
    for (uint32_t i = 0; i < count; i++) {
        n += ranges_of(&items[i], nranks, i, &ranges[n]);
        rows = rows || items[i].shape.width > 0;
    }
    qsort(ranges, n, sizeof(*ranges), by_low);
    const struct range *other,
        *clash = rows ? find_clash_of_rows(ranges, n, &other) : find_clash(ranges, n, &other);
    const ceclResult_t result =
        !clash ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "calls %u and %u of the group share memory at %p, which one of them "
                           "writes: they have no order",
                           other->call, clash->call, (void *)clash->low);
    free(ranges);
    return result;
}
