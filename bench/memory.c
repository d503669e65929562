/* Kinds of memory on the host device, the sides of --memory, and what first use and lateness cost. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock_wall.h"

#define REPEATS 15

/* ---- the host device: a shared mapping is what cudaMalloc is on GPUs */

static bool take_shared(const struct run *run, size_t bytes, void **ptr)
{
    const int fd = memfd_create("cecl-bench", MFD_CLOEXEC); /* stays open: peers open it by this */
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return complain(run, "memfd_create", "no memory");
    *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return *ptr != MAP_FAILED || complain(run, "mmap", "no memory");
}

static void give_shared(const struct run *run, size_t bytes, void *ptr)
{
    (void)run;
    munmap(ptr, bytes);
}

static bool take_private(const struct run *run, size_t bytes, void **ptr)
{
    *ptr = malloc(bytes);
    return *ptr || complain(run, "malloc", "no memory");
}

static void give_private(const struct run *run, size_t bytes, void *ptr)
{
    (void)run;
    (void)bytes;
    free(ptr);
}

const struct memory_kind memory_on_host[MEMORY_KINDS] = {
    [MEMORY_MALLOC] = {"malloc", "a shared mapping", take_shared, give_shared},
    [MEMORY_PIECES] = {"pieces", "a shared mapping", take_shared, give_shared},
    [MEMORY_PRIVATE] = {"private", "malloc", take_private, give_private},
};

int memory_named(const char *name, size_t length)
{
    for (int i = 0; i < MEMORY_KINDS; i++)
        if (strlen(memory_on_host[i].name) == length &&
            memcmp(memory_on_host[i].name, name, length) == 0)
            return i;
    return -1;
}

/* ---- sides */

static bool memory_open(struct side *side, const struct run *run, size_t send_bytes,
                        size_t recv_bytes)
{
    const struct memory_kind *kind = memory_of(run, side->memory);
    side->send_bytes = send_bytes;
    side->recv_bytes = recv_bytes;
    side->run = run;
    return kind->take(run, send_bytes, &side->send) && kind->take(run, recv_bytes, &side->recv);
}

static void memory_close(struct side *side)
{
    const struct memory_kind *kind = memory_of(side->run, side->memory);
    kind->give(side->run, side->recv_bytes, side->recv);
    kind->give(side->run, side->send_bytes, side->send);
}

struct side side_memory_make(const struct run *run, int kind)
{
    struct side side = side_cecl_make(memory_of(run, kind)->name, run->comm);
    side.memory = kind;
    side.open = memory_open;
    side.close = memory_close;
    return side;
}

/* ---- what first use costs */

static bool gather_in_place(const struct run *run, char *recv, size_t block, double *us)
{
    const size_t count = block / run->options.type->bytes;
    const double start = wall_us();
    BENCH_TRY(run, ceclAllGather(recv + (size_t)run->rank * block, recv, count,
                                 run->options.type->id, run->comm, run->stream));
    *us = wall_us() - start;
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    return true;
}

/* us[0]: the first call on new memory, which stays; us[1]: the median of those that follow. */
static bool time_first_use(const struct run *run, int kind, void **recv, double us[2])
{
    const size_t block = block_of(&run->options, run->nranks, run->options.last),
                 bytes = block * (size_t)run->nranks;
    double later[REPEATS];
    if (!memory_of(run, kind)->take(run, bytes, recv))
        return false;
    MPI_Barrier(MPI_COMM_WORLD);
    if (!gather_in_place(run, *recv, block, &us[0]))
        return false;
    for (int i = 0; i < REPEATS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (!gather_in_place(run, *recv, block, &later[i]))
            return false;
    }
    us[1] = median_of(later, REPEATS);
    return true;
}

bool extra_first_use(const struct run *run)
{
    const size_t whole =
        block_of(&run->options, run->nranks, run->options.last) * (size_t)run->nranks;
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        double first[REPEATS], later[REPEATS];
        void *memory[REPEATS];
        for (int i = 0; i < REPEATS; i++) {
            double mine[2], slowest[2];
            if (!time_first_use(run, kind, &memory[i], mine))
                return false;
            MPI_Allreduce(mine, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            first[i] = slowest[0];
            later[i] = slowest[1];
        }
        for (int i = 0; i < REPEATS; i++)
            memory_of(run, kind)->give(run, whole, memory[i]);
        const double typical = median_of(first, REPEATS), after = median_of(later, REPEATS);
        if (run->rank == 0)
            printf("# first use of %zu bytes of %s memory: host %.0f us (most %.0f); later calls "
                   "%.1f us (slowest rank)\n",
                   whole, memory_of(run, kind)->name, typical, first[REPEATS - 1], after);
    }
    return true;
}

/* ---- what a late rank costs */

/* The last rank comes `late_us` after the others. us[0]: host time of the call; us[1]: from the last
 * rank's call to the end of the work. */
static bool time_late(const struct run *run, struct side *side, size_t block, int late_us,
                      double us[2])
{
    const bool last = run->rank == run->nranks - 1;
    const void *send = send_place(side, run, block, true);
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    MPI_Barrier(MPI_COMM_WORLD);
    if (last && late_us > 0)
        usleep((unsigned)late_us);
    const double start = wall_us();
    if (!side->call(side, run, send, block))
        return false;
    us[0] = wall_us() - start;
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    us[1] = wall_us() - start;
    return true;
}

static bool late_row(const struct run *run, struct side *side, size_t size, int late_us)
{
    double host[REPEATS], whole[REPEATS];
    const size_t block = block_of(&run->options, run->nranks, size);
    for (int i = 0; i < REPEATS; i++) {
        double us[2], mine, most;
        if (!time_late(run, side, block, late_us, us))
            return false;
        mine = run->rank == run->nranks - 1 ? 0 : us[0];
        MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        host[i] = most;
        MPI_Bcast(&us[1], 1, MPI_DOUBLE, run->nranks - 1, MPI_COMM_WORLD);
        whole[i] = us[1];
    }
    const double typical = median_of(host, REPEATS), end = median_of(whole, REPEATS);
    if (run->rank == 0)
        printf(
            "# %s, %zu bytes a rank, last rank late by %d us: its peers' host time %.1f us (most "
            "%.1f); from its call to the end %.1f us\n",
            side->name, size, late_us, typical, host[REPEATS - 1], end);
    return true;
}

bool extra_late(const struct run *run)
{
    struct side side = side_cecl_make("cecl", run->comm);
    const size_t largest = block_of(&run->options, run->nranks, run->options.last);
    if (!side.open(&side, run, send_bytes_of(run, largest), recv_bytes_of(run, largest)))
        return false;
    for (int i = 0, more = 1; more; i++) {
        const size_t size = size_at(&run->options, i);
        more = size != 0 && i < MAX_SIZES;
        if (more &&
            (!late_row(run, &side, size, 0) || !late_row(run, &side, size, run->options.late_us)))
            return false;
    }
    side.close(&side);
    return true;
}
