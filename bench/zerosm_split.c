/* Splits for cecl_zerosm. Each rank has a thread, because ceclCommSplit waits for all ranks. */
#include "zerosm_split.h"

#include <pthread.h>
#include <stdio.h>

#include "zerosm.h"

/* One rank's part. */
struct splitter {
    pthread_t thread;
    ceclComm_t parent, comm;
    int color, key;
    char why[256]; /* empty: it succeeded */
};

static int colors(int gpus)
{
    return gpus >= 4 && gpus % 2 == 0 ? 2 : 1;
}

int zerosm_split_ranks(int gpus)
{
    return gpus / colors(gpus);
}

int zerosm_split_rank(int gpus, int g)
{
    return (gpus - 1 - g) / colors(gpus);
}

static void *split(void *argument)
{
    struct splitter *s = argument;
    if (ceclCommSplit(s->parent, s->color, s->key, &s->comm, NULL) != ceclSuccess)
        snprintf(s->why, sizeof(s->why), "%s", ceclGetLastError(NULL));
    return NULL;
}

bool zerosm_split(const ceclComm_t *parents, int gpus, ceclComm_t *comms, char *why, size_t room)
{
    struct splitter splitters[ZEROSM_MAX_GPUS];
    int begun = 0, failed = -1;
    for (int g = 0; g < gpus; g++) {
        splitters[g] =
            (struct splitter){.parent = parents[g], .color = g % colors(gpus), .key = -g};
        if (begun == g && pthread_create(&splitters[g].thread, NULL, split, &splitters[g]) == 0)
            begun++;
    }
    for (int g = 0; g < gpus; g++) {
        if (g < begun)
            pthread_join(splitters[g].thread, NULL);
        else
            snprintf(splitters[g].why, sizeof(splitters[g].why), "no thread");
        comms[g] = splitters[g].comm;
        failed = failed < 0 && splitters[g].why[0] ? g : failed;
    }
    if (failed >= 0)
        snprintf(why, room, "GPU %d: ceclCommSplit: %s", failed, splitters[failed].why);
    return failed < 0;
}
