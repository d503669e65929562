/* Which ranks share a machine: the layout of a communicator over several nodes, as data. Equal on all
 * ranks.
 *
 * Copies and flags stay within a node. Data that leaves a node goes over a rail. Rail i has one rank of each
 * node: in a node with n ranks, the rank with local index i % n. If all nodes have equally many ranks, that
 * is the rank with local index i. In a smaller node without a local index i, the rank with index i % n is the
 * carrier of the blocks of rail i. */
#ifndef CECL_CALL_NODES_H
#define CECL_CALL_NODES_H

#include <stdint.h>

#include "call/layout.h"
#include "util/error.h"

struct cecl_nodes {
    int nranks, count;              /* numbers of ranks and of nodes */
    uint16_t node[CECL_MAX_RANKS];  /* the node of each rank */
    uint16_t local[CECL_MAX_RANKS]; /* the rank's index in its node */
    uint16_t rank[CECL_MAX_RANKS];  /* all ranks, node by node, in ascending order */
    uint16_t
        first[CECL_MAX_RANKS + 1]; /* [node] where the node begins in `rank`; [count]: the end */
};

/* Makes a layout from `node_of`, the number of each rank's node. Numbers begin at 0 and have no gap;
 * otherwise the result is ceclInvalidArgument, with the layout in the message. */
ceclResult_t cecl_nodes_make(struct cecl_nodes *nodes, const uint16_t *node_of, int nranks);

/* Words for a layout: "2 nodes of 3 + 5 ranks", "16 nodes of 8 ranks". */
#define CECL_NODES_WORDS 96
const char *cecl_nodes_words(const struct cecl_nodes *nodes, char words[CECL_NODES_WORDS]);

static inline int cecl_node_size(const struct cecl_nodes *nodes, int node)
{
    return nodes->first[node + 1] - nodes->first[node];
}
static inline int cecl_node_rank(const struct cecl_nodes *nodes, int node, int local)
{
    return nodes->rank[nodes->first[node] + local];
}
/* Which rank of `node` is on rail `rail`. This rank carries blocks for the ranks of other nodes whose local
 * index is `rail`. */
static inline int cecl_node_carrier(const struct cecl_nodes *nodes, int node, int rail)
{
    return cecl_node_rank(nodes, node, rail % cecl_node_size(nodes, node));
}

#endif
