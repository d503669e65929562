/* Makes a communicator. First, ranks tell each other their settings and what they can do. Then they make
 * the communicator by exchanges through NCCL. At the end they check that all ranks have it. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "nccl/agree.h"
#include "nccl/exchange.h"
#include "nccl/learn.h"
#include "nccl/learned.h"
#include "nccl/learning.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "nccl/rails.h"
#include "nccl/windows.h"
#include "util/clock.h"
#include "util/log.h"

#define HELLO UINT32_C(0x6e63636c)
#define WORDS 200

/* What a rank sends in the first exchange. */
enum { LEARNS_NOTHING, LEARNS_FROM_FILE, LEARNS_BY_TRIALS };

struct hello {
    uint32_t magic;
    int32_t policy;
    int32_t together;
    int32_t learns; /* LEARNS_... */
    int32_t reason; /* why this rank passes all calls, or NO_REASON */
    uint64_t drawn; /* a random number; rank 0's is used */
    uint64_t gains; /* hash of the gains of CECL_NCCL_LEARNED; 0: none */
    char words[WORDS];
};

/* Keeps the message of this process's first failure for the table of calls, and prints it. */
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

static int32_t own_learning(const struct cecl_nccl_known *known)
{
    if (cecl_nccl_process()->tries)
        return LEARNS_BY_TRIALS;
    return known && known->has_verdicts ? LEARNS_FROM_FILE : LEARNS_NOTHING;
}

static struct hello introduce(int together, const struct cecl_nccl_known *known)
{
    struct hello mine = {.magic = HELLO,
                         .policy = (int32_t)cecl_nccl_process()->policy,
                         .together = together,
                         .learns = own_learning(known),
                         .drawn = (uint64_t)cecl_now_ns() * UINT64_C(0x9e3779b97f4a7c15),
                         .gains = known ? known->hash : 0,
                         .reason = (int32_t)own_reason()};
    if (mine.reason == CECL_NCCL_NOT_MADE)
        cecl_shorten(mine.words, sizeof(mine.words), cecl_message());
    return mine;
}

/* The reason of the first rank that has one. Equal on all ranks, because all compare the same data. */
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

/* Exchanges `bytes` bytes of each rank. The caller frees the result. NULL: the exchange has failed. */
static void *exchange_all(struct cecl_nccl_exchange *exchange, const void *mine, size_t bytes,
                          ceclResult_t *result)
{
    void *all = calloc((size_t)exchange->nranks, bytes);
    *result = all ? cecl_nccl_exchange(exchange, mine, all, bytes)
                  : cecl_fail(ceclSystemError, "no host memory for %d ranks", exchange->nranks);
    if (*result == ceclSuccess)
        return all;
    free(all);
    return NULL;
}

/* The first exchange. Fills in the entry. *learns: the least LEARNS_... of all ranks. */
static ceclResult_t settle(struct cecl_nccl_exchange *exchange, int together,
                           struct cecl_nccl_comm *entry, int32_t *learns)
{
    int whose = 0;
    ceclResult_t result;
    const struct hello mine = introduce(together, entry->known);
    bool has_gains = mine.gains != 0;
    struct hello *all = exchange_all(exchange, &mine, sizeof(mine), &result);
    if (!all)
        return result;
    entry->reason = common_reason(all, exchange->nranks, &whose);
    *learns = mine.learns;
    for (int rank = 0; rank < exchange->nranks; rank++) {
        *learns = all[rank].learns < *learns ? all[rank].learns : *learns;
        has_gains = has_gains && all[rank].gains == mine.gains;
    }
    entry->drawn = all[0].drawn;
    entry->measured = has_gains ? entry->known : NULL;
    all[whose].words[WORDS - 1] = '\0';
    if (entry->reason == CECL_NCCL_NOT_MADE)
        note_failure(exchange->rank, all[whose].words);
    if (entry->reason == CECL_NCCL_SETTINGS_DIFFER)
        warn_of_difference(all, exchange->nranks);
    free(all);
    return ceclSuccess;
}

