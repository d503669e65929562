/* Makes cecl's communicator for one of NCCL's. First NCCL makes its communicator. Then ranks that meet (meeting.h) tell
 * each other their settings and what they can do. If all ranks of the communicator have met, they make cecl's
 * communicator. At the end they check that all ranks have it. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "nccl/captured.h"
#include "nccl/decide.h"
#include "nccl/family.h"
#include "nccl/gpu.h"
#include "nccl/library.h"
#include "nccl/meeting.h"
#include "nccl/process.h"
#include "nccl/report.h"
#include "util/clock.h"
#include "util/grow.h"
#include "util/log.h"
#include "util/settings.h"

#define WORDS 200

/* What a rank sends in the first gather. */
struct hello {
    int32_t policy;
    int32_t together;
    int32_t tries;  /* trials are on (CECL_NCCL=auto, CECL_NCCL_TRIALS=1) */
    int32_t reason; /* why this rank passes all calls to NCCL, or NO_REASON */
    uint64_t drawn; /* a random number; rank 0's number is used */
    char words[WORDS];
};

/* Keeps the message of this process's first failure for the table of calls, and prints it. */
static void note_failure(int rank, const char *words)
{
    if (cecl_nccl_note_failure(words))
        cecl_log(CECL_LOG_WARN, rank, "all calls are passed to NCCL, because %s: %s",
                 cecl_nccl_reason_words[CECL_NCCL_NOT_MADE], words);
}

/* ---- uses of NCCL's communicator. Another thread may end it while cecl's communicator is being made. So each use is
 * short, between cecl_nccl_comm_enter and cecl_nccl_comm_leave */

static ceclResult_t nccls_result(ncclResult_t result, const char *what)
{
    return result == ceclSuccess
               ? ceclSuccess
               : cecl_fail((ceclResult_t)result, "%s of NCCL returned %d", what, (int)result);
}

static bool is_given_up(const struct cecl_nccl_comm *entry)
{
    return !cecl_nccl_life_is(&entry->life, CECL_NCCL_SET(MAKING));
}

static ceclResult_t enter_nccls(struct cecl_nccl_comm *entry, ncclComm_t comm)
{
    return cecl_nccl_comm_enter(entry, comm, CECL_NCCL_SET(MAKING))
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage, "the communicator was ended while it was being made");
}

/* Waits until NCCL has made `comm`. Has no time limit, because NCCL has one. */
static ceclResult_t await_nccl(ncclComm_t comm, struct cecl_nccl_comm *entry)
{
    ncclResult_t error = ceclInProgress;
    while (error == ceclInProgress) {
        CECL_TRY(enter_nccls(entry, comm));
        const ncclResult_t asked = cecl_nccl_pass_ncclCommGetAsyncError(comm, &error);
        cecl_nccl_comm_leave(entry);
        CECL_TRY(nccls_result(asked, "ncclCommGetAsyncError"));
        if (error == ceclInProgress)
            cecl_pause_us(50);
    }
    return nccls_result(error, "a call");
}

static ceclResult_t ask(ncclComm_t comm, struct cecl_nccl_comm *entry, int *device)
{
    CECL_TRY(nccls_result(cecl_nccl_pass_ncclCommCount(comm, &entry->nranks), "ncclCommCount"));
    CECL_TRY(nccls_result(cecl_nccl_pass_ncclCommUserRank(comm, &entry->rank), "ncclCommUserRank"));
    return nccls_result(cecl_nccl_pass_ncclCommCuDevice(comm, device), "ncclCommCuDevice");
}

/* Asks NCCL for the rank, the number of ranks and the GPU. */
static ceclResult_t describe(ncclComm_t comm, struct cecl_nccl_comm *entry)
{
    int device;
    if (entry->is_non_blocking)
        CECL_TRY(await_nccl(comm, entry));
    CECL_TRY(enter_nccls(entry, comm));
    const ceclResult_t result = ask(comm, entry, &device);
    cecl_nccl_comm_leave(entry);
    CECL_TRY(result);
    cecl_nccl_stats_note_rank(entry->rank, entry->nranks);
    entry->ordinal = cecl_nccl_gpu_is_used(device) ? device : -1;
    return ceclSuccess;
}

