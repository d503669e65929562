/* Kinds of memory on GPUs. Memory in pieces is what PyTorch's expandable segments are: one range of
 * addresses with a handle behind every 20 MiB. */
#include "kinds.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PIECE ((size_t)20 << 20)

static const struct memory_failure success = {NULL, NULL};

static struct memory_failure result(cudaError_t error, const char *call)
{
    return (struct memory_failure){error == cudaSuccess ? NULL : call, cudaGetErrorString(error)};
}

static struct memory_failure take_malloc(ceclComm_t comm, size_t bytes, void **ptr)
{
    (void)comm;
    return result(cudaMalloc(ptr, bytes), "cudaMalloc");
}

static void give_malloc(ceclComm_t comm, size_t bytes, void *ptr)
{
    (void)comm;
    (void)bytes;
    cudaFree(ptr);
}

/* The driver's functions for mapped memory. */
static struct {
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 access;
} driver;

/* ISO C has no cast from an object's address to a function's: the bytes are copied. */
static bool load(const char *name, void *slot)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;
    const bool found = cudaGetDriverEntryPointByVersion(name, &function, 10020, cudaEnableDefault,
                                                        &status) == cudaSuccess;
    memcpy(slot, &function, sizeof(function));
    return found && function;
}

static bool load_all(void)
{
    return load("cuMemAddressReserve", &driver.reserve) &&
           load("cuMemAddressFree", &driver.unreserve) && load("cuMemCreate", &driver.create) &&
           load("cuMemRelease", &driver.release) && load("cuMemMap", &driver.map) &&
           load("cuMemUnmap", &driver.unmap) && load("cuMemSetAccess", &driver.access);
}

static struct memory_failure refused(const char *call)
{
    return (struct memory_failure){call, "refused by the CUDA driver"};
}

static struct memory_failure map_pieces(CUdeviceptr base, size_t count, int device)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (size_t i = 0; i < count; i++) {
        CUmemGenericAllocationHandle handle;
        if (driver.create(&handle, PIECE, &prop, 0) != CUDA_SUCCESS)
            return refused("cuMemCreate");
        if (driver.map(base + i * PIECE, PIECE, 0, handle, 0) != CUDA_SUCCESS)
            return refused("cuMemMap");
        driver.release(handle);
    }
    return driver.access(base, count * PIECE, &access, 1) == CUDA_SUCCESS
               ? success
               : refused("cuMemSetAccess");
}

static struct memory_failure take_pieces(ceclComm_t comm, size_t bytes, void **ptr)
{
    int device = 0;
    CUdeviceptr base = 0;
    const size_t count = (bytes + PIECE - 1) / PIECE;
    (void)comm;
    if (!load_all())
        return refused("cudaGetDriverEntryPointByVersion");
    if (cudaGetDevice(&device) != cudaSuccess)
        return refused("cudaGetDevice");
    if (driver.reserve(&base, count * PIECE, 0, 0, 0) != CUDA_SUCCESS)
        return refused("cuMemAddressReserve");
    *ptr = (void *)(uintptr_t)base;
    return map_pieces(base, count, device);
}

static void give_pieces(ceclComm_t comm, size_t bytes, void *ptr)
{
    const CUdeviceptr base = (CUdeviceptr)(uintptr_t)ptr;
    const size_t count = (bytes + PIECE - 1) / PIECE;
    (void)comm;
    for (size_t i = 0; i < count; i++)
        driver.unmap(base + i * PIECE, PIECE);
    driver.unreserve(base, count * PIECE);
}

static struct memory_failure take_async(ceclComm_t comm, size_t bytes, void **ptr)
{
    (void)comm;
    const struct memory_failure failure =
        result(cudaMallocAsync(ptr, bytes, NULL), "cudaMallocAsync");
    return failure.call ? failure : result(cudaStreamSynchronize(NULL), "cudaStreamSynchronize");
}

static void give_async(ceclComm_t comm, size_t bytes, void *ptr)
{
    (void)comm;
    (void)bytes;
    cudaFreeAsync(ptr, NULL);
    cudaStreamSynchronize(NULL);
}

const struct memory_kind memory_on_gpus[MEMORY_KINDS] = {
    [MEMORY_POOL] = MEMORY_OF_POOL,
    [MEMORY_MALLOC] = {"malloc", "cudaMalloc", take_malloc, give_malloc},
    [MEMORY_PIECES] = {"pieces", "mapped handles of 20 MiB", take_pieces, give_pieces},
    [MEMORY_PRIVATE] = {"private", "cudaMallocAsync", take_async, give_async},
};
