/* Strided all-gathers and all-to-alls: along the last dimension and back, shapes of all kinds, in
 * place and out of place, in groups whose calls share rows. Tests check every byte, also between
 * rows. */
#include "random_call.h"

#define MOST 6000 /* approximate elements of a block */
#define POISON 0x5A

static ceclComm_t comm;
static unsigned char *recv_buffer, *send_buffer, *host;
static size_t room; /* bytes of each */

static int set_up(void **state)
{
    room = (size_t)multi_nranks * MOST * 12;
    comm = multi_comm(NULL);
    host = malloc(room);
    assert_non_null(host);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, room));
    return 0;
}

static int tear_down(void **state)
{
    free(host);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

static void run_random(ceclComm_t on, uint64_t seed, int rounds)
{
    random_rounds(on, ALL_GATHER_STRIDED, rounds, seed);
    random_rounds(on, ALL_TO_ALL_STRIDED, rounds, seed + 1);
}

TEST_BETWEEN(random_shapes_are_right, set_up, tear_down)
{
    run_random(comm, 31337, 75);
}

static void random_shapes_are_right_with(const ceclConfig_t *config, uint64_t seed)
{
    ceclComm_t other = multi_comm(config);
    run_random(other, seed, 30);
    multi_ok(NULL, ceclCommDestroy(other));
}

TEST(random_shapes_are_right_where_sms_may_copy)
{
    ceclConfig_t config = multi_config();
    config.smPolicy = CECL_SM_ALLOW;
    random_shapes_are_right_with(&config, 4242);
}

TEST(rows_pass_through_a_small_staging)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = 4096;
    random_shapes_are_right_with(&config, 777);
}

/* [rows][nranks * width] on each rank becomes [nranks * rows][width], and is changed back. */
TEST_BETWEEN(there_and_back_is_where_it_was, set_up, tear_down)
{
    const size_t n = (size_t)multi_nranks, width = 33, rows = 21, bytes = n * width * rows * 2;
    const ceclStrided_t there = {.width = width, .rows = rows};
    const ceclStrided_t back = {.width = width,
                                .rows = rows,
                                .sendPitch = width,
                                .sendStride = rows * width,
                                .recvPitch = n * width,
                                .recvStride = width};
    memset(host, POISON, room);
    multi_put(comm, recv_buffer, host, room);
    multi_fill(host, 5, multi_rank, bytes);
    multi_put(comm, send_buffer, host, room);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, ceclAlltoAllStrided(send_buffer, recv_buffer, &there, ceclHalf, comm, NULL));
    memset(host, POISON, room);
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_put(comm, send_buffer, host, room);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, ceclAlltoAllStrided(recv_buffer, send_buffer, &back, ceclHalf, comm, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, host, send_buffer, room);
    for (size_t i = 0; i < room; i++)
        assert_int_equal(host[i], i < bytes ? multi_byte(5, multi_rank, i) : POISON);
}

/* The header says that a gather does not use sendStride, so any value is accepted. */
TEST_BETWEEN(a_gather_takes_any_send_stride, set_up, tear_down)
{
    ceclStrided_t shape = {.width = 33, .rows = 3, .sendStride = SIZE_MAX};
    multi_ok(comm, ceclAllGatherStrided(send_buffer, recv_buffer, &shape, ceclHalf, comm, NULL));
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
}

/* Three gathers in one group whose rows lie side by side: queries, keys and values. */
TEST_BETWEEN(gathers_of_a_group_may_share_rows, set_up, tear_down)
{
    const size_t n = (size_t)multi_nranks, width = 24, rows = 30, panel = n * width;
    const ceclStrided_t shape = {.width = width, .rows = rows, .recvPitch = 3 * panel};
    memset(host, POISON, room);
    multi_put(comm, recv_buffer, host, room);
    for (size_t p = 0; p < 3; p++) {
        multi_fill(host, p, multi_rank, width * rows);
        multi_put(comm, send_buffer + p * width * rows, host, width * rows);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, ceclGroupStart());
    for (size_t p = 0; p < 3; p++)
        multi_ok(comm, ceclAllGatherStrided(send_buffer + p * width * rows, recv_buffer + p * panel,
                                            &shape, ceclInt8, comm, NULL));
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, host, recv_buffer, room);
    for (size_t i = 0; i < room; i++) {
        const size_t row = i / (3 * panel), p = i / panel % 3, r = i / width % n, x = i % width;
        assert_int_equal(host[i], row < rows ? multi_byte(p, (int)r, row * width + x) : POISON);
    }
    /* with one more column, the outputs overlap */
    const ceclStrided_t wide = {.width = width + 1, .rows = rows, .recvPitch = 3 * panel};
    multi_ok(comm, ceclGroupStart());
    for (size_t p = 0; p < 2; p++)
        multi_ok(comm, ceclAllGatherStrided(send_buffer + p * (width + 1) * rows,
                                            recv_buffer + p * panel, &wide, ceclInt8, comm, NULL));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidArgument, "share memory");
}

