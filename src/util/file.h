/* Files: those that settings name, and memory that counts as a file. A name that is no regular file is refused by
 * its kind, and a limit on file sizes ends no process by a signal. */
#ifndef CECL_UTIL_FILE_H
#define CECL_UTIL_FILE_H

#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "util/error.h"

/* What `path` names if it names no regular file: "a pipe", "a device", "a directory" or "a socket". NULL: a file, or
 * nothing. Does not open it: opening a pipe would wait for its other end, and a device may never end. */
const char *cecl_file_other_kind(const char *path);

/* Gives shared memory its size. ftruncate would end the process by SIGXFSZ above RLIMIT_FSIZE; here the message names
 * the limit, what it allows, and what is needed. The first only checks the size of a file. */
ceclResult_t cecl_file_check_limit(const char *what, size_t bytes);
ceclResult_t cecl_file_grow(int fd, size_t bytes);

/* Writes all bytes, or fails with a message. If a pipe's reader does not read, waits for 5 s at most; the descriptor
 * must be non-blocking for that. */
ceclResult_t cecl_file_write(int fd, const char *bytes, size_t count);

/* While this thread writes, SIGPIPE (the reader has gone) and SIGXFSZ (RLIMIT_FSIZE) do not reach the program, and
 * numbers have a decimal point, whatever the program's locale is. Each begin needs an end, which keeps errno. */
struct cecl_writing {
    sigset_t before;
    bool pending; /* such a signal was pending before, and stays pending */
    locale_t plain, locale;
};
void cecl_writing_begin(struct cecl_writing *writing);
void cecl_writing_end(const struct cecl_writing *writing);

#endif
