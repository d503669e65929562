/* The mesh over many hosts: threads, each of which is the only rank of a pretended host. */
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../oob_threads.h"
#include "boot/mesh_internal.h"
#include "boot/net.h"

#define RANKS 8
#define LONG_MS 60000 /* ms; a step that takes longer has hung */

static struct rank {
    pthread_t thread;
    struct cecl_oob oob;
    struct cecl_mesh *mesh;
    ceclResult_t result;
    int index, all[RANKS];
} ranks[RANKS];

struct introduction {
    struct cecl_invitation invitation;
    struct cecl_reach reach;
};

static ceclResult_t open_over_hosts(struct rank *me)
{
    static const uint16_t host[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct introduction mine = {.reach = {{{0}}}}, all[RANKS];
    CECL_TRY(cecl_mesh_new(&me->oob, LONG_MS, &mine.invitation, &me->mesh));
    CECL_TRY(cecl_mesh_reach(me->mesh, &mine.reach));
    CECL_TRY(me->oob.allgather(&me->oob, &mine, all, sizeof(mine)));
    CECL_TRY(cecl_mesh_spread(me->mesh, host, &all[0].reach, sizeof(all[0])));
    CECL_TRY(cecl_mesh_connect(me->mesh, &all[0].invitation, sizeof(all[0])));
    cecl_mesh_joined(me->mesh);
    return ceclSuccess;
}

static void *run_open(void *argument)
{
    struct rank *me = argument;
    me->result = open_over_hosts(me);
    return NULL;
}

static void *run_gather(void *argument)
{
    struct rank *me = argument;
    me->result = cecl_mesh_allgather(me->mesh, "x", &me->index, me->all, sizeof(int));
    return NULL;
}

static void run_all(void *(*run)(void *))
{
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].result, ceclSuccess);
    }
}

static int set_up(void **state)
{
    static struct oob_threads oobs;
    oobs = (struct oob_threads)OOB_THREADS_NONE;
    setenv("CECL_SOCKET_IFNAME", "lo", 1);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.index = r, .oob = oob_of_thread(&oobs, RANKS, r, LONG_MS)};
        ranks[r].oob.find_address = cecl_tcp_named_address;
    }
    run_all(run_open);
    return 0;
}

static int tear_down(void **state)
{
    for (int r = 0; r < RANKS; r++)
        cecl_mesh_close(ranks[r].mesh);
    return 0;
}

static struct rlimit limit_descriptors(rlim_t most)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit small = {.rlim_cur = most, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    return before;
}

/* poll() refuses lists that are longer than the limit of descriptors, and most ranks of a large job have none
 * here. So the limit is 12: a leader's thread polls 9 descriptors, and a rank fewer. */
