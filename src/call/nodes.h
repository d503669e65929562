/* Which ranks share a machine: the layout of a communicator over several nodes, as data. Equal on all
 * ranks.
 *
 * Copies and flags stay within a node. What leaves it goes over a rail. Rail i has one rank of each
 * node: in a node with n ranks, the one with local index i % n. If all nodes have equally many ranks, rail i
 * is the ranks with local index i. If a smaller node has no rank with local index i, its rank with index
 * i % n takes that place: it is the carrier of the other rank's blocks there. */
#ifndef CECL_CALL_NODES_H
#define CECL_CALL_NODES_H

#include <stddef.h>
#include <stdint.h>

#include "call/layout.h"
#include "util/error.h"

struct cecl_nodes {
    int nranks, count;                  /* of ranks, and of nodes */
    uint16_t node[CECL_MAX_RANKS];      /* of each rank */
    uint16_t local[CECL_MAX_RANKS];     /* the rank's index in its node */
    uint16_t rank[CECL_MAX_RANKS];      /* node by node, in the order of ranks */
    uint16_t first[CECL_MAX_RANKS + 1]; /* where in `rank` a node begins; of `count`: the end */
};

/* Makes a layout of the number of each rank's node. Numbers go from 0 on, without a gap. Returns
 * ceclInvalidArgument, with the layout in the message. */
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
/* The rank of a node that is on a rail: the carrier there of the rank with that local index. */
static inline int cecl_node_carrier(const struct cecl_nodes *nodes, int node, int rail)
{
    return cecl_node_rank(nodes, node, rail % cecl_node_size(nodes, node));
}

#endif
