/* Messages between two ranks: they match in order, on any memory; a wrong message is refused or fails the communicator.
 * test_mixed.c has random messages, in groups that differ at the two ends. */
#include "launch/launcher.h"
#include "multi.h"

#define BYTES 3001 /* odd */
/* Time limit of calls that must time out. Ranks must be able to allocate memory within it. */
#define LIMIT_MS 1000

static void pass_on(ceclComm_t comm, const void *send, void *recv, size_t bytes)
{
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclSend(send, bytes, ceclUint8, multi_next(), comm, 0));
    multi_ok(comm, ceclRecv(recv, bytes, ceclUint8, multi_last(), comm, 0));
    multi_ok(comm, ceclGroupEnd());
}

static void ring(ceclComm_t comm)
{
    unsigned char *send = multi_alloc(comm, BYTES), *recv = multi_alloc(comm, BYTES);
    multi_fill_device(comm, send, 4, multi_rank, BYTES);
    pass_on(comm, send, recv, BYTES);
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_check_device(comm, recv, 4, multi_last(), BYTES, BYTES);
}

TEST_WITH_COMM(wrong_arguments_are_refused_and_change_nothing)
{
    unsigned char *buffer = multi_alloc(comm, 64);
    const int peer = multi_next();
    multi_refused(comm, ceclSend(buffer, 1 << 30, ceclInt8, peer, comm, 0), ceclInvalidUsage,
                  "left in its allocation");
    multi_refused(comm, ceclSend(buffer, 1, ceclInt8, multi_rank, comm, 0), ceclInvalidUsage,
                  "this group has more ceclSend");
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclSend(buffer, 2, ceclInt8, peer, comm, 0));
    multi_refused(comm, ceclRecv(NULL, 1, ceclInt8, multi_last(), comm, 0), ceclInvalidArgument,
                  "recvbuff: NULL");
    multi_refused(comm, ceclGroupEnd(), ceclInvalidArgument, "recvbuff: NULL");
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclSend(buffer, 2, ceclInt8, multi_rank, comm, 0));
    multi_ok(comm, ceclRecv(buffer + 4, 3, ceclInt8, multi_rank, comm, 0));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "2 bytes and receives 3");
    ring(comm);
}

/* The receiver does not end before the sender begins. */
TEST_WITH_COMM(messages_without_bytes_are_waited_for)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == 0)
        multi_pause_ms(100);
    double begin = multi_seconds(); /* one clock for all processes */
    if (multi_rank == 0)
        multi_ok(comm, ceclSend(NULL, 0, ceclInt8, 1, comm, 0));
    if (multi_rank == 1)
        multi_ok(comm, ceclRecv(NULL, 0, ceclInt8, 0, comm, 0));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    const double end = multi_seconds();
    MPI_Bcast(&begin, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (multi_rank == 1)
        assert_true(end > begin);
}

/* Both ranks of the message get the error, whichever comes first. */
TEST(different_counts_fail_the_communicator_and_are_named)
{
    for (int first = 0; first < 2; first++) {
        ceclComm_t comm = multi_comm(NULL);
        unsigned char *buffer = multi_alloc(comm, 64);
        multi_guard(comm, buffer, 64);
        MPI_Barrier(MPI_COMM_WORLD);
        if (multi_rank == 1 - first)
            multi_pause_ms(100);
        const ceclResult_t result = multi_rank == 0   ? ceclSend(buffer, 10, ceclInt8, 1, comm, 0)
                                    : multi_rank == 1 ? ceclRecv(buffer, 7, ceclInt8, 0, comm, 0)
                                                      : ceclSuccess;
        if (multi_rank == 1 - first)
            assert_int_equal(result, ceclInvalidUsage);
        multi_fails(comm, "from rank 0 to rank 1: ceclSend has 10 bytes, ceclRecv 7");
        assert_int_not_equal(ceclStreamSynchronize(comm, 0), ceclSuccess);
        multi_ok(NULL, ceclCommAbort(comm));
    }
}

TEST(a_different_count_in_a_group_is_named)
{
    ceclComm_t comm = multi_comm(NULL);
    unsigned char *buffer = multi_alloc(comm, 64);
    multi_guard(comm, buffer, 64);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, ceclGroupStart());
    for (int i = 0; i < 3 && multi_rank == 0; i++)
        multi_ok(comm, ceclSend(buffer, 8, i == 1 ? ceclInt32 : ceclInt8, 1, comm, 0));
    for (int i = 0; i < 3 && multi_rank == 1; i++)
        multi_ok(comm, ceclRecv(buffer + 8 * i, 8, ceclInt8, 0, comm, 0));
    const ceclResult_t result = ceclGroupEnd();
    assert_true(result == ceclSuccess || (result == ceclInvalidUsage && multi_rank < 2));
    multi_fails(comm, "message 2 from rank 0 to rank 1: ceclSend has 32 bytes, ceclRecv 8");
    multi_ok(NULL, ceclCommAbort(comm));
}

