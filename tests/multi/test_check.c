/* CECL_CHECK=1: if arguments differ, all ranks get an error with both values; nothing is enqueued, later calls work. */
#include "multi.h"

static ceclComm_t checked_comm(void)
{
    return multi_comm_under("CECL_CHECK", "1", NULL);
}

/* Makes call `which` as the last rank does, or as all others do. */
static ceclResult_t differing(int which, bool odd, char *send, char *recv, ceclComm_t comm)
{
    const ceclStrided_t shape = {.width = odd ? 8 : 4, .rows = odd ? 4 : 8};
    size_t counts[64];
    for (int r = 0; r < multi_nranks; r++)
        counts[r] = r == 0 && odd ? 7 : 8;
    switch (which) {
    case 0: return ceclAllGather(send, recv, odd ? 20 : 10, ceclInt8, comm, 0);
    case 1: return ceclAllGather(send, recv, 10, odd ? ceclUint8 : ceclInt8, comm, 0);
    case 2:
        return odd ? ceclAlltoAll(send, recv, 10, ceclInt8, comm, 0)
                   : ceclAllGather(send, recv, 10, ceclInt8, comm, 0);
    case 3: return ceclAlltoAll(odd ? recv : send, recv, 10, ceclInt8, comm, 0);
    case 4: return ceclAllGather(send, recv, odd ? 0 : 64, ceclInt8, comm, 0);
    case 5: return ceclAllGatherv(send, counts[multi_rank], recv, counts, NULL, 0, comm, 0);
    case 6: return ceclBroadcast(recv, recv, 8, 0, odd, comm, 0);
    case 7: return ceclAllReduce(send, recv, 8, ceclInt32, odd ? ceclMax : ceclMin, comm, 0);
    case 8: return ceclReduce(send, recv, 8, ceclInt32, ceclSum, odd, comm, 0);
    case 9: return ceclAllGatherStrided(send, recv, &shape, ceclInt8, comm, 0);
    default: return odd ? ceclBroadcast(recv, recv, 8, 0, 0, comm, 0) : ceclBarrier(comm, 0);
    }
}

TEST_WITH(checked_comm(), mismatched_calls_are_refused_on_every_rank)
{
    static const char *const words[] = {"count: 10 on rank 0, 20 on rank",
                                        "datatype",
                                        "the call: ceclAllGather on rank 0, ceclAlltoAll on rank",
                                        "placement: out of place on rank 0, in place on rank",
                                        "count: 64 on rank 0, 0 on rank",
                                        "ranks differ in recvcounts, displs or rows",
                                        "root: 0 on rank 0, 1 on rank",
                                        "ranks differ in op: ceclMin on rank 0, ceclMax on rank",
                                        "ranks differ in root",
                                        "ranks differ in strided",
                                        "ceclBarrier on rank 0, ceclBroadcast on rank"};
    const bool odd = multi_rank == multi_nranks - 1;
    const size_t n = (size_t)multi_nranks;
    char *recv = multi_alloc(comm, n * 1024 + 256);
    char *send = multi_alloc(comm, n * 1024);
    for (int round = 0; round < 3; round++) {
        for (int which = 0; which < (int)(sizeof(words) / sizeof(words[0])); which++)
            multi_refused(comm, differing(which, odd, send, recv, comm), ceclInvalidUsage,
                          words[which]);
        if (odd)
            multi_refused(comm, ceclAllGather(NULL, recv, 10, ceclInt8, comm, 0),
                          ceclInvalidArgument, "sendbuff: NULL");
        else
            multi_refused(comm, ceclAllGather(send, recv, 10, ceclInt8, comm, 0), ceclInvalidUsage,
                          "refused its call: sendbuff: NULL");
        multi_works(comm, NULL, multi_nranks);
    }
}

TEST_WITH(checked_comm(), an_allocation_that_meets_a_collective_is_refused_on_every_rank)
{
    void *more = NULL;
    char *recv = multi_alloc(comm, (size_t)multi_nranks * 64);
    multi_refused(comm,
                  multi_rank == 0
                      ? ceclMemAlloc(comm, &more, 64)
                      : ceclAllGather(recv + multi_rank * 64, recv, 64, ceclInt8, comm, 0),
                  ceclInvalidUsage, "the call: ceclMemAlloc on rank 0, ceclAllGather on rank 1");
    assert_null(more);
    multi_works(comm, NULL, multi_nranks);
}

