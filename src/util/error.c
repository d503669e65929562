/* Names of results, and the last message of each thread. */
#include "util/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[CECL_MESSAGE_BYTES];

/* Exported, because libcecl_mpi is a library of its own and calls it. */
CECL_API void cecl_record(const char *format, ...)
{
    /* formatted here first, because an argument may be the old message */
    char text[CECL_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(message, text, sizeof(message));
}

ceclResult_t cecl_fail_with(ceclResult_t result, const char *text)
{
    return cecl_fail(result, "%s", text);
}

void cecl_keep_message(char words[CECL_MESSAGE_BYTES])
{
    memcpy(words, cecl_message(), CECL_MESSAGE_BYTES);
}

void cecl_shorten(char *out, size_t room, const char *words)
{
    if ((size_t)snprintf(out, room, "%s", words) >= room)
        memcpy(out + room - sizeof("..."), "...", sizeof("..."));
}

const char *cecl_message(void)
{
    return message;
}

CECL_API const char *ceclGetErrorString(ceclResult_t result)
{
    switch (result) {
    case ceclSuccess: return "no error";
    case ceclUnhandledCudaError: return "unhandled CUDA error";
    case ceclSystemError: return "operating system error";
    case ceclInternalError: return "internal error of cecl";
    case ceclInvalidArgument: return "invalid argument";
    case ceclInvalidUsage: return "invalid usage";
    case ceclRemoteError: return "a peer failed, left or aborted";
    case ceclInProgress: return "in progress";
    case ceclOutOfMemory: return "out of memory";
    case ceclTimeout: return "timed out";
    }
    return "unknown result";
}
