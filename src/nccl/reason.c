/* Texts for the table, for logs and for errors: reasons, and names of functions. */
#include "nccl/reason.h"

#include <stdatomic.h>
#include <stdio.h>

#include "nccl/call.h"
#include "util/error.h"
#include "util/log.h"

#define NCCL_BYTES 2048 /* most bytes of NCCL's message */

const char *const cecl_nccl_reason_words[CECL_NCCL_REASON_COUNT] = {
#define WORDS(id, words) words,
    CECL_NCCL_REASONS(WORDS)
#undef WORDS
};

const char *const cecl_nccl_op_names[CECL_NCCL_OPS] = {
#define COUNTED(name) #name,
#include "nccl/names.h"
};

static char failure[CECL_NCCL_FAILURE_BYTES];
static _Atomic int failures;

bool cecl_nccl_note_failure(const char *words)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&failures, &none, 1))
        return false;
    snprintf(failure, sizeof(failure), "%s", words);
    atomic_store(&failures, 2);
    return true;
}

const char *cecl_nccl_failure(void)
{
    return atomic_load(&failures) > 1 ? failure : "";
}

static _Thread_local char of_cecl[CECL_MESSAGE_BYTES];
static _Thread_local char both[CECL_MESSAGE_BYTES + NCCL_BYTES];

void cecl_nccl_last_error_set(const char *words)
{
    snprintf(of_cecl, sizeof(of_cecl), "%s", words);
}

void cecl_nccl_last_error_clear(void)
{
    of_cecl[0] = '\0';
}

void cecl_nccl_tell_refusal(const char *name, enum cecl_nccl_reason reason, bool is_first)
{
    snprintf(of_cecl, sizeof(of_cecl),
             "CECL_NCCL=strict: %s is refused, because it would not be zero SM: %s", name,
             cecl_nccl_reason_words[reason]);
    if (is_first)
        cecl_log(CECL_LOG_WARN, -1, "%s", of_cecl);
}

const char *cecl_nccl_last_error(const char *of_nccl)
{
    if (!of_cecl[0])
        return of_nccl;
    snprintf(both, sizeof(both), "cecl: %s%s%s", of_cecl, of_nccl && of_nccl[0] ? "\nNCCL: " : "",
             of_nccl ? of_nccl : "");
    return both;
}
