/* CECL_CHECK: before a collective is enqueued, ranks compare their descriptions of it. This is slow, and is
 * for finding errors in programs. */
#include "launch/check.h"

#include <stdlib.h>
#include <string.h>

#include "comm/together.h"
#include "launch/exchange.h"
#include "launch/launcher.h"
#include "util/alone.h"

/* What a rank sends to the others: the part of its call on which ranks must agree, without pointers. */
struct told {
    struct cecl_verdict verdict;
    struct cecl_facts facts;
    struct cecl_call call; /* only fields that are compared */
    uint64_t layout;       /* a hash of those words of the layout that must be equal */
    /* these words themselves, if splits are on the device */
    uint64_t splits[CECL_LAYOUT_SPLITS_ALIKE];
    uint64_t compared; /* which communicators are compared together: as in struct cecl_launcher */
};
_Static_assert(sizeof(struct told) >= CECL_CHECK_ROOM_BYTES,
               "other exchanges use this much of the room");

void *cecl_check_room(int nranks)
{
    return calloc((size_t)nranks, sizeof(struct told));
}

/* ---- what ranks must agree on */

static uint64_t hash_of(const uint64_t *words, uint32_t count)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u + (hash >> 29);
    return hash;
}

static void tell(const struct cecl_call *call, ceclResult_t local, struct told *told)
{
    memset(told, 0, sizeof(*told));
    told->facts = cecl_facts_of(call, 1);
    if (local != ceclSuccess)
        return;
    told->call.view.shape = call->view.shape;
    const uint32_t alike = cecl_layout_alike(call->op, call->layout_words);
    if (alike > 0 && call->op->family == CECL_FAMILY_SPLITS)
        memcpy(told->splits, call->view.layout, sizeof(told->splits));
    else if (alike > 0)
        told->layout = hash_of(call->view.layout, alike);
    if (call->op->block && !cecl_call_is_empty(call))
        told->call.in_place = cecl_call_is_in_place_on_all(call);
    else if (!call->op->block)
        told->call.recv = call->recv;
}

/* ---- comparing */

const char *const cecl_placements[2] = {"out of place", "in place"};

/* A field that ranks compare. */
struct field {
    const char *name;
    size_t offset, bytes;
    const char *const *names; /* of its values, if they have any */
    uint64_t nnames;
};
#define FIELD(member) offsetof(struct told, member), sizeof(((struct told *)0)->member)
static const struct field fields[] = {
    {"placement", FIELD(call.in_place), CECL_NAMES_OF(cecl_placements)},
    {"ptr's offset in the pool", FIELD(call.recv.offset), CECL_NUMBER_ONLY},
    {"recvcounts, displs or rows (a hash of them)", FIELD(layout), CECL_NUMBER_ONLY},
    {"sendrows", FIELD(splits[CECL_LAYOUT_SEND_ROWS]), CECL_NUMBER_ONLY},
    {"recvrows", FIELD(splits[CECL_LAYOUT_RECV_ROWS]), CECL_NUMBER_ONLY},
    {"experts->experts", FIELD(splits[CECL_LAYOUT_EXPERTS]), CECL_NUMBER_ONLY},
    {"experts->align", FIELD(splits[CECL_LAYOUT_ALIGN]), CECL_NUMBER_ONLY},
    {"experts->scalebytes", FIELD(splits[CECL_LAYOUT_SCALE_BYTES]), CECL_NUMBER_ONLY},
    {"strided.width, in bytes", FIELD(call.view.shape.width), CECL_NUMBER_ONLY},
    {"strided.rows", FIELD(call.view.shape.rows), CECL_NUMBER_ONLY},
    {"strided.sendPitch, in bytes", FIELD(call.view.shape.send_pitch), CECL_NUMBER_ONLY},
    {"strided.sendStride, in bytes", FIELD(call.view.shape.send_stride), CECL_NUMBER_ONLY},
    {"strided.recvPitch, in bytes", FIELD(call.view.shape.recv_pitch), CECL_NUMBER_ONLY},
    {"strided.recvStride, in bytes", FIELD(call.view.shape.recv_stride), CECL_NUMBER_ONLY},
};

static uint64_t value_of(const struct told *told, const struct field *field)
{
    const void *at = (const char *)told + field->offset;
    return field->bytes == 1   ? *(const uint8_t *)at
           : field->bytes == 2 ? *(const uint16_t *)at
           : field->bytes == 4 ? *(const uint32_t *)at
                               : *(const uint64_t *)at;
}

static ceclResult_t compare(const struct told *a, const struct told *b, int rank)
{
    struct cecl_facts_difference difference;
    char name[CECL_FACTS_NAME];
    if (cecl_facts_differ(&a->facts, &b->facts, &difference))
        return cecl_comm_differ_in(cecl_facts_name(&a->facts, name), difference.field, 0,
                                   difference.one, rank, difference.other);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        char one[CECL_FACTS_NAME], other[CECL_FACTS_NAME];
        const uint64_t x = value_of(a, &fields[i]), y = value_of(b, &fields[i]);
        if (x == y)
            continue;
        cecl_value_print(fields[i].names, fields[i].nnames, x, one);
        cecl_value_print(fields[i].names, fields[i].nnames, y, other);
        return cecl_comm_differ_in(cecl_facts_name(&a->facts, name), fields[i].name, 0, one, rank,
                                   other);
    }
    return ceclSuccess;
}

#define CURE "CECL_CHECK=1 needs a thread for each rank, or the calls of all ranks in one group"

/* Refuses a call of a thread that has several ranks, because each rank would wait for the others. If all
 * ranks are in this process, every rank is refused, and the communicator stays usable. Otherwise the
 * communicator fails, because ranks of other processes wait for this one. `local`: the result of checking
 * this rank's own arguments. */
