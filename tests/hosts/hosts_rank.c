/* One rank of a communicator over several hosts; hosts.py starts it and reads what it prints.
 *
 *     hosts_rank FILE NRANKS RANK HOST ACT
 *
 * Rank 0 writes the unique id to FILE. HOST is the number of the rank's host. What ACT has the rank do once it has
 * joined (it then prints "joined"):
 *     work  makes and ends communicators and memory; calls over hosts are refused by name, except on GPUs; then it
 *               leaves
 *     carry  calls over hosts, then it leaves. On GPUs, NCCL carries them. Otherwise a network of this test's does:
 *               mailboxes in a file that all ranks map
 *     go_on  the same again and again, until the communicator fails
 *     wait  waits until the communicator fails, and prints how; then it aborts
 *     split  makes communicators of all ranks by ceclCommSplit, until the communicator fails
 *     late:N  makes a barrier to which rank N does not come, and prints how that failed; then it aborts
 *     unequal:WHAT  sends rows to experts, at first in equal calls, then in a call that differs on the last rank in WHAT;
 *               no row may come, and it prints how that failed. With CECL_CHECK=1 an equal call follows and succeeds,
 *               and it leaves; otherwise it aborts
 *     silence  makes a call by splits that differs on the last rank, over a network that carries nothing; prints how that
 *               failed, and aborts
 *     hold  waits until its standard input ends, and leaves
 *     exit  ends its process at once, without ending the communicator
 *     shrink:N  makes communicators of all ranks by ceclCommShrink, and works on them, until rank N is killed; then
 *               the others leave it out (they print "shrunk"), work on what is left, and leave
 *     shrink:-1  the same until other hosts are cut off; then each host leaves out the others
 *     refuse:N  waits until rank N is killed; then the last rank's shrink is refused, which all must hear once, and
 *               their next one leaves out rank N (they print "shrunk") */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hosts_calls.h"
#include "net/pipes.h"

#define WAIT_MS 100000 /* ms: longer than every time limit that the script sets */
#define LIFE_S 250     /* seconds: most time of a rank */

static void pause_ms(int ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000L};
    nanosleep(&pause, NULL);
}

static void must_refuse_by(ceclResult_t result, const char *words, const char *what,
                           ceclComm_t comm)
{
    if (result != ceclInvalidUsage || !strstr(ceclGetLastError(NULL), words))
        fail(what, comm);
}

/* A refused call must name the hosts. */
static void must_refuse(ceclResult_t result, const char *what, ceclComm_t comm)
{
    must_refuse_by(result, "hosts", what, comm);
}

static bool is_on_gpus(const struct rank *me)
{
    return me->comm->dev->ordinal >= 0;
}

/* ---- this test's network */

static size_t net_bytes(int nranks)
{
    return cecl_net_local_bytes(nranks);
}

/* which: a communicator's own number, because mailboxes serve one. */
static void name_net(const char *name, int which, char file[512])
{
    snprintf(file, 512, "%s.net%d", name, which);
}

static void make_net(const char *name, int which, int nranks)
{
    char file[512];
    name_net(name, which, file);
    const int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)net_bytes(nranks)) != 0 || close(fd) != 0)
        fail("making the network's file", NULL);
}

static void take_net(const struct rank *me, const char *name, int which)
{
    char file[512];
    if (is_on_gpus(me))
        return;
    name_net(name, which, file);
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
    int *memory = NULL, sum = 0, word = rank + 1;
    must(ceclMemAlloc(comm, (void **)&memory, sizeof(*memory)), "ceclMemAlloc of a host", comm);
    copy(me, memory, &word, sizeof(word));
    must(ceclAllReduce(memory, memory, 1, ceclInt32, ceclSum, comm, NULL), "ceclAllReduce", comm);
    must(ceclStreamSynchronize(comm, NULL), "ceclStreamSynchronize", comm);
    copy(me, &word, memory, sizeof(word));
    for (int r = 0; r < count; r++)
        sum += r + 1;
    if (word != sum)
        fail("the sum of a host", comm);
    must(ceclMemFree(comm, memory), "ceclMemFree", comm);
    must(ceclCommDestroy(comm), "ceclCommDestroy of a host", NULL);
}

