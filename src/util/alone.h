/* Whether the calling thread is the only one of the process that could make the program's calls. */
#ifndef CECL_UTIL_ALONE_H
#define CECL_UTIL_ALONE_H

#include <stdbool.h>

/* Whether the process has no other thread that could make the program's calls. Threads of CUDA, and the
 * threads of this library that alone.c lists, make no such calls. False if /proc cannot be read. Reads /proc,
 * which takes tens of us. */
bool cecl_thread_is_alone(void);

#endif