/* ---- what each rank can do */

/* Whether CECL_NODE_SIZE makes cecl treat the ranks as if they were on several hosts. */
static bool are_apart(int nranks)
{
    int64_t size = 0;
    /* a bad value counts as not set here: ceclCommInitOob refuses it, on all ranks */
    return cecl_setting_read(CECL_SET_NODE_SIZE, &size) == ceclSuccess && size > 0 && size < nranks;
}

static enum cecl_nccl_reason own_reason(int nranks)
{
    if (are_apart(nranks))
        return CECL_NCCL_ABSENT;
    return cecl_nccl_library() ? CECL_NCCL_NO_REASON : CECL_NCCL_NOT_MADE;
}

static struct hello introduce(const struct cecl_nccl_comm *entry)
{
    struct hello mine = {.policy = (int32_t)cecl_nccl_process()->policy,
                         .together = entry->together,
                         .tries = cecl_nccl_process()->tries,
                         .drawn = (uint64_t)cecl_now_ns() * UINT64_C(0x9e3779b97f4a7c15),
                         .reason = (int32_t)own_reason(entry->nranks)};
    if (mine.reason == CECL_NCCL_NOT_MADE)
        cecl_shorten(mine.words, sizeof(mine.words), cecl_message());
    return mine;
}

/* Why NCCL makes all calls; NO_REASON: it does not. Sets *whose to the first rank that has a reason. All ranks find the
 * same reason, because `all` is equal on all ranks. */
