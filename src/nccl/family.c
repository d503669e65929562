/* See family.h. */
#include "nccl/family.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/process.h"
#include "util/clock.h"
#include "util/siphash.h"

/* A part of each key, so that ranks with different versions of this library do not meet. */
#ifndef CECL_NCCL_MEETS_AS
#define CECL_NCCL_MEETS_AS CECL_VERSION
#endif

struct member {
    struct member *next;
    ncclComm_t comm;
    uint64_t key;
    int rank, nranks;
    uint32_t children[CECL_NCCL_CHILDREN]; /* how many children of each kind it has had */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct member *members;

static uint64_t hash(uint64_t first, const void *data, size_t bytes)
{
    uint8_t key[16] = {0};
    const uint64_t version = CECL_NCCL_MEETS_AS;
    memcpy(key, &first, sizeof(first));
    memcpy(key + sizeof(first), &version, sizeof(version));
    return cecl_siphash(key, data, bytes);
}

static struct cecl_nccl_meeting *meet(uint64_t key, int place, int places)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    return process->policy == CECL_NCCL_OFF || process->is_old || process->is_forked
               ? NULL
               : cecl_nccl_meeting_open(key, place, places);
}

struct cecl_nccl_meeting *cecl_nccl_meet_by_ids(const ncclUniqueId *ids, int nids, int nranks,
                                                int rank)
{
    return nids > 0 ? meet(hash(0, ids, (size_t)nids * sizeof(*ids)), rank, nranks) : NULL;
}

uint64_t cecl_nccl_new_key(void)
{
    static _Atomic uint64_t drawn;
    const uint64_t words[] = {(uint64_t)getpid(), (uint64_t)cecl_now_ns(),
                              atomic_fetch_add(&drawn, 1)};
    return hash(0, words, sizeof(words));
}

struct cecl_nccl_meeting *cecl_nccl_meet_by_key(uint64_t key, int nranks, int rank)
{
    return key != 0 ? meet(key, rank, nranks) : NULL;
}

/* ---- children */

/* False in a forked child: it has no communicators, and a thread of its parent may have held the lock. */
static bool has_members(void)
{
    return !cecl_nccl_process()->is_forked;
}

/* The list's pointer to the member; if there is none, the list's last pointer. The caller holds the lock. */
static struct member **find(ncclComm_t comm)
{
    struct member **at = &members;
    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    return at;
}

void cecl_nccl_family_keep(ncclComm_t comm, uint64_t key, int rank, int nranks)
{
    cecl_nccl_family_forget(
        comm); /* a communicator with this address may have ended without cecl's knowledge */
    struct member *member = has_members() ? calloc(1, sizeof(*member)) : NULL;
    if (!member) /* no key is kept, so NCCL makes all calls of the children */
        return;
    *member = (struct member){.comm = comm, .key = key, .rank = rank, .nranks = nranks};
    CECL_LOCKED(&lock);
    member->next = members;
    members = member;
}

void cecl_nccl_family_forget(ncclComm_t comm)
{
    if (!has_members())
        return;
    pthread_mutex_lock(&lock);
    struct member **at = find(comm), *member = *at;
    if (member)
        *at = member->next;
    pthread_mutex_unlock(&lock);
    free(member);
}

static uint64_t key_of_child(const struct member *parent, enum cecl_nccl_child kind,
                             uint32_t number, int color)
{
    const uint32_t words[] = {(uint32_t)kind, number, (uint32_t)color};
    return hash(parent->key, words, sizeof(words));
}

struct cecl_nccl_meeting *cecl_nccl_meet_child(ncclComm_t parent, enum cecl_nccl_child kind,
                                               int color, int places)
{
    uint64_t key = 0;
    int rank = 0;
    if (!has_members())
        return NULL;
    pthread_mutex_lock(&lock);
    struct member *member = *find(parent);
    if (member) {
        key = key_of_child(member, kind, ++member->children[kind], color);
        rank = member->rank;
        places = places > 0 ? places : member->nranks;
    }
    pthread_mutex_unlock(&lock);
    return member && color >= 0 ? meet(key, rank, places) : NULL;
}

/* ---- ids for the new ranks when a communicator grows */

struct mark {
    uint64_t is_mark, key;
};
#define IS_MARK (UINT64_C(0x6e776f72676c6363) ^ (uint64_t)CECL_NCCL_MEETS_AS)
#define MARK_AT (sizeof(ncclUniqueId) - sizeof(struct mark))

void cecl_nccl_mark_id(ncclComm_t parent, ncclUniqueId *id)
{
    struct mark mark = {0}, none = {0};
    if (!has_members())
        return;
    CECL_LOCKED(&lock);
    const struct member *member = *find(parent);
    if (member && memcmp(id->internal + MARK_AT, &none, sizeof(none)) == 0) {
        mark.is_mark = IS_MARK;
        mark.key = key_of_child(member, CECL_NCCL_GROWN, member->children[CECL_NCCL_GROWN] + 1, 0);
        memcpy(id->internal + MARK_AT, &mark, sizeof(mark));
    }
}

uint64_t cecl_nccl_unmark_id(ncclUniqueId *id)
{
    struct mark mark;
    memcpy(&mark, id->internal + MARK_AT, sizeof(mark));
    if (mark.is_mark != IS_MARK)
        return 0;
    memset(id->internal + MARK_AT, 0, sizeof(mark));
    return mark.key;
}
