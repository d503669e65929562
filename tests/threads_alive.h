/* Counts the threads of this process, except threads that are ending and threads of CUDA. A joined thread stays listed
 * for a moment, but its kernel flag PF_EXITING (proc_pid_stat(5), field 9) is set before the join returns. */
#ifndef CECL_TESTS_THREADS_ALIVE_H
#define CECL_TESTS_THREADS_ALIVE_H

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads a thread's /proc entry `stat`, without the id and the name at its start. False: the thread has ended. */
static inline bool thread_read_stat(const char *tid, char text[1024])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const size_t bytes = fread(text, 1, 1023, file);
    fclose(file);
    text[bytes] = '\0';
    const char *fields = strrchr(text, ')'); /* the name may contain any character */
    if (fields)
        memmove(text, fields + 1, strlen(fields));
    return fields != NULL;
}

static inline bool thread_is_ending(const char *tid)
{
    enum { PF_EXITING = 4 };
    char text[1024];
    unsigned flags = 0;
    return !thread_read_stat(tid, text) ||
           sscanf(text, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || (flags & PF_EXITING) != 0;
}

/* Waits until a thread has slept for a while, so that it is inside a wait, and not only late on a busy machine. `tid`:
 * 0 until the thread writes its number there. False after 20 s. */
static inline bool thread_falls_asleep(const _Atomic int *tid)
{
    char name[24], text[1024];
    int asleep = 0;
    for (int i = 0; i < 10000 && asleep < 10; i++, usleep(2000)) {
        snprintf(name, sizeof(name), "%d", atomic_load(tid));
        asleep =
            atomic_load(tid) && thread_read_stat(name, text) && text[1] == 'S' ? asleep + 1 : 0;
    }
    return asleep == 10;
}

static inline bool thread_read_name(const char *tid, char name[32])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", tid);
    FILE *file = fopen(path, "r");
    const bool read = file && fscanf(file, "%31[^\n]", name) == 1;
    if (file)
        fclose(file);
    return read;
}

/* Whether the thread is CUDA's own: CUDA starts threads at any time, and keeps them. */
static inline bool thread_is_drivers(const char *tid)
{
    char name[32];
    return thread_read_name(tid, name) && strncmp(name, "cuda", 4) == 0;
}

/* -1: the threads cannot be listed. */
static inline int threads_alive(void)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    int count = 0;
    if (!folder)
        return -1;
    while ((entry = readdir(folder)))
        count += entry->d_name[0] != '.' && !thread_is_ending(entry->d_name) &&
                 !thread_is_drivers(entry->d_name);
    closedir(folder);
    return count;
}

/* Writes the names of all threads, separated by commas. The library and CUDA name their threads. */
static inline void threads_name(char *names, size_t room)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    size_t used = 0;
    names[0] = '\0';
    while (folder && used + 1 < room && (entry = readdir(folder))) {
        char name[32];
        if (entry->d_name[0] != '.' && thread_read_name(entry->d_name, name))
            used += (size_t)snprintf(names + used, room - used, "%s%s", used ? ", " : "", name);
    }
    if (folder)
        closedir(folder);
}

#endif
