/* Counts the descriptors that this process has open, with a constant number for the folder itself. Two
 * counts of one process are compared. */
#ifndef CECL_TESTS_OPEN_DESCRIPTORS_H
#define CECL_TESTS_OPEN_DESCRIPTORS_H

#include <dirent.h>

/* -1: they cannot be listed. */
static inline int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    if (!folder)
        return -1;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

#endif
