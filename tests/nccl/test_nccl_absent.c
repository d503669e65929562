/* One rank runs without the library in NCCL's place, with another version of it, or with CECL_NCCL=off. On each
 * communicator with that rank, the others name it and pass their calls, so all results are right. Communicators without
 * that rank are served.
 *
 * test_nccl_absent LIBRARIES: the folder of another version of the library. CECL_NCCL_PATH names the stand-in. Each rank is
 * a program of its own: test_nccl_absent FILE RANK WAY ABSENT, where FILE is a descriptor of memory that all ranks map. */
#include <fcntl.h>
#include <libgen.h>
#include <sys/mman.h>

#include "../with_cmocka.h"

#include "processes.h"

#define RANKS 3

static int absent; /* the rank whose program is absent */

static size_t passed(void)
{
    return calls_of("ncclAllReduce") + calls_of("ncclReduce");
}

/* Whether this rank's results are right, and come from cecl (served) or from NCCL. Makes reductions, because strict may
 * pass them; of two kinds, to notice a rank that is a call behind. Under auto, who carries them out is not checked. */
static bool sums(const struct rank *r, bool served)
{
    bool is = true;
    for (int round = 0; round < 3; round++) {
        const size_t before = passed();
        int in = 10 * round + r->rank, sum = -1, most = -1, want = 0;
        for (int i = 0; i < r->nranks; i++)
            want += 10 * round + i;
        is = outcome_of(r->comm, ncclAllReduce(&in, &sum, 1, ncclInt32, ncclSum, r->comm, NULL)) ==
                 0 &&
             outcome_of(r->comm, ncclReduce(&in, &most, 1, ncclInt32, ncclMax, 0, r->comm, NULL)) ==
                 0 &&
             is;
        const bool is_right =
            sum == want && (r->rank != 0 || most == 10 * round + r->nranks - 1) &&
            (strcmp(getenv("CECL_NCCL"), "auto") == 0 || passed() - before == (served ? 0u : 2u));
        if (!is_right)
            fprintf(stderr, "rank %d, round %d: sum %d for %d, most %d, passed %zu\n", r->rank,
                    round, sum, want, most, passed() - before);
        is = is && is_right;
    }
    return is;
}

static bool ends(const struct rank *r)
{
    return ncclCommDestroy(r->comm) == 0;
}

static bool by_rank(struct rank *r)
{
    return ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 && sums(r, false) && ends(r);
}

static bool in_background(struct rank *r)
{
    struct config config;
    return ncclCommInitRankConfig(&r->comm, r->nranks, r->id, r->rank, non_blocking(&config)) ==
               IN_PROGRESS &&
           await_comm(r->comm) == 0 && sums(r, false) && ends(r);
}

static bool by_scalable(struct rank *r)
{
    return ncclCommInitRankScalable(&r->comm, r->nranks, r->rank, 1, &r->id, NULL) == 0 &&
           sums(r, false) && ends(r);
}

static bool in_a_group(struct rank *r)
{
    return ncclGroupStart() == 0 && ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 &&
           ncclGroupEnd() == 0 && sums(r, false) && ends(r);
}

/* A gather on a communicator with the absent rank. `strict` refuses it, unless the ranks' policies differ. */
static bool by_gather(struct rank *r)
{
    int in = r->rank + 1, out[RANKS] = {0};
    bool is = ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 &&
              outcome_of(r->comm, ncclAllGather(&in, out, 1, ncclInt32, r->comm, NULL)) == 0;
    for (int i = 0; i < RANKS; i++)
        is = is && out[i] == i + 1;
    return is && calls_of("ncclAllGather") == 1 && ends(r);
}

/* Each rank sends to the next one; `strict` refuses this, too. */
static bool by_messages(struct rank *r)
{
    const int next = (r->rank + 1) % RANKS, before = (r->rank + RANKS - 1) % RANKS;
    int in = r->rank + 1, out = 0;
    return ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 && ncclGroupStart() == 0 &&
           ncclSend(&in, 1, ncclInt32, next, r->comm, NULL) == 0 &&
           ncclRecv(&out, 1, ncclInt32, before, r->comm, NULL) == 0 &&
           outcome_of(r->comm, ncclGroupEnd()) == 0 && out == before + 1 &&
           calls_of("ncclSend") == 1 && calls_of("ncclRecv") == 1 && ends(r);
}

