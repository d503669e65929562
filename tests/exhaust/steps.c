/* The steps. Inputs differ between attempts and between ranks. */
#include "life.h"

#define FEW 100
#define LATE_US 3000

static int private_in[INTS], private_out[INTS]; /* private memory, which peers cannot open */

static void fill(struct life *life, int *in)
{
    for (int i = 0; i < INTS; i++)
        in[i] = call_value(life->me, life->attempt, i);
}

static ceclResult_t call_between(struct life *life, int *in, int *out, const struct call *call)
{
    fill(life, in);
    TRY(call_make(call, &life->player, in, out, 0));
    TRY(ceclStreamSynchronize(life->comm, 0));
    call_check(call, &life->player, out);
    return ceclSuccess;
}

ceclResult_t step_make(struct life *life)
{
    const struct step *step = life->step;
    if (step->run)
        return step->run(life);
    if (step->late && life->me == RANKS - 1)
        usleep(LATE_US);
    return call_between(life,
                        step->memory == FILES     ? life->files[0]
                        : step->memory == PRIVATE ? private_in
                                                  : life->in,
                        step->memory == FILES     ? life->files[1]
                        : step->memory == PRIVATE ? private_out
                                                  : life->out,
                        step->call);
}

ceclConfig_t step_config(void)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.device = CECL_DEVICE_HOST;
    config.timeoutMs = TIMEOUT_MS;
    config.poolBytes = 64 << 20;
    config.segmentBytes = 1 << 20;
    config.stagingBytes = 16384;
    return config;
}

/* Rank 0 makes an id, and tries a second time if it was refused. */
static void bring_id(struct life *life)
{
    struct meeting *meeting = life->meeting;
    ceclResult_t made = ceclGetUniqueId(&meeting->id);
    if (made != ceclSuccess && atomic_load(&life->ledger->refused))
        made = ceclGetUniqueId(&meeting->id);
    if (made != ceclSuccess)
        life_fail(life, "no id: %s", ceclGetLastError(NULL));
    atomic_fetch_add(&meeting->ids, 1);
}

static void await_id(struct life *life)
{
    while (atomic_load(&life->meeting->ids) < life->joined) {
        for (int r = 0; r < life->n; r++)
            if (atomic_load(&life->meeting->reports[r].told.failed))
                _exit(1);
        usleep(100);
    }
}

ceclResult_t step_join(struct life *life)
{
    const ceclConfig_t config = step_config();
    life->joined++;
    if (life->me == 0)
        bring_id(life);
    await_id(life);
    return ceclCommInitRankConfig(&life->comm, life->n, life->meeting->id, life->me, &config);
}

/* Whether an exchange must fail, because a rank has given up. */
static bool gives_up(struct life *life)
{
    return atomic_load(&life->meeting->gave_up);
}

/* Joins by callbacks. A second attempt begins only when all ranks have left the first. */
static ceclResult_t join_by_callbacks(struct life *life)
{
    const ceclConfig_t config = step_config();
    const ceclOob_t oob = {.context = life, .allGather = life_exchange};
    if (life->attempt > 0) {
        life_meet(life);
        for (int i = 0; i < EXCHANGES_MOST && life->me == 0; i++)
            atomic_store(&life->venue->brought[i], 0);
        atomic_store(&life->meeting->gave_up, 0);
        life_meet(life);
    }
    life->round = 0;
    life->gives_up = gives_up;
    const ceclResult_t result = ceclCommInitOob(&life->comm, life->n, life->me, &oob, &config);
    if (result != ceclSuccess)
        atomic_store(&life->meeting->gave_up, 1);
    return result;
}

static ceclResult_t gather_all(struct life *life)
{
    static int in[RANKS][FEW], out[RANKS][RANKS * FEW];
    ceclResult_t result = ceclGroupStart();
    for (int r = 0; r < RANKS && result == ceclSuccess; r++) {
        for (int i = 0; i < FEW; i++)
            in[r][i] = call_value(r, life->attempt, i);
        result = ceclAllGather(in[r], out[r], FEW, ceclInt32, life->all[r], 0);
    }
    TRY(first_of(result, ceclGroupEnd()));
    for (int r = 0; r < RANKS; r++)
        TRY(ceclStreamSynchronize(life->all[r], 0));
    for (int i = 0; i < RANKS * RANKS * FEW; i++)
        check_element(&life->player, &out[0][0], i,
                      call_value(i / FEW % RANKS, life->attempt, i % FEW));
    return ceclSuccess;
}

