/* Symmetric memory, between the public functions and the pool. */
#ifndef CECL_COMM_MEMORY_H
#define CECL_COMM_MEMORY_H

#include "comm/comm.h"

/* What ceclMemAlloc and ceclMemFree do outside a group. */
ceclResult_t cecl_memory_allocate(ceclComm_t comm, void **ptr, size_t bytes);
ceclResult_t cecl_memory_free(ceclComm_t comm, void *ptr);

#endif