TEST_WITH(checked_comm(), a_call_that_one_rank_refuses_is_refused_by_all)
{
    const bool odd = multi_rank == multi_nranks - 1;
    void *more = NULL;
    const ceclResult_t expected = odd ? ceclInvalidArgument : ceclInvalidUsage;
    char *recv = multi_alloc(comm, (size_t)multi_nranks * 1024);
    ceclStream_t gone = multi_stream(comm);
    if (odd)
        multi_ok(comm, ceclStreamDestroy(comm, gone));
    for (int round = 0; round < 3; round++) {
        multi_refused(comm, ceclMemFree(comm, recv + (odd ? 256 : 0)), expected,
                      "256 bytes into an allocation");
        multi_refused(comm, ceclMemFree(comm, odd ? NULL : recv), ceclInvalidUsage,
                      "ptr's offset in the pool");
        multi_refused(comm, ceclMemAlloc(comm, odd ? NULL : &more, 64), expected, "ptr: NULL");
        multi_refused(comm, ceclMemAlloc(comm, &more, odd ? 0 : 4096), ceclInvalidUsage,
                      "bytes: 4096 on rank 0, 0 on rank");
        if (!multi_on_gpus(comm)) /* CUDA cannot tell a destroyed stream from garbage */
            multi_refused(comm, ceclAllGather(recv, recv + 512, 4, ceclInt8, comm, gone), expected,
                          "(destroyed?)");
        multi_works(comm, NULL, multi_nranks);
    }
    multi_ok(comm, ceclMemFree(comm, recv));
}

/* A gather whose `root` is invalid on the last rank only. */
static ceclResult_t gather_to(ceclComm_t comm, char *buffer, bool refused)
{
    return ceclGather(buffer, buffer + 1024, 8, ceclInt8, refused ? -1 : 0, comm, NULL);
}

