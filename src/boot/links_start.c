/* Starts the thread of a leader, and handles all such threads of a process when it forks or ends. */
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "boot/links_internal.h"
#include "util/clock.h"
#include "util/thread.h"

/* The links whose threads run in this process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct links *first;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

void links_forget(struct links *links)
{
    pthread_mutex_lock(&lock);
    struct links **at = &first;
    while (*at && *at != links)
        at = &(*at)->next;
    if (*at)
        *at = links->next;
    pthread_mutex_unlock(&lock);
}

/* A forked child does not have the threads. */
static void in_child(void)
{
    first = NULL;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)!pthread_atfork(before_fork, after_fork, in_child);
}

/* The kernel probes an idle link each second. */
static void bound_silence(int fd, int64_t silence_ms)
{
    const int on = 1, second = 1, most = (int)(silence_ms / 1000) + 1;
    const unsigned silence = (unsigned)silence_ms;
    cecl_tcp_send_at_once(fd);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof(second));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof(second));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof(most));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
}

static int *fd_of(const struct cecl_links_plan *plan, int rank, int kind)
{
    return kind == LINK ? &plan->links[plan->host[rank]] : &plan->lines[rank][kind];
}

static bool is_leader(const struct cecl_links_plan *plan, int rank)
{
    for (int r = 0; r < rank; r++)
        if (plan->host[r] == plan->host[rank])
            return false;
    return true;
}

/* Adds an end. The plan still owns its descriptors. */
static bool add_end(struct links *links, const struct cecl_links_plan *plan, int rank, int kind)
{
    struct links_end *end = &links->ends[links->nends];
    const int fd = *fd_of(plan, rank, kind);
    if (fd < 0 || (kind == LINK && !is_leader(plan, rank)))
        return true;
    links->nends++;
    *end = (struct links_end){.fd = fd,
                              .process = kind == LIFE ? plan->processes[rank] : -1,
                              .rank = rank,
                              .out = malloc(LINKS_OUT_BYTES),
                              .room = LINKS_OUT_BYTES};
    end->kind = kind == LINK ? LINK : kind == FRAMES ? FRAMES : LIFE;
    if (kind != LINK)
        return end->out != NULL;
    bound_silence(fd, plan->silence_ms);
    end->in = malloc(LINKS_IN_BYTES);
    return end->out && end->in;
}

/* Frees links whose thread has not started. The plan keeps the descriptors. */
static void discard(struct links *links)
{
    for (int i = 0; i < links->nends; i++)
        links->ends[i].fd = links->ends[i].process = -1;
    links_free(links);
}

static void forget_descriptors(struct cecl_links_plan *plan)
{
    for (int r = 0; r < plan->nranks; r++) {
        plan->lines[r][CECL_LINE_FRAMES] = plan->lines[r][CECL_LINE_LIFE] = -1;
        plan->processes[r] = *fd_of(plan, r, LINK) = -1;
    }
}

static struct links *make(const struct cecl_links_plan *plan)
{
    const size_t n = (size_t)plan->nranks, most = n * (LINK + 1);
    struct links *links = calloc(1, sizeof(*links) + most * sizeof(links->ends[0]));
    if (!links)
        return NULL;
    links->nranks = plan->nranks;
    links->silence_ms = plan->silence_ms;
    links->host = calloc(n, sizeof(*links->host));
    links->has_ended = calloc(2 * n, sizeof(*links->has_ended));
    links->polls = calloc(2 * most, sizeof(*links->polls));
    bool made = links->host && links->has_ended && links->polls;
    if (made)
        links->has_left = links->has_ended + n;
    for (int r = 0; r < plan->nranks && made; r++) {
        links->host[r] = plan->host[r];
        for (int kind = FRAMES; kind <= LINK && made; kind++)
            made = add_end(links, plan, r, kind);
    }
    if (made)
        return links;
    discard(links);
    return NULL;
}

ceclResult_t cecl_links_start(struct cecl_links_plan *plan)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_t thread;
    struct links *links = make(plan);
    if (!links)
        return cecl_fail(ceclOutOfMemory, "no host memory for links to other hosts");
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    links->next = first;
    first = links;
    pthread_mutex_unlock(&lock);
    const int error = cecl_thread_start(&thread, "cecl-links", links_run, links);
    if (error) {
        links_forget(links);
        discard(links);
        return cecl_fail(ceclSystemError, "no thread for links to other hosts: %s",
                         strerror(error));
    }
    pthread_detach(thread);
    forget_descriptors(plan);
    return ceclSuccess;
}

static bool all_quiet(void)
{
    bool quiet = true;
    if (pthread_mutex_trylock(&lock) != 0)
        return false;
    for (const struct links *links = first; links; links = links->next)
        quiet = quiet && atomic_load(&links->is_quiet);
    pthread_mutex_unlock(&lock);
    return quiet;
}

void cecl_links_end(int wait_ms)
{
    const int64_t deadline = cecl_deadline(wait_ms);
    const struct timespec pause = {.tv_nsec = 200000};
    while (!all_quiet() && cecl_ms_left(deadline) > 0)
        nanosleep(&pause, NULL);
}
