/* Distinguishes a process from its forked children, and from the processes of other ranks. The library's threads and
 * sockets belong to the process that made them. */
#ifndef CECL_UTIL_FORK_H
#define CECL_UTIL_FORK_H

#include <stdint.h>

/* A random number of this process; not 0. A child that is forked later has another number. */
uint64_t cecl_fork_process(void);

#endif
