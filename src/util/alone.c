/* See thread.h. Reads the names of the process's threads from /proc. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/thread.h"

#define EXITING                                                                                    \
    4u /* PF_EXITING of proc_pid_stat(5). A joined thread is still listed for a moment. */

/* Threads of the library and of CUDA that make no calls for the program. (cecl-together, cecl-make and
 * cecl-finalize do make calls.) Whole names are compared, because a thread without a name of its own has the
 * program's name, and a program may be named cuda_train. */
static const char *const kept[] = {"cecl-watchdog", "cecl-worker", "cecl-stream",   "cecl-root",
                                   "cecl-orphans",  "cecl-net",    "cuda-EvtHandlr"};

/* CUDA's other threads are named cuda and a hexadecimal number of eight digits or more. */
static bool is_cuda_number(const char *name)
{
    return strncmp(name, "cuda", 4) == 0 && strlen(name) >= 12 &&
           strspn(name + 4, "0123456789abcdefABCDEF") == strlen(name + 4);
}

static bool is_kept(const char *name)
{
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (strcmp(name, kept[i]) == 0)
            return true;
    return is_cuda_number(name);
}

/* Whether a thread may make calls. `stat` has the thread's number, its name in brackets, its state, five
 * numbers, and its flags. The name may contain any character, also brackets. */
static bool may_call(char *stat)
{
    char *name = strchr(stat, '('), *rest = strrchr(stat, ')');
    unsigned flags = 0;
    if (!name || !rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
        return true;
    *rest = '\0';
    return (flags & EXITING) == 0 && !is_kept(name + 1);
}

/* Whether another thread may make calls. Also true if the entry of a thread cannot be read, unless that
 * thread has ended. */
static bool is_other_caller(const char *tid)
{
    char path[64], stat[512];
    if (tid[0] == '.' || strtol(tid, NULL, 10) == cecl_thread_id())
        return false;
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", tid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT;
    const ssize_t got = read(fd, stat, sizeof(stat) - 1);
    const bool has_ended = got < 0 && errno == ESRCH;
    close(fd);
    if (got <= 0)
        return !has_ended;
    stat[got] = '\0';
    return may_call(stat);
}

bool cecl_thread_is_alone(void)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    bool alone = folder != NULL;
    while (alone && (entry = readdir(folder)))
        alone = !is_other_caller(entry->d_name);
    if (folder)
        closedir(folder);
    return alone;
}
