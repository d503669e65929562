/* Files that settings name, and shared memory, which the system treats as a file. A file to read must be a regular one;
 * otherwise the error's message names its kind. A size above RLIMIT_FSIZE gives an error, and no signal. */
#ifndef CECL_UTIL_FILE_H
#define CECL_UTIL_FILE_H

#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "util/error.h"

/* What `path` names if it names no regular file: "a pipe", "a device", "a directory" or "a socket". NULL: a regular
 * file, or nothing. Does not open the path, because opening a pipe waits for its other end, and reading a device may
 * never end. */
const char *cecl_file_other_kind(const char *path);

/* cecl_file_grow sets the size of shared memory; cecl_file_check_limit only checks it. Above RLIMIT_FSIZE, where
 * ftruncate would end the process by SIGXFSZ, they return an error that names the limit and both sizes. */
ceclResult_t cecl_file_check_limit(const char *what, size_t bytes);
ceclResult_t cecl_file_grow(int fd, size_t bytes);

/* Writes all bytes, or fails with a message. If `fd` is a full pipe, and non-blocking, waits 5 s at most for the
 * reader. */
ceclResult_t cecl_file_write(int fd, const char *bytes, size_t count);

/* While this thread writes, SIGPIPE (the reader has gone) and SIGXFSZ (RLIMIT_FSIZE) do not reach the program, and
 * printf writes decimal points, whatever the program's locale is. Each begin needs an end; the end keeps errno. */
struct cecl_writing {
    sigset_t before;
    bool pending; /* one of the signals was pending before begin, and stays pending */
    locale_t plain, locale;
};
void cecl_writing_begin(struct cecl_writing *writing);
void cecl_writing_end(const struct cecl_writing *writing);

#endif
