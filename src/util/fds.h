/* Keeps a forked child from using the library's threads and sockets, which belong to the process that made them.
 *
 * This file lists the descriptors of communicators. A forked child closes all of them, because it cannot use a
 * communicator. If the child kept a socket of a rank that dies, that rank's peers would wait for the child. exec closes
 * these descriptors, too.
 *
 * Files that one function opens, reads and closes are not listed. */
#ifndef CECL_UTIL_FDS_H
#define CECL_UTIL_FDS_H

#include <stdint.h>

/* A random number of this process; not 0. A forked child has another number. */
uint64_t cecl_fork_process(void);

/* Between begin and end a fork waits, for a second at most, so no child gets a descriptor that is not listed. In
 * between, make no call that may block. */
void cecl_fds_begin(void);
void cecl_fds_add(int fd); /* between begin and end; -1 is not added */
void cecl_fds_end(void);
/* Calls cecl_fds_add and cecl_fds_end. Returns `fd`, and keeps errno. */
int cecl_fds_made(int fd);
/* Evaluates `expr`, which makes a descriptor or returns -1, and lists the descriptor. */
#define CECL_FD(expr) (cecl_fds_begin(), cecl_fds_made(expr))
/* Lists a descriptor that another library (the driver) made, and sets FD_CLOEXEC. Returns `fd`. The driver may block,
 * so its call cannot stand between begin and end. A child that is forked after the driver's call and before this one
 * keeps the descriptor. */
int cecl_fds_adopt(int fd);

/* Closes a descriptor, listed or not. A listed one is closed only by this function. */
void cecl_fds_close(int fd);

#endif
