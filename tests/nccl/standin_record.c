/* Records of the stand-in for tests: of each call, and of communicators and their splits. */
#include <pthread.h>
#include <stdlib.h>
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

/* ---- communicators and their splits */

static _Atomic int overlaps, outlived;
static _Atomic bool holds_splits;
static _Atomic ncclResult_t broken;

static void drop(struct family *family)
{
    if (atomic_fetch_sub(&family->users, 1) == 1)
        free(family);
}

void standin_family_open(ncclComm_t comm, ncclComm_t parent)
{
    comm->family = calloc(1, sizeof(*comm->family));
    comm->family->users = 1;
    comm->parent = parent ? parent->family : NULL;
    if (parent) {
        atomic_fetch_add(&parent->family->users, 1);
        atomic_fetch_add(&parent->family->children, 1);
    }
}

void standin_family_close(ncclComm_t comm)
{
    if (atomic_load(&comm->family->children) > 0)
        atomic_fetch_add(&outlived, 1);
    drop(comm->family);
    if (!comm->parent)
        return;
    atomic_fetch_sub(&comm->parent->children, 1);
    drop(comm->parent);
}

static void tell(struct family *family, char letter)
{
    pthread_mutex_lock(&lock);
    const bool is_new = family->length == 0 || family->story[family->length - 1] != letter;
    if (is_new && family->length < sizeof(family->story) - 1)
        family->story[family->length++] = letter;
    pthread_mutex_unlock(&lock);
}

static void fly(struct family *family, bool is_split, bool begins)
{
    _Atomic int *mine = is_split ? &family->split_flying : &family->flying;
    _Atomic int *other = is_split ? &family->flying : &family->split_flying;
    atomic_fetch_add(mine, begins ? 1 : -1);
    if (begins && atomic_load(other) > 0)
        atomic_fetch_add(&overlaps, 1);
    if (begins)
        tell(family, is_split ? 's' : 'p');
}

void standin_fly(ncclComm_t comm, bool begins)
{
    fly(comm->family, false, begins);
    if (comm->parent)
        fly(comm->parent, true, begins);
}

bool standin_holds(ncclComm_t comm)
{
    return comm->parent && atomic_load(&holds_splits);
}

ncclResult_t standin_broken(ncclComm_t comm)
{
    return comm->parent ? atomic_load(&broken) : (ncclResult_t)ceclSuccess;
}

void standin_trouble_splits(bool hold, ncclResult_t error)
{
    atomic_store(&broken, error);
    atomic_store(&holds_splits, hold);
}

void standin_story(ncclComm_t comm, char story[STANDIN_STORY])
{
    struct family *family = comm->family;
    pthread_mutex_lock(&lock);
    memcpy(story, family->story, family->length);
    story[family->length] = '\0';
    family->length = 0;
    pthread_mutex_unlock(&lock);
}

int standin_overlaps(void)
{
    return atomic_load(&overlaps);
}

int standin_outlived(void)
{
    return atomic_load(&outlived);
}