/* ---- the communicator */

static int gather(void *context, const void *send, void *recv, size_t bytes)
{
    return (int)cecl_nccl_exchange(context, send, recv, bytes);
}

static int meet(void *context)
{
    ceclResult_t result;
    const char mine = 0;
    free(exchange_all(context, &mine, 1, &result));
    return (int)result;
}

/* As with NCCL, waits for ranks have no time limit, unless CECL_TIMEOUT_MS is set. Under `auto` calls may
 * use SMs, because the faster way is taken. */
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

/* Checks the device, because the environment may have chosen another one than NCCL's. Under `strict`,
 * forbids SMs for calls that only move data, whatever other settings say. */
static ceclResult_t check_made(const struct cecl_nccl_comm *entry)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    int device;
    CECL_TRY(cecl->ceclCommCuDevice(entry->ours, &device));
    if (device != entry->ordinal)
        return cecl_fail(ceclInvalidUsage,
                         "NCCL's rank has device %d, and cecl's %d (-1: the host): CECL_DEVICE or "
                         "CECL_CUDA_DEVICE chose another one",
                         entry->ordinal, device);
    options.smPolicy = CECL_SM_REDUCE_ONLY;
    return cecl_nccl_process()->policy == CECL_NCCL_STRICT &&
                   entry->limits.smPolicy == CECL_SM_ALLOW
               ? cecl->ceclSetOptions(entry->ours, &options)
               : ceclSuccess;
}

/* Finds what the file has for the nodes of `ours`. Ranks have compared what their files have for any nodes, so they
 * need not compare it again. */
static ceclResult_t know_nodes(struct cecl_nccl_comm *entry)
{
    if (!entry->known)
        return ceclSuccess;
    int *nodes = calloc((size_t)entry->nranks, sizeof(*nodes));
    ceclResult_t result = nodes ? cecl_nccl_library()->ceclCommNodes(entry->ours, nodes)
                                : cecl_fail(ceclSystemError, "no host memory");
    if (result == ceclSuccess)
        entry->known = cecl_nccl_learned_of(entry->ordinal, entry->nranks, nodes, entry->rank == 0);
    free(nodes);
    if (result == ceclSuccess && !entry->known)
        result = cecl_fail(ceclSystemError, "no host memory for what was learned");
    entry->measured = entry->measured ? entry->known : NULL;
    return result;
}

/* ceclCommInitOobNccl makes the communicator on all ranks or on none. After it, a single rank may fail. */
static ceclResult_t make_here(struct cecl_nccl_exchange *exchange, struct cecl_nccl_comm *entry,
                              int32_t learns)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    const ceclOob_t oob = {.context = exchange, .allGather = gather, .barrier = meet};
    const ceclConfig_t config = config_for(exchange);
    const ceclNcclNet_t net = cecl_nccl_rails_lend(entry, exchange);
    ceclResult_t result = cecl->ceclCommInitOobNccl(&entry->ours, exchange->nranks, exchange->rank,
                                                    &oob, &net, &config);
    if (result == ceclSuccess)
        result = cecl->ceclCommLimits(entry->ours, &entry->limits);
    if (result == ceclSuccess)
        result = check_made(entry);
    else
        result = cecl_fail_with(result, cecl->ceclGetLastError(NULL));
    if (result == ceclSuccess)
        result = know_nodes(entry);
    if (result == ceclSuccess && learns != LEARNS_NOTHING)
        result = cecl_nccl_learn_open(entry, learns == LEARNS_BY_TRIALS);
    cecl_nccl_windows_open(entry);
    return result == ceclSuccess ? cecl_nccl_agree_open(entry) : result;
}

/* Checks that all ranks have the communicator. A rank that has failed keeps its own message; on the others
 * the message names that rank. */
