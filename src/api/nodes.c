/* Which ranks are on which node, as they introduce themselves. */
#include <stdlib.h>
#include <string.h>

#include "api/introduce.h"
#include "boot/rank_list.h"

/* ---- CECL_NODE_SIZE */

/* The value that most ranks have; the first of several. */
static const char *most_common(const struct cecl_hello *all, int nranks)
{
    const char *common = NULL;
    int most = 0;
    for (int r = 0; r < nranks; r++) {
        int same = 0;
        for (int q = 0; q < nranks; q++)
            same += strcmp(all[q].config.node_sizes, all[r].config.node_sizes) == 0;
        if (same > most) {
            most = same;
            common = all[r].config.node_sizes;
        }
    }
    return common;
}

static const char *words_of(const char *sizes)
{
    return sizes[0] ? sizes : "not set";
}

/* Names the ranks that differ from most others. */
static ceclResult_t compare_sizes(const struct cecl_hello *all, int nranks)
{
    const char *common = most_common(all, nranks), *odd = NULL;
    struct cecl_rank_list ranks = {.count = 0};
    for (int r = 0; r < nranks; r++) {
        const char *sizes = all[r].config.node_sizes;
        if (strcmp(sizes, common) == 0 || (odd && strcmp(sizes, odd) != 0))
            continue;
        odd = sizes;
        cecl_rank_list_add(&ranks, r);
    }
    return odd ? cecl_fail(ceclInvalidArgument,
                           "ranks differ in CECL_NODE_SIZE: %s on %s, %s on most others",
                           words_of(odd), cecl_rank_list_words(&ranks), words_of(common))
               : ceclSuccess;
}

/* Writes the number of each rank's node, which `sizes` gives. */
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
            text = sizes; /* all nodes have so many; the last one may have fewer */
        else if (at == nranks && (even || *text == '\0'))
            return ceclSuccess;
        else
            text += *text == ',';
    }
    return cecl_fail(ceclInvalidArgument,
                     "CECL_NODE_SIZE=%s: the sizes of nodes of %d ranks expected", sizes, nranks);
}

ceclResult_t cecl_hellos_agree_on_nodes(const struct cecl_hello *all, int nranks)
{
    for (int r = 0; r < nranks; r++) /* from a peer */
        if (memchr(all[r].config.node_sizes, '\0', CECL_NODE_SIZES_BYTES) == NULL ||
            all[r].config.node >= CECL_MAX_RANKS)
            return cecl_fail(ceclInternalError, "rank %d introduced itself with a broken layout",
                             r);
    return compare_sizes(all, nranks);
}

/* ---- the layout */

/* The nodes of a communicator's ranks, by their numbers in the parent or by CECL_NODE_SIZE. */
static ceclResult_t number(const struct cecl_hello *all, int nranks, uint16_t *node_of)
{
    const char *sizes = all[0].config.node_sizes;
    memset(node_of, 0, (size_t)nranks * sizeof(*node_of));
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
