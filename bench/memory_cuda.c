/* Kinds of memory on GPUs. Memory in pieces is what PyTorch's expandable segments are: one range of
 * addresses with a handle behind every 20 MiB. */
#include "memory.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define PIECE ((size_t)20 << 20)

static bool fine(const struct run *run, int error, const char *what)
{
    return error == 0 || complain(run, what, "refused by CUDA");
}

static bool take_malloc(const struct run *run, size_t bytes, void **ptr)
{
    return fine(run, (int)cudaMalloc(ptr, bytes), "cudaMalloc");
}

static void give_malloc(const struct run *run, size_t bytes, void *ptr)
{
    (void)run;
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
static bool load(const struct run *run, const char *name, void *slot)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;
    if (!fine(run,
              (int)cudaGetDriverEntryPointByVersion(name, &function, 10020, cudaEnableDefault,
                                                    &status),
              name))
        return false;
    memcpy(slot, &function, sizeof(function));
    return true;
}

static bool load_all(const struct run *run)
{
    return load(run, "cuMemAddressReserve", &driver.reserve) &&
           load(run, "cuMemAddressFree", &driver.unreserve) &&
           load(run, "cuMemCreate", &driver.create) && load(run, "cuMemRelease", &driver.release) &&
           load(run, "cuMemMap", &driver.map) && load(run, "cuMemUnmap", &driver.unmap) &&
           load(run, "cuMemSetAccess", &driver.access);
}

static bool take_pieces(const struct run *run, size_t bytes, void **ptr)
{
    int device = 0;
    CUdeviceptr base = 0;
    const size_t count = (bytes + PIECE - 1) / PIECE;
    if (!load_all(run) || !fine(run, (int)cudaGetDevice(&device), "cudaGetDevice"))
        return false;
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!fine(run, (int)driver.reserve(&base, count * PIECE, 0, 0, 0), "cuMemAddressReserve"))
        return false;
    for (size_t i = 0; i < count; i++) {
        CUmemGenericAllocationHandle handle;
        if (!fine(run, (int)driver.create(&handle, PIECE, &prop, 0), "cuMemCreate") ||
            !fine(run, (int)driver.map(base + i * PIECE, PIECE, 0, handle, 0), "cuMemMap"))
            return false;
        driver.release(handle);
    }
    *ptr = (void *)(uintptr_t)base;
    return fine(run, (int)driver.access(base, count * PIECE, &access, 1), "cuMemSetAccess");
}

static void give_pieces(const struct run *run, size_t bytes, void *ptr)
{
    const CUdeviceptr base = (CUdeviceptr)(uintptr_t)ptr;
    const size_t count = (bytes + PIECE - 1) / PIECE;
    (void)run;
    for (size_t i = 0; i < count; i++)
        driver.unmap(base + i * PIECE, PIECE);
    driver.unreserve(base, count * PIECE);
}

static bool take_async(const struct run *run, size_t bytes, void **ptr)
{
    return fine(run, (int)cudaMallocAsync(ptr, bytes, NULL), "cudaMallocAsync") &&
           fine(run, (int)cudaStreamSynchronize(NULL), "cudaStreamSynchronize");
}

static void give_async(const struct run *run, size_t bytes, void *ptr)
{
    (void)run;
    (void)bytes;
    cudaFreeAsync(ptr, NULL);
    cudaStreamSynchronize(NULL);
}

const struct memory_kind memory_on_gpus[MEMORY_KINDS] = {
    [MEMORY_MALLOC] = {"malloc", "cudaMalloc", take_malloc, give_malloc},
    [MEMORY_PIECES] = {"pieces", "mapped handles of 20 MiB", take_pieces, give_pieces},
    [MEMORY_PRIVATE] = {"private", "cudaMallocAsync", take_async, give_async},
};
