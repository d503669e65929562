/* A program that is linked to NCCL. Its ranks are processes or threads, and make the same calls.
 * nccl_program processes|threads|children|newest|messages|captured|crowd|again NRANKS
 *   children  processes whose parent has made the same calls before it forked
 *   newest    threads that make calls which only the newest NCCL has
 *   messages  threads that each send the next one many messages in a group, around a ring
 *   captured  processes that capture a gather and a message, and replay both twice
 *   crowd     a process that makes a call on each of 100 communicators first, and then threads
 *   again     processes, each of which first makes calls on 100 communicators, one after the other
 * Prints the name and the result of each call that failed. */
#include "processes.h"

#define MOST 40000 /* elements of a buffer */

static bool succeeds(const char *name, const struct rank *rank, ncclResult_t made)
{
    const ncclResult_t result = outcome_of(rank->comm, made);
    if (result != 0)
        printf("%s %d\n", name, result);
    return result == 0;
}
#define CALL(name, ...) succeeds(#name, rank, name(__VA_ARGS__))

static bool make_calls(struct rank *rank)
{
    static _Thread_local int in[MOST], out[MAX_RANKS * MOST];
    bool is_right = true;
    for (int i = 0; i < 3; i++) /* 4 KiB each, the largest size of its row in the table */
        is_right = CALL(ncclAllGather, in, out, 1024, ncclInt32, rank->comm, NULL) && is_right;
    is_right = CALL(ncclAllGather, in, out, 1025, ncclInt32, rank->comm, NULL) && is_right;
    for (int i = 0; i < 2; i++)
        is_right =
            CALL(ncclAllReduce, in, out, 40000, ncclInt32, ncclSum, rank->comm, NULL) && is_right;
    is_right = CALL(ncclAllGather, in, out, 0, ncclInt32, rank->comm, NULL) && is_right;
    return CALL(ncclBcast, in, 8, ncclFloat64, 0, rank->comm, NULL) && is_right;
}

static bool make_newest_calls(struct rank *rank)
{
    const int config = 0;
    int in = rank->rank, out[MAX_RANKS], sum = 0;
    const bool is_gathered =
        CALL(ncclAllGatherConfig, &in, out, 1, ncclInt32, rank->comm, NULL, &config) &&
        CALL(ncclAllGatherConfig, &in, out, 1, ncclInt32, rank->comm, NULL, &config);
    return CALL(ncclAllReduceConfig, &in, &sum, 1, ncclInt32, ncclSum, rank->comm, NULL, &config) &&
           sum == rank->nranks * (rank->nranks - 1) / 2 && is_gathered;
}

static bool send_many(struct rank *rank)
{
    const int next = (rank->rank + 1) % rank->nranks,
              before = (rank->rank + rank->nranks - 1) % rank->nranks;
    const int in = rank->rank;
    int out[300];
    bool is_right = succeeds("ncclGroupStart", rank, ncclGroupStart());
    for (int i = 0; i < 300; i++)
        is_right = CALL(ncclSend, &in, 1, ncclInt32, next, rank->comm, NULL) &&
                   CALL(ncclRecv, &out[i], 1, ncclInt32, before, rank->comm, NULL) && is_right;
    return succeeds("ncclGroupEnd", rank, ncclGroupEnd()) && is_right && out[299] == before;
}

