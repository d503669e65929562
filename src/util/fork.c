/* See fork.h. Every call compares the number, so reading it is a load; getpid
 * would be a system call. */
#include "util/fork.h"

#include <pthread.h>

static unsigned generation;

static void count(void)
{
    generation++;
}

static void register_count(void)
{
    pthread_atfork(NULL, NULL, count);
}

void cecl_fork_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_count);
}

unsigned cecl_fork_generation(void)
{
    return generation;
}
