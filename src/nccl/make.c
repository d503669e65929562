/* See make.h. First ranks tell each other what they want and can do. Then they make the communicator
 * by exchanges through NCCL. At last they agree that all of them have it. */
#include "nccl/make.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "nccl/exchange.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "util/log.h"
#include "util/queues.h"
#include "util/settings.h"

#define HELLO UINT32_C(0x6e63636c)
#define WORDS 200

/* The first and the last choice of CECL_FLAGS. */
enum { FLAGS_AUTO, FLAGS_HOST = 3 };

/* What a rank tells the others. */
struct hello {
    uint32_t magic;
    int32_t policy;
    int32_t together;
    int32_t reason; /* why this rank passes all calls */
    int32_t flags_on_host;
    char words[WORDS];
};

/* Keeps the words of the first failure of this process for the table, and prints them. */
static void note_failure(int rank, const char *words)
{
    if (cecl_nccl_note_failure(words))
        cecl_log(CECL_LOG_WARN, rank, "all calls are passed to NCCL, because %s: %s",
                 cecl_nccl_reason_words[CECL_NCCL_NOT_MADE], words);
}

/* ---- what each rank can do */

static enum cecl_nccl_reason own_reason(void)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    if (process->is_forked)
        return CECL_NCCL_FORKED;
    if (process->policy == CECL_NCCL_OFF)
        return CECL_NCCL_BY_SETTING;
    return cecl_nccl_library() ? CECL_NCCL_NO_REASON : CECL_NCCL_NOT_MADE;
}

/* Whether cecl's communicator will have its flags in memory of the host, if it is for this rank. A bad
 * setting is refused where the communicator is made. */
static bool wants_flags_on_host(void)
{
    int64_t flags = FLAGS_AUTO, urgent = 0;
    bool is_set;
    (void)!cecl_setting_read(CECL_SET_FLAGS, &flags, &is_set);
    (void)!cecl_setting_read(CECL_SET_URGENT, &urgent, &is_set);
    return flags == FLAGS_HOST || (flags == FLAGS_AUTO && (urgent != 0 || cecl_queues_are_few()));
}

static struct hello introduce(int together)
{
    struct hello mine = {.magic = HELLO,
                         .policy = (int32_t)cecl_nccl_process()->policy,
                         .together = together,
                         .reason = (int32_t)own_reason(),
                         .flags_on_host = wants_flags_on_host()};
    if (mine.reason == CECL_NCCL_NOT_MADE)
        snprintf(mine.words, sizeof(mine.words), "%.*s", WORDS - 1, cecl_message());
    return mine;
}

/* Equal on all ranks, because all of them look at the same words. */
static enum cecl_nccl_reason common_reason(const struct hello *all, int nranks, int *whose)
{
    bool is_even = true, is_alike = true;
    int first = 0;
    for (int rank = nranks - 1; rank >= 0; rank--) {
        is_even = is_even && all[rank].together == all[0].together;
        is_alike = is_alike && all[rank].magic == HELLO && all[rank].policy == all[0].policy;
        first = all[rank].reason != CECL_NCCL_NO_REASON ? rank : first;
    }
    *whose = first;
    if (!is_alike)
        return CECL_NCCL_SETTINGS_DIFFER;
    if (all[first].reason != CECL_NCCL_NO_REASON)
        return (enum cecl_nccl_reason)all[first].reason;
    return is_even ? CECL_NCCL_NO_REASON : CECL_NCCL_UNEVEN;
}

static void warn_of_difference(const struct hello *all, int nranks)
{
    static _Atomic bool has_warned;
    int other = 0;
    while (other < nranks - 1 && all[other].policy == all[0].policy)
        other++;
    if (!atomic_exchange(&has_warned, true))
        cecl_log(CECL_LOG_WARN, -1,
                 "all calls are passed to NCCL, because CECL_NCCL differs between ranks 0 and %d",
                 other);
}

static bool has_flags_on_host(const struct hello *all, int nranks)
{
    for (int rank = 0; rank < nranks; rank++)
        if (all[rank].flags_on_host)
            return true;
    return false;
}

static ceclResult_t settle(struct cecl_nccl_exchange *exchange, int together,
                           struct cecl_nccl_made *made)
{
    enum cecl_nccl_reason *const reason = &made->reason;
    int whose = 0;
    const struct hello mine = introduce(together);
    struct hello *all = calloc((size_t)exchange->nranks, sizeof(*all));
    if (!all)
        return cecl_fail(ceclSystemError, "no host memory for %d ranks", exchange->nranks);
    const ceclResult_t result = cecl_nccl_exchange(exchange, &mine, all, sizeof(mine));
    if (result == ceclSuccess) {
        *reason = common_reason(all, exchange->nranks, &whose);
        made->flags_on_host = has_flags_on_host(all, exchange->nranks);
        all[whose].words[WORDS - 1] = '\0';
        if (*reason == CECL_NCCL_NOT_MADE)
            note_failure(exchange->rank, all[whose].words);
        if (*reason == CECL_NCCL_SETTINGS_DIFFER)
            warn_of_difference(all, exchange->nranks);
    }
    free(all);
    return result;
}

/* ---- the communicator */

static int gather(void *context, const void *send, void *recv, size_t bytes)
{
    return (int)cecl_nccl_exchange(context, send, recv, bytes);
}

static int meet(void *context)
{
    struct cecl_nccl_exchange *exchange = context;
    char mine = 0;
    char *all = calloc((size_t)exchange->nranks, 1);
    const int result = all ? gather(exchange, &mine, all, 1) : (int)ceclSystemError;
    free(all);
    return result;
}

/* A rank may come as late to a call as NCCL lets it: without bound, unless CECL_TIMEOUT_MS is set.
 * Under `auto` the way that measurements found faster is taken, and it may use SMs. */
