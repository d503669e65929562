/* Words for the table, for logs and for errors: of reasons, and of functions. */
#include "nccl/reason.h"

#include <stdatomic.h>
#include <stdio.h>

#include "nccl/call.h"

const char *const cecl_nccl_reason_words[CECL_NCCL_REASON_COUNT] = {
#define WORDS(id, words) words,
    CECL_NCCL_REASONS(WORDS)
#undef WORDS
};

const char *const cecl_nccl_op_names[CECL_NCCL_OPS] = {
#define NAME(name) #name,
    CECL_NCCL_NAMES(NAME, CECL_NCCL_SKIP, CECL_NCCL_SKIP)
#undef NAME
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
