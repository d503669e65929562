/* A list of ranks as text for messages: "rank 0", "ranks 0, 3 and 5". A long list
 * is cut: "and 984 more". */
#ifndef CECL_BOOT_RANK_LIST_H
#define CECL_BOOT_RANK_LIST_H

#define CECL_RANKS_NAMED 16

/* A zeroed list is empty. */
struct cecl_rank_list {
    int ranks[CECL_RANKS_NAMED]; /* the first ranks that were added */
    int count;
    char text[160];
};

static inline void cecl_rank_list_add(struct cecl_rank_list *list, int rank)
{
    if (list->count < CECL_RANKS_NAMED)
        list->ranks[list->count] = rank;
    list->count++;
}

/* The list as text, which lives as long as the list. */
const char *cecl_rank_list_words(struct cecl_rank_list *list);

#endif
