/* One rank of a communicator over several hosts; hosts.py starts it and reads what it prints.
 *
 *     hosts_rank FILE NRANKS RANK HOST ACT
 *
 * Rank 0 writes the unique id to FILE. HOST is the number of the rank's host. What ACT has the rank do once it has
 * joined (it then prints "joined"):
 *     work  makes and ends communicators and memory; calls over hosts are refused by name; then it leaves
 *     carry  calls over hosts, by a network of this test's: mailboxes in a file that all ranks map; then it leaves
 *     go_on  the same again and again, until the communicator fails
 *     wait  waits until the communicator fails, and prints how; then it aborts
 *     hold  waits until its standard input ends, and leaves
 *     exit  ends its process at once, without ending the communicator */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"

#define WAIT_MS 20000 /* seconds: longer than every time limit that the script sets */
#define LIFE_S 110    /* seconds: most time of a rank */

struct rank {
    int nranks, rank, host;
    ceclComm_t comm;
};

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000L};
    nanosleep(&pause, NULL);
}

static void fail(const char *what, ceclComm_t comm)
{
    printf("failed: %s: %s\n", what, ceclGetLastError(comm));
    exit(1);
}

static void must(ceclResult_t result, const char *what, ceclComm_t comm)
{
    if (result != ceclSuccess)
        fail(what, comm);
}

/* A refused call must name the hosts. */
static void must_refuse(ceclResult_t result, const char *what, ceclComm_t comm)
{
    if (result != ceclInvalidUsage || !strstr(ceclGetLastError(NULL), "hosts"))
        fail(what, comm);
}

/* ---- this test's network */

static size_t net_bytes(int nranks)
{
    return cecl_net_local_bytes(nranks);
}

static void make_net(const char *name, int nranks)
{
    char file[512];
    snprintf(file, sizeof(file), "%s.net", name);
    const int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)net_bytes(nranks)) != 0 || close(fd) != 0)
        fail("making the network's file", NULL);
}

