/* A repeated collective is a look-up and a few calls to the device, without an allocation or a new plan. Two ranks are
 * threads on the host device. The program wraps the allocator, as sanitizers do; so it is skipped under them. */
#include "../with_cmocka.h"
#include <pthread.h>

#include "launch/launcher.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    puts("skipped: a sanitizer has the allocator");
    return 77;
}
#else

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
static _Thread_local unsigned long allocations;

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}

#define RANKS 2
#define COUNT 1000

struct worker {
    pthread_t thread;
    ceclComm_t comm;
    ceclWindow_t window;
    unsigned long allocations;
    uint64_t plans;
    bool failed;
};

static bool exchange(struct worker *me, int *buffer, int *out, ceclStream_t stream)
{
    const int peer = 1 - me->comm->rank;
    return ceclGroupStart() || ceclSend(buffer, COUNT, ceclInt32, peer, me->comm, stream) ||
           ceclRecv(out, COUNT, ceclInt32, peer, me->comm, stream) || ceclGroupEnd();
}

static bool put(struct worker *me, const int *buffer, int *got, ceclStream_t stream)
{
    const int peer = 1 - me->comm->rank;
    const ceclSignalWait_t waits[] = {{peer, 5, 1}, {peer, 6, 1}};
    return ceclPutSignal(buffer, COUNT, ceclInt32, peer, me->window, 0, 5, me->comm, stream) ||
           ceclSignal(peer, 6, me->comm, stream) || ceclWaitSignal(2, waits, me->comm, stream) ||
           ceclGet(got, 1, ceclInt32, peer, me->window, 0, me->comm, stream);
}

static bool call_all(struct worker *me, int *buffer, int *out, int *more, ceclStream_t stream)
{
    int *mine = buffer + me->comm->rank * COUNT;
    return ceclAllGather(mine, buffer, COUNT, ceclInt32, me->comm, stream) ||
           ceclAlltoAll(buffer, out, COUNT, ceclInt32, me->comm, stream) || ceclGroupStart() ||
           ceclAllGather(buffer, more, COUNT, ceclInt32, me->comm, stream) ||
           ceclAlltoAll(buffer, out, COUNT, ceclInt32, me->comm, stream) || ceclGroupEnd() ||
           exchange(me, buffer, out, stream) || put(me, buffer, out, stream);
}

/* Holds the stream until `gate` opens, so its queue holds every call made meanwhile. */
static bool hold(struct worker *me, uint32_t *gate, ceclStream_t stream)
{
    const struct cecl_memop wait = {gate, 1, CECL_MEMOP_WAIT};
    return me->comm->dev->ops->memops(me->comm->dev, stream, &wait, 1);
}

static bool open_gate(struct worker *me, uint32_t *gate)
{
    return me->comm->dev->ops->words_release(me->comm->dev, gate, 1, 1);
}

static void *repeat_calls(void *argument)
{
    uint32_t gate = 0;
    struct worker *me = argument;
    int *buffer = NULL, *out = NULL, *more = NULL, *inbox = NULL;
    ceclStream_t stream = NULL;
    me->failed = ceclMemAlloc(me->comm, (void **)&buffer, RANKS * COUNT * sizeof(int)) ||
                 ceclMemAlloc(me->comm, (void **)&out, RANKS * COUNT * sizeof(int)) ||
                 ceclMemAlloc(me->comm, (void **)&more, RANKS * COUNT * sizeof(int)) ||
                 ceclMemAlloc(me->comm, (void **)&inbox, COUNT * sizeof(int)) ||
                 ceclWindowShare(me->comm, inbox, COUNT * sizeof(int), &me->window) ||
                 ceclStreamCreate(me->comm, &stream) || hold(me, &gate, stream);
    /* The whole first round is enqueued before any of it runs, so queues never get longer later. */
    for (int round = 0; round < 4 && !me->failed; round++) {
        const unsigned long before = allocations;
        const uint64_t plans = me->comm->launcher->plans_made;
        for (int i = 0; i < 200 && !me->failed; i++) {
            me->failed = call_all(me, buffer, out, more, stream) ||
                         (i == 199 && open_gate(me, &gate)) ||
                         (i % 20 == 19 && (round > 0 || i == 199) &&
                          ceclStreamSynchronize(me->comm, stream));
        }
        me->allocations = allocations - before; /* in the end, the last round's */
        me->plans = me->comm->launcher->plans_made - plans;
    }
    me->failed = ceclStreamDestroy(me->comm, stream) || me->failed;
    return NULL;
}

#define PLANS 3 /* of each rank */

/* Makes ranks wait up to 1 s for each other: if all come in time, calls need no plans for other orders of ranks. */
static void wait_for_late_ranks(void)
{
    static const char text[] = "cecl-tuning 1\nlate.wait_ns * any 1000000000\n";
    char path[] = "/tmp/cecl_steady_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    setenv("CECL_TUNING", path, 1);
}

/* Returns whether no rank was late for longer than its peers wait. */
static bool all_come_in_time(void)
{
    bool in_time = true;
    ceclComm_t comms[RANKS];
    struct worker workers[RANKS] = {0};
    wait_for_late_ranks();
    assert_int_equal(ceclCommInitAll(comms, RANKS, NULL), ceclSuccess);
    for (int r = 0; r < RANKS; r++) {
        workers[r].comm = comms[r];
        assert_int_equal(pthread_create(&workers[r].thread, NULL, repeat_calls, &workers[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(workers[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_false(workers[r].failed);
        in_time = in_time && comms[r]->launcher->plans_made == PLANS;
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(in_time ? workers[r].allocations : 0, 0);
        assert_int_equal(in_time ? workers[r].plans : 0, 0);
        assert_int_equal(ceclCommDestroy(comms[r]), ceclSuccess);
    }
    unlink(getenv("CECL_TUNING"));
    unsetenv("CECL_TUNING");
    return in_time;
}

/* The machine may stand still for longer than ranks wait, so this is tried several times. */
static void repeat_on_all_ranks(void)
{
    bool in_time = false;
    for (int tries = 0; tries < 10 && !in_time; tries++)
        in_time = all_come_in_time();
    assert_true(in_time);
}

TEST(repeated_calls_allocate_nothing_and_make_no_plan)
{
    repeat_on_all_ranks();
    setenv("CECL_NVTX", "1", 1);
    repeat_on_all_ranks();
    unsetenv("CECL_NVTX");
}
#endif
