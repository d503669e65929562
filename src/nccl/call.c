/* Decides what becomes of a call. Each call comes here once, and nothing else decides. */
#include "nccl/call.h"

#include <stdatomic.h>
#include <stdint.h>

#include "nccl/process.h"
#include "nccl/stats.h"
#include "util/log.h"

const char *const cecl_nccl_reason_words[CECL_NCCL_REASON_COUNT] = {
#define WORDS(id, words) words,
    CECL_NCCL_REASONS(WORDS)
#undef WORDS
};

const char *const cecl_nccl_op_names[CECL_NCCL_OPS] = {
#define COUNTED(name) #name,
#define JUMP(name, answer)
    CECL_NCCL_NAMES(COUNTED, JUMP)
#undef COUNTED
#undef JUMP
};

size_t cecl_nccl_call_bytes(const struct cecl_nccl_call *call)
{
    static const unsigned char type_bytes[] = CECL_NCCL_TYPE_BYTES;
    const size_t type = (size_t)call->datatype;
    return type < sizeof(type_bytes) ? call->count * type_bytes[type] : 0;
}

/* Serve or pass: the only function that decides it. Ranks must decide alike, so it may look at what
 * is equal on all ranks of the communicator, and never at where buffers lie. */
static enum cecl_nccl_reason reason_to_pass(const struct cecl_nccl_process *process)
{
    if (process->is_forked)
        return CECL_NCCL_FORKED;
    if (process->is_old)
        return CECL_NCCL_OLD;
    return process->policy == CECL_NCCL_OFF ? CECL_NCCL_BY_SETTING : CECL_NCCL_UNSERVED;
}

static void warn_of_refusal(enum cecl_nccl_op op, enum cecl_nccl_reason reason)
{
    static _Atomic uint32_t warned; /* a bit for each op */
    const uint32_t bit = UINT32_C(1) << op;
    if (!(atomic_fetch_or(&warned, bit) & bit))
        cecl_log(CECL_LOG_WARN, -1,
                 "CECL_NCCL=strict: %s is refused, because it would not be zero SM: %s",
                 cecl_nccl_op_names[op], cecl_nccl_reason_words[reason]);
}

bool cecl_nccl_admit(const struct cecl_nccl_call *call)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    if (!process->real.handle || cecl_nccl_real_has(&process->real, call->caller))
        return true;
    const enum cecl_nccl_reason reason = reason_to_pass(process);
    const bool is_refused =
        process->policy == CECL_NCCL_STRICT && !call->reduces && call->count > 0;
    if (process->counts)
        cecl_nccl_stats_count(call, reason, is_refused);
    if (is_refused)
        warn_of_refusal(call->op, reason);
    return !is_refused;
}
