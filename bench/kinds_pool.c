/* The kind of memory that ceclMemAlloc gives (kinds.h). */
#include "kinds.h"

struct memory_failure memory_take_pool(ceclComm_t comm, size_t bytes, void **ptr)
{
    if (ceclMemAlloc(comm, ptr, bytes) == ceclSuccess)
        return (struct memory_failure){NULL, NULL};
    return (struct memory_failure){"ceclMemAlloc", ceclGetLastError(comm)};
}

void memory_give_pool(ceclComm_t comm, size_t bytes, void *ptr)
{
    (void)bytes;
    (void)!ceclMemFree(comm, ptr);
}
