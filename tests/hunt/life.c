/* The life of a rank: bursts of calls, in some of which ranks are killed. After such a burst the survivors agree which
 * communicators have failed, make new ones of them, and continue. */
#include <signal.h>
#include <sys/prctl.h>

#include "../world/works.h"
#include "arena.h"
#include "bursts.h"

static struct {
    const struct run *run;
    struct arena *arena;
    int seat, points;      /* `points`: meeting points that this rank has reached */
    int seats[SEATS];      /* each survivor's seat, by its rank */
    ceclComm_t home;       /* the communicator of all survivors */
    ceclComm_t old[TEAMS]; /* failed communicators that this rank ends later, */
    ceclComm_t now[TEAMS]; /* and those that it ends once all are replaced */
    ceclComm_t pending;    /* one of the latter, whose streams it does not wait for */
    int nold, nnow;
    uint64_t x; /* random state, equal on all ranks */
} life;

#define DOING(text) atomic_store(&life.arena->doing[life.seat], text)

/* A barrier of all survivors. */
static void meet(void)
{
    atomic_store(&life.arena->arrived[life.seat], ++life.points);
    for (int s = 0; s < life.run->nranks; s++)
        while (atomic_load(&life.arena->arrived[s]) < life.points &&
               !atomic_load(&life.arena->dead[s]))
            usleep(100);
}

static void share(void *bytes, size_t count)
{
    assert_true(count <= sizeof(life.arena->shared));
    if (multi_rank == 0)
        memcpy(life.arena->shared, bytes, count);
    meet();
    memcpy(bytes, life.arena->shared, count);
    meet();
}

static bool is_victim(const struct hunt *hunt, int seat)
{
    for (int i = 0; i < hunt->count; i++)
        if (hunt->victims[i] == seat)
            return true;
    return false;
}

/* Returns once the victims [first, end) are dead. A victim stays here until it is killed. */
static void await_deaths(const struct hunt *hunt, int first, int end)
{
    for (int i = first; i < end; i++) {
        while (hunt->victims[i] == life.seat)
            pause();
        while (!atomic_load(&life.arena->dead[hunt->victims[i]]))
            usleep(100);
    }
}

/* ---- between the calls of a burst in which ranks are killed, a communicator or a window is made: any call may fail */

static struct {
    enum what { SPLIT, ALLOCATE, SHARE, NOTHING, WHATS } what;
    int before, colors; /* `before`: the call of the burst before which it is made */
    size_t bytes;
    const struct team *team;
} drawn;

static void beside_draw(uint64_t *x)
{
    drawn.what = (enum what)(random_next(x) % WHATS);
    drawn.before = (int)(random_next(x) % BURST_CALLS);
    drawn.colors = 1 + (int)(random_next(x) % 2);
    drawn.bytes = (size_t)1 << random_next(x) % 24;
    drawn.team = teams_pick(x);
}

static bool beside_is_due(int first, int end)
{
    return first <= drawn.before && drawn.before < end;
}

/* Makes calls on a new communicator. Results of successful calls must be right. */
static void beside_try(ceclComm_t comm)
{
    char wrong[200];
    int n = 0;
    multi_ok(comm, ceclCommCount(comm, &n));
    if (comm_works(comm, NULL, n, wrong, sizeof(wrong)) == ceclSuccess && *wrong)
        fail_msg("a communicator made beside, of %d ranks: %s", n, wrong);
    (void)!ceclStreamSynchronize(comm, 0);
}

static bool split(void)
{
    ceclComm_t comm = NULL;
    if (ceclCommSplit(drawn.team->comm, drawn.team->me % drawn.colors, 0, &comm, NULL) !=
        ceclSuccess)
        return false;
    beside_try(comm);
    multi_ok(NULL, ceclCommAbort(comm));
    return true;
}

/* Allocates and frees. If that fails, the communicator has failed on all ranks. */
static void allocate(void)
{
    void *at = NULL;
    if (ceclMemAlloc(drawn.team->comm, &at, drawn.bytes) == ceclSuccess)
        (void)!ceclMemFree(drawn.team->comm, at);
}

/* Shares a window. If that fails, the communicator has failed. The end of the communicator also ends the window, but not
 * the memory. */
static void share_window(void)
{
    static unsigned char *at;
    ceclWindow_t window;
    if (!at)
        at = memory_new(drawn.team->comm, MEMORY_SHARED, 1 << 16).at;
    if (ceclWindowShare(drawn.team->comm, at, 1 << 16, &window) == ceclSuccess)
        (void)!ceclWindowFree(drawn.team->comm, window);
}

static bool beside_make(void)
{
    if (drawn.team->me < 0 || drawn.what == NOTHING)
        return false;
    if (drawn.what == ALLOCATE)
        allocate();
    if (drawn.what == SHARE)
        share_window();
    return drawn.what == SPLIT && split();
}

static ceclResult_t async_of(ceclComm_t comm)
{
    ceclResult_t async;
    multi_ok(comm, ceclCommGetAsyncError(comm, &async));
    return async;
}

static int index_of(const struct team *team)
{
    return (int)(team - teams);
}

