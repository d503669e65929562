/* Names of results, and the last message of each thread. */
#include "util/error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[CECL_MESSAGE_BYTES];

/* The public function that the thread is inside. is_unnamed: the recorded message does not begin with the function's
 * name yet. */
static _Thread_local struct {
    const char *name;
    bool is_unnamed;
} function;

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
    function.is_unnamed = true;
}

ceclResult_t cecl_fail_with(ceclResult_t result, const char *text)
{
    cecl_record("%s", text);
    function.is_unnamed = result != ceclSuccess; /* ceclSuccess: `text` is an older message */
    return result;
}

ceclResult_t cecl_check_given(const char *name, const void *argument)
{
    return argument ? ceclSuccess : cecl_fail(ceclInvalidArgument, "%s: NULL", name);
}

ceclResult_t cecl_relay(ceclResult_t result, const char *text)
{
    cecl_record("%s", text);
    function.is_unnamed = false;
    return result;
}

/* Whether the last message begins with a function's name. */
static bool begins_with(const char *name)
{
    const size_t length = strlen(name);
    return strncmp(message, name, length) == 0 && !isalnum((unsigned char)message[length]);
}

/* Exported like cecl_record. */
CECL_API bool cecl_function_entered(const char *name)
{
    if (function.name)
        return false;
    function.name = name;
    function.is_unnamed = false;
    return true;
}

CECL_API void cecl_function_left(const bool *is_outermost)
{
    char text[CECL_MESSAGE_BYTES + 64];
    if (!*is_outermost)
        return;
    if (function.is_unnamed && !begins_with(function.name)) {
        snprintf(text, sizeof(text), "%s: %s", function.name, message);
        cecl_shorten(message, sizeof(message), text);
    }
    function.name = NULL;
    function.is_unnamed = false;
}

const char *cecl_function(void)
{
    return function.name ? function.name : "";
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
