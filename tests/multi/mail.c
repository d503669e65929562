#include "mail.h"

#include "../try.h"

#define GUARD 16
#define SHIFTS 32 /* bytes by which a buffer's address may differ from a multiple of 32 */
#define POISON 0x5A
#define MOST_GROUPED 6 /* messages in one rank's group */
/* SLOT is what a message needs beside its data. ROOM is the most that a rank's sends in a mail, or its receives, need. */
#define SLOT (2 * GUARD + SHIFTS)
#define ROOM (MAIL_BYTES + (size_t)MAIL_MESSAGES * SLOT)

static ceclComm_t home; /* communicator of all ranks, used only to allocate memory */
struct mail mails[MAILS];
uint64_t mail_sent;
/* Memory of each kind except the pool. In each, a mail has ROOM bytes to send from and ROOM bytes to receive in. */
static struct memory areas[MEMORY_KINDS];
static unsigned char *host; /* [ROOM] */

static struct memory area_new(int kind)
{
    return memory_new(home, (enum memory_kind)kind, 2 * MAILS * ROOM);
}

void mail_open(ceclComm_t all)
{
    home = all;
    assert_non_null(host = malloc(ROOM));
    for (int kind = MEMORY_POOL + 1; kind < MEMORY_KINDS; kind++)
        areas[kind] = area_new(kind);
}

void mail_move(ceclComm_t all)
{
    home = all;
}

void mail_close(void)
{
    for (int kind = MEMORY_POOL + 1; kind < MEMORY_KINDS; kind++)
        memory_free(home, &areas[kind]);
    free(host);
}

void mail_renew(uint64_t *y)
{
    const int kind = MEMORY_POOL + 1 + (int)(random_next(y) % (MEMORY_KINDS - 1));
    const uint64_t what = random_next(y) % 16;
    if (what == 0 && kind != MEMORY_PRIVATE) {
        memory_renew(home, &areas[kind], (enum memory_kind)kind);
    } else if (what < 2) {
        memory_free(home, &areas[kind]);
        areas[kind] = area_new(kind);
    }
}

enum shape { SCATTERED, PAIR, RING, ALL_WITH_ALL, SHAPES };

static int draw_count(enum shape shape, int n, uint64_t *x)
{
    const int drawn = 1 + (int)(random_next(x) % (MAIL_MESSAGES / 2));
    const int count = shape == RING ? n : shape == ALL_WITH_ALL ? n * n : drawn;
    return count < MAIL_MESSAGES ? count : MAIL_MESSAGES;
}

/* Draws both ranks of message `index`. a, b: ranks that were drawn for the whole mail. */
static void draw_ends(struct mail_message *one, enum shape shape, int index, int n, int a, int b,
                      uint64_t *x)
{
    const uint64_t some = random_next(x), other = random_next(x);
    switch (shape) {
    case PAIR:
        one->from = some % 2 ? a : b;
        one->to = some % 2 ? b : a;
        break;
    case RING:
        one->from = index % n;
        one->to = (index + a) % n;
        break;
    case ALL_WITH_ALL:
        one->from = index / n;
        one->to = index % n;
        break;
    default: one->from = (int)(some % (uint64_t)n); one->to = (int)(other % (uint64_t)n);
    }
}

/* Draws a size: often 0 or a few bytes, rarely some MiB. */
static size_t draw_bytes(uint64_t *x, size_t left)
{
    const uint64_t which = random_next(x) % 64;
    const size_t most = which < 16   ? 4
                        : which < 57 ? 5000
                        : which < 63 ? 200 << 10
                                     : MAIL_BYTES * 3 / 4;
    const size_t bytes = random_next(x) % most;
    return bytes < left ? bytes : left;
}

/* Returns how many bytes this rank needs to send all its messages. */
static size_t draw_messages(struct mail *m, uint64_t *x)
{
    const int n = m->team->n;
    const enum shape shape = (enum shape)(random_next(x) % SHAPES);
    const int a = (int)(random_next(x) % (uint64_t)n), b = (int)(random_next(x) % (uint64_t)n);
    size_t at = 0, left = MAIL_BYTES;
    m->count = draw_count(shape, n, x);
    for (int i = 0; i < m->count; i++) {
        struct mail_message *one = &m->messages[i];
        *one = (struct mail_message){.at = at, .bytes = draw_bytes(x, left)};
        one->seed = random_next(x);
        draw_ends(one, shape, i, n, a, b, x);
        left -= one->bytes;
        at += one->bytes + SLOT;
    }
    return at;
}

/* Draws the kind of memory. Returns the part of it in which this rank sends or receives the mail. */
static unsigned char *choose_half(const struct mail *m, bool receives, uint64_t *y)
{
    const size_t part = (size_t)(m - mails), kind = random_next(y) % MEMORY_KINDS;
    if (kind == MEMORY_POOL)
        return m->pool.at + receives * (m->pool.bytes / 2);
    return areas[kind].at + (2 * part + receives) * ROOM;
}

static unsigned char *choose(const struct mail *m, const struct mail_message *one, bool receives,
                             uint64_t *y)
{
    return choose_half(m, receives, y) + one->at + GUARD + random_next(y) % SHIFTS;
}

static void prepare(struct mail *m, struct mail_message *one, uint64_t *y)
{
    if (one->from == m->team->me) {
        one->in = choose(m, one, false, y);
        model_fill(host, one->seed, one->from, one->bytes);
        multi_put(m->team->comm, one->in, host, one->bytes);
    }
    if (one->to == m->team->me) {
        one->out = choose(m, one, true, y);
        memset(host, POISON, one->bytes + 2 * GUARD);
        multi_put(m->team->comm, one->out - GUARD, host, one->bytes + 2 * GUARD);
    }
}