static ceclResult_t gather(const ceclStrided_t *shape)
{
    return ceclAllGatherStrided(send_buffer, recv_buffer, shape, ceclFloat, comm, NULL);
}

TEST_BETWEEN(bad_shapes_are_named, set_up, tear_down)
{
    const size_t n = (size_t)multi_nranks;
    multi_refused(comm, gather(NULL), ceclInvalidArgument, "strided: NULL");
    multi_refused(comm, gather(&(ceclStrided_t){.width = 4, .rows = 2, .sendPitch = 3}),
                  ceclInvalidArgument, "sendPitch: 12 bytes; a row has 16");
    multi_refused(comm, gather(&(ceclStrided_t){.width = 4, .rows = 2, .recvPitch = 4 * n - 1}),
                  ceclInvalidArgument, "recvStride: 16 bytes");
    multi_refused(comm, gather(&(ceclStrided_t){.width = 4, .rows = 2, .recvStride = 3}),
                  ceclInvalidArgument, "overlap in recvbuff");
    multi_refused(comm, gather(&(ceclStrided_t){.width = 4, .rows = 2, .recvPitch = 1u << 30}),
                  ceclInvalidArgument, "pitches up to 2147483647");
    multi_refused(comm, gather(&(ceclStrided_t){.width = SIZE_MAX / 2, .rows = 2}),
                  ceclInvalidArgument, "address space");
    multi_refused(comm, gather(&(ceclStrided_t){.width = 4, .rows = SIZE_MAX / 32}),
                  ceclInvalidArgument, "address space");
    multi_refused(comm, gather(&(ceclStrided_t){.width = 4, .rows = room}), ceclInvalidUsage,
                  "left in its allocation");
    multi_refused(comm,
                  ceclAllGatherStrided(NULL, recv_buffer, &(ceclStrided_t){.width = 1, .rows = 1},
                                       ceclFloat, comm, NULL),
                  ceclInvalidArgument, "sendbuff: NULL");
    multi_refused(comm,
                  ceclAlltoAllStrided(send_buffer, recv_buffer,
                                      &(ceclStrided_t){.width = 1, .rows = 1}, (ceclDataType_t)99,
                                      comm, NULL),
                  ceclInvalidArgument, "datatype 99");
    multi_refused(comm, gather(&(ceclStrided_t){.width = 4}), ceclInvalidArgument,
                  "strided.rows: 0");
    multi_ok(comm, gather(&(ceclStrided_t){.rows = 4}));
    run_random(comm, 1, 1); /* the communicator is still usable */
}

TEST_BETWEEN(ranks_that_differ_are_told_where_calls_are_compared, set_up, tear_down)
{
    const bool odd = multi_rank == multi_nranks - 1;
    multi_setenv("CECL_CHECK", "1");
    ceclComm_t checked = multi_comm(NULL);
    multi_setenv("CECL_CHECK", NULL);
    char *recv = NULL;
    multi_ok(checked, ceclMemAlloc(checked, (void **)&recv, 65536));
    const ceclStrided_t shape = {.width = odd ? 8 : 4, .rows = odd ? 4 : 8};
    multi_refused(checked, ceclAllGatherStrided(send_buffer, recv, &shape, ceclInt8, checked, NULL),
                  ceclInvalidUsage, "ranks differ in strided");
    multi_check(checked, &(struct multi_case){.op = ceclOpAllGather, .count = 9, .type = 0}, 3);
    multi_ok(NULL, ceclCommDestroy(checked));
}
