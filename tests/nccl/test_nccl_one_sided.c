/* ncclPutSignal, ncclSignal and ncclWaitSignal in NCCL's place, on the host device: results, the
 * communicators whose calls are served, and refusals.
 *
 * test_nccl_one_sided POLICY POLICY is CECL_NCCL's value; CECL_NCCL_PATH names the stand-in,
 * which only records such calls */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../with_cmocka.h"

#include "ranks.h"

#define RANKS 3
#define COUNT 500u /* elements of a block */
#define BLOCKS (2 * RANKS)
#define BYTES (BLOCKS * COUNT * sizeof(uint32_t))
#define ROUNDS 60

static __typeof__(standin_last) *last;
static struct standin_streams streams;

/* ---- memory that peers can open: a mapping of a file that stays open; the last word holds the
 * descriptor */

#define MAPPED (BYTES + sizeof(uint32_t))

static uint32_t *memory_new(void)
{
    const int file = memfd_create("cecl test", MFD_CLOEXEC);
    uint32_t *at = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)MAPPED) == 0)
        at = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        return NULL;
    at[BYTES / sizeof(*at)] = (uint32_t)file;
    return at;
}

static void memory_free(uint32_t *memory)
{
    close((int)memory[BYTES / sizeof(*memory)]);
    munmap(memory, MAPPED);
}

static uint32_t element(uint32_t round, int rank, uint32_t i)
{
    return (round * 37u + (uint32_t)rank + 1) * 2654435761u + i;
}

static void fill(uint32_t *block, uint32_t round, int rank)
{
    for (uint32_t i = 0; i < COUNT; i++)
        block[i] = element(round, rank, i);
}

static bool holds(const uint32_t *block, uint32_t round, int rank)
{
    bool is = true;
    for (uint32_t i = 0; i < COUNT; i++)
        is = is && block[i] == element(round, rank, i);
    return is;
}

static size_t place(int block)
{
    return (size_t)block * COUNT * sizeof(uint32_t);
}

/* ---- calls */

static bool put(const struct rank *r, const uint32_t *from, int peer, ncclWindow_t win, int block,
                int signal)
{
    return ncclPutSignal(from, COUNT, ncclUint32, peer, win, place(block), signal, 0, 0, r->comm,
                         NULL) == 0;
}

static bool await(const struct rank *r, int peer, int signal)
{
    ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = peer, .sigIdx = signal};
    return ncclWaitSignal(1, &wait, r->comm, NULL) == 0;
}

/* Whether this thread's latest call of the stand-in was `name`. */
static bool came(const char *name)
{
    return strcmp(last().name, name) == 0;
}

static bool ends(const struct rank *r, ncclWindow_t win, uint32_t *memory)
{
    uint32_t in = 1, out = 0; /* all ranks have finished their puts then */
    const bool is = ncclAllReduce(&in, &out, 1, ncclUint32, ncclSum, r->comm, NULL) == 0 &&
                    out == (uint32_t)r->nranks && ncclCommWindowDeregister(r->comm, win) == 0;
    memory_free(memory);
    return is;
}

/* ---- served */

/* Puts around a ring. The memory has two halves, so a block is read before the put after next
 * overwrites it. Signal 1 tells that the block was read. */
static bool put_around(const struct rank *r, ncclWindow_t win, const uint32_t *memory,
                       uint32_t rounds)
{
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    bool is = true;
    for (uint32_t round = 0; round < rounds && is; round++) {
        uint32_t mine[COUNT], in = round, out = 0;
        const int half = (int)(round % 2);
        fill(mine, round, r->rank);
        is = (round < 2 || await(r, next, 1)) && put(r, mine, next, win, half, 0) &&
             !came("ncclPutSignal") && await(r, before, 0) && !came("ncclWaitSignal") &&
             holds(memory + (uint32_t)half * COUNT, round, before) &&
             ncclSignal(before, 1, 0, 0, r->comm, NULL) == 0 && !came("ncclSignal");
        is = is && ncclAllReduce(&in, &out, 1, ncclUint32, ncclMax, r->comm, NULL) == 0 &&
             out == round;
    }
    return is && await(r, next, 1) && await(r, next, 1); /* signals of the last two rounds */
}

