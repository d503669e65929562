#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "../wrapped.h"
#include "input.h"

#define CALLERS 64          /* most connections that wait at the listener */
#define DESCRIPTORS 256     /* most descriptors that can be counted */
#define STEPS_MOST 1000000  /* most waits of one run */
#define START_NS 5000000000 /* any start time */
#define SEND_BUFFER 4608    /* the least that Linux allows, so long messages need several sends */

static struct {
    bool on;
    const struct world_script *script;
    int64_t now_ns;
    uint64_t random;
    unsigned steps;
    int listener; /* an eventfd, readable while callers wait */
    int callers[CALLERS], ncallers;
    bool was_open[DESCRIPTORS];
} world;

static void keep_descriptors(bool open[DESCRIPTORS])
{
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        open[fd] = fcntl(fd, F_GETFD) >= 0;
}

void world_begin(const struct world_script *script)
{
    keep_descriptors(world.was_open);
    world.script = script;
    world.now_ns = START_NS;
    world.random = 1;
    world.steps = 0;
    world.ncallers = 0;
    world.listener = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    world.on = true;
}

void world_end(void)
{
    bool open[DESCRIPTORS];
    world.on = false;
    close(world.listener);
    for (int i = 0; i < world.ncallers; i++)
        close(world.callers[i]);
    keep_descriptors(open);
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        REQUIRE(open[fd] == world.was_open[fd], "descriptor %d %s", fd,
                open[fd] ? "was left open" : "was closed by somebody else");
}

void world_pass(int64_t ms)
{
    world.now_ns += ms * 1000000;
}

static void make_pair(int ends[2])
{
    const int bytes = SEND_BUFFER;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
            "socketpair: %s", strerror(errno));
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

int world_listener(void)
{
    return fcntl(world.listener, F_DUPFD_CLOEXEC, 0);
}

int world_call(void)
{
    int ends[2];
    if (world.ncallers == CALLERS)
        return -1;
    make_pair(ends);
    world.callers[world.ncallers++] = ends[0];
    eventfd_write(world.listener, 1);
    return ends[1];
}

int world_connect(int fd)
{
    int ends[2];
    make_pair(ends);
    dup3(ends[0], fd, O_CLOEXEC);
    close(ends[0]);
    return ends[1];
}

size_t world_drain(int fd, uint8_t *to, size_t room)
{
    size_t all = 0;
    ssize_t got = 1;
    while (got > 0 && all < room) {
        got = recv(fd, to + all, room - all, MSG_DONTWAIT);
        all += got > 0 ? (size_t)got : 0;
    }
    return all;
}

size_t world_send(int fd, const void *data, size_t bytes)
{
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? (size_t)sent : 0;
}

WRAPPED(int, clock_gettime, (clockid_t clock, struct timespec *now))
{
    if (!world.on || clock != CLOCK_MONOTONIC) /* libFuzzer needs the real clock */
        return __real_clock_gettime(clock, now);
    now->tv_sec = world.now_ns / 1000000000;
    now->tv_nsec = world.now_ns % 1000000000;
    return 0;
}

/* A wait takes no real time: if the script does not act, the world's clock jumps to the end of the wait. */
static int wait_in_world(struct pollfd *polls, nfds_t count, int ms);

WRAPPED(int, poll, (struct pollfd * polls, nfds_t count, int ms))
{
    return world.on ? wait_in_world(polls, count, ms) : __real_poll(polls, count, ms);
}

static int wait_in_world(struct pollfd *polls, nfds_t count, int ms)
{
    const int64_t end = world.now_ns + (int64_t)ms * 1000000;
    for (;;) {
        const int ready = __real_poll(polls, count, 0);
        REQUIRE(++world.steps < STEPS_MOST, "it never waits");
        if (ready != 0 || ms == 0)
            return ready;
        const bool acted = world.script->act();
        REQUIRE(acted || ms > 0, "it waits without an end");
        if (!acted || (ms > 0 && world.now_ns >= end) || count == 0) {
            if (world.now_ns < end)
                world.now_ns = end;
            /* Linux looks once more when the time is up */
            return __real_poll(polls, count, 0);
        }
    }
}

WRAPPED(ssize_t, getrandom, (void *to, size_t bytes, unsigned flags))
{
    if (!world.on)
        return __real_getrandom(to, bytes, flags);
    for (size_t i = 0; i < bytes; i++) {
        world.random = world.random * 6364136223846793005u + 1442695040888963407u;
        ((uint8_t *)to)[i] = (uint8_t)(world.random >> 56);
    }
    return (ssize_t)bytes;
}

WRAPPED(int, accept4, (int fd, struct sockaddr *from, socklen_t *length, int flags))
{
    eventfd_t count;
    if (!world.on)
        return __real_accept4(fd, from, length, flags);
    if (world.ncallers == 0) {
        eventfd_read(world.listener, &count);
        errno = EAGAIN;
        return -1;
    }
    const int caller = world.callers[0];
    memmove(world.callers, world.callers + 1, (size_t)--world.ncallers * sizeof(int));
    return caller;
}

WRAPPED(int, connect, (int fd, const struct sockaddr *to, socklen_t length))
{
    return world.on ? world.script->reach(fd, to, length) : __real_connect(fd, to, length);
}

WRAPPED(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *),
         void *argument))
{
    if (!world.on)
        return __real_pthread_create(thread, attributes, run, argument);
    *thread = pthread_self();
    run(argument);
    return 0;
}

WRAPPED(int, pthread_detach, (pthread_t thread))
{
    return world.on ? 0 : __real_pthread_detach(thread);
}