/* The sender and the receiver of a message compare their arguments without the other ranks. */
TEST(messages_need_no_check_of_calls)
{
    multi_setenv("CECL_CHECK", "1");
    different_counts_fail_the_communicator_and_are_named(state);
    a_different_count_in_a_group_is_named(state);
    multi_setenv("CECL_CHECK", NULL);
}

/* Under CECL_CHECK=1, too, neither rank waits in its call for the other's call. */
TEST_WITH(multi_comm_under("CECL_CHECK", "1", NULL), a_check_of_calls_holds_up_no_message)
{
    unsigned char *buffer = multi_alloc(comm, 64);
    if (multi_rank == 0) {
        multi_fill_device(comm, buffer, 1, multi_rank, 64);
        multi_ok(comm, ceclSend(buffer, 64, ceclInt8, 1, comm, 0));
    }
    MPI_Barrier(MPI_COMM_WORLD); /* rank 0 has made its call, and rank 1 makes it now */
    if (multi_rank == 1) {
        multi_ok(comm, ceclRecv(buffer, 16, ceclInt32, 0, comm, 0));
        multi_ok(comm, ceclStreamSynchronize(comm, 0));
        multi_check_device(comm, buffer, 1, 0, 64, 64);
    }
}

/* Makes a communicator and a buffer of 64 bytes. Returns when all ranks have both. */
static ceclComm_t comm_and_buffer(int timeout_ms, unsigned char **buffer)
{
    ceclComm_t comm = multi_comm(NULL);
    multi_ok(comm, ceclMemAlloc(comm, (void **)buffer, 64));
    multi_limit(comm, timeout_ms);
    return comm;
}

/* Each rank calls ceclSend and then ceclRecv, or the reverse. calls = 1: only the first of them, which always waits. */
static void ranks_that_wait_for_each_other_are_told_to_group(bool sends_first, int calls)
{
    const int next = multi_next(), last = multi_last(), peer = sends_first ? next : last;
    unsigned char *buffer = NULL;
    char words[96];
    ceclComm_t comm = comm_and_buffer(60000, &buffer);
    for (int i = 0; i < calls; i++)
        if (sends_first == (i == 0))
            multi_ok(comm, ceclSend(buffer, 7, ceclInt8, next, comm, 0));
        else
            multi_ok(comm, ceclRecv(buffer + 7, 7, ceclInt8, last, comm, 0));
    multi_limit(comm, LIMIT_MS); /* now that all ranks wait */
    const ceclResult_t result = ceclStreamSynchronize(comm, 0);
    multi_refused(comm, result, result == ceclTimeout ? ceclTimeout : ceclRemoteError,
                  sends_first ? ": ceclSend to rank " : ": ceclRecv from");
    assert_non_null(strstr(ceclGetLastError(comm), "put ceclSend and ceclRecv into one group "
                                                   "(ceclGroupStart, ceclGroupEnd)"));
    snprintf(words, sizeof(words), "a call has waited for rank %d for ", peer);
    if (result == ceclTimeout && !strstr(ceclGetLastError(comm), words))
        fail_msg("rank %d said: %s", multi_rank, ceclGetLastError(comm));
    assert_int_not_equal(multi_how_many(result == ceclTimeout), 0);
    multi_ok(NULL, ceclCommAbort(comm));
}

TEST(ranks_that_all_send_first_or_all_receive_first_are_told_to_group)
{
    for (int sends_first = 0; sends_first < 2; sends_first++)
        for (int calls = 1; calls <= 2; calls++)
            ranks_that_wait_for_each_other_are_told_to_group(sends_first, calls);
}

/* Rank 0 waits for rank 1. With three ranks, rank 1 begins 0.5 s later, and waits for rank 2, which makes no call; so
 * rank 0's time limit passes first. Returns whether the errors of ranks 0 and 1 name the last rank. */
