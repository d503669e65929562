/* Calls whose splits (counts of rows) are in device memory: refusals, after which the communicator is usable; blocks that
 * do not fit, which every rank reports. test_collectives.c has random splits, test_experts.c captured ones. */
#include "buffers.h"
#include "random_call.h"

#define MOST 16 /* ranks */
#define ROWS 40 /* of a block, at most */
#define ROW 24  /* bytes of a row */

static uint64_t *splits, *out;

static void open_with(const char *policy)
{
    buffers_open(((size_t)multi_nranks * ROWS + 20) * ROW, NULL, policy);
    splits = multi_alloc(comm, MOST * sizeof(uint64_t));
    out = multi_alloc(comm, 2 * MOST * sizeof(uint64_t));
}

static int set_up(void **state)
{
    open_with("allow");
    return 0;
}

static int set_up_default(void **state)
{
    open_with(NULL);
    return 0;
}

static int set_up_checked(void **state)
{
    multi_setenv("CECL_CHECK", "1");
    open_with("allow");
    multi_setenv("CECL_CHECK", NULL);
    return 0;
}

static ceclResult_t call(size_t recvrows)
{
    return ceclAlltoAllvDevice(send_buffer, (size_t)multi_nranks * ROWS, splits, recv_buffer,
                               recvrows, out, ROW, ceclUint8, comm, NULL);
}

static size_t all_rows(void)
{
    return (size_t)multi_nranks * ROWS;
}

static void works(void)
{
    multi_options(comm, CECL_SM_ALLOW, CECL_UNDEF, CECL_UNDEF);
    random_groups(comm, BY_SPLITS, BY_SPLITS, 1, 2, 4711);
}

TEST_BETWEEN(an_explanation_names_the_kernels, set_up, tear_down)
{
    ceclExplanation_t said;
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(all_rows()));
    multi_ok(comm, ceclGroupExplain(comm, &said)); /* ends the group */
    assert_int_equal(said.zeroSm, 0);
    assert_int_equal(said.copies, 0);
    assert_int_equal(said.kernels, 2);
    assert_non_null(strstr(said.reason, "CECL_SM_ALLOW"));
}

TEST_BETWEEN(refused_arguments_do_no_harm, set_up, tear_down)
{
    uint64_t *own = malloc(MOST * sizeof(*own));
#define REFUSED(result, words, ...) \
    multi_refused(comm, ceclAlltoAllvDevice(__VA_ARGS__, ceclUint8, comm, NULL), result, words)
    REFUSED(ceclInvalidArgument, "recvsplits", send_buffer, 4, splits, recv_buffer, 4, NULL, 1);
    REFUSED(ceclInvalidArgument, "aligned", send_buffer, 4, (uint64_t *)((char *)splits + 4),
            recv_buffer, 4, out, 1);
    REFUSED(ceclInvalidArgument, "sendbuff", NULL, 4, splits, recv_buffer, 4, out, 1);
    REFUSED(ceclInvalidArgument, "recvbuff", send_buffer, 4, splits, NULL, 4, out, 1);
    REFUSED(ceclInvalidArgument, "recvrows", send_buffer, 4, splits, recv_buffer, 0, out, 1);
    REFUSED(ceclInvalidArgument, "sendrows", send_buffer, (size_t)1 << 30, splits, recv_buffer, 4,
            out, (size_t)1 << 40);
    REFUSED(ceclInvalidArgument, "at most", send_buffer, (size_t)1 << 31, splits, recv_buffer, 4,
            out, 1);
    REFUSED(ceclInvalidArgument, "recvsplits", send_buffer, 4, splits, recv_buffer, 4, splits + 1,
            1);
    REFUSED(ceclInvalidArgument, "overlap", send_buffer, 4, splits, send_buffer, 4, out, 1);
    REFUSED(ceclInvalidUsage, "recvbuff", send_buffer, 4, splits, recv_buffer, room + (1 << 20),
            out, 1);
    REFUSED(ceclInvalidUsage, "ceclMemAlloc", send_buffer, 4, splits, own, 4, out, 1);
#undef REFUSED
    free(own);
    works();
}

TEST_BETWEEN(a_group_has_no_other_call, set_up, tear_down)
{
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(all_rows()));
    multi_ok(comm, ceclBarrier(comm, NULL));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "the only call");
    works();
}

TEST_BETWEEN(other_policies_refuse_it, set_up_default, tear_down)
{
    multi_refused(comm, call(all_rows()), ceclInvalidUsage, "CECL_SM_ALLOW");
    works();
}

TEST_BETWEEN(unequal_sizes_are_named, set_up_checked, tear_down)
{
    char words[64];
    snprintf(words, sizeof(words), "recvrows: %zu on rank 0, %zu on rank 1", all_rows(),
             all_rows() - 1);
    multi_refused(comm, call(all_rows() - (size_t)multi_rank), ceclInvalidUsage, words);
    works();
}

static void expect_failure(const char *words)
{
    (void)!ceclStreamSynchronize(comm, NULL);
    multi_fails(comm, words);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Each rank sends `first` rows to rank 0, and `others` to each other rank. The call succeeds; then all have the error. */
static void expect_trouble(uint64_t first, uint64_t others, size_t recvrows, const char *words)
{
    uint64_t rows[MOST];
    for (int r = 0; r < multi_nranks; r++)
        rows[r] = r == 0 ? first : others;
    multi_put(comm, splits, rows, sizeof(rows));
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, call(recvrows));
    expect_failure(words);
}

TEST_BETWEEN(more_than_a_recvbuff_has_room_for_is_an_error_of_all, set_up, tear_down_failed)
{
    expect_trouble(5, 1, 5 * (size_t)multi_nranks - 1, "for rank 0");
}

TEST_BETWEEN(splits_beyond_sendbuff_are_an_error_of_all, set_up, tear_down_failed)
{
    const bool is_first = multi_rank == 0;
    expect_trouble(is_first ? ROWS + 1 : 0, is_first ? ROWS : 0, all_rows(), "rank 0");
}

/* Even without CECL_CHECK no row moves, because every rank sees that the last rank's line belongs to another call. */
TEST_BETWEEN(unequal_sizes_are_an_error_of_all_and_move_nothing, set_up, tear_down_failed)
{
    const bool is_last = multi_rank == multi_nranks - 1;
    uint64_t rows[MOST];
    char words[32];
    snprintf(words, sizeof(words), "rank %d", multi_nranks - 1);
    for (int r = 0; r < MOST; r++)
        rows[r] = 1;
    multi_put(comm, splits, rows, sizeof(rows));
    multi_guard(comm, recv_buffer, room);
    MPI_Barrier(MPI_COMM_WORLD);
    (void)!call(all_rows() - is_last); /* a peer may have found the difference already */
    expect_failure(is_last ? "differ" : words);
    /* A failed communicator copies nothing to the host; the host device's memory can be read without a copy. */
    for (size_t i = 0; !multi_on_gpus(comm) && i < room; i++)
        if (recv_buffer[i] != MULTI_GUARD)
            fail_msg("rank %d: byte %zu was written", multi_rank, i);
    MPI_Barrier(MPI_COMM_WORLD);
}