/* The second child is made without the absent rank. */
static bool by_split(struct rank *r)
{
    struct rank all = *r, some = {.nranks = RANKS - 1, .rank = r->rank - (r->rank > absent)};
    bool is = ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 &&
              ncclCommSplit(r->comm, 0, r->rank, &all.comm, NULL) == 0 && sums(&all, false);
    is = is && ncclCommSplit(r->comm, r->rank == absent ? -1 : 0, r->rank, &some.comm, NULL) == 0;
    if (r->rank != absent)
        is = is && sums(&some, true) && ends(&some);
    return is && sums(r, false) && ends(&all) && ends(r);
}

static bool by_shrink(struct rank *r)
{
    struct rank some = {.nranks = RANKS - 1, .rank = r->rank - (r->rank > absent)};
    bool is = ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 && sums(r, false);
    if (r->rank != absent)
        is = is && ncclCommShrink(r->comm, &absent, 1, &some.comm, NULL, 0) == 0 &&
             sums(&some, true) && ends(&some);
    return is && ends(r);
}

/* Memory that all ranks map. */
struct common {
    struct meeting meeting;
    _Atomic bool is_grown;
    ncclUniqueId grown;
};

static bool by_grow(struct rank *r, struct common *common)
{
    struct rank more = *r;
    if (r->rank == RANKS - 1) {
        while (!atomic_load(&common->is_grown))
            usleep(100);
        return ncclCommGrow(NULL, RANKS, &common->grown, r->rank, &more.comm, NULL) == 0 &&
               sums(&more, false) && ends(&more);
    }
    r->nranks = RANKS - 1;
    bool is =
        ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == 0 && sums(r, absent >= r->nranks);
    if (r->rank == 0) {
        is = is && ncclCommGetUniqueId(r->comm, &common->grown) == 0;
        atomic_store(&common->is_grown, true);
    }
    return is && ncclCommGrow(r->comm, RANKS, NULL, -1, &more.comm, NULL) == 0 &&
           sums(&more, false) && ends(&more) && ends(r);
}

static const struct {
    const char *name;
    bool (*run)(struct rank *);
} ways[] = {{"rank", by_rank},     {"background", in_background}, {"scalable", by_scalable},
            {"group", in_a_group}, {"split", by_split},           {"shrink", by_shrink},
            {"grow", NULL},        {"gather", by_gather},         {"messages", by_messages}};
#define WAYS (int)(sizeof(ways) / sizeof(ways[0]))
#define ABSENT_WAYS (WAYS - 2) /* ways by which the tests of absent ranks make communicators */

static int be_rank(char **arguments)
{
    struct common *common =
        mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(arguments[1]), 0);
    struct rank r = {.rank = atoi(arguments[2]), .nranks = RANKS};
    if (common == MAP_FAILED)
        return 2;
    absent = atoi(arguments[4]);
    agree_on_id(&common->meeting, &r);
    for (int i = 0; i < WAYS; i++)
        if (strcmp(ways[i].name, arguments[3]) == 0)
            return !(ways[i].run ? ways[i].run(&r) : by_grow(&r, common));
    return 2;
}

/* ---- the test: starts programs, one for each rank */

static char library_of_another_version[4096], folder_of_standin[4096];
static char *self;
static void (*leave_too)(void); /* NULL, or what the rank after the absent one does */

static void without_the_library(void)
{
    setenv("LD_LIBRARY_PATH", folder_of_standin, 1);
}

static void with_another_version(void)
{
    setenv("LD_LIBRARY_PATH", library_of_another_version, 1);
}

static void off(void)
{
    setenv("CECL_NCCL", "off", 1);
}

static void by_another_policy(void)
{
    const char *own = getenv("CECL_NCCL"), *other = strcmp(own, "strict") == 0 ? "all" : "auto";
    setenv("CECL_NCCL", strcmp(own, "auto") == 0 ? "strict" : other, 1);
}

