/* The stand-in's records of calls, for tests. */
#include <pthread.h>
#include <string.h>

#include "standin.h"

#define NAMES 128

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *name;
    size_t calls;
} counts[NAMES];
static _Thread_local struct standin_record last;

static void count(const char *name)
{
    int i = 0;
    while (counts[i].name && strcmp(counts[i].name, name) != 0)
        i++;
    counts[i].name = name;
    counts[i].calls++;
}

void standin_note(const char *name, const uint64_t *words, size_t nwords)
{
    last = (struct standin_record){.name = name};
    memcpy(last.words, words, nwords * sizeof(*words));
    pthread_mutex_lock(&lock);
    count(name);
    pthread_mutex_unlock(&lock);
}

struct standin_record standin_last(void)
{
    return last;
}

size_t standin_calls(const char *name)
{
    size_t calls = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < NAMES && counts[i].name; i++)
        if (strcmp(counts[i].name, name) == 0)
            calls = counts[i].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}
