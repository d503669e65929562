#include "bursts.h"

#include "../try.h"

#include "puts.h"

#define BANKS 2
#define PARTS (2 * BURST_CALLS) /* parts of a bank: one for each buffer of a burst */
#define SPREAD 5000             /* extra bytes, within which a buffer's place is drawn */
#define SPREAD_LARGE (1 << 20)  /* sometimes instead of SPREAD, so that pools grow */

/* Where a buffer may lie: in memory of a kind of memory.h, or (LENT) in the pool of any communicator. */
enum { LENT = MEMORY_KINDS, SOURCES };

static ceclComm_t home; /* communicator of all ranks, used only to allocate memory */
uint64_t bursts_own;
const struct bursts_hooks *bursts_hooks;
struct burst_call burst[BURST_CALLS];
/* For each kind of memory except the pool: BANKS banks of PARTS parts. No two buffers of a burst use the same part. */
static struct memory banks[MEMORY_KINDS][BANKS];
static unsigned char *host; /* [random_room()] */

static size_t room(void)
{
    return random_room() + SPREAD;
}

static uint64_t own(void)
{
    return random_next(&bursts_own);
}

void bursts_open(ceclComm_t all, uint64_t x)
{
    home = all;
    random_take_limits_of(home);
    teams_lent = PARTS * room();
    bursts_own = 0x9e3779b97f4a7c15u + 77u * (uint64_t)multi_rank;
    bursts_own ^= x << 7;
    assert_non_null(host = malloc(random_room()));
    for (int i = 0; i < BURST_CALLS; i++)
        assert_non_null(burst[i].random.want = malloc(random_room()));
    for (int kind = MEMORY_POOL + 1; kind < MEMORY_KINDS; kind++)
        for (int i = 0; i < BANKS; i++)
            banks[kind][i] = memory_new(home, (enum memory_kind)kind, PARTS * room());
    mail_open(home);
}

void bursts_move(ceclComm_t all)
{
    home = all;
    mail_move(all);
}

void bursts_close(void)
{
    mail_close();
    for (int i = 0; i < BURST_CALLS; i++)
        free(burst[i].random.want);
    for (int kind = MEMORY_POOL + 1; kind < MEMORY_KINDS; kind++)
        for (int i = 0; i < BANKS; i++)
            memory_free(home, &banks[kind][i]);
    free(host);
}

/* Sometimes replaces this rank's memory, at the same address or elsewhere. */
static void renew_some(void)
{
    const int kinds = MEMORY_KINDS - 1;
    const enum memory_kind kind = (enum memory_kind)(MEMORY_POOL + 1 + own() % (uint64_t)kinds);
    struct memory *m = &banks[kind][own() % BANKS];
    const uint64_t what = own() % 8;
    if (what == 0 && kind != MEMORY_PRIVATE) {
        memory_renew(home, m, kind);
    } else if (what < 2) {
        memory_free(home, m);
        *m = memory_new(home, kind, PARTS * room());
    }
}

/* Deregisters one of the team's registrations if it exists; otherwise registers a part of some memory. */
static void register_or_not(struct team *t)
{
    ceclRegistration_t *r = &t->registrations[own() % TEAM_REGISTRATIONS];
    const int kind = own() % 2 ? MEMORY_SHARED : MEMORY_PIECES;
    const struct memory *m = &banks[kind][own() % BANKS];
    const size_t at = own() % m->bytes;
    if (*r) {
        multi_ok(t->comm, ceclCommDeregister(t->comm, *r));
        *r = NULL;
        return;
    }
    multi_ok(t->comm, ceclCommRegister(t->comm, m->at + at, 1 + own() % (m->bytes - at), r));
}

static void register_some(void)
{
    struct team *t = &teams[own() % TEAMS];
    if (t->alive && t->me >= 0 && own() % 2)
        register_or_not(t);
}

/* New memory for a buffer in the pool of the team's communicator, of equal size on all members. */
static struct memory fresh(const struct team *t, size_t bytes, uint64_t *x)
{
    const size_t most = random_next(x) % 64 == 0 ? SPREAD_LARGE : SPREAD;
    const size_t spread = random_next(x) % most;
    struct memory none = {.fd = -1};
    return t->me < 0 ? none : memory_new(t->comm, MEMORY_POOL, bytes + spread);
}

static void allocate(struct burst_call *s, uint64_t *x)
{
    const struct random_call *c = &s->random.call;
    size_t most = 0;
    for (int r = 0; r < c->nranks; r++)
        if (random_bytes_sent(c, r) > most)
            most = random_bytes_sent(c, r);
    s->send = fresh(s->team, most, x);
    s->recv = fresh(s->team, random_bytes_received(c), x);
}