/* The next rank of this host, in a ring of its ranks; or this rank, where it is alone. */
static int next_here(const struct rank *me)
{
    int next = (me->rank + 1) % me->nranks;
    while (cecl_mesh_is_away(me->comm->mesh, next))
        next = (next + 1) % me->nranks;
    return next;
}

static int previous_here(const struct rank *me)
{
    int previous = (me->rank + me->nranks - 1) % me->nranks;
    while (cecl_mesh_is_away(me->comm->mesh, previous))
        previous = (previous + me->nranks - 1) % me->nranks;
    return previous;
}

/* Each rank of a host puts `count` elements behind as many of the next one, and tells it. */
static void pass_on_by_put(const struct rank *me, ceclWindow_t window, int *memory, size_t count)
{
    const int next = next_here(me), previous = previous_here(me);
    const ceclSignalWait_t wait = {.peer = previous, .signal = 3, .count = 1};
    must(ceclPutSignal(memory, count, ceclInt32, next, window, count * sizeof(int), 3, me->comm,
                       NULL),
         "ceclPutSignal", me->comm);
    must(ceclWaitSignal(1, &wait, me->comm, NULL), "ceclWaitSignal", me->comm);
    must(ceclStreamSynchronize(me->comm, NULL), "ceclStreamSynchronize", me->comm);
    int *brought = malloc(count * sizeof(int));
    if (!brought)
        fail("no host memory", NULL);
    copy(me, brought, memory + count, count * sizeof(int));
    for (size_t i = 0; i < count; i++)
        if (brought[i] != previous * (int)count + (int)i)
            fail("what ceclPutSignal brought", me->comm);
    free(brought);
}

/* One-sided calls reach ranks of the same host, and are refused to others. */
static void put_within_a_host(const struct rank *me)
{
    enum { WORDS = 4096 };
    int *memory = NULL, words[WORDS];
    ceclWindow_t window = NULL;
    const int away = me->rank == 0 ? me->nranks - 1 : 0, next = next_here(me);
    must(ceclMemAlloc(me->comm, (void **)&memory, 2 * WORDS * sizeof(int)), "ceclMemAlloc",
         me->comm);
    must(ceclWindowShare(me->comm, memory, 2 * WORDS * sizeof(int), &window), "ceclWindowShare",
         me->comm);
    for (int i = 0; i < WORDS; i++)
        words[i] = me->rank * WORDS + i;
    copy(me, memory, words, sizeof(words));
    if (cecl_mesh_is_away(me->comm->mesh, away)) {
        must_refuse_by(ceclPut(memory, WORDS, ceclInt32, away, window, 0, me->comm, NULL),
                       "ceclPut with another node", "ceclPut to another host", me->comm);
        must_refuse_by(ceclSignal(away, 0, me->comm, NULL), "ceclSignal with another node",
                       "ceclSignal to another host", me->comm);
    }
    if (next != me->rank) /* a copy within one GPU would need an SM */
        pass_on_by_put(me, window, memory, WORDS);
    must(ceclWindowFree(me->comm, window), "ceclWindowFree", me->comm);
    must(ceclMemFree(me->comm, memory), "ceclMemFree", me->comm);
}

/* The host device has no network here. */
static void calls_over_hosts_are_refused(const struct rank *me)
{
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
    must(ceclMemFree(me->comm, memory), "ceclMemFree", me->comm);
}

/* Ranks of several hosts can create and destroy communicators, and allocate memory. */
static void work_over_hosts(const struct rank *me)
{
    ceclComm_t child;
    void *memory = NULL;
    if (!is_on_gpus(me))
        calls_over_hosts_are_refused(me);
    for (int round = 0; round < 3; round++) {
        must(ceclCommSplit(me->comm, 0, -me->rank, &child, NULL), "ceclCommSplit", me->comm);
        must(ceclMemAlloc(child, &memory, 1 << 12), "ceclMemAlloc of a child", child);
        must(ceclCommDestroy(child), "ceclCommDestroy of a child", NULL);
    }
}

/* ---- calls over hosts */

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

static void hear_failure(const struct rank *me)
{
    ceclResult_t error = ceclSuccess;
    for (int ms = 0; ms < WAIT_MS && error == ceclSuccess; ms += 5) {
        must(ceclCommGetAsyncError(me->comm, &error), "ceclCommGetAsyncError", me->comm);
        pause_ms(5);
    }
    printf("heard: %s\n", error == ceclSuccess ? "nothing" : ceclGetLastError(me->comm));
    fflush(stdout);
}

