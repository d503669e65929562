/* Random calls of all collectives, and messages, on communicators that are constantly split and shrunk (bursts.h).
 * CECL_TEST_CALLS and CECL_TEST_SEED override the number of calls and the seed. At the end no mappings, descriptors or
 * threads may be left. tests/soak runs the same for longer. */
#include "bursts.h"
#include "held.h"

#include <malloc.h>

/* Calls are made in ages. When one ends, so do all communicators, and all memory is freed. One has CECL_CHECK=1. */
#define AGES 10
#define AGE_CHECKED 5

/* After this many ages, one-time setup is complete. */
#define AGES_WARM 3

static int count_calls(void)
{
    const char *given = getenv("CECL_TEST_CALLS");
    return multi_share(given ? atoi(given) : 5000) / AGES;
}

static void live(int age, uint64_t *x)
{
    const ceclConfig_t config = teams_config();
    multi_setenv("CECL_CHECK", age == AGE_CHECKED ? "1" : NULL);
    ceclComm_t home = multi_comm(&config);
    const int calls = count_calls();
    bursts_open(home, *x);
    for (int done = 0; done < calls; done += BURST_CALLS)
        bursts_step(x);
    teams_end_all(x);
    bursts_close();
    multi_ok(NULL, ceclCommDestroy(home));
    multi_setenv("CECL_CHECK", NULL);
}

static void live_all(uint64_t *x)
{
    struct held warm = {0};
    for (int age = 0; age < AGES; age++) {
        live(age, x);
        if (age == AGES_WARM - 1)
            warm = held_now();
    }
    held_no_more(&warm);
}

TEST(calls_on_communicators_that_come_and_go_are_right)
{
    const char *given = getenv("CECL_TEST_SEED");
    uint64_t x = given ? strtoull(given, NULL, 10) : 1442695040888963407u;
    print_message("seed %llu\n", (unsigned long long)x);
    live_all(&x);
    print_message("communicators: %d of all ranks; %d by %d splits and %d shrinks; %llu messages\n",
                  teams_worlds, teams_children, teams_splits, teams_shrinks,
                  (unsigned long long)mail_sent);
}

int main(int argc, char **argv)
{
    mallopt(M_ARENA_MAX, 2); /* more arenas of malloc (mappings) would come and go with threads */
    return multi_main(argc, argv);
}
