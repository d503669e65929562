/* See group.h. cecl carries out a group of calls as one for each communicator. */
#include "nccl/group.h"

#include <stdlib.h>

#include "nccl/comms.h"
#include "nccl/gpu.h"
#include "nccl/library.h"
#include "nccl/serve.h"

/* Calls on one communicator of cecl's that go into one group of cecl's. Groups of NCCL's may have any
 * number. Ranks divide them alike, because they count the calls of each communicator by itself. */
#define AT_ONCE 64

struct kept {
    struct cecl_nccl_call call;
    int number; /* of the kept call */
    int nth;    /* how many were kept before on the same communicator of cecl's */
    /* -- while its turn is carried out -- */
    struct cecl_nccl_comm *comm; /* NULL: it was aborted within the group */
    ceclComm_t ours;
    cudaStream_t stream; /* where all calls of `ours` go */
};

static _Thread_local struct {
    int depth;
    struct kept *kept;
    int count, room;
} group;

int cecl_nccl_group_depth(void)
{
    return group.depth;
}

void cecl_nccl_group_opened(void)
{
    group.depth++;
}

bool cecl_nccl_group_ended(void)
{
    return group.depth > 0 && --group.depth == 0;
}

static bool is_of_one(const struct cecl_nccl_call *a, const struct cecl_nccl_call *b)
{
    return a->comm == b->comm && a->reduces == b->reduces;
}

static int count_before(const struct cecl_nccl_call *call)
{
    int last = group.count - 1;
    while (last >= 0 && !is_of_one(&group.kept[last].call, call))
        last--;
    return last < 0 ? 0 : group.kept[last].nth + 1;
}

ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call)
{
    if (group.count == group.room) {
        const int room = 2 * group.room + 16;
        struct kept *kept = realloc(group.kept, (size_t)room * sizeof(*kept));
        if (!kept)
            return ceclSystemError;
        group.kept = kept;
        group.room = room;
    }
    group.kept[group.count] =
        (struct kept){.call = *call, .number = group.count, .nth = count_before(call)};
    group.count++;
    return ceclSuccess;
}

void cecl_nccl_group_forget(void)
{
    free(group.kept);
    group.kept = NULL;
    group.count = group.room = 0;
}

/* ---- one turn: [count] calls */

/* Finds each call's communicator, which no other thread can end from then on. */
static void enter(struct kept *kept, int count)
{
    for (int i = 0; i < count; i++) {
        struct cecl_nccl_comm *comm = cecl_nccl_comm_find(kept[i].call.comm);
        kept[i].comm = comm && comm->ours.moves && cecl_nccl_comm_enter(comm) ? comm : NULL;
        if (kept[i].comm)
            kept[i].ours = cecl_nccl_serve_comm(&kept[i].call, comm);
    }
}

static void leave(const struct kept *kept, int count)
{
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            cecl_nccl_comm_leave(kept[i].comm);
}

/* The first call of the turn on the same communicator of cecl's; itself, if there is none before. */
static const struct kept *first_of(const struct kept *kept, int index)
{
    int first = 0;
    while (!is_of_one(&kept[first].call, &kept[index].call))
        first++;
    return &kept[first];
}

/* cecl's groups have one stream for each communicator. NCCL lets the calls of one go to several, and
 * then all of these streams wait for each other: so they do here. */
static ceclResult_t join_streams(struct kept *kept, int count)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++) {
        kept[i].stream = first_of(kept, i)->call.stream;
        if (kept[i].comm && kept[i].comm->on_gpu && kept[i].stream != kept[i].call.stream)
            result =
                cecl_nccl_gpu_order(kept[i].comm->ordinal, kept[i].call.stream, kept[i].stream);
    }
    return result;
}

static ceclResult_t part_streams(const struct kept *kept, int count)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && kept[i].comm->on_gpu && kept[i].stream != kept[i].call.stream)
            result =
                cecl_nccl_gpu_order(kept[i].comm->ordinal, kept[i].stream, kept[i].call.stream);
    return result;
}

/* The group has the error of a call that is refused. */
static ceclResult_t enqueue(const struct kept *kept, int count)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    CECL_TRY(cecl->ceclGroupStart());
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            (void)!cecl_nccl_serve_enqueue(&kept[i].call, kept[i].comm, kept[i].stream);
    return cecl->ceclGroupEnd();
}

static ceclResult_t complete(const struct kept *kept, int count)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && first_of(kept, i) == &kept[i])
            result = cecl_nccl_serve_complete(kept[i].comm, kept[i].ours);
    return result;
}

static ncclResult_t serve_turn(struct kept *kept, int count)
{
    enter(kept, count);
    ceclResult_t result = join_streams(kept, count);
    if (result == ceclSuccess)
        result = enqueue(kept, count);
    if (result == ceclSuccess)
        result = part_streams(kept, count);
    if (result == ceclSuccess)
        result = complete(kept, count);
    const ncclResult_t number =
        kept[0].comm ? cecl_nccl_comm_result(kept[0].comm, result) : (ncclResult_t)result;
    leave(kept, count);
    return number;
}

/* A single call is no group for cecl, because a small call by itself is faster. */
static ncclResult_t serve_one(struct kept *kept)
{
    enter(kept, 1);
    if (!kept->comm)
        return ceclSuccess;
    const ncclResult_t result =
        cecl_nccl_comm_result(kept->comm, cecl_nccl_serve(&kept->call, kept->comm));
    leave(kept, 1);
    return result;
}

/* Which of cecl's groups a call goes into. */
static int turn_of(const struct kept *kept)
{
    return kept->nth / AT_ONCE;
}

static int by_turn(const void *left, const void *right)
{
    const struct kept *a = left, *b = right;
    return turn_of(a) != turn_of(b) ? turn_of(a) - turn_of(b) : a->number - b->number;
}

/* The calls of a turn, which are next to each other. */
static int length_of_turn(const struct kept *kept, int count)
{
    int length = 0;
    while (length < count && turn_of(&kept[length]) == turn_of(kept))
        length++;
    return length;
}

ncclResult_t cecl_nccl_group_serve(void)
{
    ncclResult_t result = ceclSuccess;
    if (group.count == 1)
        result = serve_one(group.kept);
    else if (group.count > AT_ONCE)
        qsort(group.kept, (size_t)group.count, sizeof(*group.kept), by_turn);
    for (int i = 0; group.count > 1 && i < group.count && result == (ncclResult_t)ceclSuccess;) {
        const int length = length_of_turn(group.kept + i, group.count - i);
        result = serve_turn(group.kept + i, length);
        i += length;
    }
    cecl_nccl_group_forget();
    return result;
}