static const struct memory *lent(void)
{
    const struct team *t;
    do
        t = &teams[own() % TEAMS];
    while (!t->alive || t->me < 0);
    return &t->lent;
}

/* Part number `index` of bank `m`. The part's `seam` is the first border between two pieces of memory in it. */
static struct memory part_of(const struct memory *m, size_t index)
{
    const size_t at = index * room();
    struct memory part = {.kind = m->kind, .at = m->at + at, .bytes = room(), .fd = -1};
    const size_t seam = m->seam > 0 ? m->seam - at % m->seam : 0;
    part.seam = seam < part.bytes ? seam : 0;
    return part;
}

static struct memory choose(const struct memory *fresh, size_t index)
{
    const uint64_t source = own() % SOURCES;
    if (source == MEMORY_POOL)
        return *fresh;
    return part_of(source == LENT ? lent() : &banks[source][own() % BANKS], index);
}

static void prepare(struct burst_call *s)
{
    const size_t index = 2 * (size_t)(s - burst);
    const struct memory send = choose(&s->send, index), recv = s->random.call.kind == BY_SPLITS
                                                                   ? s->recv
                                                                   : choose(&s->recv, index + 1);
    random_prepare(s->team->comm, &s->random, &send, &recv, &bursts_own, host);
}

/* Draws options, equal on all ranks. Kernels of several communicators wait at the same time, so each gets few SMs. */
static ceclOptions_t draw_options(uint64_t *x)
{
    static const int sms[] = {1, 2, 8};
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = random_next(x) % 2 ? CECL_SM_ALLOW : CECL_SM_REDUCE_ONLY;
    options.direction = (int)(random_next(x) % 3);
    options.maxSms = sms[random_next(x) % 3];
    return options;
}

void burst_draw(struct burst_call *s, const struct team *team, uint64_t *x)
{
    struct random_call *c = &s->random.call;
    s->team = team;
    s->options = draw_options(x);
    s->after_barrier = random_next(x) % 16 == 0;
    c->rank = team->me;
    c->nranks = team->n;
    c->seed = random_next(x);
    if (random_next(x) % KINDS == 0 && team->n <= RANDOM_SPLITS_RANKS) {
        random_draw_of(c, BY_SPLITS, x);
        s->options.smPolicy = CECL_SM_ALLOW;
    } else {
        random_draw(c, x);
    }
    allocate(s, x);
    if (team->me >= 0)
        prepare(s);
}

ceclResult_t burst_make(struct burst_call *s, int stream, bool grouped)
{
    ceclComm_t comm = s->team->comm;
    struct random_call *c = &s->random.call;
    c->stream = s->team->streams[stream];
    if (grouped)
        random_expect_no_words(&s->random);
    TRY(ceclSetOptions(comm, &s->options));
    if (s->after_barrier)
        TRY(ceclBarrier(comm, c->stream));
    return random_make(comm, c, grouped);
}

/* If a call on `team` has failed, tells the hooks; without hooks fails the test. */
static void note(const struct team *team, ceclResult_t result, bool grouped)
{
    if (result == ceclSuccess)
        return;
    if (bursts_hooks)
        bursts_hooks->excuse(team, result, grouped);
    else
        multi_ok(team->comm, result);
}

/* ---- messages between the calls, and in their groups */

/* [i]: the mail that is sent before call i; the last entry: after the last call. NULL: no mail. */
static struct mail *mail_before[BURST_CALLS + 1];

static void draw_mails(uint64_t *x)
{
    for (int i = 0; i <= BURST_CALLS; i++)
        mail_before[i] = NULL;
    for (int i = 0; i < MAILS; i++) {
        const uint64_t at = random_next(x) % (3 * BURST_CALLS);
        if (at > BURST_CALLS || mail_before[at])
            continue;
        mail_before[at] = &mails[i];
        mail_draw(&mails[i], teams_pick(x), x, &bursts_own);
    }
}

/* all_with, any_with: whether all of the calls [first, end) are on the mail's communicator, or any of them. */
static bool all_with(const struct mail *m, int first, int end)
{
    for (int i = first; i < end; i++)
        if (burst[i].team != m->team)
            return false;
    return true;
}

static bool any_with(const struct mail *m, int first, int end)
{
    for (int i = first; i < end; i++)
        if (burst[i].team == m->team)
            return true;
    return false;
}

