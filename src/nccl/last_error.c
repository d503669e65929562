/* See last_error.h. */
#include "nccl/last_error.h"

#include <stdio.h>

#include "util/error.h"

#define NCCL_BYTES 2048 /* of NCCL's words; the rest is cut off */

static _Thread_local char of_cecl[CECL_MESSAGE_BYTES];
static _Thread_local char both[CECL_MESSAGE_BYTES + NCCL_BYTES];

void cecl_nccl_last_error_set(const char *words)
{
    snprintf(of_cecl, sizeof(of_cecl), "%s", words);
}

void cecl_nccl_last_error_clear(void)
{
    of_cecl[0] = '\0';
}

const char *cecl_nccl_last_error(const char *of_nccl)
{
    if (!of_cecl[0])
        return of_nccl;
    snprintf(both, sizeof(both), "cecl: %s%s%s", of_cecl, of_nccl && of_nccl[0] ? "\nNCCL: " : "",
             of_nccl ? of_nccl : "");
    return both;
}
