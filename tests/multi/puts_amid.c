/* See puts_amid.h. The calls use their own streams, because the team's streams carry messages, which ranks
 * may make in another order. */
#include "puts_amid.h"

#include "puts.h"

static struct {
    const struct team *team; /* NULL: this burst has no one-sided calls */
    int before;              /* index of the burst's call before which they are made */
    bool is_made;
    struct puts puts;
    struct memory shared, local;
} amid;

/* When a communicator fails, peers may write to the window until they learn of the failure. So a window
 * that was not freed keeps its memory until the process ends. */
static void share(uint64_t *x)
{
    static const enum memory_kind kinds[] = {MEMORY_POOL, MEMORY_SHARED, MEMORY_PIECES};
    ceclComm_t comm = amid.team->comm;
    amid.shared = memory_new(comm, kinds[random_next(x) % 3], PUTS_BYTES);
    amid.local = memory_new(comm, MEMORY_PRIVATE, PUTS_BYTES);
    amid.puts = (struct puts){.comm = comm,
                              .rank = amid.team->me,
                              .n = amid.team->n,
                              .shared = amid.shared.at,
                              .local = amid.local.at};
    multi_ok(comm, ceclWindowShare(comm, amid.shared.at, PUTS_BYTES, &amid.puts.window));
    for (int s = 0; s < PUTS_STREAMS; s++)
        amid.puts.streams[s] = multi_stream(comm);
}

void puts_amid_prepare(uint64_t *x)
{
    uint64_t window = random_next(x), program = random_next(x);
    const uint64_t seed = random_next(x), before = random_next(x) % BURST_CALLS;
    const struct team *team = teams_pick(x);
    amid.team = team->me >= 0 && team->n >= 2 ? team : NULL;
    amid.before = (int)before;
    amid.is_made = false;
    if (!amid.team)
        return;
    share(&window);
    amid.puts.seed = seed;
    puts_prepare(&amid.puts, &program);
}

const struct team *puts_amid_due(int first, int end)
{
    return amid.team && first <= amid.before && amid.before < end ? amid.team : NULL;
}

ceclResult_t puts_amid_make(void)
{
    const ceclResult_t result = puts_make(&amid.puts);
    amid.is_made = result == ceclSuccess;
    return result;
}

const struct team *puts_amid_made(void)
{
    return amid.is_made ? amid.team : NULL;
}

ceclResult_t puts_amid_finish(void)
{
    return puts_finish(&amid.puts);
}

void puts_amid_end(uint32_t failed)
{
    if (!amid.team || (failed >> (amid.team - teams) & 1) != 0)
        return;
    for (int s = 0; s < PUTS_STREAMS; s++)
        multi_ok(amid.puts.comm, ceclStreamDestroy(amid.puts.comm, amid.puts.streams[s]));
    multi_ok(amid.puts.comm, ceclWindowFree(amid.puts.comm, amid.puts.window));
    memory_free(amid.puts.comm, &amid.shared);
    memory_free(amid.puts.comm, &amid.local);
}