/* A rank that refuses a call still compares its calls on all communicators of the group. */
TEST(a_group_that_one_rank_refuses_leaves_all_its_communicators_usable)
{
    ceclComm_t comms[2] = {checked_comm(), checked_comm()};
    const bool odd = multi_rank == multi_nranks - 1;
    char *buffer[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        buffer[i] = multi_alloc(comms[i], 1024 + 1024);
    for (int refusing = 1; refusing < 4; refusing++) { /* the first call, the second, both */
        multi_ok(comms[0], ceclGroupStart());
        for (int i = 0; i < 2; i++) {
            const bool refused = odd && (refusing >> i & 1);
            assert_int_equal(gather_to(comms[i], buffer[i], refused),
                             refused ? ceclInvalidArgument : ceclSuccess);
        }
        multi_refused(NULL, ceclGroupEnd(), odd ? ceclInvalidArgument : ceclInvalidUsage,
                      "root -1");
        for (int i = 0; i < 2; i++)
            multi_works(comms[i], NULL, multi_nranks);
    }
    for (int i = 0; i < 2; i++)
        multi_ok(NULL, ceclCommDestroy(comms[i]));
}

/* With a stream for each communicator, ranks may use a group's communicators in any order, in a group or one by one. */
TEST(communicators_of_a_group_are_compared_in_any_order)
{
    ceclComm_t comms[2] = {checked_comm(), checked_comm()};
    ceclStream_t streams[2];
    char *buffers[2];
    const double start = multi_seconds();
    for (int i = 0; i < 2; i++) {
        buffers[i] = multi_alloc(comms[i], (size_t)multi_nranks * 64);
        streams[i] = multi_stream(comms[i]);
    }
    for (int round = 0; round < 4; round++) {
        const bool grouped = round % 2 == 0 || multi_rank > 0;
        const int first = grouped ? multi_rank % 2 : round / 2;
        if (grouped)
            multi_ok(NULL, ceclGroupStart());
        for (int n = 0; n < 2; n++) {
            const int i = n ^ first;
            multi_ok(comms[i], ceclAllGather(buffers[i] + multi_rank * 64, buffers[i], 64, ceclInt8,
                                             comms[i], streams[i]));
        }
        if (grouped)
            multi_ok(NULL, ceclGroupEnd());
        for (int i = 0; i < 2; i++)
            multi_ok(comms[i], ceclStreamSynchronize(comms[i], streams[i]));
    }
    assert_true(multi_seconds() - start < PROMPT);
    for (int i = 0; i < 2; i++)
        multi_ok(NULL, ceclCommDestroy(comms[i]));
}

/* The calls on the group's first communicator agree, those on the second differ. */
TEST(a_difference_on_a_communicator_refuses_the_group)
{
    ceclComm_t comms[2] = {checked_comm(), checked_comm()};
    const bool odd = multi_rank == multi_nranks - 1;
    char *buffers[2];
    for (int i = 0; i < 2; i++)
        buffers[i] = multi_alloc(comms[i], (size_t)multi_nranks * 64);
    for (int differing = 0; differing < 2; differing++) {
        multi_ok(NULL, ceclGroupStart());
        for (int n = 0; n < 2; n++) {
            const int i = n ^ odd;
            multi_ok(comms[i], ceclAllGather(buffers[i] + multi_rank * 8, buffers[i],
                                             odd && i == differing ? 4 : 8, ceclInt8, comms[i], 0));
        }
        multi_refused(NULL, ceclGroupEnd(), ceclInvalidUsage, "count: 8 on rank 0, 4 on rank");
        for (int i = 0; i < 2; i++)
            multi_works(comms[i], NULL, multi_nranks);
    }
    for (int i = 0; i < 2; i++)
        multi_ok(NULL, ceclCommDestroy(comms[i]));
}

static ceclComm_t part_of(ceclComm_t comm, bool belongs)
{
    ceclComm_t part = NULL;
    multi_ok(comm, ceclCommSplit(comm, belongs ? 0 : CECL_SPLIT_NOCOLOR, multi_rank, &part, NULL));
    return part;
}

/* Ranks 0 and 1 differ on one communicator. Rank 2, which has agreed with rank 0 on another one, cannot know that. */
TEST(a_refusal_on_a_communicator_fails_another_whose_ranks_do_not_see_it)
{
    if (multi_nranks < 3)
        skip_because("with three ranks, two communicators can share one rank");
    ceclComm_t all = checked_comm();
    ceclComm_t a = part_of(all, multi_rank <= 1),
               b = part_of(all, multi_rank % 2 == 0 && multi_rank <= 2);
    char *send = multi_alloc(all, 16);
    char *recv = multi_alloc(all, 48);
    if (multi_rank == 0) {
        multi_ok(NULL, ceclGroupStart());
        multi_ok(a, ceclAllGather(send, recv, 8, ceclInt8, a, 0));
        multi_ok(b, ceclAllGather(send, recv + 16, 8, ceclInt8, b, 0));
        multi_refused(NULL, ceclGroupEnd(), ceclInvalidUsage, "count: 8 on rank 0, 4 on rank 1");
        multi_refused(b, ceclAllGather(send, recv, 8, ceclInt8, b, 0), ceclInvalidUsage,
                      "its group failed on another communicator");
    } else if (multi_rank == 1) {
        multi_refused(a, ceclAllGather(send, recv, 4, ceclInt8, a, 0), ceclInvalidUsage,
                      "count: 8 on rank 0, 4 on rank 1");
    } else if (multi_rank == 2) {
        (void)!ceclAllGather(send, recv, 8, ceclInt8, b, 0);
        multi_fails(b, "its group failed on another communicator");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (a)
        /* ranks 0 and 1 agreed to refuse, so `a` is usable */
        multi_ok(NULL, ceclCommDestroy(a));
    if (b)
        multi_ok(NULL, ceclCommAbort(b));
    multi_ok(NULL, ceclCommDestroy(all)); /* frees the buffers, too */
}

/* The call on the failed communicator is refused at once, because that communicator was revoked. */
TEST(a_group_with_a_failed_communicator_names_no_rank_to_others)
{
    ceclComm_t works = checked_comm(), failed = checked_comm();
    char *buffer = multi_alloc(works, (size_t)multi_nranks * 8);
    char *mine = buffer + multi_rank * 8;
    multi_ok(failed, ceclCommRevoke(failed));
    if (multi_rank == 0) {
        multi_ok(NULL, ceclGroupStart());
        assert_int_equal(ceclAllGather(mine, buffer, 8, ceclInt8, failed, 0), ceclRemoteError);
        (void)!ceclAllGather(mine, buffer, 8, ceclInt8, works, 0);
        assert_int_equal(ceclGroupEnd(), ceclRemoteError);
    } else {
        multi_refused(works, ceclAllGather(mine, buffer, 8, ceclInt8, works, 0), ceclRemoteError,
                      "rank 0 refused its call: its group failed on another communicator: ");
    }
    multi_works(works, NULL, multi_nranks);
    multi_ok(NULL, ceclCommAbort(failed));
    multi_ok(NULL, ceclCommDestroy(works));
}

TEST_WITH(checked_comm(), a_refused_call_has_moved_nothing)
{
    const size_t bytes = (size_t)multi_nranks * 64;
    unsigned char *recv = NULL, *host = malloc(bytes);
    assert_non_null(host);
    recv = multi_alloc(comm, bytes);
    memset(host, 0x42 + multi_rank, bytes);
    multi_put(comm, recv, host, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_refused(comm,
                  ceclAllGather(recv + multi_rank * 64, recv, 64,
                                multi_rank == 0 ? ceclInt8 : ceclUint8, comm, 0),
                  ceclInvalidUsage, "datatype: int8 on rank 0, uint8 on rank 1");
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    MPI_Barrier(MPI_COMM_WORLD); /* what peers had enqueued has arrived */
    multi_get(comm, host, recv, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(host[i], 0x42 + multi_rank);
    free(host);
}