/* Each rank puts to each rank, itself included. The waits come first. */
static bool put_to_all_in_a_group(const struct rank *r, ncclWindow_t win, const uint32_t *memory,
                                  uint32_t round)
{
    uint32_t mine[COUNT];
    ncclWaitSignalDesc_t waits[RANKS + 1] = {{.opCnt = 0}};
    fill(mine, round, r->rank);
    for (int peer = 0; peer < r->nranks; peer++)
        waits[peer] = (ncclWaitSignalDesc_t){.opCnt = 2, .peer = peer, .sigIdx = 7, .ctx = 7};
    bool is = ncclGroupStart() == 0 && ncclWaitSignal(r->nranks + 1, waits, r->comm, NULL) == 0;
    memset(waits, 0xff, sizeof(waits)); /* NCCL has read the arguments by now */
    for (int peer = 0; peer < r->nranks && is; peer++)
        is = ncclPutSignal(mine, COUNT, ncclUint32, peer, win, place(RANKS + r->rank), 7, 7, 0,
                           r->comm, NULL) == 0 &&
             ncclSignal(peer, 7, 7, 0, r->comm, NULL) == 0;
    is = ncclGroupEnd() == 0 && is && came("ncclGroupEnd");
    for (int peer = 0; peer < r->nranks; peer++)
        is = is && holds(memory + (uint32_t)(RANKS + peer) * COUNT, round, peer);
    return is;
}

static bool put_much(struct rank *r)
{
    uint32_t *memory = memory_new();
    ncclWindow_t win;
    return memory && ncclCommWindowRegister(r->comm, memory, BYTES, &win, 0) == 0 &&
           put_around(r, win, memory, ROUNDS) && put_to_all_in_a_group(r, win, memory, 5) &&
           ends(r, win, memory);
}

static void puts_and_signals_are_served_and_every_byte_arrives(void **state)
{
    assert_true(run_ranks(RANKS, put_much));
}

/* Strict refuses a put from a rank to itself, which needs an SM. */
static bool put_around_only(struct rank *r)
{
    uint32_t *memory = memory_new(), mine[COUNT] = {0};
    ncclWindow_t win;
    return memory && ncclCommWindowRegister(r->comm, memory, BYTES, &win, 0) == 0 &&
           put_around(r, win, memory, ROUNDS) && !put(r, mine, r->rank, win, 0, 0) &&
           strstr(ncclGetLastError(r->comm), "SM") && ends(r, win, memory);
}

static void strict_serves_what_takes_no_sm(void **state)
{
    assert_true(run_ranks(RANKS, put_around_only));
}

/* How often this process has mapped memory of memory_new, as its own or as a peer's. */
static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "cecl test") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* Windows are registered and deregistered, some in groups. Each rank maps the peer's memory of
 * each window. cecl closes unused mappings later, so up to half of them may remain for a while. */
#define WINDOWS 80

static bool change_windows(struct rank *r)
{
    bool is = true;
    for (int i = 0; i < WINDOWS / 2 && is; i++) {
        uint32_t *memory[2] = {memory_new(), memory_new()};
        ncclWindow_t win[2];
        is = i % 2 == 0 || ncclGroupStart() == 0;
        for (int k = 0; k < 2; k++)
            is = ncclCommWindowRegister(r->comm, memory[k], BYTES, &win[k], i % 3) == 0 && is;
        is = (i % 2 == 0 || ncclGroupEnd() == 0) && is;
        for (int k = 0; k < 2; k++)
            is = is && put_around(r, win[k], memory[k], 2) && ends(r, win[k], memory[k]);
    }
    for (int i = 0; i < 500 && mappings() > WINDOWS; i++)
        usleep(10000);
    return is && mappings() <= WINDOWS;
}

static void windows_come_and_go(void **state)
{
    assert_true(run_ranks(2, change_windows));
}