/* `result`: of the join. */
static ceclResult_t gather_and_end_all(struct life *life, ceclResult_t result)
{
    if (result == ceclSuccess)
        result = gather_all(life);
    for (int r = 0; r < RANKS; r++) {
        result = first_of(result, life->all[r] ? ceclCommDestroy(life->all[r]) : ceclSuccess);
        life->all[r] = NULL;
    }
    return result;
}

static ceclResult_t join_in_group(struct life *life)
{
    const ceclConfig_t config = step_config();
    static ceclUniqueId id;
    static bool has_id;
    /* An id that no rank has used stays valid, so a second attempt uses the same id. */
    ceclResult_t result = ceclSuccess;
    TRY(has_id ? ceclSuccess : ceclGetUniqueId(&id));
    has_id = true;
    TRY(ceclGroupStart());
    for (int r = 0; r < RANKS && result == ceclSuccess; r++)
        result = ceclCommInitRankConfig(&life->all[r], RANKS, id, r, &config);
    const ceclResult_t ended = ceclGroupEnd();
    has_id = ended != ceclSuccess && !strstr(ceclGetLastError(NULL), "used up");
    return first_of(result, ended);
}

#define GROWTH (8u << 20) /* larger than the pool's free space */

static ceclResult_t grow(struct life *life)
{
    int *ptr = NULL;
    const ceclResult_t result = ceclMemAlloc(life->comm, (void **)&ptr, GROWTH);
    if (result != ceclSuccess && ptr)
        life_fail(life, "a failed allocation gave %p", (void *)ptr);
    if (result == ceclSuccess)
        ptr[0] = ptr[GROWTH / sizeof(int) - 1] = life->me;
    return result;
}

/* Needs less than GROWTH bytes. If the pool cannot grow by a segment, all ranks try again with the requested size. */
static ceclResult_t grow_generously(struct life *life)
{
    void *ptr;
    return ceclMemAlloc(life->comm, &ptr, 3u << 20);
}

static ceclResult_t allocate(struct life *life)
{
    return ceclMemAlloc(life->comm, (void **)&life->extra, 1000);
}

static void prepare_give(struct life *life)
{
    if (allocate(life) != ceclSuccess)
        life_fail(life, "no memory: %s", ceclGetLastError(NULL));
}

static ceclResult_t give(struct life *life)
{
    return ceclMemFree(life->comm, life->extra);
}

static ceclResult_t allocate_in_group(struct life *life)
{
    void *a = NULL, *b = NULL;
    TRY(ceclGroupStart());
    ceclResult_t result = ceclMemAlloc(life->comm, &a, GROWTH);
    if (result == ceclSuccess)
        result = ceclMemAlloc(life->comm, &b, 1000);
    return first_of(result, ceclGroupEnd());
}

/* Memory that peers can open: shared mappings of files. */
static void open_files(struct life *life)
{
    const size_t bytes = INTS * sizeof(int);
    for (int i = 0; i < 2; i++) {
        life->fds[i] = memfd_create("exhaust", MFD_CLOEXEC);
        if (life->fds[i] < 0 || ftruncate(life->fds[i], (off_t)bytes) != 0)
            life_fail(life, "no file to register");
        life->files[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, life->fds[i], 0);
        if (life->files[i] == MAP_FAILED)
            life_fail(life, "no mapping to register");
    }
}

void step_clean(struct life *life)
{
    for (int i = 0; i < 2; i++)
        if (life->files[i]) {
            munmap(life->files[i], INTS * sizeof(int));
            close(life->fds[i]);
            life->files[i] = NULL;
        }
    if (life->other &&
        ceclCommAbort(life->other) != ceclSuccess) /* abort: the communicator may have failed */
        life_fail(life, "the end of the other communicator: %s", ceclGetLastError(NULL));
}

static ceclResult_t registers(struct life *life)
{
    return ceclCommRegister(life->comm, life->files[1], INTS * sizeof(int), &life->registration);
}

static void prepare_deregister(struct life *life)
{
    open_files(life);
    if (registers(life) != ceclSuccess)
        life_fail(life, "no registration: %s", ceclGetLastError(NULL));
}

static ceclResult_t deregister(struct life *life)
{
    return ceclCommDeregister(life->comm, life->registration);
}

static ceclResult_t use_registered(struct life *life)
{
    TRY(registers(life));
    const ceclResult_t result = call_between(life, life->files[0], life->files[1], &call_gather);
    return first_of(result, deregister(life));
}

