/* cecl_soak [SECONDS [SEED [EPOCH]]]: random calls and messages on random communicators for a given time, under MPI, on
 * the host device or on GPUs.
 *
 * Time is divided into epochs. Each epoch draws its settings, makes bursts of calls (bursts.h) on communicators that
 * are created, split, ended, aborted and revoked, and ends everything that it created. After an epoch, the process must
 * hold no more resources than after the first epochs. An epoch depends only on the seed and on its number, which the
 * output has, so a failed epoch can be repeated. Without SEED, or with 0, the seed comes from the clock. The default of
 * SECONDS is CECL_SOAK_SECONDS, or 10. */
#include <malloc.h>
#include <signal.h>

#include "bursts.h"
#include "held.h"

#define EPOCH_STEPS 64
#define EPOCH_SECONDS 300 /* seconds after which an epoch counts as hanging */
#define EPOCHS_WARM 2     /* after this many epochs, one-time setup is complete */
#define LATE_MS 40

static double seconds = 10;
static uint64_t seed;
static uint64_t first_epoch;
static uint64_t bursts_made;

#define PENDING 3

static int trouble_aborts, trouble_revokes; /* how often each has happened */

enum way { ABORT, REVOKE, ALL_ABORT, WAYS };

struct breakage {
    struct team *team;
    enum way way;
    int culprit;        /* its rank in the team */
    int calls, few;     /* how many calls all others make, and how many the culprit makes */
    bool leaves[RANKS]; /* ranks that will not be in the new communicator */
    /* whether a new communicator is made; whether this rank aborts the old one at the end */
    bool shrinks, abrupt;
    struct mail *mail; /* messages after the calls; NULL: none */
};

static struct breakage draw_breakage(uint64_t *x)
{
    struct breakage b = {.team = teams_pick(x), .way = (enum way)(random_next(x) % WAYS)};
    const int n = b.team->n;
    b.culprit = (int)(random_next(x) % (uint64_t)n);
    b.calls = (int)(random_next(x) % (PENDING + 1));
    b.few = (int)(random_next(x) % (uint64_t)(b.calls + 1));
    b.shrinks =
        random_next(x) % 2 && b.way != ALL_ABORT && !teams_full() && (n > 1 || b.way != ABORT);
    for (int r = 0; r < n; r++)
        b.leaves[r] = r != (b.culprit + 1) % n && random_next(x) % 4 == 0;
    if (b.way == ABORT)
        b.leaves[b.culprit] = true;
    b.abrupt = random_next(&bursts_own) % 2;
    for (int i = 0; i < b.calls; i++)
        burst_draw(&burst[i], b.team, x);
    b.mail = random_next(x) % 2 ? &mails[0] : NULL;
    if (b.mail)
        mail_draw(b.mail, b.team, x, &bursts_own);
    return b;
}

/* Returns how many calls succeeded before one showed this rank the failure. */
static int make_calls(const struct breakage *b, int calls)
{
    for (int i = 0; i < calls; i++) {
        const int stream = i % TEAM_STREAMS;
        const ceclResult_t result = burst_make(&burst[i], stream, false);
        if (result == ceclSuccess)
            continue;
        multi_expect(b->team->comm, result, ceclRemoteError, NULL, "a call", __FILE__, __LINE__);
        return i;
    }
    return calls;
}

static void right_or_remote(const struct breakage *b, ceclResult_t result)
{
    if (result != ceclSuccess)
        multi_expect(b->team->comm, result, ceclRemoteError, NULL, "messages", __FILE__, __LINE__);
}

/* Makes messages after the calls. The culprit stops after some of them, so others wait for it. */
static void make_messages(const struct breakage *b, bool culprit)
{
    const int stop = (int)(random_next(&bursts_own) % (MAIL_MESSAGES + 1));
    if (b->mail)
        right_or_remote(b,
                        mail_make(b->mail, culprit && stop < b->mail->count ? stop : b->mail->count,
                                  &bursts_own));
}

/* The failure must be known soon, with the culprit's rank, and later calls must be refused. */
static void hear(const struct breakage *b, int made)
{
    ceclComm_t comm = b->team->comm;
    char words[32] = "ceclCommRevoke was called";
    if (b->team->me != b->culprit)
        snprintf(words, sizeof(words), "rank %d %s", b->culprit, b->way == ABORT ? "" : "gave up");
    for (int i = 0; i < made; i++) {
        const ceclResult_t result = burst_finish(&burst[i]);
        assert_true(result == ceclSuccess || result == ceclRemoteError);
    }
    if (b->mail)
        right_or_remote(b, mail_finish(b->mail));
    /* an abort without pending calls is noticed only by ranks that wait for the culprit afterwards */
    if (b->way == ABORT)
        right_or_remote(b, ceclBarrier(comm, 0));
    assert_int_equal(multi_async_within(comm, PROMPT), ceclRemoteError);
    multi_refused(comm, ceclBarrier(comm, 0), ceclRemoteError, words);
}

/* Makes this rank's calls; then breaks the communicator, or hears of that. Returns whether this rank has ended it. */
static bool misbehave(const struct breakage *b)
{
    const bool culprit = b->team->me == b->culprit;
    const int made = make_calls(b, culprit ? b->few : b->calls);
    if (!culprit || b->few == b->calls)
        make_messages(b, culprit);
    if (culprit)
        teams_come_late(&bursts_own, 2);
    if (b->way == ALL_ABORT || (culprit && b->way == ABORT)) {
        multi_ok(NULL, ceclCommAbort(b->team->comm));
        return true;
    }
    if (culprit)
        multi_ok(NULL, ceclCommRevoke(b->team->comm));
    hear(b, made);
    return false;
}

