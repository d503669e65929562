/* Finds NCCL's library and opens it: for nodes of GPUs, and for the library in NCCL's place. */
#ifndef CECL_UTIL_FIND_NCCL_H
#define CECL_UTIL_FIND_NCCL_H

#include <stdbool.h>

#include "util/error.h"

#define CECL_NCCL_SONAME "libnccl.so.2"

/* Looks in this order: the file that CECL_NCCL_PATH names (then nothing else is tried); that of a Python
 * wheel beside a library of this process; the folders of LD_LIBRARY_PATH; the folders in which systems
 * keep it; what else the loader finds by name. cecl's library in NCCL's place, and copies of it, are skipped.
 *
 * flags    of dlopen
 * purpose  for the message: "to pass calls to"
 * handle   [out] the caller's to close; it has ncclGetVersion
 * Errors: ceclSystemError; the message says where it looked. */
ceclResult_t cecl_find_nccl(int flags, const char *purpose, void **handle);

/* Whether a library is cecl's in NCCL's place. */
bool cecl_is_in_nccls_place(void *handle);

/* The name of the file at a path. */
const char *cecl_name_in(const char *path);

#endif
