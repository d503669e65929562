/* See fork.h. Each call of the program asks for the number, which costs one load; getpid would be a system call. */
#include "util/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>

static _Atomic uint64_t process; /* 0: not drawn yet */

static void draw(void)
{
    uint64_t drawn = atomic_load(&process) + 1; /* stays if the kernel has no random bytes */
    (void)!getrandom(&drawn, sizeof(drawn), 0);
    atomic_store(&process, drawn | 1);
}

static void begin(void)
{
    draw();
    pthread_atfork(NULL, NULL, draw);
}

uint64_t cecl_fork_process(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (atomic_load_explicit(&process, memory_order_relaxed) == 0)
        pthread_once(&once, begin);
    return atomic_load_explicit(&process, memory_order_relaxed);
}