/* Allocates in the pool of the mail's communicator, or of the communicator of all ranks. */
static void allocate(struct mail *m, size_t bytes, uint64_t *x)
{
    m->owner = random_next(x) % 4 == 0 ? home : m->team->comm;
    m->pool = (struct memory){.fd = -1};
    if (m->owner == home || m->team->me >= 0)
        m->pool = memory_new(m->owner, MEMORY_POOL, 2 * bytes);
}

void mail_draw(struct mail *m, const struct team *team, uint64_t *x, uint64_t *y)
{
    *m = (struct mail){.team = team};
    allocate(m, draw_messages(m, x), x);
    for (int i = 0; i < m->count && team->me >= 0; i++)
        prepare(m, &m->messages[i], y);
}

static bool is_mine(const struct mail_message *one)
{
    return one->in || one->out;
}

/* The types of the two ends may differ, as long as both have the same number of bytes. */
static ceclResult_t make_end(const struct mail *m, const struct mail_message *one, bool receives,
                             ceclStream_t stream)
{
    const bool is_even = one->bytes % 4 == 0 && one->seed % (receives ? 3 : 2) == 0;
    const size_t count = is_even ? one->bytes / 4 : one->bytes;
    const ceclDataType_t type = is_even ? ceclFloat32 : ceclUint8;
    ceclComm_t comm = m->team->comm;
    mail_sent += !receives;
    return receives ? ceclRecv(one->out, count, type, one->from, comm, stream)
                    : ceclSend(one->in, count, type, one->to, comm, stream);
}

/* Makes this rank's sends, or receives, or both, of the messages before `stop`. */
static ceclResult_t make_ends(const struct mail *m, int stop, bool sends, bool receives,
                              ceclStream_t stream)
{
    for (int i = m->made; i < stop; i++) {
        const struct mail_message *one = &m->messages[i];
        if (sends && one->in)
            TRY(make_end(m, one, false, stream));
        if (receives && one->out)
            TRY(make_end(m, one, true, stream));
    }
    return ceclSuccess;
}

/* In a group only messages between the same ranks in one direction keep their order, so a rank may make its sends or
 * its receives first, or both in the order of the list. */
ceclResult_t mail_join(struct mail *m, int stop, int stream, uint64_t *y)
{
    const uint64_t order = random_next(y) % 3;
    const bool sends_first = order != 2, receives_first = order != 1;
    ceclStream_t on = m->team->streams[stream];
    ceclResult_t result = make_ends(m, stop, sends_first, receives_first, on);
    if (result == ceclSuccess)
        result = make_ends(m, stop, !sends_first, !receives_first, on);
    m->made = stop > m->made ? stop : m->made;
    return result;
}

static ceclResult_t make_group(struct mail *m, int stop, uint64_t *y)
{
    const int stream = (int)(random_next(y) % TEAM_STREAMS);
    TRY(ceclGroupStart());
    const ceclResult_t result = mail_join(m, stop, stream, y);
    return first_of(result, ceclGroupEnd());
}

/* Makes the next messages in a group, or one alone. A rank's message to itself must be in a group. */
static ceclResult_t make_next(struct mail *m, int stop, uint64_t *y)
{
    const struct mail_message *one = &m->messages[m->made];
    const bool alone = random_next(y) % 3 == 0 && !(one->in && one->out);
    const int end = m->made + (alone ? 1 : 1 + (int)(random_next(y) % MOST_GROUPED));
    if (alone)
        return mail_join(m, end, (int)(random_next(y) % TEAM_STREAMS), y);
    return make_group(m, end < stop ? end : stop, y);
}

ceclResult_t mail_make(struct mail *m, int stop, uint64_t *y)
{
    ceclResult_t result = ceclSuccess;
    while (m->made < stop && result == ceclSuccess) {
        if (!is_mine(&m->messages[m->made])) {
            m->made++;
            continue;
        }
        teams_come_late(y, 8);
        result = make_next(m, stop, y);
    }
    return result;
}

static unsigned char expected(const struct mail_message *one, size_t index)
{
    return index < GUARD || index >= GUARD + one->bytes
               ? POISON
               : model_byte(one->seed, one->from, index - GUARD);
}

static void check(const struct mail *m, const struct mail_message *one)
{
    for (size_t i = 0; i < one->bytes + 2 * GUARD; i++) {
        if (host[i] == expected(one, i))
            continue;
        fail_msg("rank %d of %d (%d in the world): message %td of a mail, %zu bytes from rank %d: "
                 "byte %td from recvbuff on is %02x, not %02x",
                 m->team->me, m->team->n, multi_rank, one - m->messages, one->bytes, one->from,
                 (ptrdiff_t)i - GUARD, host[i], expected(one, i));
    }
}

ceclResult_t mail_finish(struct mail *m)
{
    ceclComm_t comm = m->team->comm;
    for (int i = 0; i < TEAM_STREAMS; i++)
        TRY(ceclStreamSynchronize(comm, m->team->streams[i]));
    for (int i = 0; i < m->made; i++) {
        const struct mail_message *one = &m->messages[i];
        if (!one->out)
            continue;
        TRY(multi_fetch(comm, 0, host, one->out - GUARD, one->bytes + 2 * GUARD));
        check(m, one);
    }
    return ceclSuccess;
}

void mail_free(struct mail *m)
{
    memory_free(m->owner, &m->pool);
}

void mail_forget(struct mail *m)
{
    if (m->owner == home)
        memory_free(home, &m->pool);
}
