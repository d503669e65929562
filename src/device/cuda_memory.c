/* The CUDA device's memory: virtual ranges, shareable allocations, pinned words, and what a pointer is. */
#include <string.h>

#include "device/cuda.h"

static CUdeviceptr address_of(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static CUmemAllocationProp properties(const struct cuda_device *cuda)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device}};
}

size_t cuda_granularity(struct cuda_device *cuda)
{
    const CUmemAllocationProp prop = properties(cuda);
    size_t bytes = 0;
    return CUDA_CALL(cuda, cuMemGetAllocationGranularity, &bytes, &prop,
                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == ceclSuccess
               ? bytes
               : 0;
}

ceclResult_t cuda_reserve(struct cecl_device *dev, size_t bytes, void **base)
{
    CUdeviceptr range = 0;
    CECL_TRY(CUDA_CALL(cuda_of(dev), cuMemAddressReserve, &range, bytes, dev->granularity, 0, 0));
    *base = (void *)(uintptr_t)range;
    return ceclSuccess;
}

void cuda_unreserve(struct cecl_device *dev, void *base, size_t bytes)
{
    cuda_of(dev)->cu->cuMemAddressFree(address_of(base), bytes);
}

static ceclResult_t create(struct cuda_device *cuda, size_t bytes, CUmemGenericAllocationHandle *handle)
{
    const CUmemAllocationProp prop = properties(cuda);
    const CUresult error = cuda->cu->cuMemCreate(handle, bytes, &prop, 0);
    size_t left = 0, all = 0;
    if (error != CUDA_ERROR_OUT_OF_MEMORY)
        return cecl_driver_check(cuda->cu, error, "cuMemCreate");
    cuda->cu->cuMemGetInfo(&left, &all);
    return cecl_fail(ceclOutOfMemory, "GPU %d: %zu bytes wanted, %zu of %zu are free", cuda->base.ordinal,
                     bytes, left, all);
}

ceclResult_t cuda_mem_create(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem)
{
    struct cuda_device *cuda = cuda_of(dev);
    CUmemGenericAllocationHandle handle;
    ceclResult_t result;
    CUDA_WITHIN(cuda, result, create(cuda, bytes, &handle));
    if (result == ceclSuccess)
        *mem = (struct cecl_mem){.handle = handle, .bytes = bytes};
    return result;
}

ceclResult_t cuda_mem_export(struct cecl_device *dev, const struct cecl_mem *mem, int *fd)
{
    return CUDA_CALL(cuda_of(dev), cuMemExportToShareableHandle, fd, mem->handle,
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

ceclResult_t cuda_mem_import(struct cecl_device *dev, int fd, size_t bytes, struct cecl_mem *mem)
{
    struct cuda_device *cuda = cuda_of(dev);
    CUmemGenericAllocationHandle handle;
    ceclResult_t result;
    CUDA_WITHIN(cuda, result,
                CUDA_CALL(cuda, cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd,
                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (result == ceclSuccess)
        *mem = (struct cecl_mem){.handle = handle, .bytes = bytes};
    return result;
}

static ceclResult_t map(struct cuda_device *cuda, CUdeviceptr at, const struct cecl_mem *mem)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CECL_TRY(CUDA_CALL(cuda, cuMemMap, at, mem->bytes, 0, mem->handle, 0));
    ceclResult_t result = CUDA_CALL(cuda, cuMemSetAccess, at, mem->bytes, &access, 1);
    if (result != ceclSuccess)
        cuda->cu->cuMemUnmap(at, mem->bytes);
    return result;
}

ceclResult_t cuda_mem_map(struct cecl_device *dev, void *addr, const struct cecl_mem *mem)
{
    struct cuda_device *cuda = cuda_of(dev);
    ceclResult_t result;
    CUDA_WITHIN(cuda, result, map(cuda, address_of(addr), mem));
    return result;
}

void cuda_mem_unmap(struct cecl_device *dev, void *addr, size_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    bool pushed;
    if (cuda_enter(cuda, &pushed) == ceclSuccess) {
        cuda->cu->cuMemUnmap(address_of(addr), bytes);
        cuda_leave(cuda, pushed);
    }
}

void cuda_mem_release(struct cecl_device *dev, struct cecl_mem *mem)
{
    if (mem->bytes > 0)
        cuda_of(dev)->cu->cuMemRelease(mem->handle);
    *mem = (struct cecl_mem){0};
}

static ceclResult_t set(struct cuda_device *cuda, CUdeviceptr at, int value, size_t bytes)
{
    CECL_TRY(CUDA_CALL(cuda, cuMemsetD8Async, at, (unsigned char)value, bytes, cuda->side));
    return CUDA_CALL(cuda, cuStreamSynchronize, cuda->side);
}

ceclResult_t cuda_mem_set(struct cecl_device *dev, void *addr, int value, size_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    ceclResult_t result;
    CUDA_WITHIN(cuda, result, set(cuda, address_of(addr), value, bytes));
    return result;
}

/* ---- words that the host sees too */

static ceclResult_t alloc_words(struct cuda_device *cuda, size_t count, void **words)
{
    CUdeviceptr seen = 0;
    CECL_TRY(CUDA_CALL(cuda, cuMemHostAlloc, words, count * sizeof(uint32_t),
                       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    ceclResult_t result = CUDA_CALL(cuda, cuMemHostGetDevicePointer, &seen, *words, 0);
    if (result == ceclSuccess && seen != address_of(*words))
        result = cecl_fail(ceclUnhandledCudaError,
                           "pinned memory has another address on the GPU: no unified addressing");
    if (result != ceclSuccess)
        cuda->cu->cuMemFreeHost(*words);
    else
        memset(*words, 0, count * sizeof(uint32_t));
    return result;
}

ceclResult_t cuda_words_alloc(struct cecl_device *dev, size_t count, uint32_t **words)
{
    struct cuda_device *cuda = cuda_of(dev);
    void *memory = NULL;
    ceclResult_t result;
    CUDA_WITHIN(cuda, result, alloc_words(cuda, count, &memory));
    if (result == ceclSuccess)
        *words = memory;
    return result;
}

void cuda_words_free(struct cecl_device *dev, uint32_t *words)
{
    struct cuda_device *cuda = cuda_of(dev);
    bool pushed;
    if (words && cuda_enter(cuda, &pushed) == ceclSuccess) {
        cuda->cu->cuMemFreeHost(words);
        cuda_leave(cuda, pushed);
    }
}

/* By stream memory operations, not by memset: that may be a kernel, and SMs may be held by what waits for these very words. */
ceclResult_t cuda_words_release(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value)
{
    struct cecl_memop ops[64];
    for (size_t done = 0; done < count;) {
        size_t n = 0;
        for (; n < sizeof(ops) / sizeof(ops[0]) && done + n < count; n++)
            ops[n] = (struct cecl_memop){&words[done + n], value, CECL_MEMOP_WRITE};
        CECL_TRY(cuda_memops(dev, cuda_of(dev)->side, ops, n));
        done += n;
    }
    return ceclSuccess;
}

static ceclResult_t read_some(struct cuda_device *cuda, const uint32_t *words, size_t count)
{
    CECL_TRY(CUDA_CALL(cuda, cuMemcpyAsync, address_of(cuda->scratch), address_of(words),
                       count * sizeof(*words), cuda->side));
    return CUDA_CALL(cuda, cuStreamSynchronize, cuda->side);
}

ceclResult_t cuda_words_read(struct cecl_device *dev, const uint32_t *words, size_t count, uint32_t *out)
{
    struct cuda_device *cuda = cuda_of(dev);
    for (size_t done = 0; done < count;) {
        const size_t n = count - done < CUDA_SCRATCH_WORDS ? count - done : CUDA_SCRATCH_WORDS;
        ceclResult_t result;
        CUDA_WITHIN(cuda, result, read_some(cuda, words + done, n));
        CECL_TRY(result);
        memcpy(out + done, cuda->scratch, n * sizeof(*out));
        done += n;
    }
    return ceclSuccess;
}

/* ---- what a pointer is */

ceclResult_t cuda_check_pointer(struct cecl_device *dev, const void *ptr, size_t bytes, const char *name)
{
    struct cuda_device *cuda = cuda_of(dev);
    unsigned type = 0, managed = 0;
    int ordinal = -1;
    CUdeviceptr start = 0;
    size_t length = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&type, &managed, &ordinal, &start, &length};
    ceclResult_t result;

    if (!ptr)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", name);
    CUDA_WITHIN(cuda, result,
                CUDA_CALL(cuda, cuPointerGetAttributes, sizeof(which) / sizeof(which[0]), which, values,
                          address_of(ptr)));
    CECL_TRY(result);
    if (managed)
        return cecl_fail(ceclInvalidArgument,
                         "%s %p: managed memory may move while it is copied; device memory is expected",
                         name, ptr);
    if (type != CU_MEMORYTYPE_DEVICE)
        return cecl_fail(ceclInvalidArgument, "%s %p: %s; memory of GPU %d is expected", name, ptr,
                         type == CU_MEMORYTYPE_HOST ? "pinned host memory" : "memory unknown to CUDA",
                         dev->ordinal);
    if (ordinal != cuda->device)
        return cecl_fail(ceclInvalidArgument, "%s %p: memory of GPU %d; memory of GPU %d is expected", name,
                         ptr, ordinal, dev->ordinal);
    if (length > 0 && bytes > length - (size_t)(address_of(ptr) - start))
        return cecl_fail(ceclInvalidArgument, "%s %p: %zu bytes needed, %zu left in its allocation", name,
                         ptr, bytes, length - (size_t)(address_of(ptr) - start));
    return ceclSuccess;
}
