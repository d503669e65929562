/* The CUDA driver's functions. The driver is opened at run time and never linked, so a libcecl built with CUDA also
 * loads on a machine without a driver. No CUDA runtime is needed. Only builds with CUDA include this file, which knows
 * nothing of src/device. */
#ifndef CECL_UTIL_DRIVER_H
#define CECL_UTIL_DRIVER_H

#include <cuda.h>
#include <cudaTypedefs.h>

#include "util/error.h"

#define CECL_GPUS_MAX 64 /* most GPUs of a process */

#if CUDA_VERSION < 12080
#error "cecl needs CUDA 12.8 or later: cuMemcpyBatchAsync"
#endif

/* X(function, version of its signature). cudaTypedefs.h has the types PFN_<function>_v<version>. */
#define CECL_DRIVER_FUNCTIONS(X) \
    X(cuInit, 2000) \
    X(cuDeviceGet, 2000) \
    X(cuDeviceGetCount, 2000) \
    X(cuDeviceGetAttribute, 2000) \
    X(cuDeviceGetUuid, 11040) \
    X(cuDeviceTotalMem, 3020) \
    X(cuDeviceCanAccessPeer, 4000) \
    X(cuDevicePrimaryCtxRetain, 7000) \
    X(cuDevicePrimaryCtxRelease, 11000) \
    X(cuCtxGetCurrent, 4000) \
    X(cuCtxPushCurrent, 4000) \
    X(cuCtxPopCurrent, 4000) \
    X(cuCtxSetCurrent, 4000) \
    X(cuCtxGetDevice, 2000) \
    X(cuCtxGetId, 12000) \
    X(cuCtxEnablePeerAccess, 4000) \
    X(cuCtxGetStreamPriorityRange, 5050) \
    X(cuCtxRecordEvent, 12050) \
    X(cuGetErrorName, 6000) \
    X(cuGetErrorString, 6000) \
    X(cuMemAddressReserve, 10020) \
    X(cuMemAddressFree, 10020) \
    X(cuMemGetAllocationGranularity, 10020) \
    X(cuMemCreate, 10020) \
    X(cuMemRelease, 10020) \
    X(cuMemMap, 10020) \
    X(cuMemUnmap, 10020) \
    X(cuMemSetAccess, 10020) \
    X(cuMemExportToShareableHandle, 10020) \
    X(cuMemImportFromShareableHandle, 10020) \
    X(cuMemRetainAllocationHandle, 11000) \
    X(cuMemGetAddressRange, 3020) \
    X(cuIpcGetMemHandle, 4010) \
    X(cuIpcOpenMemHandle, 11000) \
    X(cuIpcCloseMemHandle, 4010) \
    X(cuMemGetInfo, 3020) \
    X(cuMemHostAlloc, 2020) \
    X(cuMemHostGetDevicePointer, 3020) \
    X(cuMemFreeHost, 2000) \
    X(cuMemHostRegister, 6050) \
    X(cuMemHostUnregister, 4000) \
    X(cuMemsetD8Async, 3020) \
    X(cuMemcpyAsync, 4000) \
    X(cuPointerGetAttributes, 7000) \
    X(cuPointerGetAttribute, 4000) \
    X(cuStreamCreateWithPriority, 5050) \
    X(cuStreamDestroy, 4000) \
    X(cuStreamSynchronize, 2000) \
    X(cuStreamQuery, 2000) \
    X(cuStreamWaitEvent, 3020) \
    X(cuStreamIsCapturing, 10000) \
    X(cuThreadExchangeStreamCaptureMode, 10010) \
    X(cuStreamGetCtx, 9020) \
    X(cuStreamGetDevice, 12080) \
    X(cuStreamGetId, 12000) \
    X(cuStreamBatchMemOp, 11070) \
    X(cuEventCreate, 2000) \
    X(cuEventDestroy, 4000) \
    X(cuEventRecord, 2000) \
    X(cuLibraryLoadData, 12000) \
    X(cuLibraryGetKernel, 12000) \
    X(cuKernelGetFunction, 12000) \
    X(cuKernelSetAttribute, 12000) \
    X(cuFuncLoad, 12040) \
    X(cuLaunchKernel, 4000) \
    X(cuEventRecordWithFlags, 11010) \
    X(cuEventQuery, 2000) \
    X(cuMemcpy2DAsync, 3020) \
    X(cuStreamBeginCapture, 10010) \
    X(cuStreamEndCapture, 10000) \
    X(cuStreamGetCaptureInfo, 12030) \
    X(cuStreamUpdateCaptureDependencies, 12030) \
    X(cuGraphEventRecordNodeSetEvent, 11010) \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphLaunch, 10000) \
    X(cuGraphExecDestroy, 10000) \
    X(cuGraphDestroy, 10000) \
    X(cuUserObjectCreate, 11030) \
    X(cuUserObjectRelease, 11030) \
    X(cuGraphRetainUserObject, 11030)

/* cuMemcpyBatchAsync has two signatures. CUDA 13.0 dropped the parameter failIdx of 12.8, and the toolkit 12.8 has no
 * type for the new signature. */
typedef CUresult(CUDAAPI *cecl_batch_13000_fn)(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                               size_t count, CUmemcpyAttributes *attributes,
                                               size_t *first_of_attribute, size_t nattributes,
                                               CUstream stream);

/* cuMemcpy3DBatchAsync has two signatures for the same reason. */
typedef CUresult(CUDAAPI *cecl_batch_3d_13000_fn)(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops,
                                                  unsigned long long flags, CUstream stream);

struct cecl_driver {
#define CECL_DRIVER_FIELD(function, version) PFN_##function##_v##version function;
    CECL_DRIVER_FUNCTIONS(CECL_DRIVER_FIELD)
#undef CECL_DRIVER_FIELD
    int version;                               /* the driver's CUDA version: 13010 is 13.1 */
    PFN_cuMemcpyBatchAsync_v12080 batch_12080; /* used if batch_13000 is NULL */
    cecl_batch_13000_fn batch_13000;
    PFN_cuMemcpy3DBatchAsync_v12080 batch_3d_12080; /* used if batch_3d_13000 is NULL */
    cecl_batch_3d_13000_fn batch_3d_13000;
};

/* The initialised driver. NULL: no driver can be used, and *why is the reason, which is never freed. Creates no
 * context. */
const struct cecl_driver *cecl_driver_get(const char **why);

/* Finds one more function of the initialised driver, with the signature of CUDA `version`; NULL if the driver has no
 * such function. */
void *cecl_driver_find(const char *name, int version);

/* Makes a GPU the calling thread's current one, as cudaSetDevice does: every copy of the CUDA runtime in
 * the program takes its device from the current primary context. The context is retained once and never
 * released, because the program may use it until it ends. */
ceclResult_t cecl_driver_set_device(const struct cecl_driver *cu, CUdevice device);

/* Returns ceclSuccess, ceclOutOfMemory for CUDA_ERROR_OUT_OF_MEMORY, or else
 * ceclUnhandledCudaError. The message names the call and CUDA's reason. */
ceclResult_t cecl_driver_check(const struct cecl_driver *cu, CUresult result, const char *call);

#endif
