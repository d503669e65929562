/* Collectives through the library in NCCL's place have the results of plain loops, and NCCL
 * receives each call once, with the same arguments. NCCL is the stand-in, which CECL_NCCL_PATH
 * names. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../with_cmocka.h"

#include "ranks.h"

#define RANKS 4
#define COUNT 10000 /* more than the most bytes in flight between two ranks */
#define ROOT 1

static __typeof__(standin_calls) *calls;
static __typeof__(standin_last) *last;

/* Element i of rank `rank`'s input. */
static int element(int rank, size_t i)
{
    return rank * 1000003 + (int)i;
}

/* A rank's input and output: RANKS blocks of COUNT elements each. */
struct buffers {
    int send[RANKS * COUNT];
    int recv[RANKS * COUNT];
};

static struct buffers *buffers_of(const struct rank *rank)
{
    struct buffers *buffers = calloc(1, sizeof(*buffers));
    for (size_t i = 0; i < RANKS * COUNT; i++)
        buffers->send[i] = element(rank->rank, i);
    return buffers;
}

/* Whether block `block` of recv is block `theirs` of the input of `sender`. */
static bool is_block(const struct buffers *buffers, int block, int sender, int theirs)
{
    for (size_t i = 0; i < COUNT; i++)
        if (buffers->recv[(size_t)block * COUNT + i] != element(sender, (size_t)theirs * COUNT + i))
            return false;
    return true;
}

/* Whether the first block of recv is the sum of block `block` over all ranks. */
static bool is_sum(const struct buffers *buffers, int block)
{
    for (size_t i = 0; i < COUNT; i++) {
        int sum = 0;
        for (int rank = 0; rank < RANKS; rank++)
            sum += element(rank, (size_t)block * COUNT + i);
        if (buffers->recv[i] != sum)
            return false;
    }
    return true;
}

static bool all_gather(struct rank *r, struct buffers *b)
{
    bool is_right = ncclAllGather(b->send, b->recv, COUNT, ncclInt32, r->comm, NULL) == 0;
    for (int peer = 0; peer < RANKS; peer++)
        is_right = is_right && is_block(b, peer, peer, 0);
    return is_right;
}

static bool all_to_all(struct rank *r, struct buffers *b)
{
    bool is_right = ncclAlltoAll(b->send, b->recv, COUNT, ncclInt32, r->comm, NULL) == 0;
    for (int peer = 0; peer < RANKS; peer++)
        is_right = is_right && is_block(b, peer, peer, r->rank);
    return is_right;
}

static bool broadcast(struct rank *r, struct buffers *b)
{
    return ncclBroadcast(b->send, b->recv, COUNT, ncclInt32, ROOT, r->comm, NULL) == 0 &&
           is_block(b, 0, ROOT, 0);
}

static bool bcast(struct rank *r, struct buffers *b)
{
    memcpy(b->recv, b->send, sizeof(b->send));
    return ncclBcast(b->recv, COUNT, ncclInt32, ROOT, r->comm, NULL) == 0 &&
           is_block(b, 0, ROOT, 0);
}

static bool gather(struct rank *r, struct buffers *b)
{
    bool is_right = ncclGather(b->send, b->recv, COUNT, ncclInt32, ROOT, r->comm, NULL) == 0;
    for (int peer = 0; peer < RANKS && r->rank == ROOT; peer++)
        is_right = is_right && is_block(b, peer, peer, 0);
    return is_right;
}

static bool scatter(struct rank *r, struct buffers *b)
{
    return ncclScatter(b->send, b->recv, COUNT, ncclInt32, ROOT, r->comm, NULL) == 0 &&
           is_block(b, 0, ROOT, r->rank);
}

static bool reduce_scatter(struct rank *r, struct buffers *b)
{
    return ncclReduceScatter(b->send, b->recv, COUNT, ncclInt32, ncclSum, r->comm, NULL) == 0 &&
           is_sum(b, r->rank);
}

static bool all_reduce(struct rank *r, struct buffers *b)
{
    return ncclAllReduce(b->send, b->recv, COUNT, ncclInt32, ncclSum, r->comm, NULL) == 0 &&
           is_sum(b, 0);
}

