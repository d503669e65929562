/* Finds NCCL's library and opens it: for src/nccl and for src/net, which call it. */
#ifndef CECL_UTIL_FIND_NCCL_H
#define CECL_UTIL_FIND_NCCL_H

#include <stdbool.h>

#include "util/error.h"

#define CECL_NCCL_SONAME "libnccl.so.2"

/* Looks in this order: the file that CECL_NCCL_PATH names (if it is set, nothing else is tried); the file of NCCL's
 * Python wheel beside a library of this process; the folders of LD_LIBRARY_PATH; the folders in which systems keep
 * NCCL; the file that the loader finds by name. Skips cecl's own libnccl.so.2 and copies of it.
 *
 * flags    as for dlopen
 * purpose  for the message: what NCCL is needed for, such as "to pass calls to"
 * handle   [out] a library that has ncclGetVersion; the caller closes it
 * Errors: ceclSystemError; the message says where it looked. */
ceclResult_t cecl_find_nccl(int flags, const char *purpose, void **handle);

/* Whether a library is cecl's own libnccl.so.2. */
bool cecl_is_in_nccls_place(void *handle);

/* The name of the file at a path. */
const char *cecl_name_in(const char *path);

#endif