static enum cecl_nccl_reason common_reason(const struct hello *all, int nranks, int *whose)
{
    bool is_even = true, is_alike = true;
    int first = 0;
    for (int rank = nranks - 1; rank >= 0; rank--) {
        is_even = is_even && all[rank].together == all[0].together;
        is_alike = is_alike && all[rank].policy == all[0].policy;
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

/* Warns that rank `absent` does not meet the others. Only the lowest rank that meets prints the warning, once. */
static void warn_of_absence(const struct cecl_nccl_comm *entry, int absent, bool is_lowest)
{
    static _Atomic bool has_warned;
    if (is_lowest && !atomic_exchange(&has_warned, true))
        cecl_log(
            CECL_LOG_WARN, entry->rank,
            "all calls of a communicator of %d ranks are passed to NCCL%s: its rank %d runs "
            "without cecl-run, with another version of cecl, with CECL_NCCL=off, or on another "
            "host",
            entry->nranks,
            cecl_nccl_process()->policy == CECL_NCCL_STRICT ? ", or refused (CECL_NCCL=strict)"
                                                            : "",
            absent);
}

/* Gathers `bytes` bytes of each rank in `all`. all NULL: fails, because there was no memory for it. */
static ceclResult_t gather_all(struct cecl_nccl_meeting *meeting, const void *mine, void *all,
                               size_t bytes, int *absent)
{
    return all ? cecl_nccl_meeting_gather(meeting, mine, all, bytes, absent)
               : cecl_fail(ceclSystemError, "no host memory for what ranks send");
}

/* Fills in the entry from what all ranks have said. There are trials only if all ranks ask for them. */
static void take_answers(struct cecl_nccl_comm *entry, struct hello *all)
{
    int whose = 0;
    entry->reason = common_reason(all, entry->nranks, &whose);
    entry->learns = true;
    for (int rank = 0; rank < entry->nranks; rank++)
        entry->learns = entry->learns && all[rank].tries;
    entry->drawn = all[0].drawn;
    all[whose].words[WORDS - 1] = '\0';
    if (entry->reason == CECL_NCCL_NOT_MADE)
        note_failure(entry->rank, all[whose].words);
    if (entry->reason == CECL_NCCL_SETTINGS_DIFFER)
        warn_of_difference(all, entry->nranks);
}

/* The first gather. If a rank is absent, all ranks that meet find this out, and pass all calls to NCCL. */
static ceclResult_t meet(struct cecl_nccl_meeting *meeting, struct cecl_nccl_comm *entry)
{
    int absent, lowest = 0;
    const struct hello mine = introduce(entry);
    CECL_OWNED struct hello *all = calloc((size_t)entry->nranks, sizeof(*all));
    CECL_TRY(gather_all(meeting, &mine, all, sizeof(mine), &absent));
    if (absent < 0) {
        take_answers(entry, all);
    } else {
        while (lowest < entry->rank && all[lowest].drawn == 0)
            lowest++;
        entry->reason = CECL_NCCL_ABSENT;
        warn_of_absence(entry, absent, lowest == entry->rank);
    }
    return ceclSuccess;
}

/* ---- the communicator */

/* The all-gathers of ceclCommInitOob, which go through the meeting. */
struct exchanges {
    struct cecl_nccl_meeting *meeting;
    ceclResult_t result;
};

static int gather(void *context, const void *send, void *recv, size_t bytes)
{
    struct exchanges *exchanges = context;
    int absent;
    exchanges->result = cecl_nccl_meeting_gather(exchanges->meeting, send, recv, bytes, &absent);
    return (int)exchanges->result;
}

/* By default waits for ranks have no time limit, as with NCCL; CECL_TIMEOUT_MS overrides this. Under CECL_NCCL=auto
 * calls may use SMs, because `auto` takes the way that is faster. */
static ceclConfig_t config_for(const struct cecl_nccl_comm *entry)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.device = entry->ordinal >= 0 ? CECL_DEVICE_CUDA : CECL_DEVICE_HOST;
    config.timeoutMs = 0;
    if (entry->ordinal >= 0)
        config.cudaDevice = entry->ordinal;
    if (cecl_nccl_process()->policy == CECL_NCCL_AUTO)
        config.smPolicy = CECL_SM_ALLOW;
    return config;
}

/* Checks that cecl has NCCL's device: CECL_DEVICE or CECL_CUDA_DEVICE may have chosen another one. Under
 * CECL_NCCL=strict, forbids SMs for calls that only move data, even if CECL_SM_POLICY allows them. */
static ceclResult_t check_made(struct cecl_nccl_comm *entry)
{
    int device;
    CECL_TRY(cecl_nccl_library()->ceclCommCuDevice(entry->ours, &device));
    if (device != entry->ordinal)
        return cecl_fail(ceclInvalidUsage,
                         "NCCL's rank has device %d, and cecl's %d (-1: the host): CECL_DEVICE or "
                         "CECL_CUDA_DEVICE chose another one",
                         entry->ordinal, device);
    entry->policy = entry->limits.smPolicy;
    if (cecl_nccl_process()->policy == CECL_NCCL_STRICT && entry->policy == CECL_SM_ALLOW)
        entry->limits.smPolicy = CECL_SM_REDUCE_ONLY;
    return ceclSuccess;
}

/* ceclCommInitOob makes the communicator on all ranks or on none. The steps after it may fail on a single rank. If an
 * all-gather of ceclCommInitOob fails, the error keeps the message of the all-gather, which says why. */
static ceclResult_t make_here(struct cecl_nccl_meeting *meeting, struct cecl_nccl_comm *entry)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    struct exchanges exchanges = {.meeting = meeting};
    const ceclOob_t oob = {.context = &exchanges, .allGather = gather};
    const ceclConfig_t config = config_for(entry);
    ceclResult_t result =
        cecl->ceclCommInitOob(&entry->ours, entry->nranks, entry->rank, &oob, &config);
    if (result == ceclSuccess)
        result = cecl->ceclCommLimits(entry->ours, &entry->limits);
    if (result == ceclSuccess)
        result = check_made(entry);
    else if (exchanges.result == ceclSuccess)
        result = cecl_fail_with(result, cecl->ceclGetLastError(NULL));
    if (result == ceclSuccess && entry->learns)
        result = cecl_nccl_learn_open(entry);
    return result == ceclSuccess ? cecl_nccl_agree_open(entry) : result;
}

