/* Reading packets whose sender closes right after it. recvmsg is replaced: it can answer as the kernel does
 * if the other end sends its last packet and closes just then: 0, though the packet can be received. (A thread
 * that reads while another one sends and closes sees this about once in 7,000 times.) */
#include <errno.h>
#include <string.h>

#include "../with_cmocka.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/packet.h"

static int ends[2]; /* this end, and the other end */
static bool leaves; /* the other end sends `last` and closes during the next recvmsg */
static const char last[] = "goodbye";

static void send_last(void)
{
    int fd = ends[1];
    struct iovec parts[CECL_PACKET_PARTS] = {
        {.iov_base = (void *)(uintptr_t)last, .iov_len = 4},
        {.iov_base = (void *)(uintptr_t)(last + 4), .iov_len = 4}};
    assert_int_equal(cecl_packet_send(ends[1], parts, &fd, 1), sizeof(last));
}

WRAPPED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags))
{
    if (!leaves)
        return __real_recvmsg(fd, message, flags);
    leaves = false;
    send_last();
    close(ends[1]);
    message->msg_controllen = 0; /* as the kernel sets it */
    return 0;
}

static void connect_ends(void)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static ssize_t read_here(char *bytes)
{
    return cecl_packet_read(ends[0], bytes, sizeof(last), 0);
}

static ssize_t take_here(char *bytes, int *fds, int *nfds)
{
    int flags;
    struct iovec parts[CECL_PACKET_PARTS] = {{.iov_base = bytes, .iov_len = 1},
                                             {.iov_base = bytes + 1, .iov_len = sizeof(last) - 1}};
    return cecl_packet_take(ends[0], parts, fds, nfds, &flags);
}

TEST(a_last_packet_is_read_before_the_end)
{
    char bytes[sizeof(last)];
    connect_ends();
    leaves = true;
    assert_int_equal(read_here(bytes), sizeof(last));
    assert_string_equal(bytes, last);
    assert_int_equal(read_here(bytes), 0);
    close(ends[0]);
}

TEST(a_last_packet_is_taken_with_its_descriptor)
{
    char bytes[sizeof(last)];
    int fds[CECL_PACKET_FDS], count = 0;
    connect_ends();
    leaves = true;
    assert_int_equal(take_here(bytes, fds, &count), sizeof(last));
    assert_string_equal(bytes, last);
    assert_int_equal(count, 1);
    close(fds[0]);
    assert_int_equal(take_here(bytes, fds, &count), 0);
    close(ends[0]);
}

TEST(a_look_sees_a_last_packet)
{
    char bytes[sizeof(last)];
    connect_ends();
    leaves = true;
    assert_int_equal(cecl_net_look(ends[0]), 1);
    assert_int_equal(read_here(bytes), sizeof(last));
    assert_int_equal(cecl_net_look(ends[0]), 0);
    close(ends[0]);
}

TEST(a_packet_is_read_after_a_reset)
{
    char bytes[sizeof(last)];
    connect_ends();
    assert_int_equal(send(ends[0], "x", 1, MSG_NOSIGNAL), 1); /* the other end does not read it */
    assert_int_equal(send(ends[1], last, sizeof(last), MSG_NOSIGNAL), sizeof(last));
    close(ends[1]);
    assert_int_equal(read_here(bytes), sizeof(last));
    assert_int_equal(read_here(bytes), 0);
    close(ends[0]);
}

TEST(an_open_end_without_packets_has_not_closed)
{
    char bytes[sizeof(last)];
    connect_ends();
    assert_int_equal(read_here(bytes), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(cecl_net_look(ends[0]), -1);
    close(ends[0]);
    close(ends[1]);
}