static ceclConfig_t config_for(const struct cecl_nccl_exchange *exchange)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.device = exchange->on_gpu ? CECL_DEVICE_CUDA : CECL_DEVICE_HOST;
    config.timeoutMs = 0;
    if (exchange->on_gpu)
        config.cudaDevice = exchange->gpu.ordinal;
    if (cecl_nccl_process()->policy == CECL_NCCL_AUTO)
        config.smPolicy = CECL_SM_ALLOW;
    return config;
}

/* The environment may have chosen another device than NCCL's. Under `strict` no setting may allow
 * SMs to calls that only move data. */
static ceclResult_t check_made(const struct cecl_nccl_exchange *exchange, ceclComm_t ours)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    const int expected = exchange->on_gpu ? exchange->gpu.ordinal : -1;
    int device;
    CECL_TRY(cecl->ceclCommCuDevice(ours, &device));
    if (device != expected)
        return cecl_fail(ceclInvalidUsage,
                         "NCCL's rank has device %d, and cecl's %d (-1: the host): CECL_DEVICE or "
                         "CECL_CUDA_DEVICE chose another one",
                         expected, device);
    options.smPolicy = CECL_SM_REDUCE_ONLY;
    return cecl_nccl_process()->policy == CECL_NCCL_STRICT &&
                   cecl_nccl_process()->sm_policy != CECL_SM_NEVER
               ? cecl->ceclSetOptions(ours, &options)
               : ceclSuccess;
}

/* Made on all ranks or on none; check_made, which one rank alone may refuse, comes afterwards. */
static ceclResult_t make_here(struct cecl_nccl_exchange *exchange, ceclComm_t *ours)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    const ceclOob_t oob = {.context = exchange, .allGather = gather, .barrier = meet};
    const ceclConfig_t config = config_for(exchange);
    const ceclResult_t result =
        cecl->ceclCommInitOob(ours, exchange->nranks, exchange->rank, &oob, &config);
    return result == ceclSuccess ? check_made(exchange, *ours)
                                 : cecl_fail_with(result, cecl->ceclGetLastError(NULL));
}

/* Whether all ranks have it. A rank that has failed keeps its words; the others name that rank. */
static ceclResult_t agree(struct cecl_nccl_exchange *exchange, ceclResult_t mine,
                          ceclResult_t *common)
{
    const int32_t status = (int32_t)mine;
    int32_t *all = calloc((size_t)exchange->nranks, sizeof(*all));
    if (!all)
        return cecl_fail(ceclSystemError, "no host memory for %d ranks", exchange->nranks);
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    const ceclResult_t result = cecl_nccl_exchange(exchange, &status, all, sizeof(status));
    *common = mine == ceclSuccess ? ceclSuccess : cecl_fail_with(mine, words);
    for (int rank = 0; rank < exchange->nranks && *common == ceclSuccess; rank++)
        if (all[rank] != ceclSuccess)
            *common = cecl_fail((ceclResult_t)all[rank], "rank %d could not make it", rank);
    free(all);
    return result;
}

static ceclResult_t make_on_all(struct cecl_nccl_exchange *exchange, struct cecl_nccl_made *made)
{
    ceclComm_t ours = NULL;
    ceclResult_t common = ceclSuccess;
    const ceclResult_t mine = make_here(exchange, &ours);
    ceclResult_t result = exchange->result;
    if (result == ceclSuccess)
        result = agree(exchange, mine, &common);
    if (result == ceclSuccess && common == ceclSuccess) {
        made->ours = ours;
        return ceclSuccess;
    }
    made->reason = CECL_NCCL_NOT_MADE;
    if (!cecl_nccl_exchange_is_ended(exchange))
        note_failure(exchange->rank, cecl_message());
    if (ours)
        cecl_nccl_library()->ceclCommAbort(ours);
    return result;
}

/* ---- */

static ceclResult_t make(struct cecl_nccl_exchange *exchange, int together,
                         struct cecl_nccl_made *made)
{
    made->nranks = exchange->nranks;
    made->rank = exchange->rank;
    made->on_gpu = exchange->on_gpu;
    made->ordinal = exchange->on_gpu ? exchange->gpu.ordinal : -1;
    if (exchange->nranks == 1)
        made->reason = CECL_NCCL_ONE_RANK;
    else
        CECL_TRY(settle(exchange, together, made));
    return made->reason == CECL_NCCL_NO_REASON ? make_on_all(exchange, made) : ceclSuccess;
}

/* Ranks could not exchange what each of them can do. */
static void tell_of_error(const struct cecl_nccl_exchange *exchange, struct cecl_nccl_made *made)
{
    made->reason = CECL_NCCL_NOT_MADE;
    if (!cecl_nccl_exchange_is_ended(exchange))
        cecl_log(CECL_LOG_WARN, -1, "a communicator of NCCL's cannot be used: %s", cecl_message());
}

ncclResult_t cecl_nccl_make(ncclComm_t comm, struct cecl_nccl_comm *entry, int together,
                            struct cecl_nccl_made *made)
{
    struct cecl_nccl_exchange exchange;
    *made = (struct cecl_nccl_made){.reason = CECL_NCCL_NO_REASON};
    if (cecl_nccl_process()->is_old) {
        made->reason = CECL_NCCL_OLD;
        return ceclSuccess;
    }
    ceclResult_t result = cecl_nccl_exchange_open(&exchange, comm, entry);
    if (result == ceclSuccess) {
        result = make(&exchange, together, made);
        cecl_nccl_exchange_close(&exchange);
    }
    if (result != ceclSuccess)
        tell_of_error(&exchange, made);
    return (ncclResult_t)result;
}
