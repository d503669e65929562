/* Counts the threads of this process, except those that are ending. A thread that was joined stays
 * listed for a moment, but its kernel flag PF_EXITING (proc_pid_stat(5), field 9) is set before the
 * join returns. */
#ifndef CECL_TESTS_THREADS_ALIVE_H
#define CECL_TESTS_THREADS_ALIVE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline bool thread_is_ending(const char *tid)
{
    enum { PF_EXITING = 4 };
    char path[64], text[1024] = "";
    unsigned flags = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return true; /* it has ended since */
    const size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = '\0';
    const char *fields = strrchr(text, ')'); /* behind its name, which may hold anything */
    return !fields || sscanf(fields, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
           (flags & PF_EXITING) != 0;
}

/* -1: they cannot be listed. */
static inline int threads_alive(void)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    int count = 0;
    if (!folder)
        return -1;
    while ((entry = readdir(folder)))
        count += entry->d_name[0] != '.' && !thread_is_ending(entry->d_name);
    closedir(folder);
    return count;
}

#endif
