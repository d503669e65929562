/* Joins by an id, or by this suite's own callbacks, in which faults may come. */
#include "life.h"

#define STAGING_BYTES 16384 /* small, so that a reduction by staging has several chunks */
#define SEGMENT_BYTES (1 << 20)
#define GRACE 0.2 /* seconds in which data that the faulty rank sent before its fault may arrive */

void join_set_limits(int init_timeout_ms)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", init_timeout_ms);
    setenv("CECL_INIT_TIMEOUT_MS", text, 1);
}

ceclConfig_t join_config(const struct fault_case *c, int timeout_ms)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.device = life_on_gpus() ? CECL_DEVICE_CUDA : CECL_DEVICE_HOST;
    config.timeoutMs = timeout_ms;
    config.segmentBytes = SEGMENT_BYTES;
    if (c->op == STAGED_REDUCTION)
        config.stagingBytes = STAGING_BYTES;
    return config;
}

static void make_id(struct life *life, struct id *id)
{
    const bool made = ceclGetUniqueId(&id->id) == ceclSuccess;
    atomic_store(&id->ready, made ? 1 : -1);
    if (!made)
        life_fail(life, "no id: %s", ceclGetLastError(NULL));
}

static void await_id(struct life *life, struct id *id)
{
    while (atomic_load(&id->ready) == 0)
        usleep(200);
    if (atomic_load(&id->ready) < 0)
        life_fail(life, "no id");
}

ceclResult_t join_by_id(struct life *life, int which, int nranks, int rank,
                        const ceclConfig_t *config, ceclComm_t *comm)
{
    struct id *id = &life->meeting->ids[which];
    if (which > 0 && rank == 0)
        make_id(life, id);
    await_id(life, id);
    return ceclCommInitRankConfig(comm, nranks, id->id, rank, config);
}

static void within(struct life *life)
{
    life->attempt = life->round;
    misdeed_at(life, WITHIN);
}

static bool gives_up(struct life *life)
{
    const struct meeting *meeting = life->meeting;
    return atomic_load(&meeting->fault_began) && now() - meeting->fault_at > GRACE;
}

/* A rank that joins wrongly takes another rank's number. */
static int rank_to_join_as(const struct life *life)
{
    return life->gets_wrong ? (life->me + 1) % life->n : life->me;
}

ceclResult_t join_first(struct life *life)
{
    const int limit = fault_case_is_seen(life->c) ? LONG_TIMEOUT_MS : life->meeting->timeout_ms;
    const ceclConfig_t config = join_config(life->c, limit);
    join_set_limits(limit);
    if (life->op == JOIN_BY_CALLBACKS) {
        const ceclOob_t oob = {.context = life, .allGather = life_exchange};
        life->within = within;
        life->gives_up = gives_up;
        return ceclCommInitOob(&life->comm, life->n, life->me, &oob, &config);
    }
    if (fault_case_maker(life->c) == life->me)
        make_id(life, &life->meeting->ids[0]);
    await_id(life, &life->meeting->ids[0]);
    if (life->op == JOIN) {
        life->attempt = life->c->round;
        misdeed_prepare(life);
        misdeed_at(life, BEFORE);
    }
    return join_by_id(life, 0, life->n, rank_to_join_as(life), &config, &life->comm);
}
