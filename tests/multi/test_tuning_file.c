/* CECL_TUNING: a file of thresholds changes the paths of calls, and all ranks must have the same thresholds. */
#include "multi.h"

#define BLOCK 1024

#define AWAY_MS 400

static int forget_tuning(void **state)
{
    multi_tuning(NULL);
    return 0;
}

static void path_of_all_reduce(char path[64])
{
    ceclComm_t comm = multi_comm(NULL);
    ceclExplanation_t e = {.zeroSm = -1};
    char *buffer = multi_alloc(comm, BLOCK);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllReduce(buffer, buffer, BLOCK, ceclInt8, ceclSum, comm, 0));
    multi_ok(comm, ceclGroupExplain(comm, &e));
    memcpy(path, e.path, sizeof(e.path));
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST_BETWEEN(a_file_changes_what_a_call_does, NULL, forget_tuning)
{
    char path[64];
    path_of_all_reduce(path);
    assert_string_equal(path, "small, one exchange through slots");
    multi_tuning("small.all_reduce.max_bytes * any 1023");
    path_of_all_reduce(path);
    assert_string_equal(path, "SMs read at the peers and write to all");
    multi_tuning("small.all_reduce.max_bytes * any 0\nall_reduce.sms_write_max_bytes * any 0\n"
                 "all_reduce.sms_end_bytes * any 0");
    path_of_all_reduce(path);
    assert_string_equal(path, "SMs read at the peers, pushed to all");
}

TEST_BETWEEN(rows_for_other_ranks_or_devices_change_nothing, NULL, forget_tuning)
{
    char rows[200], path[64];
    ceclComm_t comm = multi_comm(NULL);
    snprintf(rows, sizeof(rows),
             "small.all_reduce.max_bytes %d any 0\nsmall.all_reduce.max_bytes * %s 0",
             multi_nranks + 1, multi_on_gpus(comm) ? "host" : "cuda");
    multi_ok(NULL, ceclCommDestroy(comm));
    multi_tuning(rows);
    path_of_all_reduce(path);
    assert_string_equal(path, "small, one exchange through slots");
}

static void gather(ceclComm_t comm, char *buffer)
{
    const size_t bytes = 1 << 20; /* no small call */
    multi_ok(comm,
             ceclAllGather(buffer + (size_t)multi_rank * bytes, buffer, bytes, ceclInt8, comm, 0));
}

/* Rank 0 makes two calls; the others come late to at least `late` of them. Returns rank 0's seconds; elsewhere 0. */
static double time_ahead(uint64_t late)
{
    ceclComm_t comm = multi_comm(NULL);
    double took = 0;
    ceclCallStats_t before, after;
    char *buffer = multi_alloc(comm, (size_t)multi_nranks << 20);
    gather(comm, buffer);
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_ok(comm, ceclCallStats(comm, &before));
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = multi_seconds();
    int made = 0;
    if (late == 2 && multi_rank != 0) /* late for both: they come after rank 0 has made both */
        MPI_Bcast(&made, 1, MPI_INT, 0, MPI_COMM_WORLD);
    else if (multi_rank != 0)
        multi_pause_ms(AWAY_MS);
    gather(comm, buffer);
    gather(comm, buffer);
    if (multi_rank == 0)
        took = multi_seconds() - start;
    if (late == 2 && multi_rank == 0)
        MPI_Bcast(&made, 1, MPI_INT, 0, MPI_COMM_WORLD);
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_ok(comm, ceclCallStats(comm, &after));
    assert_int_equal(after.told - before.told, 2);
    if (multi_rank == 0)
        assert_in_range(after.late - before.late, late, 2);
    multi_ok(comm, ceclCommFinalize(comm));
    multi_ok(comm, ceclCallStats(comm, &before));
    assert_int_equal(before.told, after.told);
    multi_ok(NULL, ceclCommDestroy(comm));
    return took;
}

TEST_BETWEEN(a_rank_ahead_waits_as_long_as_the_file_says, NULL, forget_tuning)
{
    bool is_soon = false;
    for (int try = 0; try < 4 && !is_soon; try++) /* a busy machine may be slow */
        is_soon = multi_how_many(time_ahead(2) < AWAY_MS * 0.5e-3) == multi_nranks;
    assert_true(is_soon);
    multi_tuning("late.pending_ns * any 1000000000\nlate.pending_sum_ns * any 1000000000");
    /* Ranks wait 1 s at most, which is longer than AWAY_MS. */
    const double took = time_ahead(1);
    assert_true(multi_rank != 0 || took > AWAY_MS * 0.5e-3);
}

/* Rank 1 holds one or two calls on its stream until rank 0 has returned from the next call, to which all but rank 0
 * come late. Returns whether that call was late, the same on all ranks. */