static void start(int file, int rank, const char *way, int which, void (*leave)(void), int errors)
{
    char numbers[3][16];
    if (fork() != 0)
        return;
    snprintf(numbers[0], sizeof(numbers[0]), "%d", file);
    snprintf(numbers[1], sizeof(numbers[1]), "%d", rank);
    snprintf(numbers[2], sizeof(numbers[2]), "%d", which);
    if (rank == which)
        leave();
    else if (leave_too && rank == (which + 1) % RANKS)
        leave_too();
    dup2(errors, STDERR_FILENO);
    alarm(PROMPT);
    execl(self, self, numbers[0], numbers[1], way, numbers[2], (char *)NULL);
    _exit(127);
}

static int count_in(int file, const char *words)
{
    static char text[1 << 20];
    const ssize_t bytes = pread(file, text, sizeof(text) - 1, 0);
    int count = 0;
    text[bytes > 0 ? bytes : 0] = '\0';
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

/* Runs ranks; rank `which` is absent by `leave`. Returns whether all is right, and `words` are logged `times` times. */
static bool runs(const char *way, int which, void (*leave)(void), const char *words, int times)
{
    const int file = memfd_create("meeting", 0), errors = memfd_create("errors", MFD_CLOEXEC);
    int status;
    bool is = file >= 0 && errors >= 0 && ftruncate(file, sizeof(struct common)) == 0 &&
              fcntl(errors, F_SETFL, O_APPEND) == 0; /* lines of two ranks follow each other */
    for (int rank = 0; is && rank < RANKS; rank++)
        start(file, rank, way, which, leave, errors);
    while (wait(&status) > 0)
        is = status == 0 && is;
    const int told = count_in(errors, words);
    if (!is || told != times) {
        static char text[4096];
        text[pread(errors, text, sizeof(text) - 1, 0)] = '\0';
        print_error("by %s, rank %d: told %d times\n%s", way, which, told, text);
    }
    close(file);
    close(errors);
    return is && told == times;
}

static void run_each(void (*leave)(void))
{
    bool is = true;
    char words[64];
    for (int i = 0; i < ABSENT_WAYS; i++)
        for (int which = 0; which < RANKS; which++) {
            snprintf(words, sizeof(words), "its rank %d runs without cecl-run", which);
            is = runs(ways[i].name, which, leave, words, 1) && is;
        }
    assert_true(is);
}

TEST(results_are_right_where_a_rank_runs_without_the_library)
{
    run_each(without_the_library);
}

TEST(results_are_right_where_a_rank_has_another_version)
{
    run_each(with_another_version);
}

TEST(results_are_right_where_a_rank_is_off)
{
    run_each(off);
}

static void run_moves(void (*leave)(void), const char *words, int times)
{
    bool is = true;
    for (int i = ABSENT_WAYS; i < WAYS; i++)
        for (int which = 0; which < RANKS; which++)
            is = runs(ways[i].name, which, leave, words, times) && is;
    assert_true(is);
}

TEST(ranks_of_different_policies_pass_every_call)
{
    run_moves(by_another_policy, "because CECL_NCCL differs between", RANKS);
}

static void by_auto(void)
{
    setenv("CECL_NCCL", "auto", 1);
}

/* Under any policy of the test the other two ranks have `all` and `auto`: one with `strict` would refuse gathers and
 * messages, and its peers would wait for it. */
TEST(so_do_those_beside_a_rank_without_the_library)
{
    char own[16];
    snprintf(own, sizeof(own), "%s", getenv("CECL_NCCL"));
    setenv("CECL_NCCL", "all", 1);
    leave_too = by_auto;
    run_moves(without_the_library, "runs without cecl-run", 1);
    leave_too = NULL;
    setenv("CECL_NCCL", own, 1);
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc == 5)
        return be_rank(argv);
    if (argc != 2 || !getenv("CECL_NCCL_PATH")) {
        print_error("test_nccl_absent LIBRARIES, and CECL_NCCL_PATH\n");
        return 2;
    }
    self = argv[0];
    snprintf(path, sizeof(path), "%s", getenv("CECL_NCCL_PATH"));
    snprintf(folder_of_standin, sizeof(folder_of_standin), "%s:%s", dirname(path),
             getenv("LD_LIBRARY_PATH"));
    snprintf(library_of_another_version, sizeof(library_of_another_version), "%s:%s", argv[1],
             getenv("LD_LIBRARY_PATH"));
    return tests_run(NULL, NULL);
}
