/* Ranks that the program starts itself: children of one process, with memory that all share. In it each rank has a
 * place of its own, through which values are passed between two barriers. A rank that waits yields its processor,
 * because there may be fewer processors than ranks. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "team.h"

#define PLACE_BYTES 4096

static struct shared {
    atomic_int came;    /* how many ranks have come to the next barrier */
    atomic_uint passed; /* how many barriers all ranks have passed */
    _Alignas(64) unsigned char places[TEAM_RANKS_MAX][PLACE_BYTES];
} * shared;
static int own, all; /* this rank, and how many there are */

static void barrier(void)
{
    const unsigned before = atomic_load(&shared->passed);
    if (atomic_fetch_add(&shared->came, 1) + 1 == all) {
        atomic_store(&shared->came, 0);
        atomic_fetch_add(&shared->passed, 1);
        return;
    }
    while (atomic_load(&shared->passed) == before)
        sched_yield();
}

static void max_of_place(double *values, size_t count)
{
    memcpy(shared->places[own], values, count * sizeof(*values));
    barrier();
    for (int r = 0; r < all; r++)
        for (size_t i = 0; i < count; i++) {
            double theirs;
            memcpy(&theirs, shared->places[r] + i * sizeof(theirs), sizeof(theirs));
            values[i] = theirs > values[i] ? theirs : values[i];
        }
    barrier(); /* all ranks have read all places before one is written again */
}

static void max(double *values, int count)
{
    const size_t most = PLACE_BYTES / sizeof(*values), n = (size_t)count;
    for (size_t first = 0; first < n; first += most)
        max_of_place(values + first, n - first < most ? n - first : most);
}

static void sum(long long *value)
{
    memcpy(shared->places[own], value, sizeof(*value));
    barrier();
    *value = 0;
    for (int r = 0; r < all; r++) {
        long long theirs;
        memcpy(&theirs, shared->places[r], sizeof(theirs));
        *value += theirs;
    }
    barrier();
}

static void bcast(void *data, size_t bytes, int root)
{
    for (size_t first = 0; first < bytes; first += PLACE_BYTES) {
        const size_t n = bytes - first < PLACE_BYTES ? bytes - first : PLACE_BYTES;
        unsigned char *const at = (unsigned char *)data + first;
        if (own == root)
            memcpy(shared->places[root], at, n);
        barrier();
        if (own != root)
            memcpy(at, shared->places[root], n);
        barrier();
    }
}

static ceclResult_t comm_init(ceclComm_t *comm, const ceclConfig_t *config)
{
    struct {
        ceclResult_t result;
        ceclUniqueId id;
    } made = {.result = ceclSuccess};
    if (own == 0)
        made.result = ceclGetUniqueId(&made.id);
    bcast(&made, sizeof(made), 0);
    if (made.result != ceclSuccess)
        return made.result;
    return ceclCommInitRankConfig(comm, all, made.id, own, config);
}

/* Does nothing: if a rank breaks off, its exit code makes the starting process end the others. */
static void leave(int end, bool broke)
{
    (void)end;
    (void)broke;
}

static void end_those_left(const pid_t *ranks)
{
    for (int r = 0; r < all; r++)
        if (ranks[r] > 0)
            kill(ranks[r], SIGKILL);
}

/* Waits for all ranks, and returns the exit code of the first one that fails. The others then have a second to end
 * by themselves before they are killed. */
static int wait_for_all(pid_t *ranks)
{
    int end = 0, waited_ms = 0;
    for (int left = all; left > 0;) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, end ? WNOHANG : 0);
        if (pid < 0 && errno != EINTR)
            return end ? end : 1;
        if (pid <= 0) {
            if (waited_ms++ >= 1000)
                end_those_left(ranks);
            usleep(1000);
            continue;
        }
        for (int r = 0; r < all; r++)
            ranks[r] = ranks[r] == pid ? 0 : ranks[r];
        left--;
        if (!end)
            end = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return end;
}

static const struct team team = {barrier, max, sum, bcast, comm_init, leave};

const struct team *team_fork_join(int nranks, int *rank)
{
    pid_t ranks[TEAM_RANKS_MAX];
    const pid_t starter = getpid();
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return NULL;
    all = nranks;
    for (own = 0; own < nranks; own++) {
        ranks[own] = fork();
        if (ranks[own] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != starter)
                _exit(1);
            *rank = own;
            return &team;
        }
        if (ranks[own] < 0) {
            const int why = errno;
            while (own-- > 0)
                kill(ranks[own], SIGKILL);
            errno = why;
            return NULL;
        }
    }
    exit(wait_for_all(ranks));
}

int team_ranks_asked(int argc, char **argv)
{
    const char *value = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ranks") == 0)
            value = i + 1 < argc ? argv[i + 1] : "";
        else if (strncmp(argv[i], "--ranks=", 8) == 0)
            value = argv[i] + 8;
    }
    if (!value)
        return 0;
    char *rest;
    const long ranks = strtol(value, &rest, 10);
    return *value && !*rest && ranks >= 1 && ranks <= TEAM_RANKS_MAX ? (int)ranks : -1;
}
