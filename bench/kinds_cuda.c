/* Kinds of memory on GPUs. Memory in pieces is like PyTorch's expandable segments: one range of addresses, with a
 * handle behind every 20 MiB. */
#include "kinds.h"

#include <stdint.h>

#include "gpu.h"

#define PIECE ((size_t)20 << 20)

static struct memory_failure check(CUresult result, const char *call)
{
    return (struct memory_failure){result == CUDA_SUCCESS ? NULL : call, gpu_words(result)};
}
#define TRY(function, ...) \
    do { \
        const struct memory_failure failure_ = check(function(__VA_ARGS__), #function); \
        if (failure_.call) \
            return failure_; \
    } while (0)

/* The driver's functions. They are loaded, because this rank is on a GPU. */
static const struct cecl_driver *driver(void)
{
    return gpu_get()->cu;
}

static CUdeviceptr address_of(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static struct memory_failure take_by(CUresult result, const char *call, CUdeviceptr at, void **ptr)
{
    *ptr = (void *)(uintptr_t)at;
    return check(result, call);
}

static struct memory_failure take_malloc(ceclComm_t comm, size_t bytes, void **ptr)
{
    (void)comm;
    CUdeviceptr at = 0;
    const CUresult result = gpu_get()->cuMemAlloc(&at, bytes);
    return take_by(result, "cuMemAlloc", at, ptr);
}

static void give_malloc(ceclComm_t comm, size_t bytes, void *ptr)
{
    (void)comm;
    (void)bytes;
    gpu_get()->cuMemFree(address_of(ptr));
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
        TRY(driver()->cuMemCreate, &handle, PIECE, &prop, 0);
        TRY(driver()->cuMemMap, base + i * PIECE, PIECE, 0, handle, 0);
        driver()->cuMemRelease(handle);
    }
    return check(driver()->cuMemSetAccess(base, count * PIECE, &access, 1), "cuMemSetAccess");
}

static struct memory_failure take_pieces(ceclComm_t comm, size_t bytes, void **ptr)
{
    CUdevice device = 0;
    CUdeviceptr base = 0;
    const size_t count = (bytes + PIECE - 1) / PIECE;
    (void)comm;
    TRY(driver()->cuCtxGetDevice, &device);
    TRY(driver()->cuMemAddressReserve, &base, count * PIECE, 0, 0, 0);
    *ptr = (void *)(uintptr_t)base;
    return map_pieces(base, count, device);
}

static void give_pieces(ceclComm_t comm, size_t bytes, void *ptr)
{
    const CUdeviceptr base = address_of(ptr);
    const size_t count = (bytes + PIECE - 1) / PIECE;
    (void)comm;
    for (size_t i = 0; i < count; i++)
        driver()->cuMemUnmap(base + i * PIECE, PIECE);
    driver()->cuMemAddressFree(base, count * PIECE);
}

static struct memory_failure take_async(ceclComm_t comm, size_t bytes, void **ptr)
{
    (void)comm;
    CUdeviceptr at = 0;
    TRY(gpu_get()->cuMemAllocAsync, &at, bytes, NULL);
    const CUresult result = driver()->cuStreamSynchronize(NULL);
    return take_by(result, "cuStreamSynchronize", at, ptr);
}

static void give_async(ceclComm_t comm, size_t bytes, void *ptr)
{
    (void)comm;
    (void)bytes;
    gpu_get()->cuMemFreeAsync(address_of(ptr), NULL);
    driver()->cuStreamSynchronize(NULL);
}

const struct memory_kind memory_on_gpus[MEMORY_KINDS] = {
    [MEMORY_POOL] = MEMORY_OF_POOL,
    [MEMORY_MALLOC] = {"malloc", "cudaMalloc", take_malloc, give_malloc},
    [MEMORY_PIECES] = {"pieces", "mapped handles of 20 MiB", take_pieces, give_pieces},
    [MEMORY_PRIVATE] = {"private", "cudaMallocAsync", take_async, give_async},
};
