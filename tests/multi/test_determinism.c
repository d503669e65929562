/* A sum of floats depends on the order of the additions. These tests show that cecl gives one result: that of a plain
 * loop in rank order, on every rank, in every run, on any number of SMs, in any direction, by every path. Random sums
 * are in test_collectives.c.
 *
 * Every path and type runs 1,000 times on GPUs, or with CECL_TEST_BIG=1. Otherwise each path runs
 * 100 times (36 times with more than 4 ranks, or with CECL_TEST_SHARE). */
#include "random_call.h"

static const ceclDataType_t types[] = {ceclFloat64, ceclBfloat16,   ceclFloat16,
                                       ceclFloat32, ceclFloat8e4m3, ceclFloat8e5m2};
#define TYPES (sizeof(types) / sizeof(types[0]))

struct path {
    const char *words; /* the path that ceclExplain reports */
    enum kind kind;
    size_t bytes[2]; /* result sizes on the host device and on GPUs */
    int direction, staging;
    const char *tuning; /* thresholds that lead there; NULL: the usual ones */
};
#define AUTO CECL_DIRECTION_AUTO
#define PUSH CECL_DIRECTION_PUSH
static const struct path paths[] = {
    {"small, one exchange", ALL_REDUCE, {4080, 200000}, AUTO, CECL_UNDEF, NULL},
    {"small, one exchange", REDUCE_SCATTER, {4088, 60008}, AUTO, CECL_UNDEF, NULL},
    {"SMs read at the peers and write", ALL_REDUCE, {40008, 1 << 20}, AUTO, CECL_UNDEF, NULL},
    {"SMs read at the peers", REDUCE_SCATTER, {8200, 600008}, AUTO, CECL_UNDEF, NULL},
    {"everyone reduces", ALL_REDUCE, {20008, 20008}, PUSH, CECL_UNDEF, NULL},
    {"push to staging, 1 chunk", ALL_REDUCE, {278528, 278528}, PUSH, CECL_UNDEF, NULL},
    {"chunks, pushed to all", ALL_REDUCE, {278528, 278528}, PUSH, 65536, NULL},
    {"chunks", REDUCE_SCATTER, {70008, 200008}, PUSH, 65536, NULL},
    {"SMs read at the peers, pushed",
     ALL_REDUCE,
     {40008, 1 << 20},
     AUTO,
     CECL_UNDEF,
     "all_reduce.sms_write_max_bytes * any 0\nall_reduce.sms_end_bytes * any 0"},
};
#define PATHS (sizeof(paths) / sizeof(paths[0]))

static ceclComm_t comm;
static struct random_slot slots[2]; /* out of place, and in place */
static unsigned char *before[2], *host, *send,
    *recv; /* `before`: what recvbuff holds before a call */

static bool is_big(void)
{
    const char *big = getenv("CECL_TEST_BIG");
    return multi_on_gpus(comm) || (big && *big == '1');
}

/* Bytes of a buffer: all ranks' parts of a reduce-scatter, and guards. */
static size_t room_of(const struct path *path)
{
    return (size_t)multi_nranks * path->bytes[multi_on_gpus(comm)] + 2 * RANDOM_GUARD;
}

static void open_comm(const struct path *path)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = path->staging;
    multi_tuning(path->tuning);
    comm = multi_comm(&config);
    multi_tuning(NULL);
    const size_t room = room_of(path);
    assert_non_null(host = malloc(room));
    for (int i = 0; i < 2; i++) {
        assert_non_null(before[i] = malloc(room));
        assert_non_null(slots[i].want = malloc(room));
    }
    send = multi_alloc(comm, room);
    recv = multi_alloc(comm, room);
}

static void close_comm(void)
{
    free(host);
    for (int i = 0; i < 2; i++) {
        free(before[i]);
        free(slots[i].want);
    }
    multi_ok(NULL, ceclCommDestroy(comm));
}

static void choose(int sms, int direction)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = direction;
    options.maxSms = sms ? sms : CECL_UNDEF;
    multi_ok(comm, ceclSetOptions(comm, &options));
}

static void prepare(const struct path *path, ceclDataType_t type)
{
    const size_t count = path->bytes[multi_on_gpus(comm)] / multi_type_bytes(type);
    for (int i = 0; i < 2; i++) {
        struct random_call *c = &slots[i].call;
        random_set(c, path->kind, type, count);
        c->in_place = i;
        c->send = send;
        c->recv = recv;
        slots[i].bytes = random_bytes_received(c);
        random_set_places(c, RANDOM_GUARD);
        random_put(comm, &slots[i], host);
        multi_get(comm, before[i], recv, slots[i].bytes);
    }
}

static void is_by_its_path(const struct path *path)
{
    ceclExplanation_t explanation;
    choose(0, path->direction);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, random_make(comm, &slots[0].call, true));
    multi_ok(comm, ceclGroupExplain(comm, &explanation));
    if (!strstr(explanation.path, path->words))
        fail_msg("\"%s\" is meant, and it is \"%s\"", path->words, explanation.path);
}

static void is_right_in_each_run(const struct path *path, int runs)
{
    static const int sms[] = {1, 2, 3, 8, 16, 0};
    for (int i = 0; i < runs; i++) {
        const int in_place = i % 5 == 4;
        choose(sms[i % 6], i % 10 == 8   ? CECL_DIRECTION_PUSH
                           : i % 10 == 9 ? CECL_DIRECTION_PULL
                                         : path->direction);
        multi_put(comm, recv, before[in_place], slots[in_place].bytes);
        multi_ok(comm, random_make(comm, &slots[in_place].call, false));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        random_compare(comm, &slots[in_place], host);
    }
}

/* Beyond 4 ranks, ranks that share few processors are slow: each number of SMs then runs at least
 * once. */
static int runs_of_each(void)
{
    const int some = multi_nranks > 4 ? 6 : multi_share(100 / (int)TYPES);
    return is_big() ? 1000 : some > 6 ? some : 6;
}

TEST(every_run_by_every_path_gives_the_bits_of_the_loop)
{
    for (size_t p = 0; p < PATHS; p++) {
        open_comm(&paths[p]);
        for (size_t t = 0; t < TYPES; t++) {
            prepare(&paths[p], types[t]);
            is_by_its_path(&paths[p]);
            is_right_in_each_run(&paths[p], runs_of_each());
        }
        close_comm();
    }
}