static void the_number_of_ranks_may_pass_the_limit_of_descriptors(void **state)
{
    const struct rlimit before = limit_descriptors(12);
    for (int round = 0; round < 3; round++) {
        run_all(run_gather);
        for (int r = 0; r < RANKS; r++)
            for (int from = 0; from < RANKS; from++)
                assert_int_equal(ranks[r].all[from], from);
    }
    cecl_fail(ceclInternalError, "its own fault");
    cecl_mesh_tell_abort(ranks[RANKS - 1].mesh, cecl_message());
    for (int r = 0; r < RANKS - 1; r++) {
        assert_int_equal(cecl_mesh_watch(ranks[r].mesh, LONG_MS), ceclRemoteError);
        assert_non_null(strstr(cecl_message(), "rank 7 gave up: its own fault"));
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- one rank of two; the test is the leader's thread */

static struct rank *const alone = &ranks[0];
static pthread_t gathers;
static int lines[CECL_LINES_OF_RANK];

static void make_pair(int type, int *mine, int *theirs)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    *mine = pair[0];
    *theirs = pair[1];
}

static int set_up_alone(void **state)
{
    static const uint16_t host[] = {0, 1};
    static const struct cecl_reach nowhere[2];
    struct cecl_invitation mine;
    *alone = (struct rank){.oob = {.nranks = 2, .deadline = cecl_deadline(LONG_MS)}};
    assert_int_equal(cecl_mesh_new(&alone->oob, LONG_MS, &mine, &alone->mesh), ceclSuccess);
    (void)!cecl_mesh_spread(alone->mesh, host, nowhere, sizeof(nowhere[0]));
    cecl_mesh_joined(alone->mesh);
    for (int line = 0; line < CECL_LINES_OF_RANK; line++)
        make_pair(SOCK_SEQPACKET, &alone->mesh->hosts->line[line], &lines[line]);
    return 0;
}

static int tear_down_alone(void **state)
{
    cecl_mesh_close(alone->mesh);
    cecl_net_drop(lines, CECL_LINES_OF_RANK);
    return 0;
}

static void say(int fd, int kind, const void *bytes, size_t count)
{
    char message[CECL_LINK_BYTES];
    const struct cecl_link_head head = {
        .bytes = (uint32_t)(sizeof(head) + count), .kind = (uint16_t)kind, .from = 1};
    memcpy(message, &head, sizeof(head));
    memcpy(message + sizeof(head), bytes, count);
    assert_int_equal(cecl_net_send(fd, message, head.bytes, cecl_deadline(LONG_MS), "the thread"),
                     ceclSuccess);
}

static void say_goodbye(int fd)
{
    const struct mesh_life goodbye = {.kind = LIFE_GOODBYE};
    say(fd, CECL_LINK_LIFE, &goodbye, sizeof(goodbye));
}

static void send_frame(void)
{
    const struct {
        struct mesh_header header;
        int payload;
    } frame = {{.magic = MESH_FRAME_MAGIC, .bytes = sizeof(int), .kind = "x"}, 1};
    say(lines[CECL_LINE_FRAMES], CECL_LINK_FRAME, &frame, sizeof(frame.header) + sizeof(int));
}

static void begin_gather(void)
{
    const int64_t deadline = cecl_deadline(LONG_MS);
    assert_int_equal(pthread_create(&gathers, NULL, run_gather, alone), 0);
    while (!cecl_mesh_left(alone->mesh, 1) && cecl_ms_left(deadline) > 0)
        usleep(1000);
    assert_true(cecl_mesh_left(alone->mesh, 1));
}

/* The last frame of a rank may wait in the leader's thread when the rank's goodbye is read already, perhaps by the
 * watchdog. */
static void a_goodbye_that_overtakes_a_frame_fails_no_exchange(void **state)
{
    say_goodbye(lines[CECL_LINE_LIFE]);
    begin_gather();
    usleep(100000); /* the exchange looks for news meanwhile */
    send_frame();
    say_goodbye(lines[CECL_LINE_FRAMES]);
    pthread_join(gathers, NULL);
    assert_int_equal(alone->result, ceclSuccess);
    assert_int_equal(alone->all[1], 1);
}

static void a_goodbye_instead_of_a_frame_fails_an_exchange(void **state)
{
    say_goodbye(lines[CECL_LINE_FRAMES]);
    say_goodbye(lines[CECL_LINE_LIFE]);
    begin_gather();
    pthread_join(gathers, NULL);
    assert_int_equal(alone->result, ceclRemoteError);
}

/* ---- the thread of a leader; the test is its rank, and the leader of the other host */

static int kind_of_next(int line)
{
    union {
        struct cecl_link_head head;
        char bytes[CECL_LINK_BYTES];
    } message;
    assert_int_equal(cecl_net_wait(lines[line], POLLIN, cecl_deadline(LONG_MS), "the thread"),
                     ceclSuccess);
    assert_true(recv(lines[line], &message, sizeof(message), 0) > 0);
    return message.head.kind;
}

/* More frames than a line takes at a time. */
static void a_goodbye_comes_on_both_lines_and_behind_the_frames(void **state)
{
    enum { FRAMES = 200 };
    static const uint16_t host[] = {0, 1};
    static char frame[CECL_PACKET_BODY];
    int theirs[2][CECL_LINES_OF_RANK] = {{-1, -1}, {-1, -1}}, processes[] = {-1, -1},
        links[] = {-1, -1}, link;
    struct cecl_links_plan plan = {.nranks = 2,
                                   .host = host,
                                   .lines = theirs,
                                   .processes = processes,
                                   .links = links,
                                   .silence_ms = LONG_MS};
    for (int line = 0; line < CECL_LINES_OF_RANK; line++)
        make_pair(SOCK_SEQPACKET, &lines[line], &theirs[0][line]);
    make_pair(SOCK_STREAM, &link, &links[1]);
    assert_int_equal(cecl_links_start(&plan), ceclSuccess);
    for (int i = 0; i < FRAMES; i++)
        say(link, CECL_LINK_FRAME, frame, sizeof(frame));
    say_goodbye(link);
    assert_int_equal(kind_of_next(CECL_LINE_LIFE), CECL_LINK_LIFE);
    for (int i = 0; i < FRAMES; i++)
        assert_int_equal(kind_of_next(CECL_LINE_FRAMES), CECL_LINK_FRAME);
    assert_int_equal(kind_of_next(CECL_LINE_FRAMES), CECL_LINK_LIFE);
    cecl_net_drop(lines, CECL_LINES_OF_RANK);
    close(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_number_of_ranks_may_pass_the_limit_of_descriptors,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_goodbye_that_overtakes_a_frame_fails_no_exchange,
                                        set_up_alone, tear_down_alone),
        cmocka_unit_test_setup_teardown(a_goodbye_instead_of_a_frame_fails_an_exchange,
                                        set_up_alone, tear_down_alone),
        cmocka_unit_test(a_goodbye_comes_on_both_lines_and_behind_the_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
