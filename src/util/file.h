/* Files that settings name, and shared memory, which the system treats as a file. A name that is not a regular file is
 * refused, and the message names its kind. A limit on file sizes gives an error and not a signal. */
#ifndef CECL_UTIL_FILE_H
#define CECL_UTIL_FILE_H

#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "util/error.h"

/* What `path` names if it names no regular file: "a pipe", "a device", "a directory" or "a socket". NULL: a regular
 * file, or nothing. Does not open the path, because to open a pipe would wait for the pipe's other end, and a device
 * may never end. */
const char *cecl_file_other_kind(const char *path);

/* Gives shared memory its size. Above RLIMIT_FSIZE ftruncate would end the process by SIGXFSZ. These functions fail
 * instead, and the message names the limit, what it allows, and what is needed. The first function only checks the
 * size. */
ceclResult_t cecl_file_check_limit(const char *what, size_t bytes);
ceclResult_t cecl_file_grow(int fd, size_t bytes);

/* Writes all bytes, or fails with a message. If a pipe's reader does not read, waits for 5 s at most, provided that the
 * descriptor is non-blocking. */
ceclResult_t cecl_file_write(int fd, const char *bytes, size_t count);

/* While this thread writes, SIGPIPE (the reader has gone) and SIGXFSZ (RLIMIT_FSIZE) do not reach the program. Numbers
 * have a decimal point, whatever the program's locale is. Each begin needs an end; the end keeps errno. */
struct cecl_writing {
    sigset_t before;
    bool pending; /* such a signal was pending before, and stays pending */
    locale_t plain, locale;
};
void cecl_writing_begin(struct cecl_writing *writing);
void cecl_writing_end(const struct cecl_writing *writing);

#endif
