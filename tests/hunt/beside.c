/* See beside.h. Any call here may fail, because a rank dies. */
#include "beside.h"

#include "../world/works.h"

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

void beside_try(ceclComm_t comm)
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