static bool is_late_behind(int calls)
{
    const ceclSignalWait_t wait = {0, 1, 1};
    ceclComm_t comm = multi_comm(NULL);
    ceclCallStats_t before, after;
    char *buffer = multi_alloc(comm, (size_t)multi_nranks << 20);
    ceclStream_t other = multi_stream(comm);
    gather(comm, buffer);
    gather(comm, buffer);
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    if (multi_rank == 1)
        multi_ok(comm, ceclWaitSignal(1, &wait, comm, 0));
    for (int i = 0; i < calls; i++)
        gather(comm, buffer);
    multi_ok(comm, ceclCallStats(comm, &before));
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank != 0)
        multi_pause_ms(AWAY_MS / 4);
    gather(comm, buffer);
    if (multi_rank == 0)
        multi_ok(comm, ceclSignal(1, 1, comm, other));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_ok(comm, ceclCallStats(comm, &after));
    multi_ok(comm, ceclStreamSynchronize(comm, other));
    multi_ok(comm, ceclStreamDestroy(comm, other));
    multi_ok(NULL, ceclCommDestroy(comm));
    return multi_how_many(after.late > before.late) > 0;
}

/* On a busy machine a rank may come too late, or not late enough. So each case has four tries. */
static void expect_late(bool late, const char *tuning, int calls)
{
    bool is_late = !late;
    multi_tuning(tuning);
    for (int try = 0; try < 4 && is_late != late; try++)
        is_late = is_late_behind(calls);
    assert_int_equal(is_late, late);
}

/* Rank 1 holds up rank 0's GPU as well. With two held calls that GPU is behind (see cecl_places_patience), because the
 * first of them comes before the last call that all ranks have published; with one held call it is not. */
TEST_BETWEEN(a_rank_whose_gpu_is_behind_waits, NULL, forget_tuning)
{
#define NO_OTHER_WAIT "late.wait_ns * any 0\nlate.pending_ns * any 0\n"
    expect_late(true, NO_OTHER_WAIT "late.behind_ns * any 0", 2);
    expect_late(false, NO_OTHER_WAIT "late.behind_ns * any 900000000", 2);
    expect_late(true, NO_OTHER_WAIT "late.behind_ns * any 900000000", 1);
}

static ceclResult_t join(void)
{
    const ceclConfig_t config = multi_config();
    ceclComm_t comm = NULL;
    return ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config);
}

TEST_BETWEEN(ranks_with_different_tables_are_refused, NULL, forget_tuning)
{
    multi_tuning(multi_rank == multi_nranks - 1 ? "reduction.reading_sms * any 7"
                                                : "reduction.reading_sms * any 6");
    multi_refused(NULL, join(), ceclInvalidArgument,
                  "ranks differ in CECL_TUNING (a hash of the table)");
}

TEST_BETWEEN(ranks_with_equal_tables_in_different_files_meet, NULL, forget_tuning)
{
    multi_tuning(multi_rank == 0 ? "reduction.reading_sms * any 8 # as built in" : "# nothing");
    multi_cycle(NULL);
}

TEST_BETWEEN(a_bad_file_on_one_rank_is_told_to_all, NULL, forget_tuning)
{
    multi_tuning(multi_rank == 1 ? "\nreduction.reading_sms * any 0" : "# nothing");
    multi_refused(NULL, join(), ceclInvalidArgument, "rank 1: CECL_TUNING: /tmp/cecl_test_tuning_");
    multi_refused(NULL, join(), ceclInvalidArgument, ":3: \"0\": a whole number, 1 to 1024,");
}

TEST_BETWEEN(a_missing_file_is_refused, NULL, forget_tuning)
{
    multi_setenv("CECL_TUNING", "/nowhere/tuning");
    multi_refused(NULL, join(), ceclInvalidArgument, "CECL_TUNING=/nowhere/tuning: No such file");
}

TEST_BETWEEN(staging_and_segments_follow_the_table, NULL, forget_tuning)
{
    ceclComm_t comm = multi_comm(NULL);
    const bool host = !multi_on_gpus(comm);
    multi_ok(NULL, ceclCommDestroy(comm));
    if (!host)
        skip_because("on GPUs the sizes depend on the GPU, too");
    ceclPoolStats_t before, after;
    comm = multi_comm(NULL);
    multi_ok(comm, ceclPoolStats(comm, &before));
    multi_ok(NULL, ceclCommDestroy(comm));
    multi_tuning("staging.max_bytes * host 512KiB");
    comm = multi_comm(NULL);
    multi_ok(comm, ceclPoolStats(comm, &after));
    multi_ok(NULL, ceclCommDestroy(comm));
    assert_int_equal(after.usedBytes - before.usedBytes, 256 << 10);
}
