/* One rank of a communicator over several hosts; hosts.py starts it and reads what it prints.
 *
 *     hosts_rank FILE NRANKS RANK HOST ACT
 *
 * Rank 0 writes the unique id to FILE. HOST is the number of the rank's host. What ACT has the rank do once it has
 * joined (it then prints "joined"):
 *     work  calls of all kinds, which work, or are refused by name; then it leaves
 *     wait  waits until the communicator fails, and prints how; then it aborts
 *     hold  waits until its standard input ends, and leaves
 *     exit  ends its process at once, without ending the communicator */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cecl/cecl.h>

#define WAIT_MS 20000 /* longer than every time limit that the script sets */

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

/* A call that is refused must name the hosts. */
static void must_refuse(ceclResult_t result, const char *what, ceclComm_t comm)
{
    if (result != ceclInvalidUsage || !strstr(ceclGetLastError(NULL), "hosts"))
        fail(what, comm);
}

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

/* Ranks of one host work as ever. */
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

/* Ranks of several hosts can make and end communicators, and memory. */
static void work_over_hosts(const struct rank *me)
{
    ceclComm_t child, other = NULL;
    void *memory = NULL;
    must(ceclMemAlloc(me->comm, &memory, 1 << 20), "ceclMemAlloc", me->comm);
    memset(memory, me->rank, 1 << 20);
    must_refuse(ceclAllReduce(memory, memory, 4, ceclInt32, ceclSum, me->comm, NULL),
                "ceclAllReduce is not refused", me->comm);
    must_refuse(ceclCommShrink(me->comm, NULL, 0, &other, NULL), "ceclCommShrink is not refused",
                me->comm);
    must(ceclMemFree(me->comm, memory), "ceclMemFree", me->comm);
    for (int round = 0; round < 3; round++) {
        must(ceclCommSplit(me->comm, 0, -me->rank, &child, NULL), "ceclCommSplit", me->comm);
        must(ceclMemAlloc(child, &memory, 1 << 12), "ceclMemAlloc of a child", child);
        must(ceclCommDestroy(child), "ceclCommDestroy of a child", NULL);
    }
}

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

static void act(const struct rank *me, const char *what)
{
    if (strcmp(what, "work") == 0) {
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
    struct rank me = {.nranks = atoi(argv[2]), .rank = atoi(argv[3]), .host = atoi(argv[4])};
    if (me.rank == 0)
        write_id(argv[1]);
    const ceclUniqueId id = read_id(argv[1]);
    const ceclResult_t result = ceclCommInitRank(&me.comm, me.nranks, id, me.rank);
    if (result != ceclSuccess) {
        printf("refused: %s\n", ceclGetLastError(NULL));
        await_end_of_input(); /* the others hear of it from rank 0's process */
        return 0;
    }
    printf("joined\n");
    fflush(stdout);
    act(&me, argv[5]);
    return 0;
}
