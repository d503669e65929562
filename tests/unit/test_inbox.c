/* The inbox takes a message whose sender closes right after it. The wrapped recvmsg can answer as the kernel does if that
 * happens during the call: it returns 0, although the message can still be received. (Without the wrapper a thread meets
 * this once in 7,000 times.) Also how long the inbox waits if this process lacks descriptors. */
#include "../with_cmocka.h"

#include <errno.h>
#include <sys/socket.h>

#include "../descriptors.h"
#include "../open_descriptors.h"
#include "boot/inbox.h"
#include "boot/net.h"
#include "util/clock.h"

#define KIND 't'

static const struct cecl_inbox_address mine = {.name = "cecl-test-inbox", .secret = "secret"};
static struct cecl_inbox inbox;
static int caller;
static bool leaves; /* the caller sends and closes during the next recvmsg */

static void send_last(void)
{
    const struct inbox_head message = inbox_head_of(&mine, 0, 7);
    const int fd = 2;
    assert_int_equal(send_descriptors(caller, &message, sizeof(message), &fd, 1, 0),
                     sizeof(message));
    close(caller);
}

WRAPPED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags))
{
    if (!leaves)
        return __real_recvmsg(fd, message, flags);
    leaves = false;
    send_last();
    message->msg_controllen = 0; /* as the kernel sets it */
    return 0;
}

static void call(void)
{
    assert_int_equal(cecl_inbox_open(&inbox, &mine, KIND), ceclSuccess);
    caller = inbox_call(mine.name, KIND);
    assert_true(caller >= 0);
}

static ceclResult_t take(struct cecl_letter *letter)
{
    return cecl_inbox_take(&inbox, 1, NULL, 0, letter);
}

TEST(a_last_message_is_taken_with_its_descriptor)
{
    struct cecl_letter letter;
    call();
    assert_int_equal(take(&letter), ceclInProgress);
    leaves = true;
    assert_int_equal(take(&letter), ceclSuccess);
    assert_int_equal(letter.number, 7);
    assert_int_equal(letter.nfds, 1);
    close(letter.fds[0]);
    assert_int_equal(take(&letter), ceclInProgress);
    cecl_inbox_close(&inbox);
}

/* No rank sends an empty message, so the inbox closes the message's descriptors. */
TEST(an_empty_message_leaves_no_descriptors)
{
    struct cecl_letter letter;
    const int fds[] = {0, 1, 2};
    call();
    const int before = open_descriptors();
    assert_int_equal(send_descriptors(caller, "", 0, fds, 3, 0), 0);
    assert_int_equal(take(&letter), ceclInProgress);
    assert_int_equal(inbox.caller, -1);
    assert_int_equal(open_descriptors(), before);
    close(caller);
    cecl_inbox_close(&inbox);
}

TEST(a_lack_is_borne_for_a_second_and_one_that_nobody_saw_go_on_begins_anew)
{
    int64_t lack[2] = {0};
    const int64_t start = cecl_now_ms();
    assert_false(cecl_net_bears(EAGAIN, lack));
    while (cecl_net_bears(EMFILE, lack))
        ;
    assert_true(cecl_now_ms() - start >= 1000);
    cecl_pause_us(600000);
    assert_true(cecl_net_bears(EMFILE, lack));
    assert_false(cecl_net_bears(0, lack));
}
