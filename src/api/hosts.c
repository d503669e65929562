/* Finds out from the ranks' introductions which ranks are on which host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/introduce.h"

/* ---- CECL_NODE_SIZE */

/* Writes the number of each rank's pretended host. */
static ceclResult_t lay_out(const char *sizes, int nranks, uint16_t *host)
{
    int at = 0, number = 0;
    const char *text = sizes;
    const bool even = strchr(sizes, ',') == NULL;
    while (*text) {
        const long size = strtol(text, (char **)(uintptr_t)&text, 10);
        if (!even && size > nranks - at)
            break;
        for (long i = 0; i < size && at < nranks; i++)
            host[at++] = (uint16_t)number;
        number++;
        if (even && at < nranks)
            text = sizes; /* the next host has the same size; the last one may be smaller */
        else if (at == nranks && (even || *text == '\0'))
            return ceclSuccess;
        else
            text += *text == ',';
    }
    return cecl_fail(ceclInvalidArgument, "CECL_NODE_SIZE=%s: sizes that sum to %d ranks expected",
                     sizes, nranks);
}

/* ---- hosts */

ceclResult_t cecl_hellos_hosts(const struct cecl_hello *all, int nranks, uint16_t *host, int *count)
{
    uint16_t pretended[CECL_MAX_RANKS] = {0};
    const char *sizes = all[0].config.node_sizes;
    if (sizes[0])
        CECL_TRY(lay_out(sizes, nranks, pretended));
    *count = 0;
    for (int r = 0; r < nranks; r++) {
        int q = 0;
        while (all[q].host != all[r].host || pretended[q] != pretended[r])
            q++;
        host[r] = q < r ? host[q] : (uint16_t)(*count)++;
    }
    return ceclSuccess;
}

/* Writes how many ranks the first hosts have: "2 + 2", "8 + 8 + 8 + 8 + ...". */
static void write_sizes(const uint16_t *host, int nranks, int count, char *out, size_t room)
{
    enum { MOST = 8 };
    size_t at = 0;
    for (int h = 0; h < count && h < MOST; h++) {
        int size = 0;
        for (int r = 0; r < nranks; r++)
            size += host[r] == h;
        at += (size_t)snprintf(out + at, room - at, h > 0 ? " + %d" : "%d", size);
    }
    if (count > MOST)
        snprintf(out + at, room - at, " + ...");
}

ceclResult_t cecl_hellos_refuse_hosts(const struct cecl_hello *all, int nranks,
                                      const uint16_t *host, int count)
{
    char sizes[80], why[CECL_NODE_SIZES_BYTES + 32] = "";
    write_sizes(host, nranks, count, sizes, sizeof(sizes));
    if (all[0].config.node_sizes[0])
        snprintf(why, sizeof(why), ", with CECL_NODE_SIZE=%s", all[0].config.node_sizes);
    return cecl_fail(ceclInvalidUsage,
                     "ranks are on %d hosts (%s ranks%s): all ranks on one host, in one network "
                     "namespace, expected; over several hosts NCCL carries calls, on GPUs only",
                     count, sizes, why);
}
