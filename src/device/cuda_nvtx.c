/* NVTX ranges in a domain of cecl's own, for profilers. NVTX is header-only: it looks for a
 * profiler at the first call. Without one, later calls only check a pointer. */
#include "device/nvtx.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

static nvtxDomainHandle_t domain;

static void make_domain(void)
{
    domain = nvtxDomainCreateA("cecl");
}

bool cecl_nvtx_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_domain);
    return true;
}

void cecl_nvtx_push(const char *name)
{
    const nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                         .message.ascii = name};
    nvtxDomainRangePushEx(domain, &range);
}

void cecl_nvtx_pop(void)
{
    nvtxDomainRangePop(domain);
}
