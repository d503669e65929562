/* A list of ranks as text for messages: "1, 2, 5", cut where it gets long. */
#ifndef CECL_BOOT_RANK_LIST_H
#define CECL_BOOT_RANK_LIST_H

#include <stdbool.h>
#include <stdio.h>

/* A zeroed list is empty. */
struct cecl_rank_list {
    char text[200];
    size_t used;
    bool cut;
};

static inline void cecl_rank_list_add(struct cecl_rank_list *list, int rank)
{
    const size_t left = sizeof(list->text) - list->used;
    if (list->cut)
        return;
    list->cut = left < 24; /* room for one rank and for the sign that there are more */
    if (list->cut)
        snprintf(list->text + list->used, left, ", ...");
    else
        list->used +=
            (size_t)snprintf(list->text + list->used, left, "%s%d", list->used ? ", " : "", rank);
}

#endif