static void one_thread_registers_windows_of_all_ranks_in_a_group(void **state)
{
    enum { N = 3 };
    ncclComm_t comms[N];
    ncclWindow_t win[N];
    uint32_t *memory[N], mine[COUNT];
    const int devices[N] = {0, 1, 2};
    assert_int_equal(ncclCommInitAll(comms, N, devices), 0);
    assert_int_equal(ncclGroupStart(), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(
            ncclCommWindowRegister(comms[i], memory[i] = memory_new(), BYTES, &win[i], 0), 0);
    assert_int_equal(ncclGroupEnd(), 0);
    for (int i = 0; i < N; i++) {
        const struct rank r = {.comm = comms[i]};
        fill(mine, 3, i);
        assert_true(put(&r, mine, (i + 1) % N, win[i], 0, 0));
        assert_false(came("ncclPutSignal"));
    }
    for (int i = 0; i < N; i++) {
        const struct rank r = {.comm = comms[i]};
        assert_true(await(&r, (i + N - 1) % N, 0));
        assert_true(holds(memory[i], 3, (i + N - 1) % N));
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(ncclCommDestroy(comms[i]), 0);
    for (int i = 0; i < N; i++)
        memory_free(memory[i]);
}

/* ---- passed, on all ranks */

static bool all_come(const struct rank *r, ncclWindow_t win)
{
    uint32_t mine[COUNT] = {0};
    return put(r, mine, 0, win, 0, 0) && came("ncclPutSignal") && await(r, 0, 0) &&
           came("ncclWaitSignal") && ncclSignal(0, 0, 0, 0, r->comm, NULL) == 0 &&
           came("ncclSignal");
}

static bool signal_first(struct rank *r)
{
    uint32_t *memory = memory_new();
    ncclWindow_t win;
    const bool is = r->rank != 1 || ncclSignal(0, 0, 0, 0, r->comm, NULL) == 0;
    return is && ncclCommWindowRegister(r->comm, memory, BYTES, &win, 0) == 0 && all_come(r, win) &&
           ends(r, win, memory);
}

static void all_ranks_pass_where_one_made_a_call_before_the_first_window(void **state)
{
    assert_true(run_ranks(RANKS, signal_first));
}

/* NCCL does not wait then, so one thread may have several ranks. */
static void no_rank_waits_for_others_where_nccl_gives_no_window(void **state)
{
    enum { N = 3 };
    ncclComm_t comms[N];
    ncclWindow_t win[N];
    const int devices[N] = {0, 1, 2};
    assert_int_equal(ncclCommInitAll(comms, N, devices), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(ncclCommWindowRegister(comms[i], &win[i], 0, &win[i], 0), 0);
    for (int i = 0; i < N; i++) {
        const struct rank r = {.comm = comms[i]};
        assert_null(win[i]);
        assert_true(all_come(&r, win[i]));
        assert_int_equal(ncclCommDestroy(comms[i]), 0);
    }
}

/* Peers cannot open malloc's memory. */
static bool register_private(struct rank *r)
{
    uint32_t *memory = memory_new(), *private = calloc(1, BYTES);
    ncclWindow_t win;
    const bool is =
        ncclCommWindowRegister(r->comm, r->rank == 1 ? private : memory, BYTES, &win, 0) == 0 &&
        all_come(r, win) && ends(r, win, memory);
    free(private);
    return is;
}

static void all_ranks_pass_where_one_cannot_share_the_first_window(void **state)
{
    assert_true(run_ranks(RANKS, register_private));
}

static bool put_by_auto(struct rank *r)
{
    uint32_t *memory = memory_new();
    ncclWindow_t win;
    return ncclCommWindowRegister(r->comm, memory, BYTES, &win, 0) == 0 && all_come(r, win) &&
           ends(r, win, memory);
}

static void auto_passes_one_sided_calls(void **state)
{
    assert_true(run_ranks(2, put_by_auto));
}

static void all_ranks_pass_over_nodes(void **state)
{
    setenv("CECL_NODE_SIZE", "1", 1);
    assert_true(run_ranks(2, put_by_auto));
    unsetenv("CECL_NODE_SIZE");
}

/* ---- refused */

static bool says(const struct rank *r, ncclResult_t result, const char *words)
{
    return result != 0 && strstr(ncclGetLastError(r->comm), words) != NULL;
}

static bool refuse(struct rank *r)
{
    uint32_t *memory = memory_new(), *private = calloc(1, BYTES), mine[COUNT] = {0};
    ncclWindow_t win, other;
    ncclWaitSignalDesc_t wait = {.opCnt = 1, .ctx = 8};
    const cudaStream_t on = streams.stream();
    bool is = ncclCommWindowRegister(r->comm, memory, BYTES, &win, 0) == 0 &&
              ncclCommWindowRegister(r->comm, private, BYTES, &other, 0) == 0;
    is =
        is &&
        says(r, ncclPutSignal(mine, 1, ncclUint32, 0, other, 0, 0, 0, 0, r->comm, NULL),
             "cannot share this window") &&
        says(r, ncclPutSignal(mine, 1, ncclUint32, 0, NULL, 0, 0, 0, 0, r->comm, NULL),
             "not a window of this communicator") &&
        says(r, ncclPutSignal(mine, 2, ncclUint32, r->rank, win, BYTES - 4, 0, 0, 0, r->comm, NULL),
             "not within") &&
        says(r, ncclSignal(0, 8, 0, 0, r->comm, NULL), "sigIdx 8") &&
        says(r, ncclSignal(0, 0, 0, 1, r->comm, NULL), "flags 1") &&
        says(r, ncclSignal(9, 0, 0, 0, r->comm, NULL), "peer 9") &&
        says(r, ncclWaitSignal(1, &wait, r->comm, NULL), "ctx 8") &&
        says(r, ncclWaitSignal(1, NULL, r->comm, NULL), "nDesc 1") &&
        says(r, ncclWaitSignal(-1, &wait, r->comm, NULL), "nDesc -1");
    streams.capture(on);
    is = is && says(r, ncclSignal(0, 0, 0, 0, r->comm, on), "captured");
    streams.graph_free(streams.end_capture(on));
    streams.stream_free(on);
    is = is && put_around(r, win, memory, 4) && ends(r, win, memory);
    free(private);
    return is;
}

static void what_cecl_cannot_serve_is_refused_by_name(void **state)
{
    assert_true(run_ranks(2, refuse));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(puts_and_signals_are_served_and_every_byte_arrives),
        cmocka_unit_test(windows_come_and_go),
        cmocka_unit_test(one_thread_registers_windows_of_all_ranks_in_a_group),
        cmocka_unit_test(all_ranks_pass_where_one_made_a_call_before_the_first_window),
        cmocka_unit_test(no_rank_waits_for_others_where_nccl_gives_no_window),
        cmocka_unit_test(all_ranks_pass_where_one_cannot_share_the_first_window),
        cmocka_unit_test(all_ranks_pass_over_nodes),
        cmocka_unit_test(what_cecl_cannot_serve_is_refused_by_name),
    };
    const struct CMUnitTest strict[] = {cmocka_unit_test(strict_serves_what_takes_no_sm)};
    const struct CMUnitTest of_auto[] = {cmocka_unit_test(auto_passes_one_sided_calls)};
    const char *real = getenv("CECL_NCCL_PATH");
    void *standin = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (argc < 2 || !standin) {
        print_error("test_nccl_one_sided POLICY, and CECL_NCCL_PATH\n");
        return 2;
    }
    *(void **)&last = dlsym(standin, "standin_last");
    streams = find_streams();
    return strcmp(argv[1], "all") == 0      ? cmocka_run_group_tests(all, NULL, NULL)
           : strcmp(argv[1], "strict") == 0 ? cmocka_run_group_tests(strict, NULL, NULL)
                                            : cmocka_run_group_tests(of_auto, NULL, NULL);
}
