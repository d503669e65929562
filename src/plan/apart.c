/* Calls of a group run in no order, so no call may use bytes that another call of the group writes. */
#include <stdlib.h>

#include "plan/call.h"

/* Memory that a call of a group uses. */
struct range {
    struct cecl_window *window;
    uint64_t low, high;    /* bytes [low, high) of the window */
    uint64_t width, pitch; /* as in struct cecl_touched */
    uint32_t call;
    bool written;
};

static int by_low(const void *a, const void *b)
{
    const struct range *one = a, *other = b;
    if (one->window != other->window)
        return (uintptr_t)one->window > (uintptr_t)other->window ? 1 : -1;
    return (one->low > other->low) - (one->low < other->low);
}

static bool shares(const struct range *earlier, const struct range *now)
{
    return earlier && earlier->window == now->window && earlier->call != now->call &&
           now->low < earlier->high;
}

static bool ends_later(const struct range *now, const struct range *than)
{
    return !than || now->window != than->window || now->high > than->high;
}

/* The search goes through the ranges in the order of their low ends. Of the ranges so far, it remembers the written
 * range that ends last, and the two ranges of different calls that end last. One written range is enough: as long as no
 * clash is found, written ranges are disjoint. */
struct seen {
    const struct range *writer, *last, *second;
};

static const struct range *clash_with(const struct seen *seen, const struct range *now)
{
    if (shares(seen->writer, now))
        return seen->writer;
    if (now->written && shares(seen->last, now))
        return seen->last;
    return now->written && shares(seen->second, now) ? seen->second : NULL;
}

static void remember(struct seen *seen, const struct range *now)
{
    if (now->written && ends_later(now, seen->writer))
        seen->writer = now;
    if (ends_later(now, seen->last)) {
        if (seen->last && seen->last->call != now->call)
            seen->second = seen->last;
        seen->last = now;
    } else if (now->call != seen->last->call && ends_later(now, seen->second)) {
        seen->second = now;
    }
}

/* Returns a range that shares bytes with an earlier range, *other, of another call, if one of the two is written. NULL:
 * there is no such range. */
static const struct range *find_clash(const struct range *ranges, size_t count,
                                      const struct range **other)
{
    struct seen seen = {0};
    for (size_t i = 0; i < count; i++) {
        *other = clash_with(&seen, &ranges[i]);
        if (*other)
            return &ranges[i];
        remember(&seen, &ranges[i]);
    }
    return NULL;
}

/* Whether two ranges may share a byte. If both have the same pitch, compares the columns of their rows; otherwise takes
 * every byte of a range as used. */
static bool meet(const struct range *a, const struct range *b)
{
    if (a->window != b->window || a->low >= b->high || b->low >= a->high)
        return false;
    if (a->pitch == 0 || a->pitch != b->pitch)
        return true;
    const struct range *first = a->low <= b->low ? a : b, *second = first == a ? b : a;
    const uint64_t column = (second->low - first->low) % a->pitch;
    return column < first->width || column + second->width > a->pitch;
}

/* As find_clash, if there are ranges of rows: compares every two ranges, because ranges that interleave may still be
 * disjoint. */
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

static size_t add_ranges(const struct cecl_call *call, uint32_t index, struct range *out)
{
    struct cecl_touched touched[2];
    const int n = cecl_call_touched(call, touched);
    for (int i = 0; i < n; i++)
        out[i] = (struct range){.window = touched[i].buffer.window,
                                .low = touched[i].buffer.offset + touched[i].low,
                                .high = touched[i].buffer.offset + touched[i].high,
                                .width = touched[i].width,
                                .pitch = touched[i].pitch,
                                .call = index,
                                .written = touched[i].written};
    return (size_t)n;
}

ceclResult_t cecl_calls_check_apart(const struct cecl_call *calls, const uint32_t *numbers,
                                    uint32_t count)
{
    struct range *ranges = calloc(2 * (size_t)count, sizeof(*ranges));
    size_t n = 0;
    bool rows = false;
    if (!ranges)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls", count);
    for (uint32_t i = 0; i < count; i++) {
        n += add_ranges(&calls[i], i, &ranges[n]);
        rows = rows || calls[i].view.shape.width > 0;
    }
    qsort(ranges, n, sizeof(*ranges), by_low);
    const struct range *other,
        *clash = rows ? find_clash_of_rows(ranges, n, &other) : find_clash(ranges, n, &other);
    ceclResult_t result = ceclSuccess;
    const uint64_t at = clash ? clash->low : 0;
    if (clash && numbers[other->call] > numbers[clash->call]) { /* names the earlier call first */
        const struct range *later = other;
        other = clash;
        clash = later;
    }
    if (clash)
        result = cecl_fail(ceclInvalidArgument,
                           "calls %u (%s) and %u (%s) of the group share memory at %p, and one of "
                           "them writes it: calls of a group run in no order",
                           numbers[other->call], calls[other->call].op->name, numbers[clash->call],
                           calls[clash->call].op->name,
                           cecl_buffer_address((struct cecl_buffer){clash->window, at}));
    free(ranges);
    return result;
}