/* A member aborts or revokes a communicator, or all members abort it, while calls are pending. The others must learn of
 * it, and of the culprit's rank; results that are reported as valid must be right. Then some members may make a new
 * communicator. Other communicators go on. */
static void trouble_breaks(uint64_t *x)
{
    const struct breakage b = draw_breakage(x);
    bool ended = b.team->me < 0;
    trouble_aborts += b.way != REVOKE;
    trouble_revokes += b.way == REVOKE;
    MPI_Barrier(MPI_COMM_WORLD); /* now the pool has grown on all members */
    if (!ended)
        ended = misbehave(&b);
    if (b.shrinks)
        teams_shrink(b.team, b.leaves, x, &bursts_own);
    if (!ended && b.abrupt)
        multi_ok(NULL, ceclCommAbort(b.team->comm));
    else if (!ended)
        multi_refused(NULL, ceclCommDestroy(b.team->comm), ceclRemoteError, NULL);
    b.team->alive = false;
    MPI_Barrier(MPI_COMM_WORLD); /* copies under way must not reach memory of later calls */
    if (b.mail)
        mail_forget(b.mail);
}

/* One rank comes far later than usual. */
static void dawdle(uint64_t *x)
{
    const uint64_t who = random_next(x) % (uint64_t)multi_nranks, ms = random_next(x) % LATE_MS;
    if (who == (uint64_t)multi_rank)
        multi_pause_ms((long)ms);
}

/* What this rank is doing. SIGALRM prints it if an epoch hangs. */
static struct {
    unsigned long long epoch;
    int step;
    const char *doing;
} here;

/* Prints what hangs. These calls are not safe in a signal handler, but the process hangs anyway, and ends here. */
static void tell_hang(int signal)
{
    fprintf(stderr, "rank %d hangs: epoch %llu of seed %llu, step %d, %s\n", multi_rank, here.epoch,
            (unsigned long long)seed, here.step, here.doing);
    _exit(128 + signal);
}

static void step(uint64_t *x)
{
    here.doing = "burst of calls";
    bursts_step(x);
    bursts_made++;
    const uint64_t what = random_next(x) % 16;
    here.doing = what == 0 ? "abort or revoke" : "late rank";
    if (what == 0)
        trouble_breaks(x);
    else if (what == 1)
        dawdle(x);
}

static void live(uint64_t x)
{
    const ceclConfig_t config = teams_config();
    settings_draw(&x);
    here.doing = "init";
    ceclComm_t home = multi_comm(&config);
    bursts_open(home, x);
    for (here.step = 0; here.step < EPOCH_STEPS; here.step++)
        step(&x);
    here.doing = "end of all communicators";
    teams_end_all(&x);
    bursts_close();
    multi_ok(NULL, ceclCommDestroy(home));
    settings_clear();
}

/* The state with which an epoch's generator begins. It is never 0, which the generator would keep. */
static uint64_t begin_of(uint64_t epoch)
{
    uint64_t x = seed + epoch * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x | 1;
}

static uint64_t agreed(uint64_t mine)
{
    MPI_Bcast(&mine, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return mine;
}

static void tell_held(const char *when, const struct held *held)
{
    print_message("held %s: %d descriptors, %d threads, %d mappings, %d MiB, %d MiB of the GPU\n",
                  when, held->descriptors, held->threads, held->mappings, held->resident_mib,
                  held->gpu_mib);
}

static void tell(uint64_t epochs, const struct held *warm)
{
    const struct held now = held_now();
    print_message("%llu epochs: %llu bursts, %llu messages sent, %llu windows; communicators: %d "
                  "of all ranks, "
                  "%d by %d splits and %d shrinks; %d aborted, %d revoked\n",
                  (unsigned long long)epochs, (unsigned long long)bursts_made,
                  (unsigned long long)mail_sent, (unsigned long long)bursts_windows, teams_worlds,
                  teams_children, teams_splits, teams_shrinks, trouble_aborts, trouble_revokes);
    tell_held("at first", warm);
    tell_held("in the end", &now);
}

TEST(everything_is_right_for_as_long_as_asked)
{
    const double end = multi_seconds() + seconds;
    struct held warm = {0};
    uint64_t epochs = 0;
    seed = agreed(seed);
    while (agreed(epochs <= EPOCHS_WARM || multi_seconds() < end)) {
        const uint64_t epoch = first_epoch + epochs;
        print_message("epoch %llu of seed %llu\n", (unsigned long long)epoch,
                      (unsigned long long)seed);
        here.epoch = epoch;
        signal(SIGALRM, tell_hang);
        alarm(EPOCH_SECONDS);
        live(begin_of(epoch));
        if (++epochs == EPOCHS_WARM)
            warm = held_now();
        if (epochs > EPOCHS_WARM)
            held_no_more(&warm);
    }
    tell(epochs, &warm);
}

int main(int argc, char **argv)
{
    const char *given = argc > 1 ? argv[1] : getenv("CECL_SOAK_SECONDS");
    seconds = given ? strtod(given, NULL) : seconds;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    seed = seed ? seed : (uint64_t)(multi_seconds() * 1e6);
    first_epoch = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    unsetenv("CECL_SOAK_SECONDS");   /* no setting of the library */
    setenv("CECL_DEBUG", "none", 0); /* failures are intended, so no warnings */
    mallopt(M_ARENA_MAX, 2); /* more arenas of malloc (mappings) would come and go with threads */
    return multi_main(argc, argv);
}
