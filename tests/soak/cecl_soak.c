/* cecl_soak [SECONDS [SEED [EPOCH]]]: random calls and messages on random communicators for a
 * given time, under MPI, on the host device or on GPUs.
 *
 * Time is divided into epochs. Each epoch draws its settings, makes bursts of calls (bursts.h) on
 * communicators that are created, split, ended, aborted and revoked, and ends everything that it
 * created. Resources of the process after an epoch are compared with those after the first
 * epochs. An epoch depends only on the seed and on its number, so a failed epoch can be repeated:
 * the output has SEED and EPOCH. Without SEED, or with 0, the seed comes from the clock.
 *
 * The default of SECONDS is CECL_SOAK_SECONDS, or 10. */
#include <malloc.h>
#include <signal.h>

#include "bursts.h"
#include "held.h"
#include "settings.h"
#include "trouble.h"

#define EPOCH_STEPS 64
#define EPOCH_SECONDS 120 /* seconds after which an epoch counts as hanging */
#define EPOCHS_WARM 2     /* after this many epochs, one-time setup is complete */
#define LATE_MS 40

static double seconds = 10;
static uint64_t seed;
static uint64_t first_epoch;
static uint64_t bursts_made;

/* ---- epochs */

/* One rank is far later than ranks usually are. */
static void dawdle(uint64_t *x)
{
    const uint64_t who = random_next(x) % (uint64_t)multi_nranks, ms = random_next(x) % LATE_MS;
    if (who == (uint64_t)multi_rank)
        multi_pause_ms((long)ms);
}

/* This rank's current position. SIGALRM prints it if an epoch hangs. */
static struct {
    unsigned long long epoch;
    int step;
    const char *doing;
} here;

/* These calls are not safe in a signal handler, but the process hangs, and ends now. */
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

/* The initial state of an epoch's generator: never 0, which the generator would not leave. */
static uint64_t begin_of(uint64_t epoch)
{
    uint64_t x = seed + epoch * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x | 1;
}

/* Broadcasts rank 0's value. */
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
    setenv("CECL_DEBUG", "none", 0); /* intended failures need no warning */
    mallopt(M_ARENA_MAX, 2); /* otherwise arenas come and go with threads, and are mappings */
    return multi_main(argc, argv);
}