/* Makes the messages before call i, outside of groups of calls. */
static void mail_ahead(int i)
{
    struct mail *m = mail_before[i];
    if (m && m->team->me >= 0)
        note(m->team, mail_make(m, m->count, &bursts_own), false);
}

static void mail_within(int i, int stop, int stream)
{
    struct mail *m = mail_before[i];
    if (m && m->team->me >= 0)
        note(m->team, mail_join(m, stop < m->count ? stop : m->count, stream, &bursts_own), true);
}

/* Whether the group that begins with call `first` may include the messages before call i: only if an earlier call of
 * the group uses their communicator. A group enqueues communicators in the order of their first use. On one stream this
 * order must be equal on all ranks, so no first use may be a message, which only some ranks make. */
static bool in_place(int i, int first)
{
    return mail_before[i] && i > first && any_with(mail_before[i], first, i);
}

/* At the end of the group of the calls [first, end), makes the group's messages that are not made yet. If the group and
 * the messages after it are all on one communicator, adds a random number of the latter. Peers may add another number,
 * because in the group, too, these messages come after all collectives. */
static void mail_at_end(int first, int end, int stream)
{
    bool alone = true;
    for (int i = first + 1; i < end; i++) {
        mail_within(i, MAIL_MESSAGES, stream);
        alone = alone && (!mail_before[i] || !mail_before[end] ||
                          mail_before[i]->team == mail_before[end]->team);
    }
    if (mail_before[end] && alone && all_with(mail_before[end], first, end))
        mail_within(end, (int)(own() % (MAIL_MESSAGES + 1)), stream);
}

/* Ends the group of the calls [first, end), which may include messages before call `end`. */
static void end_group(int first, int end)
{
    const ceclResult_t result = ceclGroupEnd();
    for (int i = first; i <= end; i++) {
        if (i < end && burst[i].team->me >= 0)
            note(burst[i].team, result, true);
        if (mail_before[i] && i > first && mail_before[i]->team->me >= 0)
            note(mail_before[i]->team, result, true);
    }
}

/* ---- one-sided calls, between the calls of some bursts */

/* One-sided calls have streams of their own: on the team's, waits for signals and for messages could deadlock. */
static struct {
    const struct team *team; /* NULL: this rank makes none in this burst */
    int before;              /* index of the call before which they are made */
    bool is_made;
    struct puts puts;
    struct memory shared, local;
} amid;
uint64_t bursts_windows;

/* Shares a window. Peers may still write to it after a failure, so free_puts then frees nothing. */
static void share(uint64_t kind)
{
    static const enum memory_kind kinds[] = {MEMORY_POOL, MEMORY_SHARED, MEMORY_PIECES};
    ceclComm_t comm = amid.team->comm;
    /* All ranks allocate pool memory, or none does. If none does, each rank chooses between the other two kinds. */
    const uint64_t mine = kind % 3 == 0 ? 0 : 1 + (kind + (uint64_t)amid.team->me) % 2;
    amid.shared = memory_new(comm, kinds[mine], PUTS_BYTES);
    amid.local = memory_new(comm, kind / 3 % 2 ? MEMORY_PRIVATE : MEMORY_SHARED, PUTS_BYTES);
    amid.puts = (struct puts){.comm = comm,
                              .rank = amid.team->me,
                              .n = amid.team->n,
                              .shared = amid.shared.at,
                              .local = amid.local.at};
    multi_ok(comm, ceclWindowShare(comm, amid.shared.at, PUTS_BYTES, &amid.puts.window));
    for (int s = 0; s < PUTS_STREAMS; s++)
        amid.puts.streams[s] = multi_stream(comm);
    bursts_windows++;
}

static void draw_puts(uint64_t *x)
{
    const bool some = random_next(x) % 4 == 0;
    const uint64_t kind = random_next(x), seed = random_next(x);
    uint64_t program = random_next(x) | 1;
    const struct team *team = teams_pick(x);
    amid.before = (int)(random_next(x) % BURST_CALLS);
    amid.team = some && team->me >= 0 && team->n >= 2 ? team : NULL;
    amid.is_made = false;
    if (!amid.team)
        return;
    share(kind);
    amid.puts.seed = seed;
    puts_prepare(&amid.puts, &program);
}

static void make_puts(int first, int end)
{
    if (!amid.team || amid.before < first || amid.before >= end)
        return;
    const ceclResult_t result = puts_make(&amid.puts);
    amid.is_made = result == ceclSuccess;
    note(amid.team, result, false);
}

static void finish_puts(void)
{
    if (amid.is_made)
        note(amid.team, puts_finish(&amid.puts), false);
}

