/* Whether the calling thread is the only one of the process that could make the program's calls. */
#ifndef CECL_UTIL_ALONE_H
#define CECL_UTIL_ALONE_H

#include <stdbool.h>

/* Whether the process has no other thread that could make the program's calls. Threads of CUDA
 * cannot, nor can this library's, except those that alone.c lists. False if that cannot be found
 * out. Reads /proc, which takes tens of us. */
bool cecl_thread_is_alone(void);

#endif
