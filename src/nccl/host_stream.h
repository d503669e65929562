/* Streams where NCCL is a stand-in on memory of the host. */
#ifndef CECL_NCCL_HOST_STREAM_H
#define CECL_NCCL_HOST_STREAM_H

#include "nccl/abi.h"

/* The stream of the host device on which calls of `ours` are captured that the program makes on `stream`;
 * NULL: `stream` captures nothing. The stand-in knows. */
ceclStream_t cecl_nccl_host_stream(ceclComm_t ours, cudaStream_t stream);

#endif
