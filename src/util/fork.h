/* Distinguishes a process from its forked children. The library's threads and sockets belong to the
 * process that made them. */
#ifndef CECL_UTIL_FORK_H
#define CECL_UTIL_FORK_H

#include <stdint.h>

/* Starts counting forks. Call it before the first cecl_fork_generation. */
void cecl_fork_watch(void);

/* A number that differs between this process and every child forked after cecl_fork_watch. */
unsigned cecl_fork_generation(void);

/* A random number of this process. A child that is forked later has another number. */
uint64_t cecl_fork_process(void);

#endif