static void wait_for_failure(const struct rank *me)
{
    hear_failure(me);
    must(ceclCommAbort(me->comm), "ceclCommAbort", NULL);
    printf("aborted\n");
}

/* ---- unequal calls */

static struct dispatch odd_one(const struct dispatch *equal, const char *what)
{
    struct dispatch odd = *equal;
    if (strcmp(what, "align") == 0)
        odd.align = 2;
    else if (strcmp(what, "recvrows") == 0)
        odd.recvrows++;
    else if (strcmp(what, "sendrows") == 0)
        odd.sendrows++;
    else if (strcmp(what, "experts") == 0)
        odd.experts = 2;
    else
        odd.combines = true;
    return odd;
}

static void allow_sms(const struct rank *me)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_ALLOW;
    must(ceclSetOptions(me->comm, &options), "ceclSetOptions", me->comm);
}

static const struct dispatch equal = {.sendrows = 40, .recvrows = 50, .experts = 1, .align = 1};

/* Returns whether the communicator is still usable. */
static bool make_unequal_calls(const struct rank *me, const char *what)
{
    const struct buffers b = take_buffers(me);
    const struct dispatch odd = odd_one(&equal, what);
    allow_sms(me);
    for (int i = 0; i < 3; i++) {
        must(dispatch(me, &b, &equal), "ceclDispatch", me->comm);
        must_be_dispatched(me, &b, true);
    }
    const ceclResult_t result = dispatch(me, &b, me->rank == me->nranks - 1 ? &odd : &equal);
    if (me->comm->config.check)
        printf("heard: %s\n", result == ceclSuccess ? "nothing" : ceclGetLastError(me->comm));
    else
        hear_failure(me);
    fflush(stdout);
    must_be_dispatched(me, &b, false);
    if (!me->comm->config.check)
        return false;
    must(dispatch(me, &b, &equal), "ceclDispatch", me->comm);
    must_be_dispatched(me, &b, true);
    return true;
}

static size_t take_nothing(void *context, int peer, void *bytes, size_t count, size_t least)
{
    (void)context, (void)peer, (void)bytes, (void)count, (void)least;
    return 0;
}
static size_t put_nothing(void *context, int peer, const void *bytes, size_t count, size_t least)
{
    return take_nothing(context, peer, (void *)(uintptr_t)bytes, count, least);
}
static void close_nothing(void *context)
{
    (void)context;
}

/* NCCL waits, or says nothing, if the sizes at both ends differ. This network carries nothing, so only the ranks'
 * words about their calls can tell that calls differ. */
static void make_unequal_calls_in_silence(const struct rank *me)
{
    const struct cecl_net_pipes silent = {
        .put = put_nothing, .take = take_nothing, .close = close_nothing};
    const struct buffers b = take_buffers(me);
    const struct dispatch odd = odd_one(&equal, "align");
    must(cecl_net_pipes_open(me->comm->dev, "a silent network", &silent, me->rank, me->nranks,
                             &me->comm->engine.net),
         "cecl_net_pipes_open", me->comm);
    allow_sms(me);
    (void)!dispatch(me, &b, me->rank == me->nranks - 1 ? &odd : &equal);
    wait_for_failure(me);
}

/* ---- shrinks */

#define LATE_MS 500
#define TRIES 20 /* a rank that has heard of a death may come before one that has not */

static void split_and_end(const struct rank *me, ceclComm_t comm)
{
    const struct rank here = {
        .nranks = me->nranks, .rank = me->rank, .host = me->host, .comm = comm};
    work_within_a_host(&here);
    must(ceclCommDestroy(comm), "ceclCommDestroy of what is left", NULL);
}

/* What is left carries data over hosts, too. */
static void work_on(const struct rank *me, ceclComm_t comm, const char *name)
{
    struct rank left = {.host = me->host, .comm = comm};
    must(ceclCommCount(comm, &left.nranks), "ceclCommCount", comm);
    must(ceclCommUserRank(comm, &left.rank), "ceclCommUserRank", comm);
    if (cecl_mesh_spans_hosts(comm->mesh))
        take_net(&left, name, 1);
    const struct buffers b = take_buffers(&left);
    for (int i = 0; i < 3; i++)
        must(round_of_calls(&left, &b, 1000), "a call of those who are left", comm);
    split_and_end(&left, comm);
}

