/* Telling a process from its children: threads and sockets of the library belong to the one that
 * made them. */
#ifndef CECL_UTIL_FORK_H
#define CECL_UTIL_FORK_H

/* Begins to count; call it before the number is kept. */
void cecl_fork_watch(void);

/* Differs between this process and any child that was forked after cecl_fork_watch. */
unsigned cecl_fork_generation(void);

#endif
