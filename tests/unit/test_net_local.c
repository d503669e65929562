/* The network between pretended nodes: two ranks of one process, each with its own device, and mailboxes
 * that both map. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <pthread.h>
#include <time.h>

#include "net/net.h"
#include "util/clock.h"

#define RANKS 70
#define AWAY 66 /* a rank that never comes */
#define LARGE 300001u

static struct cecl_device *devs[2];
static ceclStream_t streams[2];
static struct cecl_net *nets[2];
static void *memory;
static unsigned char *bytes[2];
static uint32_t gate;

/* Parentheses around an op `fail`: cmocka has a macro of that name. */

static int set_up(void **state)
{
    bool fine = posix_memalign(&memory, 4096, cecl_net_local_bytes(RANKS)) == 0;
    memset(memory, 0, cecl_net_local_bytes(RANKS));
    gate = 0;
    for (int r = 0; r < 2; r++) {
        bytes[r] = malloc(2 * LARGE);
        fine = fine && cecl_host_open(&devs[r]) == ceclSuccess &&
               devs[r]->ops->stream_create(devs[r], &streams[r]) == ceclSuccess &&
               cecl_net_local_open(devs[r], memory, r, RANKS, &nets[r]) == ceclSuccess;
        for (size_t i = 0; i < 2 * LARGE; i++)
            bytes[r][i] = (unsigned char)(i * 7 + i / 251 + (size_t)r * 91);
    }
    return !fine;
}

static int tear_down(void **state)
{
    for (int r = 0; r < 2; r++) {
        if (nets[r])
            nets[r]->ops->close(nets[r]);
        devs[r]->ops->close(devs[r]);
        free(bytes[r]);
    }
    free(memory);
    return 0;
}

static void exchange(int rank, const struct cecl_net_transfer *list, uint32_t count)
{
    assert_int_equal(nets[rank]->ops->exchange(nets[rank], streams[rank], list, count),
                     ceclSuccess);
}