static void shrink_until_one_dies(const struct rank *me, int victim, const char *name)
{
    ceclComm_t comm = NULL;
    while (ceclCommShrink(me->comm, NULL, 0, &comm, NULL) == ceclSuccess)
        (void)!ceclCommAbort(comm);
    printf("heard: %s\n", ceclGetLastError(NULL));
    fflush(stdout);
    int out[64], count = 0;
    for (int r = 0; r < me->nranks; r++)
        if (victim < 0 ? cecl_mesh_is_away(me->comm->mesh, r) : r == victim)
            out[count++] = r;
    ceclResult_t result = ceclInternalError;
    for (int i = 0; i < TRIES && result != ceclSuccess; i++)
        result = ceclCommShrink(me->comm, out, count, &comm, NULL);
    must(result, "ceclCommShrink without the one that died", NULL);
    printf("shrunk\n");
    work_on(me, comm, name);
}

/* The last rank tries again at once, and the one before it comes late to the call that fails. */
static void shrink_after_a_refusal(const struct rank *me, int victim)
{
    const char *const words = "excludeRanks[0] = -1";
    const int wrong = -1, last = me->nranks - 1;
    ceclComm_t comm = NULL;
    ceclResult_t error = ceclSuccess;
    while (error == ceclSuccess) {
        must(ceclCommGetAsyncError(me->comm, &error), "ceclCommGetAsyncError", me->comm);
        pause_ms(5);
    }
    pause_ms(me->rank == last - 1 ? LATE_MS : 0);
    error = ceclCommShrink(me->comm, me->rank == last ? &wrong : &victim, 1, &comm, NULL);
    if (error != ceclInvalidArgument || !strstr(ceclGetLastError(NULL), words))
        fail("a shrink that the last rank refuses", NULL);
    must(ceclCommShrink(me->comm, &victim, 1, &comm, NULL), "ceclCommShrink after a refusal", NULL);
    printf("shrunk\n");
    split_and_end(me, comm);
}

/* A child may have been made where another rank's parent failed: then it is given up, too. */
static void split_on(const struct rank *me)
{
    ceclComm_t child;
    while (ceclCommSplit(me->comm, 0, 0, &child, NULL) == ceclSuccess)
        (void)!ceclCommAbort(child);
}

/* ---- the acts */

static void await_end_of_input(void)
{
    fflush(stdout);
    while (getchar() != EOF)
        continue;
}

static void act(const struct rank *me, const char *what, const char *name)
{
    if (strcmp(what, "carry") == 0 || strcmp(what, "go_on") == 0)
        take_net(me, name, 0);
    if (strcmp(what, "carry") == 0) {
        carry(me);
    } else if (strcmp(what, "go_on") == 0) {
        go_on(me);
        wait_for_failure(me);
        return;
    } else if (strcmp(what, "work") == 0) {
        work_within_a_host(me);
        put_within_a_host(me);
        work_over_hosts(me);
    } else if (strcmp(what, "wait") == 0) {
        wait_for_failure(me);
        return;
    } else if (strcmp(what, "split") == 0) {
        split_on(me);
        wait_for_failure(me);
        return;
    } else if (strncmp(what, "unequal:", 8) == 0) {
        take_net(me, name, 0);
        if (!make_unequal_calls(me, what + 8)) {
            must(ceclCommAbort(me->comm), "ceclCommAbort", NULL);
            printf("aborted\n");
            return;
        }
    } else if (strcmp(what, "silence") == 0) {
        make_unequal_calls_in_silence(me);
        return;
    } else if (strncmp(what, "late:", 5) == 0) {
        take_net(me, name, 0);
        if (me->rank != atoi(what + 5))
            (void)!ceclBarrier(me->comm, NULL);
        wait_for_failure(me);
        return;
    } else if (strncmp(what, "shrink:", 7) == 0) {
        shrink_until_one_dies(me, atoi(what + 7), name);
        must(ceclCommAbort(me->comm), "ceclCommAbort", NULL);
        printf("left\n");
        return;
    } else if (strncmp(what, "refuse:", 7) == 0) {
        shrink_after_a_refusal(me, atoi(what + 7));
        must(ceclCommAbort(me->comm), "ceclCommAbort", NULL);
        printf("left\n");
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
        make_net(argv[1], 0, me.nranks);
        make_net(argv[1], 1, me.nranks);
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