/* Accepts a failed call. A refused group carries out no call, on any of its communicators. This rank revokes those of
 * them that still work, so that the other ranks learn that it makes no call there. Under CECL_CHECK a peer that makes
 * its call outside a group is told that a group failed. */
static void excuse(const struct team *team, ceclResult_t result, bool grouped)
{
    grouped = grouped || strstr(ceclGetLastError(NULL), "its group failed on another communicator");
    atomic_fetch_add(&life.arena->excused, 1);
    if (result != ceclRemoteError)
        multi_ok(team->comm, result);
    if (grouped)
        atomic_fetch_or(&life.arena->bound[life.seat], 1u << index_of(team));
    if (async_of(team->comm) != ceclSuccess)
        return;
    if (!grouped)
        fail_msg("communicator %d has no error, and a call on it failed: %s", index_of(team),
                 ceclGetLastError(NULL));
    multi_ok(team->comm, ceclCommRevoke(team->comm));
}

static void aside(int first, int end)
{
    if (beside_is_due(first, end) && beside_make())
        atomic_fetch_add(&life.arena->made, 1);
}

/* Whether to wait for a communicator's other calls: after one has failed, many programs do not. */
static bool awaits(const struct team *team)
{
    return random_next(&bursts_own) % 4 == 0 || async_of(team->comm) == ceclSuccess;
}

static const struct bursts_hooks hooks = {excuse, aside, awaits};

static bool has_victim(const struct team *team, const struct hunt *hunt)
{
    for (int r = 0; r < team->n; r++)
        if (is_victim(hunt, life.seats[team->world[r]]))
            return true;
    return false;
}

/* Combines what all survivors recorded about all teams. */
static uint32_t all_of(const _Atomic uint32_t *words)
{
    uint32_t all = 0;
    for (int s = 0; s < life.run->nranks; s++)
        if (!atomic_load(&life.arena->dead[s]))
            all |= atomic_load(&words[s]);
    return all;
}

/* A failure must name a killed rank, with two exceptions: a rank revoked the communicator, or a group failed on another
 * communicator and the message names a rank of that communicator. */
static void check_is_named(const struct team *team, const struct hunt *hunt)
{
    const char *words = ceclGetLastError(team->comm);
    char name[32];
    bool is_named = strstr(words, "ceclCommRevoke") ||
                    strstr(words, "its group failed on another communicator");
    for (int r = 0; r < team->n; r++) {
        snprintf(name, sizeof(name), "rank %d ", r);
        is_named = is_named || (is_victim(hunt, life.seats[team->world[r]]) && strstr(words, name));
    }
    if (!is_named)
        fail_msg("communicator %d names no rank that was killed: %s", index_of(team), words);
}

/* Agrees with the other ranks which teams have failed. Each member of a failed team must learn of that soon. */
static uint32_t settle(const struct hunt *hunt)
{
    uint32_t mine = 0, victims = 0;
    for (int i = 0; i < TEAMS; i++) {
        const struct team *t = &teams[i];
        if (t->alive && t->me >= 0 && async_of(t->comm) != ceclSuccess)
            mine |= 1u << i;
        if (t->alive && has_victim(t, hunt))
            victims |= 1u << i;
    }
    atomic_store(&life.arena->failed[life.seat], mine);
    meet();
    const uint32_t failed = all_of(life.arena->failed) | victims,
                   odd = failed & ~victims & ~all_of(life.arena->bound);
    for (int i = 0; i < TEAMS; i++)
        if ((odd >> i & 1) != 0 && teams[i].me >= 0)
            fail_msg("communicator %d has failed without a reason: %s", i,
                     ceclGetLastError(teams[i].comm));
        else if ((failed >> i & 1) != 0 && teams[i].me >= 0) {
            assert_int_equal(multi_async_within(teams[i].comm, PROMPT), ceclRemoteError);
            check_is_named(&teams[i], hunt);
        }
    assert_int_equal(multi_async_within(life.home, PROMPT), ceclRemoteError);
    meet(); /* all ranks have read what the others recorded */
    atomic_store(&life.arena->bound[life.seat], 0);
    return failed;
}

static void end_old(ceclComm_t comm)
{
    if (random_next(&bursts_own) % 2)
        multi_ok(NULL, ceclCommAbort(comm));
    else
        multi_refused(NULL, ceclCommDestroy(comm), ceclRemoteError, NULL);
}

static void end_olds(void)
{
    while (life.nold > 0)
        end_old(life.old[--life.nold]);
}

static void finish_streams(const struct team *team)
{
    for (int i = 0; i < TEAM_STREAMS; i++)
        (void)!ceclStreamSynchronize(team->comm, team->streams[i]);
}

/* Keeps a failed communicator until it ends. */
static void keep(ceclComm_t comm, bool is_finished, bool later)
{
    if (!is_finished)
        life.pending = comm;
    else if (later)
        life.old[life.nold++] = comm;
    else
        life.now[life.nnow++] = comm;
}

/* The survivors of a failed team make a new communicator, or none. The old one ends later, because its pool may hold
 * buffers of another failed team's calls, which may still be pending. */
