/* Lines of one-sided calls; see flags.h. */
#include "flags/flags.h"

void cecl_lines_describe(struct cecl_flags *flags, uint32_t *words)
{
    flags->lines.done = words;
    cecl_hosted_begin(words, CECL_LINES, CECL_FIRST_EPOCH);
    flags->counters[CECL_COUNTER_LINE] = (struct cecl_counter){
        .words = (char *)words, .own = true, .unit = 1, .slot_bytes = sizeof(*words)};
}

/* The call that was made last on a line. */
static struct cecl_line_at last_of(const struct cecl_flags *flags, uint32_t line)
{
    return (struct cecl_line_at){line, atomic_load(&flags->lines.list[line].calls)};
}

/* How many calls of a line are pending: always far fewer than 2^32, so 32 bits of a call's number are enough. */
static uint32_t pending(const struct cecl_flags *flags, uint32_t line)
{
    return cecl_line_value(last_of(flags, line)) - cecl_word_read(&flags->lines.done[line]);
}

/* The stream's own line if it has one; else a free line; if no line is free, the next one to be taken over. */
static uint32_t find(struct cecl_flags *flags, uint64_t stream)
{
    struct cecl_lines *lines = &flags->lines;
    uint32_t free = CECL_LINES;
    for (uint32_t i = 0; i < CECL_LINES; i++) {
        if (stream != 0 && lines->list[i].stream == stream)
            return i;
        free = free == CECL_LINES && pending(flags, i) == 0 ? i : free;
    }
    return free < CECL_LINES ? free : lines->next++ % CECL_LINES;
}

struct cecl_line_at cecl_line_begin(struct cecl_flags *flags, uint64_t stream,
                                    struct cecl_line_at *after)
{
    struct cecl_lines *lines = &flags->lines;
    const uint32_t at = find(flags, stream);
    const bool is_shared =
        (stream == 0 || lines->list[at].stream != stream) && pending(flags, at) > 0;
    *after = is_shared ? last_of(flags, at) : (struct cecl_line_at){0};
    lines->list[at].stream = stream;
    return (struct cecl_line_at){at, atomic_fetch_add(&lines->list[at].calls, 1) + 1};
}

void cecl_line_roll_back(struct cecl_flags *flags, struct cecl_line_at at)
{
    /* the line no longer belongs to this stream, because the wait for another stream's calls on it may not have been
     * enqueued */
    flags->lines.list[at.line].stream = 0;
    atomic_fetch_sub(&flags->lines.list[at.line].calls, 1);
}

bool cecl_line_is_done(const struct cecl_flags *flags, struct cecl_line_at at)
{
    /* how many calls came after this one on the line */
    const uint64_t later = last_of(flags, at.line).call - at.call;
    return at.call == 0 || later >= pending(flags, at.line);
}

uint64_t cecl_lines_made(const struct cecl_flags *flags)
{
    uint64_t made = 0;
    for (uint32_t i = 0; i < CECL_LINES; i++)
        made += atomic_load(&flags->lines.list[i].calls);
    return made;
}

bool cecl_lines_idle(const struct cecl_flags *flags)
{
    for (uint32_t i = 0; i < CECL_LINES; i++)
        if (pending(flags, i) > 0)
            return false;
    return true;
}
