#include "life.h"

#include <malloc.h>

#include "../forked.h"
#include "works.h"

static struct player *player(struct life *life)
{
    return (struct player *)(void *)life;
}

_Noreturn void life_fail(struct life *life, const char *format, ...)
{
    struct told *told = player(life)->told[player(life)->me];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told->wrong, sizeof(told->wrong), format, arguments);
    va_end(arguments);
    told->failed_at = now();
    atomic_store(&told->failed, 1);
    atomic_store(&told->done, 1);
    _exit(1);
}

void life_begin(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(200);
    mallopt(M_ARENA_MAX, 1); /* malloc's arenas are as large as a pool and are never given back */
    setenv("CECL_DEBUG", "none", 1);
}

void life_meet(struct life *life)
{
    struct player *p = player(life);
    p->awaited += p->n;
    atomic_fetch_add(&p->venue->passed, 1);
    while (atomic_load(&p->venue->passed) < p->awaited) {
        for (int r = 0; r < p->n; r++)
            if (atomic_load(&p->told[r]->failed))
                _exit(1); /* the failed rank has reported the reason */
        usleep(50);
    }
}

void life_open_buffers(struct life *life)
{
    struct player *p = player(life);
    const size_t bytes = INTS * sizeof(int);
    if (ceclMemAlloc(p->comm, (void **)&p->in, bytes) != ceclSuccess ||
        ceclMemAlloc(p->comm, (void **)&p->out, bytes) != ceclSuccess)
        life_fail(life, "no buffers: %s", ceclGetLastError(NULL));
}

int life_exchange(void *context, const void *send, void *recv, size_t bytes)
{
    struct life *life = context;
    struct player *p = context;
    const int round = p->round;
    if (round >= EXCHANGES_MOST || bytes > PART_BYTES)
        life_fail(life, "exchange %d of %zu bytes", round, bytes);
    memcpy(p->venue->parts[round][p->me], send, bytes);
    atomic_fetch_add(&p->venue->brought[round], 1);
    if (p->within)
        p->within(life);
    while (atomic_load(&p->venue->brought[round]) < p->n) {
        if (p->gives_up(life) && atomic_load(&p->venue->brought[round]) < p->n)
            return 1; /* unless the last part came before a rank gave up */
        usleep(100);
    }
    for (int r = 0; r < p->n; r++)
        memcpy((char *)recv + (size_t)r * bytes, p->venue->parts[round][r], bytes);
    p->round++;
    return 0;
}

void life_prove(struct life *life, ceclComm_t comm, const int *members, int count)
{
    char wrong[200];
    ceclResult_t result = comm_works(comm, members, count, wrong, sizeof(wrong));
    if (result != ceclSuccess || *wrong)
        life_fail(life, "a new communicator does not work: %s%s", wrong,
                  result != ceclSuccess ? ceclGetLastError(comm) : "");
    result = ceclCommDestroy(comm);
    if (result != ceclSuccess)
        life_fail(life, "a new communicator does not end: %s", ceclGetLastError(NULL));
}

void life_check_left(struct life *life)
{
    struct census left;
    char words[512];
    if (census_is_back(&player(life)->start, &left))
        return;
    census_describe(&player(life)->start, &left, words, sizeof(words));
    life_fail(life, "%s", words);
}

_Noreturn void life_end(struct life *life)
{
    struct told *told = player(life)->told[player(life)->me];
    atomic_store(&told->step, "done");
    atomic_store(&told->done, 1);
    _exit(0);
}
