/* A process of a test dies and leaves a child, which lives until the test releases it, and must not keep the process's
 * sockets open. */
#ifndef CECL_TESTS_LEFT_CHILD_H
#define CECL_TESTS_LEFT_CHILD_H

#include <unistd.h>

/* The children wait until no process has the pipe's second end open. Made before ranks are forked. */
static int left_child_leash[2];

static inline int left_child_prepare(void)
{
    return pipe(left_child_leash);
}

static inline void leave_a_child(void)
{
    char byte;
    if (fork() != 0)
        return;
    close(left_child_leash[1]);
    alarm(200); /* more than all time limits of the ranks */
    (void)!read(left_child_leash[0], &byte, 1);
    _exit(0);
}

static inline void die_and_leave_a_child(void)
{
    leave_a_child();
    _exit(0);
}

/* Called after the ranks have ended. */
static inline void left_child_let_go(void)
{
    close(left_child_leash[0]);
    close(left_child_leash[1]);
}

#endif