static void prepare_other(struct life *life)
{
    if (ceclCommSplit(life->comm, 0, life->me, &life->other, NULL) != ceclSuccess ||
        ceclMemAlloc(life->other, (void **)&life->extra, INTS * sizeof(int)) != ceclSuccess)
        life_fail(life, "no other communicator: %s", ceclGetLastError(NULL));
}

/* Ranks compare the calls of both communicators at the same time. A rank whose first call is refused still makes the
 * second one, so that peers learn of the refusal on both. */
static ceclResult_t group_on_two(struct life *life)
{
    int *in = life->extra + RANKS * CALL_BLOCK;
    fill(life, life->in);
    memcpy(in, life->in, CALL_BLOCK * sizeof(int));
    TRY(ceclGroupStart());
    (void)!call_make(&call_gather, &life->player, life->in, life->out, 0);
    (void)!ceclAllGather(in, life->extra, CALL_BLOCK, ceclInt32, life->other, 0);
    TRY(ceclGroupEnd()); /* returns the error of the first refused call */
    TRY(ceclStreamSynchronize(life->other, 0));
    TRY(ceclStreamSynchronize(life->comm, 0));
    call_check(&call_gather, &life->player, life->out);
    call_check(&call_gather, &life->player, life->extra);
    return ceclSuccess;
}

/* Each rank puts into the next rank's window, whose memory peers must be able to open. A repeated attempt shares no
 * second window, and repeats no completed put. */
static ceclResult_t put_to_next(struct life *life)
{
    static ceclWindow_t window;
    static bool is_put;
    const int next = (life->me + 1) % life->n, before = (life->me + life->n - 1) % life->n;
    const ceclSignalWait_t wait = {before, 3, 1};
    ceclResult_t result = ceclSuccess;
    if (!is_put)
        fill(life, life->files[0]);
    if (!window)
        result = ceclWindowShare(life->comm, life->files[1], INTS * sizeof(int), &window);
    if (result == ceclSuccess && !is_put)
        result =
            ceclPutSignal(life->files[0], CALL_BLOCK, ceclInt32, next, window, 0, 3, life->comm, 0);
    is_put = result == ceclSuccess;
    if (result == ceclSuccess)
        result = ceclWaitSignal(1, &wait, life->comm, 0);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(life->comm, 0);
    is_put = is_put && result != ceclSuccess;
    for (int i = 0; i < CALL_BLOCK && result == ceclSuccess; i++)
        check_element(&life->player, life->files[1], i, call_value(before, life->attempt, i));
    if (result == ceclSuccess) {
        result = ceclWindowFree(life->comm, window);
        window = NULL;
    }
    return result;
}

static ceclResult_t explain(struct life *life)
{
    ceclExplanation_t alone, grouped;
    TRY(ceclExplain(ceclOpAllGather, private_in, private_out, CALL_BLOCK, ceclInt32, life->comm,
                    &alone));
    TRY(ceclGroupStart());
    const ceclResult_t result =
        call_make(&call_reduce_large, &life->player, life->in, life->out, 0);
    return first_of(result, ceclGroupExplain(life->comm, &grouped));
}

/* The default stream waits for `stream`, by an event. */
static ceclResult_t follow(struct life *life, ceclStream_t stream)
{
    ceclEvent_t event;
    TRY(ceclEventCreate(life->comm, &event));
    ceclResult_t result = ceclEventRecord(life->comm, event, stream);
    if (result == ceclSuccess)
        result = ceclStreamWaitEvent(life->comm, 0, event);
    return first_of(result, ceclEventDestroy(life->comm, event));
}

static ceclResult_t streams(struct life *life)
{
    ceclStream_t stream;
    ceclDeviceComm_t dc;
    fill(life, life->in);
    TRY(ceclStreamCreate(life->comm, &stream));
    ceclResult_t result =
        ceclMemcpyAsync(life->comm, life->out, life->in, FEW * sizeof(int), stream);
    if (result == ceclSuccess)
        result = follow(life, stream);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(life->comm, 0);
    for (int i = 0; i < FEW && result == ceclSuccess; i++)
        check_element(&life->player, life->out, i, life->in[i]);
    TRY(first_of(result, ceclStreamDestroy(life->comm, stream)));
    return ceclCommGetDeviceComm(life->comm, &dc);
}

static ceclResult_t end_made(struct life *life, ceclResult_t result, ceclComm_t made)
{
    if (result != ceclSuccess) {
        if (made)
            life_fail(life, "a failed call gave a communicator");
        return result;
    }
    refuse_arm(false);
    life_prove(life, made, NULL, life->n);
    return ceclSuccess;
}