static bool reduce(struct rank *r, struct buffers *b)
{
    return ncclReduce(b->send, b->recv, COUNT, ncclInt32, ncclSum, ROOT, r->comm, NULL) == 0 &&
           (r->rank != ROOT || is_sum(b, 0));
}

/* Each rank sends to the next one. */
static bool send_and_receive(struct rank *r, struct buffers *b)
{
    const int next = (r->rank + 1) % RANKS, previous = (r->rank + RANKS - 1) % RANKS;
    return ncclGroupStart() == 0 && ncclSend(b->send, COUNT, ncclInt32, next, r->comm, NULL) == 0 &&
           ncclRecv(b->recv, COUNT, ncclInt32, previous, r->comm, NULL) == 0 &&
           ncclGroupEnd() == 0 && is_block(b, 0, previous, 0);
}

static bool (*const collectives[])(struct rank *, struct buffers *) = {
    all_gather, all_to_all, broadcast,  bcast,          gather,
    scatter,    reduce,     all_reduce, reduce_scatter, send_and_receive};
#define COLLECTIVES (sizeof(collectives) / sizeof(collectives[0]))

static bool run_collectives(struct rank *rank)
{
    bool is_right = true;
    for (size_t i = 0; i < COLLECTIVES; i++) {
        struct buffers *buffers = buffers_of(rank);
        is_right = collectives[i](rank, buffers) && is_right;
        free(buffers);
    }
    return is_right;
}

TEST(collectives_of_threads_give_what_plain_loops_give)
{
    assert_true(run_ranks(RANKS, run_collectives));
}

TEST(nccl_receives_each_call_once)
{
    static const char *const names[] = {
        "ncclAllGather", "ncclAlltoAll",  "ncclBcast",         "ncclGather", "ncclScatter",
        "ncclReduce",    "ncclAllReduce", "ncclReduceScatter", "ncclSend",   "ncclRecv"};
    size_t before[sizeof(names) / sizeof(names[0])];
    const size_t broadcasts = calls("ncclBroadcast");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        before[i] = calls(names[i]);
    assert_true(run_ranks(RANKS, run_collectives));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(calls(names[i]), before[i] + RANKS);
    /* each Bcast makes one broadcast */
    assert_int_equal(calls("ncclBroadcast"), broadcasts + 2 * RANKS);
}

/* A reduce has the most arguments: on x86-64, two are on the stack. */
static bool see_all_arguments(struct rank *rank)
{
    int in = 0, out;
    const cudaStream_t stream = (cudaStream_t)&out;
    const bool is_passed = ncclReduce(&in, &out, 1, ncclInt32, ncclMax, 0, rank->comm, stream) == 0;
    const struct standin_record got = last();
    const uint64_t given[] = {(uintptr_t)&in,        (uintptr_t)&out,  1, ncclInt32, ncclMax, 0,
                              (uintptr_t)rank->comm, (uintptr_t)stream};
    return is_passed && strcmp(got.name, "ncclReduce") == 0 &&
           memcmp(got.words, given, sizeof(given)) == 0;
}

TEST(all_arguments_of_a_collective_arrive)
{
    assert_true(run_ranks(1, see_all_arguments));
}

TEST(one_thread_makes_the_calls_of_many_ranks_in_a_group)
{
    ncclComm_t comms[RANKS];
    int in[RANKS], out[RANKS][RANKS];
    assert_int_equal(ncclCommInitAll(comms, RANKS, NULL), 0);
    assert_int_equal(ncclGroupStart(), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        in[rank] = 7 * rank;
        assert_int_equal(ncclAllGather(&in[rank], out[rank], 1, ncclInt32, comms[rank], NULL), 0);
    }
    assert_int_equal(ncclGroupEnd(), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_memory_equal(out[rank], in, sizeof(in));
        assert_int_equal(ncclCommDestroy(comms[rank]), 0);
    }
}

