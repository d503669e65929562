/* Streams on the host device, where NCCL is a stand-in that works on memory of the host. */
#ifndef CECL_NCCL_HOST_STREAM_H
#define CECL_NCCL_HOST_STREAM_H

#include "nccl/abi.h"

/* Asks the stand-in for the stream of the host device on which `ours` must capture calls that the program
 * makes on `stream`. NULL: `stream` is not capturing. */
ceclStream_t cecl_nccl_host_stream(ceclComm_t ours, cudaStream_t stream);

#endif