static ceclResult_t refuse_alone(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    if (local == ceclSuccess)
        local = cecl_fail(ceclInvalidUsage,
                          "%s: this process has other ranks of the communicator, and no other "
                          "thread that could make their calls: " CURE,
                          call->op->name);
    return comm->ranks_here == comm->nranks ? local : cecl_comm_break(comm, local);
}

ceclResult_t cecl_check_call(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    struct told mine, *all = comm->check_room;
    if (!comm->config.check)
        return local;
    if (comm->ranks_here > 1 && cecl_thread_is_alone())
        return refuse_alone(comm, call, local);
    tell(call, local, &mine);
    mine.compared = comm->launcher->compared;
    ceclResult_t result =
        cecl_exchange(comm, call->op->name, "call", &mine.verdict, all, sizeof(mine), local);
    if (local != ceclSuccess)
        return result;
    result = cecl_comm_add_cure(comm, result, CURE);
    comm->launcher->compares_alike = true;
    for (int r = 0; r < comm->nranks && result == ceclSuccess; r++)
        if (all[r].compared != mine.compared)
            comm->launcher->compares_alike = false;
    for (int r = 1; r < comm->nranks && result == ceclSuccess; r++)
        result = compare(&all[0], &all[r], r);
    return result;
}

static ceclResult_t check_one(ceclComm_t comm, const struct cecl_call *call, ceclResult_t local)
{
    CECL_TRY(cecl_check_call(comm, call, local));
    return cecl_op_states_places(call->op) ? cecl_exchange_compare(comm, call) : ceclSuccess;
}

ceclResult_t cecl_check_calls(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclResult_t local)
{
    if (!comm->config.check)
        return local;
    if (count == 1)
        return check_one(comm, &calls[0], local);
    const struct cecl_call group = {.op = &cecl_ops[CECL_OP_GROUP_END], .count = count};
    ceclResult_t result = cecl_check_call(comm, &group, local);
    for (uint32_t i = 0; i < count && result == ceclSuccess; i++)
        result = check_one(comm, &calls[i], ceclSuccess);
    return result;
}

/* ---- groups on several communicators */

static ceclResult_t check_part(void *argument)
{
    struct cecl_check_part *part = argument;
    part->is_told = true;
    part->result = cecl_check_calls(part->comm, part->calls, part->count,
                                    cecl_fail_with(part->local, part->words));
    return part->result;
}

/* Compares the calls on all communicators at the same time, except on those that have a result already. */
static ceclResult_t check_together(struct cecl_check_part *parts, uint32_t count)
{
    struct cecl_task *tasks = calloc(count, sizeof(*tasks));
    uint32_t ntasks = 0;
    if (!tasks)
        return cecl_fail(ceclOutOfMemory, "no host memory to compare calls on %u communicators",
                         count);
    for (uint32_t i = 0; i < count; i++)
        if (!parts[i].is_told)
            tasks[ntasks++] = (struct cecl_task){.run = check_part, .argument = &parts[i]};
    const ceclResult_t result = cecl_together(tasks, ntasks);
    free(tasks);
    return result;
}

/* Whether ranks of a communicator are missing in this thread, and no other thread could make their
 * calls. */
static bool is_incomplete(const struct cecl_check_part *parts, uint32_t count, uint32_t index)
{
    const ceclComm_t comm = parts[index].comm;
    int here = 0;
    for (uint32_t i = 0; i < count && comm->ranks_here > 1; i++)
        here += parts[i].comm->id == comm->id;
    return here < comm->ranks_here && comm->ranks_here > 1 && cecl_thread_is_alone();
}

/* Refuses calls on communicators with missing ranks. Returns `local`, or the error of a refusal. */
static ceclResult_t refuse_incomplete(struct cecl_check_part *parts, uint32_t count,
                                      ceclResult_t local)
{
    ceclResult_t result = local;
    for (uint32_t i = 0; i < count; i++)
        if (is_incomplete(parts, count, i)) {
            parts[i].is_told = true;
            result = parts[i].result = refuse_alone(parts[i].comm, parts[i].calls, result);
        }
    return result;
}

/* Whether a part is the first one in the list with this communicator id. This thread may have several ranks
 * of a communicator, and each rank is a part. */
static bool is_first_of(const struct cecl_check_part *parts, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (parts[i].comm->id == parts[index].comm->id)
            return false;
    return true;
}

ceclResult_t cecl_check_parts(struct cecl_check_part *parts, uint32_t count, ceclResult_t local)
{
    char words[CECL_MESSAGE_BYTES];
    uint64_t compared = 0;
    if (count == 0)
        return local;
    for (uint32_t i = 0; i < count; i++)
        compared += is_first_of(parts, i) ? parts[i].comm->id : 0;
    for (uint32_t i = 0; i < count; i++)
        parts[i].comm->launcher->compared = compared == parts[0].comm->id ? 0 : compared;
    local = refuse_incomplete(parts, count, local);
    cecl_keep_message(words);
    for (uint32_t i = 0; i < count; i++) {
        parts[i].local = local;
        parts[i].words = parts[i].words ? parts[i].words : words;
    }
    ceclResult_t result = check_together(parts, count);
    if (result == ceclSuccess)
        result = cecl_fail_with(local, words);
    cecl_keep_message(words);
    /* no thread could be started for these parts: tells their peers why */
    for (uint32_t i = 0; i < count; i++) {
        if (!parts[i].is_told) {
            parts[i].local = result;
            (void)!check_part(&parts[i]);
        }
        parts[i].comm->launcher->compared = 0;
    }
    return cecl_fail_with(result, words);
}
