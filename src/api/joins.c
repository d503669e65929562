/* The joins of a group, which run at the same time. */
#include "api/joins.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/life.h"
#include "comm/together.h"
#include "launch/group.h"
#include "util/grow.h"

static void free_joins(struct cecl_joins *joins)
{
    free(joins->list);
    free(joins);
}

static ceclResult_t add_join(const struct cecl_join *join)
{
    struct cecl_group *group = cecl_group_current();
    if (!group->joins)
        group->joins = calloc(1, sizeof(struct cecl_joins));
    group->free_joins = free_joins;
    struct cecl_joins *joins = group->joins;
    if (!joins || !CECL_HAS_ROOM(joins->list, joins->count, joins->room))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u joins",
                         joins ? joins->count + 1 : 1);
    joins->list[joins->count++] = *join;
    return join->local == ceclSuccess ? ceclSuccess : cecl_fail_with(join->local, join->words);
}

ceclResult_t cecl_joins_keep(const struct cecl_join *join)
{
    return cecl_group_refuse_call(NULL, add_join(join));
}

static void refuse_all(struct cecl_joins *joins, ceclResult_t refused, const char *words)
{
    for (uint32_t i = 0; i < joins->count; i++) {
        struct cecl_join *join = &joins->list[i];
        if (join->local != ceclSuccess)
            continue;
        join->local = refused;
        snprintf(join->words, sizeof(join->words), "its group was refused: %.450s", words);
    }
}

static ceclResult_t run(void *argument)
{
    return cecl_join_carry_out(argument);
}

static ceclResult_t join_all(struct cecl_joins *joins)
{
    struct cecl_task *tasks = calloc(joins->count, sizeof(*tasks));
    if (!tasks)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u joins", joins->count);
    for (uint32_t i = 0; i < joins->count; i++)
        tasks[i] = (struct cecl_task){.run = run, .argument = &joins->list[i]};
    const ceclResult_t result = cecl_together(tasks, joins->count);
    free(tasks);
    return result;
}

ceclResult_t cecl_joins_carry_out(struct cecl_joins *joins, ceclResult_t refused, const char *words)
{
    char why[CECL_MESSAGE_BYTES];
    if (joins->count == 0)
        return ceclSuccess;
    if (refused != ceclSuccess)
        refuse_all(joins, refused, words);
    const ceclResult_t result = join_all(joins);
    cecl_keep_message(why);
    for (uint32_t i = 0; i < joins->count; i++) {
        const struct cecl_join *join = &joins->list[i];
        if (result == ceclSuccess)
            *join->out = join->comm;
        else if (join->comm)
            cecl_comm_take_back(join->comm);
    }
    free(joins->list); /* the list is large, and joins are rare */
    *joins = (struct cecl_joins){0};
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, why);
}
