#include "ranks.h"

#include "../forked.h"
#include "../prompt.h"

struct meeting {
    struct forked_id id;
    _Atomic int came, gone; /* counts over all rounds of rank_gather */
    char parts[RANKS_MOST][1024];
};

void rank_fails(struct rank *r, const char *condition, int line)
{
    r->failed = condition;
    r->line = line;
    snprintf(r->words, sizeof(r->words), "%s", ceclGetLastError(r->comm));
}

bool rank_says(struct rank *r, const char *text)
{
    return strstr(ceclGetLastError(NULL), text) || strstr(ceclGetLastError(r->comm), text);
}

bool rank_put(struct rank *r, void *at, const void *bytes, size_t count)
{
    return ceclMemcpyAsync(r->comm, at, bytes, count, r->stream) == ceclSuccess &&
           ceclStreamSynchronize(r->comm, r->stream) == ceclSuccess;
}

bool rank_get(struct rank *r, void *bytes, const void *at, size_t count)
{
    return rank_put(r, bytes, at, count);
}

int rank_gather(void *context, const void *send, void *recv, size_t bytes)
{
    struct rank *r = context;
    struct meeting *m = r->meeting;
    const int round = r->rounds++;
    if (bytes > sizeof(m->parts[0]))
        return 1;
    while (atomic_load(&m->gone) <
           round * r->nranks) /* all ranks have read the parts of the last round */
        usleep(100);
    memcpy(m->parts[r->rank], send, bytes);
    atomic_fetch_add(&m->came, 1);
    while (atomic_load(&m->came) < (round + 1) * r->nranks)
        usleep(100);
    for (int q = 0; q < r->nranks; q++)
        memcpy((char *)recv + (size_t)q * bytes, m->parts[q], bytes);
    atomic_fetch_add(&m->gone, 1);
    return 0;
}

ceclResult_t rank_await_failure(struct rank *r)
{
    const double limit = now() + PROMPT;
    ceclResult_t error = ceclSuccess;
    while (error == ceclSuccess && now() < limit) {
        if (ceclCommGetAsyncError(r->comm, &error) != ceclSuccess)
            return ceclInternalError;
        usleep(1000);
    }
    return error;
}

static void join(struct rank *r)
{
    OK(ceclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    OK(ceclStreamCreate(r->comm, &r->stream));
    OK(ceclMemAlloc(r->comm, (void **)&r->send, ROOM));
    OK(ceclMemAlloc(r->comm, (void **)&r->recv, ROOM));
}

static void leave(struct rank *r)
{
    if (r->comm)
        OK(ceclCommDestroy(r->comm));
}

static int run_one(const struct setup *setup, scenario *run, struct meeting *meeting, int rank)
{
    struct rank *r = calloc(1, sizeof(*r));
    char host[16];
    r->rank = rank;
    r->nranks = setup->nranks;
    r->meeting = meeting;
    if (setup->node_size)
        setenv("CECL_NODE_SIZE", setup->node_size, 1);
    snprintf(host, sizeof(host), "host%d", rank);
    setenv("NCCL_HOSTID", host, 0); /* lets ranks share a GPU, which NCCL refuses within a host */
    if (setup->name && (setup->only < 0 || setup->only == rank)) {
        if (setup->value)
            setenv(setup->name, setup->value, 1);
        else
            unsetenv(setup->name);
    }
    r->id = forked_meet(&meeting->id, rank);
    if (setup->joins)
        join(r);
    if (!r->failed)
        run(r);
    if (!r->failed && setup->joins)
        leave(r);
    if (r->failed)
        fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, r->line, r->failed, r->words);
    const int status = r->failed ? 1 : 0;
    free(r);
    return status;
}

bool ranks_run(const struct setup *setup, scenario *run)
{
    struct meeting *meeting = shared_memory(sizeof(*meeting));
    bool is = true;
    int status;
    for (int rank = 0; rank < setup->nranks; rank++)
        if (fork() == 0)
            exit(run_one(setup, run, meeting, rank));
    for (int rank = 0; rank < setup->nranks; rank++)
        is = wait(&status) > 0 && (status == 0 || status == SIGKILL || status == SIGALRM) && is;
    munmap(meeting, sizeof(*meeting));
    return is;
}