static bool capture_calls(struct rank *rank)
{
    const cudaStream_t stream = STANDIN(standin_stream)();
    const int in[4] = {rank->rank};
    int out[4 * MAX_RANKS], word = -1;
    STANDIN(standin_capture)(stream);
    bool is_right = CALL(ncclAllGather, in, out, 4, ncclInt32, rank->comm, stream);
    struct standin_graph *gather = STANDIN(standin_end_capture)(stream);
    STANDIN(standin_capture)(stream);
    is_right = (rank->rank == 0   ? CALL(ncclSend, in, 1, ncclInt32, 1, rank->comm, stream)
                : rank->rank == 1 ? CALL(ncclRecv, &word, 1, ncclInt32, 0, rank->comm, stream)
                                  : true) &&
               is_right;
    struct standin_graph *message = STANDIN(standin_end_capture)(stream);
    for (int i = 0; i < 2; i++)
        is_right = STANDIN(standin_launch)(gather) == 0 && STANDIN(standin_launch)(message) == 0 &&
                   is_right;
    STANDIN(standin_graph_free)(gather);
    STANDIN(standin_graph_free)(message);
    STANDIN(standin_stream_free)(stream);
    return is_right && out[4 * (rank->nranks - 1)] == rank->nranks - 1 &&
           (rank->rank == 1) == (word == 0);
}

static bool gather_alone(struct rank *rank)
{
    int in = 1, out = 0;
    return CALL(ncclAllGather, &in, &out, 1, ncclInt32, rank->comm, NULL) && out == 1;
}

/* Makes a call on each of many communicators, which all exist at the same time, so their handles differ. */
static bool call_in_a_crowd(int nranks)
{
    enum { CROWD = 100 };
    struct rank alone[CROWD];
    bool is = true;
    for (int i = 0; i < CROWD; i++) {
        alone[i] = (struct rank){.nranks = 1};
        is = is && ncclCommInitAll(&alone[i].comm, 1, NULL) == 0 && gather_alone(&alone[i]);
    }
    is = is && run_ranks(nranks, make_calls);
    for (int i = 0; i < CROWD && is; i++)
        is = ncclCommDestroy(alone[i].comm) == 0;
    return is;
}

/* Makes a call on each of many communicators. One ends before the next is made, so NCCL may reuse its handle. */
static bool call_alone_again(void)
{
    bool is = true;
    for (int i = 0; i < 100 && is; i++) {
        struct rank alone = {.nranks = 1};
        is = ncclCommInitAll(&alone.comm, 1, NULL) == 0 && gather_alone(&alone) &&
             ncclCommDestroy(alone.comm) == 0;
    }
    return is;
}

static void run_process(struct rank *rank)
{
    run_rank(rank);
    exit(rank->is_right ? 0 : 1);
}

static int await_processes(void)
{
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}

static bool is_again;

/* The processes exit, which prints their tables. */
static int run_as_processes(int nranks, bool (*run)(struct rank *))
{
    struct meeting *meeting = meeting_new();
    if (!meeting)
        return 9;
    for (int i = 0; i < nranks; i++) {
        if (fork() == 0) {
            struct rank rank = {.rank = i, .nranks = nranks, .run = run};
            if (is_again && !call_alone_again())
                exit(1);
            agree_on_id(meeting, &rank);
            run_process(&rank);
        }
    }
    return await_processes();
}

static int run_children(int nranks)
{
    struct rank rank = {.nranks = nranks, .run = make_calls};
    if (!run_ranks(1, make_calls) || ncclGetUniqueId(&rank.id) != 0)
        return 1;
    for (rank.rank = 0; rank.rank < nranks; rank.rank++)
        if (fork() == 0)
            run_process(&rank);
    return await_processes();
}

int main(int argc, char **argv)
{
    const int nranks = argc == 3 ? atoi(argv[2]) : 0;
    if (nranks < 1 || nranks > MAX_RANKS)
        return 2;
    is_again = strcmp(argv[1], "again") == 0;
    if (is_again || strcmp(argv[1], "processes") == 0)
        return run_as_processes(nranks, make_calls);
    if (strcmp(argv[1], "newest") == 0)
        return !run_ranks(nranks, make_newest_calls);
    if (strcmp(argv[1], "captured") == 0)
        return run_as_processes(nranks, capture_calls);
    if (strcmp(argv[1], "messages") == 0)
        return !run_ranks(nranks, send_many);
    if (strcmp(argv[1], "crowd") == 0)
        return !call_in_a_crowd(nranks);
    return strcmp(argv[1], "children") == 0 ? run_children(nranks) : !run_ranks(nranks, make_calls);
}
