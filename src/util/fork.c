/* See fork.h. Every call compares the generation, which costs one load. getpid would be a system call. */
#include "util/fork.h"

#include <pthread.h>
#include <sys/random.h>

static unsigned generation;
static uint64_t process;

static void draw(void)
{
    (void)!getrandom(&process, sizeof(process), 0);
}

static void count(void)
{
    generation++;
    draw();
}

static void register_count(void)
{
    draw();
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

uint64_t cecl_fork_process(void)
{
    cecl_fork_watch();
    return process;
}
