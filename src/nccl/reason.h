/* Why a call is passed to NCCL, and messages about failures. */
#ifndef CECL_NCCL_REASON_H
#define CECL_NCCL_REASON_H

#include <stdbool.h>

/* X(id, text). NO_REASON: cecl makes the call. */
#define CECL_NCCL_REASONS(X) \
    X(NO_REASON, "-") \
    X(FORKED, "this process was forked after its parent called NCCL") \
    X(OLD, "NCCL is older than 2.19") \
    X(BY_SETTING, "CECL_NCCL=off") \
    X(SETTINGS_DIFFER, "CECL_NCCL differs between ranks") \
    X(ABSENT, "some rank runs without cecl-run, with another version, with CECL_NCCL=off, or on " \
              "another host") \
    X(UNEVEN, "some threads have more ranks than others") \
    X(NOT_MADE, "cecl could not make a communicator") \
    X(IN_PROGRESS, "the communicator was not ready: ncclCommGetAsyncError says ncclInProgress") \
    X(UNKNOWN, "the communicator was made by a call that cecl does not follow") \
    X(ONE_RANK, "the communicator has one rank") \
    X(NO_SUCH_OP, "cecl does not serve this function") \
    X(MANY_RANKS, "cecl has no sends and receives between so many ranks") \
    X(NO_SUCH_RANK, "the communicator does not have the rank that the call names") \
    X(EMPTY, "the call moves no bytes") \
    X(TYPE, "cecl does not support the datatype, the reduction or the size") \
    X(SMS_FORBIDDEN, "CECL_SM_POLICY=never: a reduction needs SMs") \
    X(NO_GAIN, "no measurement says that cecl is faster") \
    X(TURN, "a trial: it was NCCL's turn") \
    X(NOT_SHORTER, "tried: the program's step is not clearly shorter with cecl") \
    X(CAPTURED_MESSAGE, "captured sends and receives are passed") \
    X(CAPTURED, "cecl cannot capture the call on some rank")

enum cecl_nccl_reason {
#define REASON(id, words) CECL_NCCL_##id,
    CECL_NCCL_REASONS(REASON)
#undef REASON
        CECL_NCCL_REASON_COUNT
};
extern const char *const cecl_nccl_reason_words[CECL_NCCL_REASON_COUNT];

/* Keeps the message of the first communicator that could not be made. Returns false if there already was one. */
bool cecl_nccl_note_failure(const char *words);
#define CECL_NCCL_FAILURE_BYTES 256
/* The message that was kept; empty: no communicator has failed. */
const char *cecl_nccl_failure(void);

/* Keeps the message of cecl's last failure in the calling thread. ncclGetLastError returns both cecl's message and
 * NCCL's, because this library does not know which of the two is newer. */
void cecl_nccl_last_error_set(const char *words);
void cecl_nccl_last_error_clear(void);
/* Records that CECL_NCCL=strict refuses the function `name`. Prints the message if `is_first`. */
void cecl_nccl_tell_refusal(const char *name, enum cecl_nccl_reason reason, bool is_first);
/* cecl's message, if there is one, followed by NCCL's. `of_nccl` is NCCL's message. The text is valid until the
 * thread's next call of this function. */
const char *cecl_nccl_last_error(const char *of_nccl);

#endif
