/* See fds.h. The list has a bit for each descriptor number, so a forked child can read it without allocating memory or
 * taking a lock. */
#include "util/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

#include "util/thread.h"

#define MOST (1 << 20) /* Linux's default limit of a process's descriptors (fs.nr_open) */
#define WORD_BITS ((int)sizeof(unsigned long) * CHAR_BIT)
#define FORK_MS 1000 /* most ms that fork waits for the lock */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long listed[MOST / WORD_BITS];
static _Atomic uint64_t process; /* 0: not drawn yet */
static int used;                 /* bits are set only in the first `used` words of `listed` */
static _Thread_local bool has_lock;
static _Thread_local int
    cancels; /* the state before cecl_fds_begin, which disables cancellation: a cancelled thread would keep the lock */

static void draw(void)
{
    uint64_t drawn = atomic_load(&process) + 1; /* used if getrandom fails */
    (void)!getrandom(&drawn, sizeof(drawn), 0);
    atomic_store(&process, drawn | 1);
}

/* The wait is bounded, because a signal handler may fork while its thread holds the lock. If the time passes, the child
 * closes the listed descriptors without the lock. */
static void before_fork(void)
{
    has_lock = cecl_lock_until(&lock, cecl_deadline(FORK_MS));
}

static void after_fork(void)
{
    if (has_lock)
        pthread_mutex_unlock(&lock);
}

/* Makes no calls but close, getrandom and the unlock: another of the parent's threads may have held any lock. */
static void in_child(void)
{
    const int error = errno;
    draw();
    for (int w = 0; w < used; w++)
        for (; listed[w]; listed[w] &= listed[w] - 1)
            close(w * WORD_BITS + __builtin_ctzl(listed[w]));
    used = 0;
    errno = error;
    after_fork();
}

static void watch_forks(void)
{
    draw();
    (void)!pthread_atfork(before_fork, after_fork, in_child);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Every call of a public function asks for this number, which costs one load; getpid would be a system call. */
uint64_t cecl_fork_process(void)
{
    if (atomic_load_explicit(&process, memory_order_relaxed) == 0)
        pthread_once(&once, watch_forks);
    return atomic_load_explicit(&process, memory_order_relaxed);
}

void cecl_fds_begin(void)
{
    pthread_once(&once, watch_forks);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    pthread_mutex_lock(&lock);
}

void cecl_fds_add(int fd)
{
    if (fd < 0 || fd >= MOST)
        return;
    listed[fd / WORD_BITS] |= 1ul << fd % WORD_BITS;
    if (used <= fd / WORD_BITS)
        used = fd / WORD_BITS + 1;
}

void cecl_fds_end(void)
{
    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(cancels, NULL);
}

int cecl_fds_made(int fd)
{
    cecl_fds_add(fd);
    cecl_fds_end();
    return fd;
}

int cecl_fds_adopt(int fd)
{
    (void)!fcntl(fd, F_SETFD, FD_CLOEXEC);
    return CECL_FD(fd);
}

/* No fork may come between closing the descriptor and removing it from the list. If it were closed first, another
 * thread could open a file under the same number, and a child would close that file. If it were removed first, a child
 * would keep it open. */
void cecl_fds_close(int fd)
{
    cecl_fds_begin();
    if (fd >= 0 && fd < MOST)
        listed[fd / WORD_BITS] &= ~(1ul << fd % WORD_BITS);
    close(fd);
    cecl_fds_end();
}