static ceclResult_t split(struct life *life)
{
    ceclComm_t made = NULL;
    const ceclResult_t result = ceclCommSplit(life->comm, 0, life->me, &made, NULL);
    return end_made(life, result, made);
}

static ceclResult_t shrink(struct life *life)
{
    ceclComm_t made = NULL;
    const ceclResult_t result = ceclCommShrink(life->comm, NULL, 0, &made, NULL);
    return end_made(life, result, made);
}

static ceclResult_t destroy(struct life *life)
{
    const ceclResult_t result = ceclCommDestroy(life->comm);
    life->comm = NULL;
    return result;
}

static ceclResult_t abandon(struct life *life)
{
    const ceclResult_t result = ceclCommAbort(life->comm);
    life->comm = NULL;
    return result;
}

static ceclResult_t gather_and_finalize(struct life *life)
{
    fill(life, life->in);
    ceclResult_t result = call_make(&call_gather, &life->player, life->in, life->out, 0);
    if (result != ceclSuccess && atomic_load(&life->ledger->refused))
        result = call_make(&call_gather, &life->player, life->in, life->out, 0);
    TRY(result);
    TRY(ceclCommFinalize(life->comm));
    call_check(&call_gather, &life->player, life->out);
    return ceclSuccess;
}

static ceclResult_t all_in_one(struct life *life)
{
    return gather_and_end_all(life, ceclCommInitAll(life->all, RANKS, NULL));
}

static ceclResult_t group_in_one(struct life *life)
{
    return gather_and_end_all(life, join_in_group(life));
}

const struct step steps[] = {
    {"join", TOGETHER, .run = step_join, .joins = true},
    {"join-callbacks", TOGETHER, .run = join_by_callbacks, .joins = true},
    {"join-tuned", TOGETHER, .run = step_join, .joins = true, .tuned = true},
    {"join-all", .run = all_in_one, .one_process = true},
    {"join-group", .run = group_in_one, .one_process = true},
    {"grow", TOGETHER, .run = grow},
    {"grow-generously", TOGETHER, .run = grow_generously},
    {"allocate", .run = allocate},
    {"allocate-group", EITHER, .run = allocate_in_group},
    {"free", .prepare = prepare_give, .run = give},
    {"register", .prepare = open_files, .run = registers},
    {"deregister", .prepare = prepare_deregister, .run = deregister},
    {"use-registered", .prepare = open_files, .run = use_registered},
    {"gather", .call = &call_gather},
    {"gather-late", .call = &call_gather, .late = true},
    {"gather-files", .prepare = open_files, .call = &call_gather, .memory = FILES},
    {"gather-private", .call = &call_gather, .memory = PRIVATE},
    {"exchange-private-late", .call = &call_exchange, .memory = PRIVATE, .late = true},
    {"exchange-sizes", TOGETHER, .call = &call_exchange_sizes},
    {"dispatch", .call = &call_dispatch},
    {"reduce-small", .call = &call_reduce_small},
    {"reduce-large", .call = &call_reduce_large},
    {"reduce-staged", .call = &call_scatter_pushed},
    {"reduce-to-one", .call = &call_reduce_to_one},
    {"broadcast", .call = &call_broadcast},
    {"barrier", .call = &call_barrier},
    {"group", .call = &call_group},
    {"messages", .call = &call_messages},
    {"messages-files", .prepare = open_files, .call = &call_messages, .memory = FILES},
    {"messages-private-late", .call = &call_messages, .memory = PRIVATE, .late = true},
    {"messages-captured", EITHER, .call = &call_messages_in_graph, .memory = PRIVATE},
    {"put", EITHER, .prepare = open_files, .run = put_to_next},
    {"gather-captured", EITHER, .call = &call_gather_in_graph, .memory = PRIVATE},
    {"gather-compared", TOGETHER, .call = &call_gather, .compared = true},
    {"group-compared", EITHER, .prepare = prepare_other, .run = group_on_two, .compared = true},
    {"join-urgent", TOGETHER, .run = step_join, .joins = true, .urgent = true},
    {"reduce-urgent", .call = &call_reduce_small, .urgent = true},
    {"gather-urgent", .call = &call_gather_few, .urgent = true},
    {"explain", .run = explain},
    {"streams", .run = streams},
    {"split", TOGETHER, .run = split},
    {"shrink", TOGETHER, .run = shrink},
    {"finalize", .run = gather_and_finalize, .ends = true},
    {"destroy", .run = destroy, .ends = true},
    {"abort", .run = abandon, .ends = true},
};
const int nsteps = sizeof(steps) / sizeof(steps[0]);