static bool is_end_of_chain_named_within(int ms)
{
    const int last = multi_nranks > 2 ? 2 : 1;
    unsigned char *buffer = NULL;
    char words[64];
    snprintf(words, sizeof(words), "waited for rank %d for", last);
    ceclComm_t comm = comm_and_buffer(ms, &buffer);
    bool named = true;
    if (multi_rank < last) {
        usleep((useconds_t)multi_rank * 500000);
        ceclResult_t result = ceclRecv(buffer, 7, ceclInt8, multi_rank + 1, comm, 0);
        if (multi_rank > 0 && result == ceclSuccess)
            result = ceclSend(buffer, 7, ceclInt8, multi_rank - 1, comm, 0);
        if (result == ceclSuccess)
            result = ceclStreamSynchronize(comm, 0);
        multi_refused(comm, result, result == ceclTimeout ? ceclTimeout : ceclRemoteError,
                      "waited for rank");
        named = strstr(ceclGetLastError(comm), words) != NULL;
    }
    named = multi_how_many(named) == multi_nranks;
    multi_ok(NULL, ceclCommAbort(comm));
    return named;
}

/* On a busy machine rank 1 may begin to wait after rank 0's time is over. */
TEST(the_end_of_a_chain_of_waits_is_named)
{
    assert_true(is_end_of_chain_named_within(3000) || is_end_of_chain_named_within(9000) ||
                is_end_of_chain_named_within(30000));
}

/* Rank 0 receives from all others, and none of them sends. Returns whether rank 0's error names all. */
static bool all_are_named_within(int ms)
{
    unsigned char *buffer = NULL;
    ceclComm_t comm = comm_and_buffer(ms, &buffer);
    bool named = true;
    if (multi_rank == 0) {
        multi_ok(comm, ceclGroupStart());
        for (int r = 1; r < multi_nranks; r++)
            multi_ok(comm, ceclRecv(buffer + r, 1, ceclInt8, r, comm, 0));
        multi_ok(comm, ceclGroupEnd());
        multi_refused(comm, ceclStreamSynchronize(comm, 0), ceclTimeout, "waited for rank");
        named = strstr(ceclGetLastError(comm), multi_nranks == 2   ? "waited for rank 1 for"
                                               : multi_nranks == 3 ? "waited for ranks 1 and 2 for"
                                                                   : "waited for ranks 1, 2");
    }
    named = multi_how_many(named) == multi_nranks;
    multi_ok(NULL, ceclCommAbort(comm));
    return named;
}

/* On a busy machine the receive from one peer may begin to wait after the others' time is over. */
TEST(all_peers_that_stay_away_are_named)
{
    assert_true(all_are_named_within(LIMIT_MS) || all_are_named_within(4 * LIMIT_MS) ||
                all_are_named_within(15 * LIMIT_MS));
}

TEST_WITH_COMM(a_group_is_explained)
{
    ceclExplanation_t explanation;
    unsigned char *buffer = multi_alloc(comm, 4 * BYTES);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclSend(buffer, BYTES, ceclInt8, multi_next(), comm, 0));
    multi_ok(comm, ceclRecv(buffer + BYTES, BYTES, ceclInt8, multi_last(), comm, 0));
    multi_ok(comm, ceclGroupExplain(comm, &explanation));
    assert_string_equal(explanation.path, "point to point, 1 sent, 1 received");
    assert_int_equal(explanation.zeroSm, !multi_shares_gpu(comm));
    assert_int_equal(explanation.bytesSent, BYTES);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclSend(buffer, BYTES, ceclInt8, multi_rank, comm, 0));
    multi_ok(comm, ceclRecv(buffer + BYTES, BYTES, ceclInt8, multi_rank, comm, 0));
    multi_ok(comm, ceclGroupExplain(comm, &explanation));
    assert_string_equal(explanation.path, "point to point, 0 sent, 0 received");
    assert_int_equal(explanation.zeroSm, multi_nranks > 1 && !multi_shares_gpu(comm));
}

/* A group posts receives before sends, and a sender waits up to 1 s for its receiver's post, and then pushes. */
TEST(ranks_that_exchange_much_push_what_they_send)
{
    const size_t much = 8 << 20; /* see launch/messages.c */
    multi_tuning("late.wait_ns * any 1000000000");
    ceclComm_t comm = multi_comm(NULL);
    multi_tuning(NULL);
    char *send = multi_alloc(comm, much);
    char *recv = multi_alloc(comm, much);
    for (int i = 0; i < 10; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (multi_rank == i % multi_nranks)
            multi_pause_ms(5);
        pass_on(comm, send, recv, much);
        const struct cecl_plan *plan = &comm->launcher->once.plan;
        assert_int_equal(plan->ncopies, 1);
        assert_int_equal(plan->copies[0].src.rank, multi_rank);
    }
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_ok(NULL, ceclCommDestroy(comm));
}