static void finish(int rank)
{
    assert_int_equal(devs[rank]->ops->stream_synchronize(devs[rank], streams[rank]), ceclSuccess);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Polls until an exchange waits for exactly these ranks. */
static void await_late(int rank, int count, int first)
{
    const int64_t end = cecl_deadline(20000);
    struct cecl_rank_list late;
    uint32_t moved = 0;
    do {
        late = (struct cecl_rank_list){.count = 0};
        const bool runs = nets[rank]->ops->late(nets[rank], &late, &moved);
        if (runs == (count > 0) && late.count == count && (count == 0 || late.ranks[0] == first))
            return;
        pause_ms(1);
    } while (cecl_ms_left(end) > 0);
    fail_msg("rank %d: %d ranks are late, %d expected", rank, late.count, count);
}

/* ---- */

static void rings_are_neither_too_small_nor_too_many_bytes(void **state)
{
    static const struct {
        int nranks;
        size_t ring;
    } cases[] = {{1, 65536}, {2, 65536}, {16, 65536}, {17, 32768}, {64, 4096}, {1024, 1024}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t boxes = (size_t)cases[i].nranks * (size_t)cases[i].nranks;
        assert_int_equal(cecl_net_local_bytes(cases[i].nranks), boxes * (cases[i].ring + 128));
    }
}

/* More than a ring holds, in both directions at once. Their first transfers match in order. */
static void transfers_meet_in_order_and_arrive_whole(void **state)
{
    unsigned char *in[2];
    for (int r = 0; r < 2; r++) {
        in[r] = calloc(1, 2 * LARGE);
        const int peer = 1 - r;
        const struct cecl_net_transfer list[] = {
            {bytes[r], LARGE, peer, true},     {in[r], LARGE, peer, false},
            {bytes[r] + LARGE, 1, peer, true}, {bytes[r] + LARGE + 1, LARGE - 1, peer, true},
            {in[r] + LARGE, 1, peer, false},   {in[r] + LARGE + 1, LARGE - 1, peer, false}};
        exchange(r, list, 6);
        exchange(r, list, 6); /* then the rings begin at another offset */
    }
    for (int r = 0; r < 2; r++) {
        finish(r);
        assert_int_equal(nets[r]->ops->error(nets[r]), ceclSuccess);
    }
    for (int r = 0; r < 2; r++) {
        assert_memory_equal(in[r], bytes[1 - r], 2 * LARGE);
        free(in[r]);
    }
}

static void an_exchange_is_late_until_its_peer_has_come(void **state)
{
    unsigned char in[8], other[8];
    const struct cecl_net_transfer first[] = {{in, 8, 1, false}, {other, 8, AWAY, false}},
                                   second[] = {{bytes[1], 8, 0, true}};
    assert_true(nets[0]->is_exact);
    assert_string_equal(nets[0]->name, "shared memory between pretended nodes");
    await_late(0, 0, 0);
    exchange(0, first, 2);
    await_late(0, 2, 1);
    exchange(1, second, 1);
    finish(1);
    await_late(0, 1, AWAY); /* the other rank is still missing */
    assert_memory_equal(in, bytes[1], 8);
    (nets[0]->ops->fail)(nets[0]);
    finish(0);
    await_late(0, 0, 0);
}

static void what_moves_is_seen(void **state)
{
    struct cecl_rank_list late = {.count = 0};
    unsigned char in[8];
    uint32_t before = 0, after = 0;
    nets[1]->ops->late(nets[1], &late, &before);
    exchange(1, (const struct cecl_net_transfer[]){{in, 8, 0, false}}, 1);
    await_late(1, 1, 0);
    nets[1]->ops->late(nets[1], &late, &after);
    assert_int_equal(after, before);
    exchange(0, (const struct cecl_net_transfer[]){{bytes[0], 8, 1, true}}, 1);
    finish(1);
    after = 0;
    nets[1]->ops->late(nets[1], &late, &after);
    assert_true(after > before);
}

/* The ring of rank 0 has 5 bytes left, too few for the next transfer's size field. */
static void a_size_goes_as_a_whole(void **state)
{
    enum { ROOM = 2048, FIRST = ROOM - 8 - 5, SECOND = 100 };
    unsigned char in[FIRST + SECOND];
    assert_int_equal(cecl_net_local_bytes(RANKS), RANKS * RANKS * (ROOM + 128));
    exchange(0,
             (const struct cecl_net_transfer[]){{bytes[0], FIRST, 1, true},
                                                {bytes[0] + FIRST, SECOND, 1, true}},
             2);
    await_late(0, 1, 1);
    exchange(
        1,
        (const struct cecl_net_transfer[]){{in, FIRST, 0, false}, {in + FIRST, SECOND, 0, false}},
        2);
    finish(1);
    assert_int_equal(nets[1]->ops->error(nets[1]), ceclSuccess);
    assert_memory_equal(in, bytes[0], FIRST + SECOND);
}

static void ends_that_differ_are_named_by_the_receiver(void **state)
{
    unsigned char in[8] = {0};
    exchange(1, (const struct cecl_net_transfer[]){{in, 7, 0, false}}, 1);
    exchange(0, (const struct cecl_net_transfer[]){{bytes[0], 8, 1, true}}, 1);
    finish(0);
    finish(1);
    assert_int_equal(nets[0]->ops->error(nets[0]), ceclSuccess);
    assert_int_equal(nets[1]->ops->error(nets[1]), ceclInvalidUsage);
    assert_non_null(
        strstr(cecl_message(), "from rank 0 to rank 1: ceclSend has 8 bytes, ceclRecv 7"));
    for (int i = 0; i < 8; i++)
        assert_int_equal(in[i], 0);
}

/* Other threads may read the first error at any time. */
static void the_first_error_stays(void **state)
{
    unsigned char in[8] = {0};
    exchange(0, (const struct cecl_net_transfer[]){{bytes[0], 8, 1, true}}, 1);
    finish(0);
    exchange(1,
             (const struct cecl_net_transfer[]){
                 {bytes[1], 6, 1, true}, {in, 5, 1, false}, {in, 7, 0, false}},
             3);
    finish(1);
    assert_int_equal(nets[1]->ops->error(nets[1]), ceclInvalidUsage);
    assert_non_null(
        strstr(cecl_message(), "from rank 1 to rank 1: ceclSend has 6 bytes, ceclRecv 5"));
}

static void a_failed_network_moves_nothing(void **state)
{
    unsigned char in[8] = {0};
    (nets[0]->ops->fail)(nets[0]);
    exchange(1, (const struct cecl_net_transfer[]){{bytes[1], 8, 0, true}}, 1);
    finish(1);
    exchange(0, (const struct cecl_net_transfer[]){{in, 8, 1, false}}, 1);
    finish(0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(in[i], 0);
}

static void *open_gate(void *unused)
{
    pause_ms(30);
    devs[1]->ops->host_write(devs[1], &gate, 1, 1);
    return unused;
}

/* A failed communicator may end while an exchange is still queued. */
static void a_network_is_closed_once_its_stream_is_done(void **state)
{
    unsigned char in[8];
    const struct cecl_memop wait = {&gate, 1, CECL_MEMOP_WAIT};
    pthread_t thread;
    assert_int_equal(devs[0]->ops->memops(devs[0], streams[0], &wait, 1), ceclSuccess);
    exchange(0, (const struct cecl_net_transfer[]){{in, 8, 1, false}}, 1);
    (nets[0]->ops->fail)(nets[0]);
    assert_int_equal(devs[0]->ops->stream_query(devs[0], streams[0]), ceclInProgress);
    assert_int_equal(pthread_create(&thread, NULL, open_gate, NULL), 0);
    nets[0]->ops->close(nets[0]);
    nets[0] = NULL;
    assert_int_equal(devs[0]->ops->stream_query(devs[0], streams[0]), ceclSuccess);
    pthread_join(thread, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_are_neither_too_small_nor_too_many_bytes),
        TEST(transfers_meet_in_order_and_arrive_whole),
        TEST(an_exchange_is_late_until_its_peer_has_come),
        TEST(what_moves_is_seen),
        TEST(a_size_goes_as_a_whole),
        TEST(ends_that_differ_are_named_by_the_receiver),
        TEST(the_first_error_stays),
        TEST(a_failed_network_moves_nothing),
        TEST(a_network_is_closed_once_its_stream_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
