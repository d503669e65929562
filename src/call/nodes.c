/* Layouts of ranks over nodes. */
#include "call/nodes.h"

#include <stdio.h>

static size_t add(char *words, size_t at, int size)
{
    const int n = at < CECL_NODES_WORDS
                      ? snprintf(words + at, CECL_NODES_WORDS - at, at ? " + %d" : "%d", size)
                      : 0;
    return at + (size_t)n;
}

const char *cecl_nodes_words(const struct cecl_nodes *nodes, char words[CECL_NODES_WORDS])
{
    char sizes[CECL_NODES_WORDS];
    size_t at = add(sizes, 0, cecl_node_size(nodes, 0));
    bool even = true;
    for (int n = 1; n < nodes->count; n++)
        even = even && cecl_node_size(nodes, n) == cecl_node_size(nodes, 0);
    for (int n = 1; n < nodes->count && !even; n++)
        at = add(sizes, at, cecl_node_size(nodes, n));
    snprintf(words, CECL_NODES_WORDS, "%d node%s of %.48s%s ranks", nodes->count,
             nodes->count == 1 ? "" : "s", sizes, at > 48 ? " + ..." : "");
    return words;
}

ceclResult_t cecl_nodes_make(struct cecl_nodes *nodes, const uint16_t *node_of, int nranks)
{
    char words[CECL_NODES_WORDS];
    int count = 0;
    if (nranks < 1 || nranks > CECL_MAX_RANKS)
        return cecl_fail(ceclInvalidArgument, "%d ranks over nodes: 1 to %d expected", nranks,
                         CECL_MAX_RANKS);
    for (int r = 0; r < nranks; r++)
        if (node_of[r] >= nranks)
            return cecl_fail(ceclInvalidArgument, "rank %d is on node %u of at most %d", r,
                             node_of[r], nranks);
        else if (node_of[r] >= count)
            count = node_of[r] + 1;
    nodes->nranks = nranks;
    nodes->count = count;
    uint16_t at = 0;
    for (int n = 0; n < count; n++) {
        nodes->first[n] = at;
        for (int r = 0; r < nranks; r++)
            if (node_of[r] == n) {
                nodes->node[r] = (uint16_t)n;
                nodes->local[r] = (uint16_t)(at - nodes->first[n]);
                nodes->rank[at++] = (uint16_t)r;
            }
    }
    nodes->first[count] = at;
    for (int n = 0; n < count; n++)
        if (cecl_node_size(nodes, n) == 0)
            return cecl_fail(ceclInvalidArgument, "node %d has no rank: %s", n,
                             cecl_nodes_words(nodes, words));
    return ceclSuccess;
}
