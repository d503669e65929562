/* The joins of a group, which run at the same time. */
#include "api/joins.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/life.h"
#include "comm/together.h"
#include "launch/group.h"

static void free_joins(struct cecl_join *join)
{
    while (join) {
        struct cecl_join *next = join->next;
        free(join);
        join = next;
    }
}

ceclResult_t cecl_joins_keep(const struct cecl_join *join)
{
    struct cecl_group *group = cecl_group_current();
    struct cecl_join **end = &group->joins, *kept = malloc(sizeof(*kept));
    ceclResult_t result = join->local;
    if (!kept)
        return cecl_group_refuse_call(
            NULL, cecl_fail(ceclOutOfMemory, "no host memory for a join of a group"));
    while (*end)
        end = &(*end)->next;
    *kept = *join;
    *end = kept;
    group->free_joins = free_joins;
    if (result != ceclSuccess)
        result = cecl_fail_with(result, join->words);
    return cecl_group_refuse_call(NULL, result);
}

static void refuse_all(struct cecl_join *joins, ceclResult_t refused, const char *words)
{
    for (struct cecl_join *join = joins; join; join = join->next) {
        if (join->local != ceclSuccess)
            continue;
        join->local = refused;
        snprintf(join->words, sizeof(join->words), "its group was refused: %.450s", words);
    }
}

static void *next_join(void *join)
{
    return ((struct cecl_join *)join)->next;
}

ceclResult_t cecl_joins_carry_out(struct cecl_join *joins, ceclResult_t refused, const char *words)
{
    char why[CECL_MESSAGE_BYTES];
    if (refused != ceclSuccess)
        refuse_all(joins, refused, words);
    const ceclResult_t result = cecl_together(cecl_join_carry_out, joins, next_join);
    cecl_keep_message(why);
    for (struct cecl_join *join = joins; join; join = join->next) {
        if (result == ceclSuccess)
            *join->out = join->comm;
        else if (join->comm)
            cecl_comm_take_back(join->comm);
    }
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, why);
}
