/* Strided all-gathers and all-to-alls: along the last dimension and back, shapes of all kinds, in
 * place and out of place, in groups whose calls share rows. Tests check every byte, also between
 * rows. */
#include "multi.h"

#define MOST 6000 /* approximate elements of a block */
#define POISON 0x5A

static ceclComm_t comm;
static unsigned char *recv_buffer, *send_buffer, *host, *expected;
static size_t room; /* bytes of each */

static int set_up(void **state)
{
    room = (size_t)multi_nranks * MOST * 12;
    comm = multi_comm(NULL);
    host = malloc(room);
    expected = malloc(room);
    assert_non_null(host);
    assert_non_null(expected);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, room));
    return 0;
}

static int tear_down(void **state)
{
    free(host);
    free(expected);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

struct test_call {
    bool gathers, in_place;
    ceclDataType_t type;
    ceclStrided_t given; /* as passed to the call: 0 for a default */
    size_t width, rows, send_pitch, send_stride, recv_pitch,
        recv_stride; /* in bytes, with the defaults filled in */
};

/* The documented default of each field that is 0. */
static void fill_defaults(struct test_call *c)
{
    const ceclStrided_t *g = &c->given;
    const size_t size = multi_type_bytes(c->type), n = (size_t)multi_nranks;
    const size_t whole = n * g->width;
    const size_t send_pitch = g->sendPitch ? g->sendPitch : c->gathers ? g->width : whole;
    const size_t recv_pitch = g->recvPitch ? g->recvPitch : c->gathers ? whole : g->width;
    const size_t recv_stride = g->recvStride ? g->recvStride
                               : c->gathers  ? g->width
                                             : g->rows * recv_pitch;
    c->width = g->width * size;
    c->rows = g->rows;
    c->send_pitch = send_pitch * size;
    c->send_stride = (g->sendStride ? g->sendStride : g->width) * size;
    c->recv_pitch = recv_pitch * size;
    c->recv_stride = recv_stride * size;
}

static void draw_buffer(uint64_t *x, const ceclStrided_t *g, size_t *pitch, size_t *stride)
{
    const size_t n = (size_t)multi_nranks, gap = multi_draw(x) % 5;
    if (multi_draw(x) % 2) {
        *stride = g->width + gap;
        *pitch = (n - 1) * *stride + g->width + multi_draw(x) % 5;
    } else {
        *pitch = g->width + gap;
        *stride = g->rows * *pitch + multi_draw(x) % 9;
    }
}

/* All ranks draw the same. */
static void draw(uint64_t *x, struct test_call *c)
{
    static const ceclDataType_t types[] = {ceclInt8, ceclBfloat16, ceclFloat, ceclDouble};
    *c = (struct test_call){.gathers = multi_draw(x) % 2,
                            .in_place = multi_draw(x) % 2,
                            .type = types[multi_draw(x) % 4]};
    ceclStrided_t *g = &c->given;
    g->width = 1 + multi_draw(x) % 40;
    g->rows = 1 + multi_draw(x) % 25;
    if (multi_draw(x) % 3) {
        draw_buffer(x, g, &g->recvPitch, &g->recvStride);
        draw_buffer(x, g, &g->sendPitch, &g->sendStride);
    }
    if (c->in_place && !g->recvPitch) {
        g->recvPitch = (size_t)multi_nranks * g->width;
        g->recvStride = g->width;
    }
    if (c->in_place) {
        g->sendPitch = g->recvPitch;
        g->sendStride = g->recvStride;
    }
    fill_defaults(c);
}

/* Offset of byte `i` of block `block` from the start of the buffer. */
static size_t at(const struct test_call *c, bool send, int block, size_t i)
{
    const size_t pitch = send ? c->send_pitch : c->recv_pitch;
    const size_t first =
        send && c->gathers ? 0 : (size_t)block * (send ? c->send_stride : c->recv_stride);
    return first + i / c->width * pitch + i % c->width;
}

static unsigned char *input_of(const struct test_call *c)
{
    if (!c->in_place)
        return send_buffer;
    return recv_buffer + (c->gathers ? (size_t)multi_rank * c->recv_stride : 0);
}

/* Writes the input, and computes the expected contents of recvbuff. */
static void fill(const struct test_call *c, uint64_t seed)
{
    const size_t bytes = c->width * c->rows;
    const int blocks = c->gathers ? 1 : multi_nranks;
    const size_t shift = (size_t)(input_of(c) - (c->in_place ? recv_buffer : send_buffer));
    memset(host, POISON, room);
    multi_put(comm, recv_buffer, host, room);
    for (int b = 0; b < blocks; b++)
        for (size_t i = 0; i < bytes; i++)
            host[shift + at(c, true, b, i)] = multi_byte(seed, multi_rank, (size_t)b * bytes + i);
    multi_put(comm, c->in_place ? recv_buffer : send_buffer, host, room);
    memset(expected, POISON, room);
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < bytes; i++)
            expected[at(c, false, r, i)] =
                multi_byte(seed, r, c->gathers ? i : (size_t)multi_rank * bytes + i);
}

static ceclResult_t make(const struct test_call *c)
{
    return c->gathers
               ? ceclAllGatherStrided(input_of(c), recv_buffer, &c->given, c->type, comm, NULL)
               : ceclAlltoAllStrided(input_of(c), recv_buffer, &c->given, c->type, comm, NULL);
}

static void check(const struct test_call *c, uint64_t round)
{
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, host, recv_buffer, room);
    for (size_t i = 0; i < room; i++)
        if (host[i] != expected[i])
            fail_msg("rank %d, round %llu, %s%s of %zu rows of %zu: byte %zu is %02x, not %02x",
                     multi_rank, (unsigned long long)round,
                     c->gathers ? "all-gather" : "all-to-all", c->in_place ? " in place" : "",
                     c->rows, c->width, i, host[i], expected[i]);
}

static void run_random(uint64_t x, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        struct test_call c;
        draw(&x, &c);
        fill(&c, (uint64_t)round);
        MPI_Barrier(MPI_COMM_WORLD);
        multi_ok(comm, make(&c));
        check(&c, (uint64_t)round);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

TEST_BETWEEN(random_shapes_are_right, set_up, tear_down)
{
    run_random(31337, 150);
}

TEST_BETWEEN(random_shapes_are_right_where_sms_may_copy, set_up, tear_down)
{
    ceclConfig_t config = multi_config();
    config.smPolicy = CECL_SM_ALLOW;
    multi_ok(NULL, ceclCommDestroy(comm));
    comm = multi_comm(&config);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, room));
    run_random(4242, 60);
}

TEST_BETWEEN(rows_pass_through_a_small_staging, set_up, tear_down)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = 4096;
    multi_ok(NULL, ceclCommDestroy(comm));
    comm = multi_comm(&config);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, room));
    run_random(777, 60);
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
    run_random(1, 2); /* the communicator is still usable */
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
