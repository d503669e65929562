/* The public entry point for the caller's own kernels. */
#include "comm/comm.h"
#include "flags/pads.h"

CECL_API ceclResult_t ceclCommGetDeviceComm(ceclComm_t comm, ceclDeviceComm_t *dc)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    if (!dc)
        return cecl_fail(ceclInvalidArgument, "dc: NULL");
    CECL_TRY(cecl_comm_check_own(comm, "ceclCommGetDeviceComm",
                                 "make a communicator of one host (ceclCommSplit)"));
    atomic_store(&comm->gave_pointers, true);
    cecl_pads_describe(&comm->engine.flags, dc);
    dc->timeoutNs = (uint64_t)comm->config.timeout_ms * 1000000u;
    return ceclSuccess;
}
