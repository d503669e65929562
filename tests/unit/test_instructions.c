/* The instructions of a warm ceclAllGather of 4 KiB in the calling thread, on the host device: of a lone call, and of 16
 * in a group. callgrind runs this program twice, the second time with more rounds; the test limits the difference. */
#include "../with_cmocka.h"
#include <inttypes.h>

#define RANKS 2
#include "comms.h"

#define COUNT 1024 /* ints: 4 KiB */
#define GROUP 16
#define ROUNDS 256 /* rounds of one call, or one group, on each rank */
#define WARM 8     /* rounds before those, in both runs */

/* gcc 12, -O2: 5,350 to 5,460 (lone), 33,370 to 33,550 (group): how often threads look for peers and sleep varies. */
#define LONE_MOST 5700
#define GROUP_MOST 34600

static int *buffers[RANKS]; /* each call of a group uses a part */

/* callgrind counts while this function runs, in this thread only. */
__attribute__((noinline)) void counted_round(int group);
void counted_round(int group)
{
    if (group > 1)
        OK(ceclGroupStart());
    for (int i = 0; i < group; i++)
        for (int r = 0; r < RANKS; r++) {
            int *recv = buffers[r] + i * RANKS * COUNT;
            OK(ceclAllGather(recv + r * COUNT, recv, COUNT, ceclInt32, comms[r], NULL));
        }
    if (group > 1)
        OK(ceclGroupEnd());
}

/* This is what callgrind runs. CECL_TEST_ROUNDS: the number of rounds, and of calls in each. */
TEST_IF(getenv("CECL_TEST_ROUNDS"), rounds_are_counted, open_all, close_all)
{
    int rounds, group;
    assert_int_equal(sscanf(getenv("CECL_TEST_ROUNDS"), "%d %d", &rounds, &group), 2);
    allocate_all(buffers, (size_t)group * RANKS * COUNT * sizeof(int));
    for (int i = 0; i < rounds; i++) {
        counted_round(group);
        finish_all(NULL);
    }
}

static uint64_t instructions_of(int rounds, int group)
{
    char command[400], line[400];
    uint64_t count = 0;
    snprintf(command, sizeof(command),
             "CECL_TEST_ROUNDS='%d %d' valgrind --tool=callgrind --callgrind-out-file=/dev/null "
             "--toggle-collect=counted_round /proc/%d/exe 2>&1",
             rounds, group, getpid());
    FILE *lines = popen(command, "r");
    assert_non_null(lines);
    while (fgets(line, sizeof(line), lines))
        if (strstr(line, "Collected : "))
            count = strtoull(strstr(line, ": ") + 2, NULL, 10);
    assert_int_equal(pclose(lines), 0);
    assert_true(count > 0);
    return count;
}

static void check_instructions(int group, uint64_t most)
{
#if !defined(__x86_64__) || defined(__clang__) || !defined(__OPTIMIZE__) || \
    defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("the limits are those of code that gcc optimized for x86-64, without a sanitizer");
#endif
    if (system("valgrind --version >/dev/null 2>&1") != 0)
        skip_because("no valgrind");
    const uint64_t each =
        (instructions_of(WARM + ROUNDS, group) - instructions_of(WARM, group)) / (ROUNDS * RANKS);
    print_message("%" PRIu64 " instructions for %d calls of a rank\n", each, group);
    assert_true(each > 1000);
    assert_true(each <= most);
}

TEST_IF(!getenv("CECL_TEST_ROUNDS"), warm_gathers_take_few_instructions, NULL, NULL)
{
    check_instructions(1, LONE_MOST);
    check_instructions(GROUP, GROUP_MOST);
}