/* Splits into odd and even ranks, in the opposite order. */
static bool split_and_gather(struct rank *rank)
{
    ncclComm_t half;
    int recv[RANKS / 2], me, count;
    const int parity = rank->rank % 2;
    if (ncclCommSplit(rank->comm, parity, -rank->rank, &half, NULL) != 0)
        return false;
    const bool is_right = ncclAllGather(&rank->rank, recv, 1, ncclInt32, half, NULL) == 0 &&
                          ncclCommUserRank(half, &me) == 0 && ncclCommCount(half, &count) == 0 &&
                          count == RANKS / 2 && recv[me] == rank->rank &&
                          recv[0] == RANKS - 2 + parity;
    return ncclCommDestroy(half) == 0 && is_right;
}

TEST(a_split_communicator_has_the_ranks_of_its_color)
{
    assert_true(run_ranks(RANKS, split_and_gather));
}

/* Each operation on 1, 2, 3 and 4, the inputs of the ranks. */
static bool reduce_by_each_op(struct rank *rank)
{
    static const float expected[] = {
        [ncclSum] = 10, [ncclProd] = 24, [ncclMax] = 4, [ncclMin] = 1, [ncclAvg] = 2.5F};
    const float mine = (float)rank->rank + 1;
    bool is_right = true;
    for (ncclRedOp_t op = ncclSum; op <= ncclAvg; op++) {
        float result = 0;
        is_right = ncclAllReduce(&mine, &result, 1, ncclFloat32, op, rank->comm, NULL) == 0 &&
                   result == expected[op] && is_right;
    }
    return is_right;
}

TEST(reductions_give_what_their_op_says)
{
    assert_true(run_ranks(RANKS, reduce_by_each_op));
}

/* Rank 0 leaves while the others wait for it. */
static bool abort_or_wait(struct rank *rank)
{
    int word = 0;
    ncclResult_t error = ceclSuccess;
    if (rank->rank > 0)
        return ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, rank->comm, NULL) ==
                   ceclRemoteError &&
               ncclCommGetAsyncError(rank->comm, &error) == 0 && error == ceclRemoteError;
    usleep(10000);
    const bool is_aborted = ncclCommAbort(rank->comm) == 0;
    rank->comm = NULL;
    return is_aborted;
}

TEST(an_abort_ends_the_waits_of_peers)
{
    assert_true(run_ranks(RANKS, abort_or_wait));
}

static bool register_memory(struct rank *rank)
{
    void *memory, *handle;
    const bool is_registered = ncclMemAlloc(&memory, 4096) == 0 &&
                               ncclCommRegister(rank->comm, memory, 4096, &handle) == 0;
    const struct standin_record got = last();
    const uint64_t given[] = {(uintptr_t)rank->comm, (uintptr_t)memory, 4096, (uintptr_t)&handle};
    return is_registered && memcmp(got.words, given, sizeof(given)) == 0 &&
           ncclCommDeregister(rank->comm, handle) == 0 && ncclMemFree(memory) == 0;
}

TEST(memory_is_allocated_and_registered_by_nccl)
{
    assert_true(run_ranks(1, register_memory));
}

static void run_child(int rank, ncclUniqueId id)
{
    struct rank mine = {.rank = rank, .nranks = RANKS, .id = id, .run = run_collectives};
    run_rank(&mine);
    _exit(mine.is_right ? 0 : 1);
}

/* The parent has called NCCL, so its children inherit a library that is in use. */
TEST(children_of_a_fork_pass_their_calls)
{
    ncclUniqueId id;
    int status;
    assert_int_equal(ncclGetUniqueId(&id), 0);
    for (int rank = 0; rank < RANKS; rank++)
        if (fork() == 0)
            run_child(rank, id);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void)
{
    void *standin = dlopen(getenv("CECL_NCCL_PATH"), RTLD_NOW | RTLD_LOCAL);
    if (!standin) {
        print_error("CECL_NCCL_PATH: %s\n", dlerror());
        return 2;
    }
    *(void **)&calls = dlsym(standin, "standin_calls");
    *(void **)&last = dlsym(standin, "standin_last");
    return tests_run(NULL, NULL);
}
