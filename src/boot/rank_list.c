/* The text of a list of ranks, for messages. */
#include "boot/rank_list.h"

#include <stddef.h>
#include <stdio.h>

/* The text in front of the i-th number. */
static const char *separator(const struct cecl_rank_list *list, int i)
{
    if (i == 0)
        return " ";
    return i == list->count - 1 ? " and " : ", ";
}

const char *cecl_rank_list_words(struct cecl_rank_list *list)
{
    const int named = list->count < CECL_RANKS_NAMED ? list->count : CECL_RANKS_NAMED;
    const char *noun = list->count == 0 ? "no rank" : list->count == 1 ? "rank" : "ranks";
    size_t used = (size_t)snprintf(list->text, sizeof(list->text), "%s", noun);
    for (int i = 0; i < named; i++)
        used += (size_t)snprintf(list->text + used, sizeof(list->text) - used, "%s%d",
                                 separator(list, i), list->ranks[i]);
    if (list->count > named)
        snprintf(list->text + used, sizeof(list->text) - used, " and %d more", list->count - named);
    return list->text;
}
