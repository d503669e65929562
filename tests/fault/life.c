/* A rank's life: it joins, makes calls until the fault, and continues with the other survivors. */
#include "life.h"

bool life_on_gpus(void)
{
    const char *device = getenv("CECL_TEST_DEVICE");
    return device && strcmp(device, "cuda") == 0;
}

static ceclResult_t copy(ceclComm_t comm, void *to, const void *from, size_t bytes)
{
    TRY(ceclMemcpyAsync(comm, to, from, bytes, 0));
    return ceclStreamSynchronize(comm, 0);
}

ceclResult_t life_put(ceclComm_t comm, int *device, const int *host, size_t count)
{
    return copy(comm, device, host, count * sizeof(int));
}

ceclResult_t life_get(ceclComm_t comm, int *host, const int *device, size_t count)
{
    return copy(comm, host, device, count * sizeof(int));
}

static int count_gpus(void)
{
    char path[32];
    int count = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && *visible) {
        for (count = 1; (visible = strchr(visible, ',')); visible++)
            count++;
        return count;
    }
    for (int i = 0; i < 16; i++) { /* a container may contain any subset of the GPUs */
        snprintf(path, sizeof(path), "/dev/nvidia%d", i);
        count += access(path, F_OK) == 0;
    }
    return count;
}

/* Opens the rank's GPU before anything is timed or counted: it takes seconds, and leaves descriptors and threads. */
static void warm_up(struct life *life)
{
    const int gpus = count_gpus();
    ceclUniqueId id;
    char which[16];
    if (gpus == 0)
        life_fail(life, "no GPU: no /dev/nvidia0 to 15");
    snprintf(which, sizeof(which), "%d", life->me % gpus);
    setenv("CECL_CUDA_DEVICE", which, 1);
    setenv("CECL_DEVICE", "cuda", 1);
    if (ceclGetUniqueId(&id) != ceclSuccess ||
        ceclCommInitRank(&life->warm, 1, id, 0) != ceclSuccess)
        life_fail(life, "no GPU: %s", ceclGetLastError(NULL));
}

static ceclResult_t make_first_calls(struct life *life)
{
    enum { INTS_EACH = 100000 };
    const ceclConfig_t config = join_config(life->c, LONG_TIMEOUT_MS);
    const int n = life->n, next = (life->me + 1) % n, last = (life->me + n - 1) % n;
    ceclComm_t comm = NULL;
    int *memory = NULL;
    TRY(join_by_id(life, WARM_ID, n, life->me, &config, &comm));
    TRY(ceclMemAlloc(comm, (void **)&memory, (size_t)n * INTS_EACH * sizeof(int)));
    int *const own = memory + (size_t)life->me * INTS_EACH;
    TRY(ceclAllGather(own, memory, INTS_EACH, ceclInt32, comm, 0));
    TRY(ceclAllReduce(memory, memory, INTS_EACH, ceclInt32, ceclSum, comm, 0));
    TRY(ceclGroupStart());
    (void)!ceclSend(own, 1000, ceclInt32, next, comm, 0);
    (void)!ceclRecv(memory + (size_t)last * INTS_EACH, 1000, ceclInt32, last, comm, 0);
    TRY(ceclGroupEnd());
    TRY(ceclStreamSynchronize(comm, 0));
    return ceclCommDestroy(comm);
}

/* First calls with peers leave mappings and descriptors in the driver, so ranks make some before they count. */
static void warm_up_together(struct life *life)
{
    STEP(life, "warming up");
    if (make_first_calls(life) != ceclSuccess)
        life_fail(life, "no warm communicator: %s", ceclGetLastError(NULL));
}

/* Joins. If the fault comes before or during the join, the join must fail on all ranks. */
static void join_or_end(struct life *life)
{
    const struct fault_case *c = life->c;
    STEP(life, "joining");
    const ceclResult_t result = join_first(life);
    const bool joins = c->op == JOIN || c->op == JOIN_BY_CALLBACKS;
    if (result == ceclSuccess && joins && (c->when == BEFORE || c->when == WITHIN))
        life_fail(life, "joined in spite of the fault");
    if (result == ceclSuccess)
        return;
    if (!joins)
        life_fail(life, "cannot join: %s", ceclGetLastError(NULL));
    if (life->comm)
        life_fail(life, "a failed call gave a communicator");
    aftermath_check_error(life, result);
    aftermath_of_survivors(life);
}

/* When all have made the call, the fault comes while no rank waits. Then a barrier shows it to all ranks. */
static void come_after(struct life *life)
{
    STEP(life, "idle");
    life_meet(life);
    misdeed_at(life, AFTER);
    while (!atomic_load(&life->meeting->fault_began))
        usleep(100);
    if (life->is_over && !fault_case_is_seen(life->c))
        aftermath_of_survivors(life);
    aftermath_watch_idle(life);
    if (life->is_over)
        aftermath_of_survivors(life);
    life->op = BARRIER;
    life->attempt++;
}

static ceclResult_t attempt_until_failure(struct life *life)
{
    const struct fault_case *c = life->c;
    for (life->attempt = 0;; life->attempt++) {
        STEP(life, "the call");
        const ceclResult_t result = attempt_make(life);
        if (result != ceclSuccess)
            return result;
        if (c->when == AFTER && life->attempt == c->round)
            come_after(life);
        else if (life->is_over)
            aftermath_of_survivors(life); /* the communicator may also end without an error */
        aftermath_check_time(life);
    }
}

static void prepare(struct life *life)
{
    life_begin();
    if (life->op == URGENT_GATHER)
        setenv("CECL_URGENT", "1", 1);
    if (life_on_gpus()) {
        warm_up(life);
        warm_up_together(life);
    }
    census_take(&life->start);
}

_Noreturn void life_run(const struct fault_case *c, struct meeting *meeting, int rank)
{
    struct life life = {.c = c,
                        .venue = &meeting->venue,
                        .meeting = meeting,
                        .report = &meeting->reports[rank],
                        .me = rank,
                        .n = c->nranks,
                        .op = c->op,
                        .replays = 1,
                        .is_faulty = rank == c->faulty};
    for (int r = 0; r < c->nranks; r++)
        life.told[r] = &meeting->reports[r].told;
    prepare(&life);
    join_or_end(&life);
    if (c->op != JOIN) {
        life_open_buffers(&life);
        life_meet(&life);
        misdeed_prepare(&life);
    }
    const ceclResult_t result = attempt_until_failure(&life);
    aftermath_check_error(&life, result);
    aftermath_of_survivors(&life);
}