static void replace(struct team *team, const struct hunt *hunt)
{
    bool leaves[RANKS];
    int left = 0;
    for (int r = 0; r < team->n; r++) {
        leaves[r] = is_victim(hunt, life.seats[team->world[r]]);
        left += !leaves[r];
    }
    const bool shrinks = random_next(&life.x) % 4 != 0 && left > 0 && !teams_full(),
               early = random_next(&bursts_own) % 2, later = random_next(&bursts_own) % 2,
               finishes = team->me >= 0 && (life.pending || random_next(&bursts_own) % 2);
    if (finishes && early)
        finish_streams(team);
    if (shrinks)
        teams_shrink(team, leaves, &life.x, &bursts_own);
    if (finishes && !early)
        finish_streams(team);
    if (team->me >= 0)
        keep(team->comm, finishes, shrinks && later);
    team->alive = false;
}

/* Ends the communicator with pending calls first: no other failed team has any now, so none needs its memory. */
static void end_replaced(void)
{
    if (life.pending)
        end_old(life.pending);
    life.pending = NULL;
    while (life.nnow > 0)
        end_old(life.now[--life.nnow]);
}

static ceclComm_t shrunk_home(const struct hunt *hunt, int count, ceclResult_t *result)
{
    int excluded[KILLS];
    int n = 0;
    ceclComm_t comm = NULL;
    for (int r = 0; r < multi_nranks; r++)
        for (int i = 0; i < count; i++)
            if (life.seats[r] == hunt->victims[i])
                excluded[n++] = r;
    *result = ceclCommShrink(life.home, excluded, n, &comm, NULL);
    return comm;
}

static void renumber(const struct hunt *hunt)
{
    int now[SEATS], n = 0;
    for (int r = 0; r < multi_nranks; r++) {
        now[r] = n;
        if (!is_victim(hunt, life.seats[r]))
            life.seats[n++] = life.seats[r];
    }
    for (int i = 0; i < TEAMS; i++)
        for (int r = 0; teams[i].alive && r < teams[i].n; r++)
            teams[i].world[r] = now[teams[i].world[r]];
    multi_rank = now[multi_rank];
    multi_nranks = n;
}

static void go_on(const struct hunt *hunt, uint32_t failed)
{
    ceclResult_t result;
    DOING("shrinking");
    ceclComm_t home = shrunk_home(hunt, hunt->count, &result);
    multi_ok(life.home, result);
    for (int i = 0; i < TEAMS; i++)
        if (failed >> i & 1)
            replace(&teams[i], hunt);
    end_replaced();
    end_old(life.home);
    life.home = home;
    bursts_move(home);
    renumber(hunt);
    meet();
}

static void quiet_burst(void)
{
    DOING("a burst in which nobody dies");
    bursts_prepare(&life.x);
    bursts_make(&life.x);
    bursts_free();
    end_olds();
}

/* The last victim takes part in the shrink, and is killed during it. */
static void shrink_with(const struct hunt *hunt, int number)
{
    ceclResult_t result;
    DOING("shrinking while a rank is killed");
    meet();
    atomic_store(&life.arena->begun[number][1], 1);
    ceclComm_t comm = shrunk_home(hunt, hunt->count - 1, &result);
    if (result == ceclSuccess) {
        atomic_fetch_add(&life.arena->made, 1);
        beside_try(comm);
        multi_ok(NULL, ceclCommAbort(comm));
    }
    await_deaths(hunt, hunt->count - 1, hunt->count);
    meet();
}

static void hunted_burst(const struct hunt *hunt, int number)
{
    const int amid = hunt->count - (hunt->pattern == IN_SHRINK);
    DOING("drawing a burst");
    bursts_prepare(&life.x);
    beside_draw(&life.x);
    meet();
    DOING("a burst in which ranks are killed");
    atomic_store(&life.arena->begun[number][0], 1);
    bursts_hooks = &hooks;
    bursts_make(&life.x);
    bursts_hooks = NULL;
    DOING("waiting for deaths");
    await_deaths(hunt, 0, amid);
    meet();
    if (amid < hunt->count)
        shrink_with(hunt, number);
    DOING("agreeing on what failed");
    const uint32_t failed = settle(hunt);
    bursts_free();
    go_on(hunt, failed);
}

_Noreturn void life_run(const struct run *run, struct arena *arena, int seat)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    life.run = run;
    life.arena = arena;
    life.seat = multi_rank = seat;
    multi_nranks = run->nranks;
    life.x = run->seed * 0x9e3779b97f4a7c15u | 1;
    multi_spread = share;
    for (int s = 0; s < SEATS; s++)
        life.seats[s] = s;
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_DEBUG", "none", 0);
    DOING("joining");
    settings_draw(&life.x);
    const ceclConfig_t config = teams_config();
    life.home = multi_comm(&config);
    bursts_open(life.home, life.x);
    for (int i = 0; i < run->count; i++) {
        quiet_burst();
        hunted_burst(&run->hunts[i], i);
    }
    quiet_burst();
    DOING("ending");
    teams_end_all(&life.x);
    bursts_close();
    multi_ok(NULL, ceclCommDestroy(life.home));
    _exit(0);
}
