/* See beside.h. Any call here may fail, because a rank dies. */
#include "beside.h"

#define COUNT 300 /* ints that each rank contributes to a trial call */

static struct {
    enum what { SPLIT, ALLOCATE, SHARE, NOTHING, WHATS } what;
    int before, colors; /* `before`: index of the burst's next call */
    size_t bytes;
    const struct team *team;
} drawn;

void beside_draw(uint64_t *x)
{
    drawn.what = (enum what)(random_next(x) % WHATS);
    drawn.before = (int)(random_next(x) % BURST_CALLS);
    drawn.colors = 1 + (int)(random_next(x) % 2);
    drawn.bytes = (size_t)1 << random_next(x) % 24;
    drawn.team = teams_pick(x);
}

bool beside_is_due(int first, int end)
{
    return first <= drawn.before && drawn.before < end;
}

static int value_of(int rank, int index)
{
    return rank * 100000 + index * 7 + 3;
}

struct
try {
    int in[COUNT], sum[COUNT], gathered[RANKS * COUNT];
};

static ceclResult_t make(ceclComm_t comm, struct try *try)
{
    ceclResult_t async = ceclSuccess,
                 result = ceclAllGather(try->in, try->gathered, COUNT, ceclInt32, comm, 0);
    if (result == ceclSuccess)
        result = ceclAllReduce(try->in, try->sum, COUNT, ceclInt32, ceclSum, comm, 0);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(comm, 0);
    if (result == ceclSuccess)
        result = ceclCommGetAsyncError(comm, &async);
    return result == ceclSuccess ? async : result;
}

static void check(const struct try *try, int rank, int n)
{
    for (int i = 0; i < COUNT; i++) {
        int sum = 0;
        for (int r = 0; r < n; r++) {
            sum += value_of(r, i);
            if (try->gathered[r * COUNT + i] != value_of(r, i))
                fail_msg("a communicator made beside: rank %d of %d gathers %#x for int %d of rank "
                         "%d, not %#x",
                         rank, n, (unsigned)try->gathered[r * COUNT + i], i, r,
                         (unsigned)value_of(r, i));
        }
        if (try->sum[i] != sum)
            fail_msg("a communicator made beside: rank %d of %d: sum %d is %#x, not %#x", rank, n,
                     i, (unsigned)try->sum[i], (unsigned)sum);
    }
}

/* Peers do not write to the buffer, because it is private memory. */
void beside_try(ceclComm_t comm)
{
    struct try *try = malloc(sizeof(*try));
    int rank = -1, n = 0;
    assert_non_null(try);
    multi_ok(comm, ceclCommUserRank(comm, &rank));
    multi_ok(comm, ceclCommCount(comm, &n));
    memset(try, 0x5A, sizeof(*try));
    for (int i = 0; i < COUNT; i++)
        try->in[i] = value_of(rank, i);
    if (make(comm, try) == ceclSuccess)
        check(try, rank, n);
    (void)!ceclStreamSynchronize(comm, 0);
    free(try);
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

/* A failed call fails the communicator on all ranks. */
static void allocate(void)
{
    void *at = NULL;
    if (ceclMemAlloc(drawn.team->comm, &at, drawn.bytes) == ceclSuccess)
        (void)!ceclMemFree(drawn.team->comm, at);
}

/* As above. The window ends with the communicator at the latest; its memory stays. */
static void share_window(void)
{
    static unsigned char *at;
    ceclWindow_t window;
    if (!at)
        at = memory_new(drawn.team->comm, MEMORY_SHARED, 1 << 16).at;
    if (ceclWindowShare(drawn.team->comm, at, 1 << 16, &window) == ceclSuccess)
        (void)!ceclWindowFree(drawn.team->comm, window);
}

bool beside_make(void)
{
    if (drawn.team->me < 0 || drawn.what == NOTHING)
        return false;
    if (drawn.what == ALLOCATE)
        allocate();
    if (drawn.what == SHARE)
        share_window();
    return drawn.what == SPLIT && split();
}
