/* Finds out from the ranks' introductions which ranks are on which host and on which node. */
#include <stdlib.h>
#include <string.h>

#include "api/introduce.h"
#include "boot/rank_list.h"

/* ---- CECL_NODE_SIZE */

static bool have_one_size(const void *one, const void *other)
{
    const struct cecl_hello *a = one, *b = other;
    return strcmp(a->config.node_sizes, b->config.node_sizes) == 0;
}

static const char *words_of(const char *sizes)
{
    return sizes[0] ? sizes : "not set";
}

/* Names the ranks that differ from most others. */
static ceclResult_t compare_sizes(const struct cecl_hello *all, int nranks)
{
    struct cecl_rank_list odd;
    const int common = cecl_ranks_compare(all, sizeof(*all), nranks, have_one_size, &odd);
    return odd.count == 0
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "ranks differ in CECL_NODE_SIZE: %s on %s, %s on most others",
                           words_of(all[odd.ranks[0]].config.node_sizes),
                           cecl_rank_list_words(&odd), words_of(all[common].config.node_sizes));
}

/* Writes the number of each rank's node. `sizes` has the sizes of the nodes. */
static ceclResult_t lay_out(const char *sizes, int nranks, uint16_t *node_of)
{
    int at = 0, node = 0;
    const char *text = sizes;
    const bool even = strchr(sizes, ',') == NULL;
    while (*text) {
        const long size = strtol(text, (char **)(uintptr_t)&text, 10);
        if (!even && size > nranks - at)
            break;
        for (long i = 0; i < size && at < nranks; i++)
            node_of[at++] = (uint16_t)node;
        node++;
        if (even && at < nranks)
            text = sizes; /* the next node has the same size; the last one may be smaller */
        else if (at == nranks && (even || *text == '\0'))
            return ceclSuccess;
        else
            text += *text == ',';
    }
    return cecl_fail(ceclInvalidArgument, "CECL_NODE_SIZE=%s: sizes that sum to %d ranks expected",
                     sizes, nranks);
}

/* ---- hosts */

int cecl_hellos_hosts(const struct cecl_hello *all, int nranks, uint16_t *host)
{
    int count = 0;
    for (int r = 0; r < nranks; r++) {
        int q = 0;
        while (all[q].host != all[r].host)
            q++;
        host[r] = q < r ? host[q] : (uint16_t)count++;
    }
    return count;
}

/* A pretended node must lie within a host, because its ranks share memory. */
static ceclResult_t check_within_hosts(const struct cecl_hello *all, int nranks)
{
    uint16_t host[CECL_MAX_RANKS], node_of[CECL_MAX_RANKS];
    char words[CECL_NODES_WORDS];
    const char *sizes = all[0].config.node_sizes;
    if (all[0].config.node >= 0 || !sizes[0] || cecl_hellos_hosts(all, nranks, host) == 1)
        return ceclSuccess;
    CECL_TRY(lay_out(sizes, nranks, node_of));
    for (int r = 1; r < nranks; r++) {
        if (node_of[r] != node_of[r - 1] || host[r] == host[r - 1])
            continue;
        struct cecl_nodes hosts;
        CECL_TRY(cecl_nodes_make(&hosts, host, nranks));
        return cecl_fail(ceclInvalidArgument,
                         "CECL_NODE_SIZE=%s: ranks %d and %d would be on one node, but they are "
                         "on different hosts; the hosts are %s",
                         sizes, r - 1, r, cecl_nodes_words(&hosts, words));
    }
    return ceclSuccess;
}

ceclResult_t cecl_hellos_agree_on_nodes(const struct cecl_hello *all, int nranks)
{
    for (int r = 0; r < nranks; r++) /* peers' data may be invalid */
        if (memchr(all[r].config.node_sizes, '\0', CECL_NODE_SIZES_BYTES) == NULL ||
            all[r].config.node >= CECL_MAX_RANKS)
            return cecl_fail(ceclInternalError, "rank %d introduced itself with a broken layout",
                             r);
    CECL_TRY(compare_sizes(all, nranks));
    return check_within_hosts(all, nranks);
}

/* ---- the layout */

/* Numbers the nodes: by their numbers in the parent, by CECL_NODE_SIZE, or by hosts. */
static ceclResult_t number(const struct cecl_hello *all, int nranks, uint16_t *node_of)
{
    const char *sizes = all[0].config.node_sizes;
    (void)cecl_hellos_hosts(all, nranks, node_of);
    if (all[0].config.node < 0)
        return sizes[0] ? lay_out(sizes, nranks, node_of) : ceclSuccess;
    int16_t fresh[CECL_MAX_RANKS];
    int count = 0;
    memset(fresh, -1, sizeof(fresh));
    for (int r = 0; r < nranks; r++) {
        const int node = all[r].config.node < 0 ? 0 : all[r].config.node;
        if (fresh[node] < 0)
            fresh[node] = (int16_t)count++;
        node_of[r] = (uint16_t)fresh[node];
    }
    return ceclSuccess;
}

ceclResult_t cecl_hellos_nodes(const struct cecl_hello *all, int nranks, struct cecl_nodes **nodes)
{
    struct cecl_nodes *made = calloc(1, sizeof(*made));
    uint16_t *node_of = calloc((size_t)nranks, sizeof(*node_of));
    ceclResult_t result = made && node_of
                              ? number(all, nranks, node_of)
                              : cecl_fail(ceclOutOfMemory, "no host memory for %d ranks", nranks);
    if (result == ceclSuccess)
        result = cecl_nodes_make(made, node_of, nranks);
    free(node_of);
    *nodes = result == ceclSuccess && made->count > 1 ? made : NULL;
    if (!*nodes)
        free(made);
    return result;
}