static void free_puts(void)
{
    ceclResult_t async = ceclSuccess;
    if (!amid.team)
        return;
    multi_ok(amid.puts.comm, ceclCommGetAsyncError(amid.puts.comm, &async));
    if (async != ceclSuccess)
        return;
    for (int s = 0; s < PUTS_STREAMS; s++)
        multi_ok(amid.puts.comm, ceclStreamDestroy(amid.puts.comm, amid.puts.streams[s]));
    multi_ok(amid.puts.comm, ceclWindowFree(amid.puts.comm, amid.puts.window));
    memory_free(amid.puts.comm, &amid.shared);
    memory_free(amid.puts.comm, &amid.local);
}

/* Makes the calls [first, end): a group, or a single call without a group. */
static void make_calls(int first, int end, bool grouped, uint64_t *x)
{
    const int stream = (int)(random_next(x) % TEAM_STREAMS);
    teams_come_late(&bursts_own, 8);
    make_puts(first, end);
    mail_ahead(first);
    if (bursts_hooks) /* after mail_ahead, because it may wait for streams that need these messages */
        bursts_hooks->aside(first, end);
    if (grouped)
        multi_ok(NULL, ceclGroupStart());
    for (int i = first; i < end; i++) {
        if (in_place(i, first))
            mail_within(i, MAIL_MESSAGES, stream);
        if (burst[i].team->me >= 0)
            note(burst[i].team, burst_make(&burst[i], stream, grouped), grouped);
    }
    if (grouped) {
        mail_at_end(first, end, stream);
        end_group(first, end);
    }
}

ceclResult_t burst_finish(struct burst_call *s)
{
    TRY(multi_fetch(s->team->comm, s->random.call.stream, host, s->random.call.recv,
                    s->random.bytes));
    random_check(&s->random, host);
    return ceclSuccess;
}

static void make_all(uint64_t *x)
{
    const bool grouped = random_next(x) % 2;
    for (int first = 0, end; first < BURST_CALLS; first = end) {
        end = first + (grouped ? 1 + (int)(random_next(x) % 5) : 1);
        end = end < BURST_CALLS ? end : BURST_CALLS;
        make_calls(first, end, end - first > 1 || random_next(x) % 8 == 0, x);
    }
    mail_ahead(BURST_CALLS);
}

void bursts_prepare(uint64_t *x)
{
    teams_change(x, &bursts_own);
    renew_some();
    mail_renew(&bursts_own);
    register_some();
    for (int i = 0; i < BURST_CALLS; i++)
        burst_draw(&burst[i], teams_pick(x), x);
    draw_mails(x);
    draw_puts(x);
}

static bool is_awaited(const struct team *team)
{
    return team->me >= 0 && (!bursts_hooks || bursts_hooks->awaits(team));
}

void bursts_make(uint64_t *x)
{
    make_all(x);
    finish_puts();
    for (int i = 0; i < BURST_CALLS; i++)
        if (is_awaited(burst[i].team))
            note(burst[i].team, burst_finish(&burst[i]), false);
    for (int i = 0; i <= BURST_CALLS; i++)
        if (mail_before[i] && is_awaited(mail_before[i]->team))
            note(mail_before[i]->team, mail_finish(mail_before[i]), false);
}

void bursts_free(void)
{
    for (int i = 0; i < BURST_CALLS; i++) {
        memory_free(burst[i].team->comm, &burst[i].send);
        memory_free(burst[i].team->comm, &burst[i].recv);
    }
    for (int i = 0; i <= BURST_CALLS; i++)
        if (mail_before[i])
            mail_free(mail_before[i]);
    free_puts();
}

void bursts_step(uint64_t *x)
{
    bursts_prepare(x);
    bursts_make(x);
    bursts_free();
}

/* NULL: the variable is not set. */
static const struct {
    const char *name, *values[4];
} settings[] = {
    {"CECL_CHECK", {NULL, NULL, NULL, "1"}},
    {"CECL_FLAGS", {NULL, NULL, "auto", "host"}},
    {"CECL_SEGMENT_BYTES", {NULL, "4K", "64K", "16M"}},
    {"CECL_STAGING_BYTES", {NULL, "4K", "16K", "1M"}},
    {"CECL_URGENT", {NULL, NULL, "0", "1"}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

void settings_draw(uint64_t *x)
{
    for (size_t i = 0; i < SETTINGS; i++)
        multi_setenv(settings[i].name, settings[i].values[random_next(x) % 4]);
}

void settings_clear(void)
{
    for (size_t i = 0; i < SETTINGS; i++)
        multi_setenv(settings[i].name, NULL);
}