/* Checks that all ranks have the communicator. Sets *common to this rank's own error, or to that of the first rank that
 * has failed. */
static ceclResult_t agree(struct cecl_nccl_meeting *meeting, int nranks, ceclResult_t mine,
                          ceclResult_t *common)
{
    const int32_t status = (int32_t)mine;
    CECL_OWNED int32_t *all = calloc((size_t)nranks, sizeof(*all));
    int absent;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    const ceclResult_t result = gather_all(meeting, &status, all, sizeof(status), &absent);
    *common = mine == ceclSuccess ? ceclSuccess : cecl_fail_with(mine, words);
    for (int rank = 0; result == ceclSuccess && rank < nranks && *common == ceclSuccess; rank++)
        if (all[rank] != ceclSuccess)
            *common =
                cecl_fail((ceclResult_t)all[rank], "rank %d could not make its communicator", rank);
    return result;
}

static ceclResult_t make_on_all(struct cecl_nccl_meeting *meeting, struct cecl_nccl_comm *entry)
{
    ceclResult_t common = ceclSuccess;
    const ceclResult_t mine = make_here(meeting, entry),
                       result = agree(meeting, entry->nranks, mine, &common);
    if (result == ceclSuccess && common == ceclSuccess)
        return ceclSuccess;
    entry->reason = CECL_NCCL_NOT_MADE;
    if (!is_given_up(entry))
        note_failure(entry->rank, cecl_message());
    cecl_nccl_agree_leave(entry);
    cecl_nccl_learn_close(entry);
    if (entry->ours)
        cecl_nccl_library()->ceclCommAbort(entry->ours);
    entry->ours = NULL;
    return result;
}

static ceclResult_t make(struct cecl_nccl_meeting *meeting, struct cecl_nccl_comm *entry)
{
    if (entry->nranks > 1)
        CECL_TRY(meet(meeting, entry));
    return entry->reason == CECL_NCCL_NO_REASON ? make_on_all(meeting, entry) : ceclSuccess;
}

/* meeting NULL: this rank does not meet the others, so it makes no communicator. */
static ceclResult_t find_and_make(ncclComm_t comm, struct cecl_nccl_comm *entry,
                                  struct cecl_nccl_meeting *meeting)
{
    entry->reason = CECL_NCCL_OLD;
    if (cecl_nccl_process()->is_old)
        return ceclSuccess;
    CECL_TRY(describe(comm, entry));
    entry->reason = entry->nranks == 1 ? CECL_NCCL_ONE_RANK : CECL_NCCL_ABSENT;
    if (!meeting)
        return ceclSuccess;
    cecl_nccl_family_keep(comm, cecl_nccl_meeting_key(meeting), entry->rank, entry->nranks);
    cecl_nccl_meeting_begin(meeting, entry->rank, entry->nranks, &entry->life);
    return make(meeting, entry);
}

ncclResult_t cecl_nccl_make(ncclComm_t comm, struct cecl_nccl_comm *entry, int together,
                            bool in_background, struct cecl_nccl_meeting *meeting)
{
    entry->ours = NULL;
    entry->words = NULL;
    entry->learns = false;
    entry->served = entry->agreed = 0;
    entry->is_non_blocking = in_background;
    entry->together = together;
    entry->result = ceclSuccess;
    const ceclResult_t result = find_and_make(comm, entry, meeting);
    cecl_nccl_meeting_close(meeting);
    if (result != ceclSuccess) { /* ranks could not agree */
        entry->reason = CECL_NCCL_NOT_MADE;
        if (!is_given_up(entry))
            cecl_log(CECL_LOG_WARN, -1, "an NCCL communicator cannot be used: %s", cecl_message());
    }
    return (ncclResult_t)result;
}