static void take_net(const struct rank *me, const char *name)
{
    char file[512];
    snprintf(file, sizeof(file), "%s.net", name);
    const int fd = open(file, O_RDWR);
    void *memory = mmap(NULL, net_bytes(me->nranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || memory == MAP_FAILED)
        fail("mapping the network's file", NULL);
    close(fd);
    must(cecl_net_local_open(me->comm->dev, memory, me->rank, me->nranks, &me->comm->engine.net),
         "cecl_net_local_open", me->comm);
}

/* ---- joining */

static void write_id(const char *name)
{
    char fresh[512];
    ceclUniqueId id;
    must(ceclGetUniqueId(&id), "ceclGetUniqueId", NULL);
    snprintf(fresh, sizeof(fresh), "%s.new", name);
    FILE *file = fopen(fresh, "wb");
    if (!file || fwrite(&id, sizeof(id), 1, file) != 1 || fclose(file) != 0 ||
        rename(fresh, name) != 0)
        fail("writing the id", NULL);
}

static ceclUniqueId read_id(const char *name)
{
    ceclUniqueId id;
    for (int ms = 0; ms < WAIT_MS; ms += 5) {
        FILE *file = fopen(name, "rb");
        if (file && fread(&id, sizeof(id), 1, file) == 1) {
            fclose(file);
            return id;
        }
        if (file)
            fclose(file);
        pause_ms(5);
    }
    fail("reading the id", NULL);
    return id;
}

/* Ranks of one host make calls as usual. */
static void work_within_a_host(const struct rank *me)
{
    ceclComm_t comm;
    int count = 0, rank = 0;
    must(ceclCommSplit(me->comm, me->host, 0, &comm, NULL), "ceclCommSplit by host", me->comm);
    must(ceclCommCount(comm, &count), "ceclCommCount", comm);
    must(ceclCommUserRank(comm, &rank), "ceclCommUserRank", comm);
    int *memory = NULL, sum = 0;
    must(ceclMemAlloc(comm, (void **)&memory, sizeof(*memory)), "ceclMemAlloc of a host", comm);
    *memory = rank + 1;
    must(ceclAllReduce(memory, memory, 1, ceclInt32, ceclSum, comm, NULL), "ceclAllReduce", comm);
    must(ceclStreamSynchronize(comm, NULL), "ceclStreamSynchronize", comm);
    for (int r = 0; r < count; r++)
        sum += r + 1;
    if (*memory != sum)
        fail("the sum of a host", comm);
    must(ceclMemFree(comm, memory), "ceclMemFree", comm);
    must(ceclCommDestroy(comm), "ceclCommDestroy of a host", NULL);
}

/* Ranks of several hosts can create and destroy communicators, and allocate memory. */
static void work_over_hosts(const struct rank *me)
{
    ceclComm_t child, other = NULL;
    void *memory = NULL;
    must(ceclMemAlloc(me->comm, &memory, 1 << 20), "ceclMemAlloc", me->comm);
    memset(memory, me->rank, 1 << 20);
    must_refuse(ceclAllReduce(memory, memory, 4, ceclInt32, ceclSum, me->comm, NULL),
                "ceclAllReduce is not refused", me->comm);
    ceclExplanation_t told;
    must(ceclGroupStart(), "ceclGroupStart", NULL);
    must(ceclSend(memory, 4, ceclInt32, me->rank == 0 ? me->nranks - 1 : 0, me->comm, NULL),
         "ceclSend in a group", me->comm);
    must_refuse(ceclGroupExplain(me->comm, &told), "ceclGroupExplain is not refused", me->comm);
    must_refuse(ceclCommShrink(me->comm, NULL, 0, &other, NULL), "ceclCommShrink is not refused",
                me->comm);
    must(ceclMemFree(me->comm, memory), "ceclMemFree", me->comm);
    for (int round = 0; round < 3; round++) {
        must(ceclCommSplit(me->comm, 0, -me->rank, &child, NULL), "ceclCommSplit", me->comm);
        must(ceclMemAlloc(child, &memory, 1 << 12), "ceclMemAlloc of a child", child);
        must(ceclCommDestroy(child), "ceclCommDestroy of a child", NULL);
    }
}

/* ---- calls over hosts */

#define MOST 70000 /* elements of a block: more than fit into a mailbox, and into a chunk */

struct buffers {
    int *send, *recv; /* [nranks * MOST] */
};

/* An element that identifies the sender, the receiver and its place. */
static int element(int from, int to, size_t at)
{
    return from * 1000003 + to * 10007 + (int)at;
}

static void fill(const struct rank *me, const struct buffers *b, size_t count)
{
    for (int to = 0; to < me->nranks; to++)
        for (size_t i = 0; i < count; i++)
            b->send[(size_t)to * count + i] = element(me->rank, to, i);
    memset(b->recv, 0xee, (size_t)me->nranks * count * sizeof(int));
}

static void must_be(const struct rank *me, int got, int wanted, const char *what)
{
    if (got == wanted)
        return;
    printf("failed: %s on rank %d: %d instead of %d\n", what, me->rank, got, wanted);
    exit(1);
}

static int sum_of(const struct rank *me, int to, size_t at)
{
    int sum = 0;
    for (int from = 0; from < me->nranks; from++)
        sum += element(from, to, at);
    return sum;
}

/* Each of these functions makes its calls. On a failure it returns the result. */
static ceclResult_t gather_and_spread(const struct rank *me, const struct buffers *b, size_t count)
{
    const int root = (int)count % me->nranks;
    fill(me, b, count);
    CECL_TRY(ceclAllGather(b->send, b->recv, count, ceclInt32, me->comm, NULL));
    CECL_TRY(ceclStreamSynchronize(me->comm, NULL));
    for (int from = 0; from < me->nranks; from++)
        for (size_t i = 0; i < count; i++)
            must_be(me, b->recv[(size_t)from * count + i], element(from, 0, i), "ceclAllGather");
    CECL_TRY(ceclBroadcast(b->send, b->recv, count, ceclInt32, root, me->comm, NULL));
    CECL_TRY(ceclBarrier(me->comm, NULL));
    CECL_TRY(ceclStreamSynchronize(me->comm, NULL));
    for (size_t i = 0; i < count; i++)
        must_be(me, b->recv[i], element(root, 0, i), "ceclBroadcast");
    return ceclSuccess;
}

static ceclResult_t exchange_all(const struct rank *me, const struct buffers *b, size_t count)
{
    fill(me, b, count);
    CECL_TRY(ceclAlltoAll(b->send, b->recv, count, ceclInt32, me->comm, NULL));
    CECL_TRY(ceclStreamSynchronize(me->comm, NULL));
    for (int from = 0; from < me->nranks; from++)
        for (size_t i = 0; i < count; i++)
            must_be(me, b->recv[(size_t)from * count + i], element(from, me->rank, i),
                    "ceclAlltoAll");
    return ceclSuccess;
}

/* Rank `from` sends `count` elements to the ranks after it, and none to the others. */
static ceclResult_t exchange_some(const struct rank *me, const struct buffers *b, size_t count)
{
    size_t sends[64] = {0}, receives[64] = {0}, places[64] = {0};
    fill(me, b, count);
    for (int r = 0; r < me->nranks; r++) {
        sends[r] = r > me->rank ? count : 0;
        receives[r] = r < me->rank ? count : 0;
        places[r] = (size_t)r * count;
    }
    CECL_TRY(ceclAlltoAllv(b->send, sends, places, b->recv, receives, places, ceclInt32, me->comm,
                           NULL));
    CECL_TRY(ceclStreamSynchronize(me->comm, NULL));
    for (int from = 0; from < me->rank; from++)
        for (size_t i = 0; i < count; i++)
            must_be(me, b->recv[(size_t)from * count + i], element(from, me->rank, i),
                    "ceclAlltoAllv");
    return ceclSuccess;
}

static ceclResult_t reduce_in_a_group(const struct rank *me, const struct buffers *b, size_t count)
{
    fill(me, b, count);
    CECL_TRY(ceclGroupStart());
    const ceclResult_t first = ceclReduceScatter(b->send, b->recv, count, ceclInt32, ceclSum,
                                                 me->comm, NULL),
                       second = ceclAllReduce(b->send, b->recv + count, count, ceclInt32, ceclSum,
                                              me->comm, NULL);
    CECL_TRY(ceclGroupEnd());
    CECL_TRY(first);
    CECL_TRY(second);
    CECL_TRY(ceclStreamSynchronize(me->comm, NULL));
    for (size_t i = 0; i < count; i++) {
        must_be(me, b->recv[i], sum_of(me, me->rank, i), "ceclReduceScatter");
        must_be(me, b->recv[count + i], sum_of(me, 0, i), "ceclAllReduce");
    }
    return ceclSuccess;
}

static ceclResult_t pass_on(const struct rank *me, const struct buffers *b, size_t count)
{
    const int to = (me->rank + 1) % me->nranks, from = (me->rank + me->nranks - 1) % me->nranks;
    fill(me, b, count);
    CECL_TRY(ceclGroupStart());
    const ceclResult_t sent = ceclSend(b->send, count, ceclInt32, to, me->comm, NULL),
                       received = ceclRecv(b->recv, count, ceclInt32, from, me->comm, NULL);
    CECL_TRY(ceclGroupEnd());
    CECL_TRY(sent);
    CECL_TRY(received);
    CECL_TRY(ceclStreamSynchronize(me->comm, NULL));
    for (size_t i = 0; i < count; i++)
        must_be(me, b->recv[i], element(from, 0, i), "ceclRecv");
    return ceclSuccess;
}

static ceclResult_t round_of_calls(const struct rank *me, const struct buffers *b, size_t count)
{
    CECL_TRY(gather_and_spread(me, b, count));
    CECL_TRY(exchange_all(me, b, count));
    CECL_TRY(exchange_some(me, b, count));
    CECL_TRY(reduce_in_a_group(me, b, count));
    return pass_on(me, b, count);
}

static struct buffers take_buffers(const struct rank *me)
{
    const size_t bytes = (size_t)me->nranks * MOST * sizeof(int);
    struct buffers b;
    must(ceclMemAlloc(me->comm, (void **)&b.send, bytes), "ceclMemAlloc", me->comm);
    must(ceclMemAlloc(me->comm, (void **)&b.recv, bytes), "ceclMemAlloc", me->comm);
    return b;
}

static void carry(const struct rank *me)
{
    static const size_t counts[] = {1, 1000, MOST};
    const struct buffers b = take_buffers(me);
    for (int round = 0; round < 12; round++)
        must(round_of_calls(me, &b, counts[round % 3]), "a call over hosts", me->comm);
}

static void go_on(const struct rank *me)
{
    const struct buffers b = take_buffers(me);
    while (round_of_calls(me, &b, 1000) == ceclSuccess)
        continue;
}

/* ---- the acts */

static void wait_for_failure(const struct rank *me)
{
    ceclResult_t error = ceclSuccess;
    for (int ms = 0; ms < WAIT_MS && error == ceclSuccess; ms += 5) {
        must(ceclCommGetAsyncError(me->comm, &error), "ceclCommGetAsyncError", me->comm);
        pause_ms(5);
    }
    printf("heard: %s\n", error == ceclSuccess ? "nothing" : ceclGetLastError(me->comm));
    fflush(stdout);
    must(ceclCommAbort(me->comm), "ceclCommAbort", NULL);
    printf("aborted\n");
}

static void await_end_of_input(void)
{
    fflush(stdout);
    while (getchar() != EOF)
        continue;
}

static void act(const struct rank *me, const char *what, const char *name)
{
    if (strcmp(what, "carry") == 0 || strcmp(what, "go_on") == 0)
        take_net(me, name);
    if (strcmp(what, "carry") == 0) {
        carry(me);
    } else if (strcmp(what, "go_on") == 0) {
        go_on(me);
        wait_for_failure(me);
        return;
    } else if (strcmp(what, "work") == 0) {
        work_within_a_host(me);
        work_over_hosts(me);
    } else if (strcmp(what, "wait") == 0) {
        wait_for_failure(me);
        return;
    } else if (strcmp(what, "exit") == 0) {
        return;
    } else {
        await_end_of_input();
    }
    must(ceclCommDestroy(me->comm), "ceclCommDestroy", NULL);
    printf("left\n");
    fflush(stdout); /* before the process waits for the ranks of its host */
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    alarm(LIFE_S); /* even if the script was killed */
    struct rank me = {.nranks = atoi(argv[2]), .rank = atoi(argv[3]), .host = atoi(argv[4])};
    if (me.rank == 0) {
        make_net(argv[1], me.nranks);
        write_id(argv[1]);
    }
    const ceclUniqueId id = read_id(argv[1]);
    const ceclResult_t result = ceclCommInitRank(&me.comm, me.nranks, id, me.rank);
    if (result != ceclSuccess) {
        printf("refused: %s\n", ceclGetLastError(NULL));
        await_end_of_input(); /* rank 0's process tells the others */
        return 0;
    }
    printf("joined\n");
    fflush(stdout);
    act(&me, argv[5], argv[1]);
    return 0;
}
