/* See file.h. Signals are blocked only in the calling thread, so the program's handlers stay as they are. */
#include "util/file.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"

#define PIPE_MS 5000 /* most ms to wait for room in a full pipe */

const char *cecl_file_other_kind(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode))
        return NULL;
    return S_ISFIFO(info.st_mode)   ? "a pipe"
           : S_ISDIR(info.st_mode)  ? "a directory"
           : S_ISSOCK(info.st_mode) ? "a socket"
                                    : "a device";
}

ceclResult_t cecl_file_check_limit(const char *what, size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return ceclSuccess;
    return cecl_fail(ceclOutOfMemory,
                     "%s of %llu bytes: RLIMIT_FSIZE (ulimit -f) allows files of %llu", what,
                     (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
}

ceclResult_t cecl_file_grow(int fd, size_t bytes)
{
    CECL_TRY(cecl_file_check_limit("shared memory", bytes));
    if (ftruncate(fd, (off_t)bytes) == 0)
        return ceclSuccess;
    const bool is_memory = errno == ENOMEM || errno == ENOSPC || errno == EFBIG;
    return cecl_fail(is_memory ? ceclOutOfMemory : ceclSystemError,
                     "shared memory of %zu bytes: %s", bytes, strerror(errno));
}

/* ---- writing */

static sigset_t signals_of_writes(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigaddset(&set, SIGXFSZ);
    return set;
}

static bool is_pending(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1 || sigismember(&pending, SIGXFSZ) == 1;
}

void cecl_writing_begin(struct cecl_writing *writing)
{
    const sigset_t set = signals_of_writes();
    pthread_sigmask(SIG_BLOCK, &set, &writing->before);
    writing->pending = is_pending();
    writing->plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    writing->locale = uselocale(writing->plain);
}

void cecl_writing_end(const struct cecl_writing *writing)
{
    const int error = errno;
    const sigset_t set = signals_of_writes();
    uselocale(writing->locale);
    if (writing->plain)
        freelocale(writing->plain);
    if (!writing->pending && is_pending())
        (void)sigtimedwait(&set, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &writing->before, NULL);
    errno = error;
}

/* Whether a failed write may be tried again: after a signal, or once a full pipe has room. Waits for room until
 * `deadline`. */
static bool may_go_on(int fd, int64_t deadline)
{
    struct pollfd pipe = {.fd = fd, .events = POLLOUT};
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN)
        return false;
    if (poll(&pipe, 1, cecl_ms_left(deadline)) > 0)
        return true;
    errno = ETIMEDOUT;
    return false;
}

static ceclResult_t write_all(int fd, const char *bytes, size_t count)
{
    const int64_t deadline = cecl_deadline(PIPE_MS);
    struct stat info;
    size_t written = 0;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        CECL_TRY(cecl_file_check_limit("a file", (size_t)info.st_size + count));
    while (written < count) {
        const ssize_t now = write(fd, bytes + written, count - written);
        if (now > 0)
            written += (size_t)now;
        else if (now == 0 || !may_go_on(fd, deadline))
            return cecl_fail(ceclSystemError, "%zu of %zu bytes written: %s", written, count,
                             strerror(errno));
    }
    return ceclSuccess;
}

ceclResult_t cecl_file_write(int fd, const char *bytes, size_t count)
{
    struct cecl_writing writing;
    cecl_writing_begin(&writing);
    const ceclResult_t result = write_all(fd, bytes, count);
    cecl_writing_end(&writing);
    return result;
}
