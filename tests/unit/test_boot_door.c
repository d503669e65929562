/* The door serves callers in parallel, and keeps no caller for ever. Callers are sockets of this test. Time
 * passes only when a test says so. */
#include "../with_cmocka.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "boot/door.h"

#define BYTES 8  /* size of a complete message from a caller */
#define ROOM 300 /* most callers at a time: half of the descriptors */

static struct cecl_door door;
static struct sockaddr_un address;
static socklen_t length;

/* Replaces the system's function (by the linker, see CMakeLists.txt). */
static int64_t now_ms = 1000000;
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    *now = (struct timespec){.tv_sec = (time_t)(now_ms / 1000), .tv_nsec = now_ms % 1000 * 1000000};
    return 0;
}

static bool welcome(struct cecl_caller *caller)
{
    return true;
}

static void ask_to_come_again(const struct cecl_caller *caller)
{
    assert_int_equal(send(caller->fd, "again", 5, MSG_NOSIGNAL | MSG_DONTWAIT), 5);
}

static void limit_descriptors(rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int set_up(void **state)
{
    limit_descriptors(2 * ROOM);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address = (struct sockaddr_un){.sun_family = AF_UNIX};
    length = sizeof(sa_family_t); /* the kernel chooses a name */
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    length = sizeof(address);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(listen(listener, 600), 0);
    assert_int_equal(cecl_door_open(&door, listener, BYTES, welcome, ask_to_come_again),
                     ceclSuccess);
    return 0;
}

static int tear_down(void **state)
{
    cecl_door_close(&door);
    return 0;
}

/* Connects a caller, sends `bytes` bytes, and lets the door read them. */
static int call(size_t bytes)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
    if (bytes > 0)
        assert_int_equal(send(fd, "12345678", bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    cecl_door_attend(&door, 0); /* accepts the caller */
    cecl_door_attend(&door, 0); /* reads its bytes */
    return fd;
}

/* Whether the door has closed the connection. */
static bool is_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* The door looks so often that it does not seem to have stood still. */
static void let_time_pass(int64_t ms)
{
    for (int64_t step; ms > 0; ms -= step) {
        step = ms < 400 ? ms : 400;
        now_ms += step;
        cecl_door_attend(&door, 0);
    }
}

/* It may be a rank that stood still. */
TEST_BETWEEN(a_caller_that_stops_halfway_is_asked_to_come_again, set_up, tear_down)
{
    char said[8];
    const int fd = call(BYTES - 1);
    let_time_pass(4999);
    assert_int_equal(recv(fd, said, sizeof(said), MSG_DONTWAIT), -1);
    let_time_pass(2);
    assert_int_equal(recv(fd, said, sizeof(said), MSG_DONTWAIT), 5);
    assert_memory_equal(said, "again", 5);
    assert_true(is_closed(fd));
    assert_int_equal(door.count, 0);
    close(fd);
}

TEST_BETWEEN(no_time_passes_for_callers_while_the_process_stands_still, set_up, tear_down)
{
    const int fd = call(0);
    now_ms += 1000000;
    cecl_door_attend(&door, 0);
    assert_false(is_closed(fd));
    let_time_pass(4999);
    assert_false(is_closed(fd));
    close(fd);
}

TEST_BETWEEN(a_caller_that_has_said_all_waits_as_long_as_it_must, set_up, tear_down)
{
    struct cecl_caller caller = {.fd = -1};
    const int fd = call(BYTES);
    let_time_pass(100000);
    assert_true(cecl_door_next(&door, &caller));
    assert_memory_equal(caller.said, "12345678", BYTES);
    assert_false(is_closed(fd));
    assert_false(cecl_door_next(&door, &caller));
    close(caller.fd);
    close(fd);
}

/* The door is full: a newcomer replaces the oldest caller whose message is incomplete, and which may come again. */
TEST_BETWEEN(a_newcomer_pushes_out_the_oldest_that_was_heard, set_up, tear_down)
{
    static int fds[ROOM];
    char said[8];
    limit_descriptors(4 * ROOM); /* both ends of each connection belong to this process */
    for (int i = 0; i < ROOM; i++)
        fds[i] = call(i == 0 ? BYTES : 1);
    assert_int_equal(door.count, ROOM);
    const int newcomer = call(0);
    /* the door has not yet listened to fds[1] for the minimum time */
    assert_int_equal(recv(fds[1], said, sizeof(said), MSG_DONTWAIT), -1);
    let_time_pass(101);
    assert_int_equal(recv(fds[1], said, sizeof(said), MSG_DONTWAIT), 5);
    assert_memory_equal(said, "again", 5);
    assert_true(is_closed(fds[1]));
    assert_false(is_closed(fds[0]));
    assert_int_equal(recv(fds[2], said, sizeof(said), MSG_DONTWAIT), -1);
    assert_false(is_closed(newcomer));
    assert_int_equal(door.count, ROOM);
    close(newcomer);
    for (int i = 0; i < ROOM; i++)
        close(fds[i]);
}

/* All callers have sent complete messages: the door hands over each one once, and frees its place. */
TEST_BETWEEN(many_callers_are_handed_over_in_their_order, set_up, tear_down)
{
    static int fds[ROOM];
    struct cecl_caller caller;
    limit_descriptors(4 * ROOM);
    for (int i = 0; i < ROOM; i++)
        fds[i] = call(BYTES);
    for (int i = 0; i < ROOM; i++) {
        assert_true(cecl_door_next(&door, &caller));
        assert_int_equal(send(caller.fd, "x", 1, MSG_NOSIGNAL), 1);
        assert_false(is_closed(fds[i])); /* this caller: its byte has arrived */
        close(caller.fd);
    }
    assert_false(cecl_door_next(&door, &caller));
    const int newcomer = call(BYTES);
    assert_int_equal(door.count, 1);
    assert_true(cecl_door_next(&door, &caller));
    close(caller.fd);
    close(newcomer);
    for (int i = 0; i < ROOM; i++)
        close(fds[i]);
}