static ceclResult_t agree(struct cecl_nccl_exchange *exchange, ceclResult_t mine,
                          ceclResult_t *common)
{
    const int32_t status = (int32_t)mine;
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    int32_t *all = exchange_all(exchange, &status, sizeof(status), &result);
    *common = mine == ceclSuccess ? ceclSuccess : cecl_fail_with(mine, words);
    for (int rank = 0; all && rank < exchange->nranks && *common == ceclSuccess; rank++)
        if (all[rank] != ceclSuccess)
            *common =
                cecl_fail((ceclResult_t)all[rank], "rank %d could not make its communicator", rank);
    free(all);
    return result;
}

static ceclResult_t make_on_all(struct cecl_nccl_exchange *exchange, struct cecl_nccl_comm *entry,
                                int32_t learns)
{
    ceclResult_t common = ceclSuccess;
    const ceclResult_t mine = make_here(exchange, entry, learns);
    ceclResult_t result = exchange->result;
    if (result == ceclSuccess)
        result = agree(exchange, mine, &common);
    if (result == ceclSuccess && common == ceclSuccess)
        return ceclSuccess;
    entry->reason = CECL_NCCL_NOT_MADE;
    if (!cecl_nccl_exchange_is_ended(exchange))
        note_failure(exchange->rank, cecl_message());
    cecl_nccl_agree_leave(entry);
    cecl_nccl_windows_forget(entry);
    cecl_nccl_learn_close(entry, false);
    if (entry->ours)
        cecl_nccl_library()->ceclCommAbort(entry->ours);
    entry->ours = NULL;
    cecl_nccl_rails_close(entry);
    return result;
}

static ceclResult_t make(struct cecl_nccl_exchange *exchange, int together,
                         struct cecl_nccl_comm *entry)
{
    int32_t learns = LEARNS_NOTHING;
    entry->nranks = exchange->nranks;
    entry->rank = exchange->rank;
    entry->together = together;
    entry->ordinal = exchange->on_gpu ? exchange->gpu.ordinal : -1;
    entry->known = cecl_nccl_learned_of(entry->ordinal, entry->nranks, NULL, false);
    entry->measured = NULL;
    if (exchange->nranks == 1)
        entry->reason = CECL_NCCL_ONE_RANK;
    else
        CECL_TRY(settle(exchange, together, entry, &learns));
    if (entry->reason == CECL_NCCL_NO_REASON)
        CECL_TRY(make_on_all(exchange, entry, learns));
    entry->learns = learns != LEARNS_NOTHING;
    if (entry->rails.exist) /* otherwise --stats would list it only when it ends */
        cecl_nccl_learn_report(entry);
    return ceclSuccess;
}

ncclResult_t cecl_nccl_make(ncclComm_t comm, struct cecl_nccl_comm *entry, int together,
                            bool in_background)
{
    struct cecl_nccl_exchange exchange;
    entry->ours = NULL;
    entry->lines = NULL;
    entry->windows = NULL;
    entry->one_sided = CECL_NCCL_ONE_SIDED_PASSED;
    entry->served = entry->agreed = 0;
    entry->is_non_blocking = in_background;
    entry->rails = (struct cecl_nccl_rails){.exist = false};
    entry->result = ceclSuccess;
    entry->reason = cecl_nccl_process()->is_old ? CECL_NCCL_OLD : CECL_NCCL_NO_REASON;
    if (entry->reason != CECL_NCCL_NO_REASON)
        return ceclSuccess;
    ceclResult_t result = cecl_nccl_exchange_open(&exchange, comm, in_background ? entry : NULL);
    if (result == ceclSuccess) {
        result = make(&exchange, together, entry);
        cecl_nccl_exchange_close(&exchange);
    }
    if (result != ceclSuccess) { /* ranks could not exchange bytes */
        entry->reason = CECL_NCCL_NOT_MADE;
        if (!cecl_nccl_exchange_is_ended(&exchange))
            cecl_log(CECL_LOG_WARN, -1, "an NCCL communicator cannot be used: %s", cecl_message());
    }
    return (ncclResult_t)result;
}
