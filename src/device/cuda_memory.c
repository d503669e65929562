/* The CUDA device's memory: address ranges, allocations that peers can map, and flag words. */
#include <stdatomic.h>
#include <string.h>

#include "device/cuda.h"
#include "util/clock.h"
#include "util/fds.h"

#define RELEASE_BATCH 64 /* the most words that cuda_words_release writes in one batch */
/* A write that takes longer counts as held up. Most take microseconds or, on a shared GPU, a few time slices. */
#define HELD_UP_MS 200
#define LAND_MS 2000 /* how long to wait for words that are written after a copy */
/* a stream is queried without pauses for SPIN_NS, then with pauses of PAUSE_US */
#define SPIN_NS 200000
#define PAUSE_US 50

static CUmemAllocationProp properties(const struct cuda_device *cuda)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device}};
    prop.allocFlags.gpuDirectRDMACapable = cuda->rdma;
    return prop;
}

ceclResult_t cuda_granularity(struct cuda_device *cuda, size_t *bytes)
{
    const CUmemAllocationProp prop = properties(cuda);
    return CUDA_CALL(cuda, cuMemGetAllocationGranularity, bytes, &prop,
                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

/* ---- address ranges */

ceclResult_t cuda_reserve(struct cecl_device *dev, size_t bytes, void **base)
{
    CUdeviceptr range = 0;
    CUDA_TRY_BESIDE(cuda, dev,
                    CUDA_CALL(cuda, cuMemAddressReserve, &range, bytes, dev->granularity, 0, 0));
    *base = (void *)(uintptr_t)range;
    return ceclSuccess;
}

void cuda_unreserve(struct cecl_device *dev, void *base, size_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    bool pushed;
    if (cuda_enter(cuda, &pushed) == ceclSuccess) {
        cuda->cu->cuMemAddressFree(cuda_address(base), bytes);
        cuda_leave(cuda, pushed);
    }
}

/* ---- physical memory */

static ceclResult_t create(struct cuda_device *cuda, size_t bytes,
                           CUmemGenericAllocationHandle *handle)
{
    const CUmemAllocationProp prop = properties(cuda);
    const CUresult error = cuda->cu->cuMemCreate(handle, bytes, &prop, 0);
    size_t left = 0, all = 0;
    if (error != CUDA_ERROR_OUT_OF_MEMORY)
        return cecl_driver_check(cuda->cu, error, "cuMemCreate");
    cuda->cu->cuMemGetInfo(&left, &all);
    return cecl_fail(ceclOutOfMemory, "GPU %d: %zu bytes wanted, %zu of %zu are free",
                     cuda->base.ordinal, bytes, left, all);
}

ceclResult_t cuda_mem_create(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem)
{
    CUmemGenericAllocationHandle handle = 0;
    CUDA_TRY_BESIDE(cuda, dev, create(cuda, bytes, &handle));
    *mem = (struct cecl_mem){.handle = handle, .bytes = bytes};
    return ceclSuccess;
}

ceclResult_t cuda_mem_export(struct cecl_device *dev, const struct cecl_mem *mem, int *fd)
{
    int made = -1;
    CUDA_TRY_BESIDE(cuda, dev,
                    CUDA_CALL(cuda, cuMemExportToShareableHandle, &made, mem->handle,
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    *fd = cecl_fds_adopt(made);
    return ceclSuccess;
}

ceclResult_t cuda_mem_import(struct cecl_device *dev, int fd, size_t bytes, struct cecl_mem *mem)
{
    CUmemGenericAllocationHandle handle = 0;
    CUDA_TRY_BESIDE(cuda, dev,
                    CUDA_CALL(cuda, cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd,
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    *mem = (struct cecl_mem){.handle = handle, .bytes = bytes};
    return ceclSuccess;
}

ceclResult_t cuda_access(struct cuda_device *cuda, CUdeviceptr at, size_t bytes)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return CUDA_CALL(cuda, cuMemSetAccess, at, bytes, &access, 1);
}

static ceclResult_t map(struct cuda_device *cuda, CUdeviceptr at, const struct cecl_mem *mem)
{
    CECL_TRY(CUDA_CALL(cuda, cuMemMap, at, mem->bytes, 0, mem->handle, 0));
    const ceclResult_t result = cuda_access(cuda, at, mem->bytes);
    if (result != ceclSuccess)
        cuda->cu->cuMemUnmap(at, mem->bytes);
    return result;
}

ceclResult_t cuda_mem_map(struct cecl_device *dev, void *addr, const struct cecl_mem *mem)
{
    CUDA_RETURN_BESIDE(cuda, dev, map(cuda, cuda_address(addr), mem));
}

void cuda_mem_unmap(struct cecl_device *dev, void *addr, size_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    bool pushed;
    if (cuda_enter(cuda, &pushed) == ceclSuccess) {
        cuda->cu->cuMemUnmap(cuda_address(addr), bytes);
        cuda_leave(cuda, pushed);
    }
}

void cuda_mem_release(struct cecl_device *dev, struct cecl_mem *mem)
{
    if (mem->bytes > 0)
        cuda_of(dev)->cu->cuMemRelease((CUmemGenericAllocationHandle)mem->handle);
    *mem = (struct cecl_mem){0};
}

static ceclResult_t set(struct cuda_device *cuda, CUdeviceptr at, int value, size_t bytes)
{
    CECL_TRY(CUDA_CALL(cuda, cuMemsetD8Async, at, (unsigned char)value, bytes, cuda->side));
    return CUDA_CALL(cuda, cuStreamSynchronize, cuda->side);
}

ceclResult_t cuda_mem_set(struct cecl_device *dev, void *addr, int value, size_t bytes)
{
    CUDA_RETURN_BESIDE(cuda, dev, set(cuda, cuda_address(addr), value, bytes));
}

/* ---- words */

/* Checks that pinned memory of the host has the same address on the GPU. */
static ceclResult_t check_address(struct cuda_device *cuda, void *addr)
{
    CUdeviceptr seen = 0;
    CECL_TRY(CUDA_CALL(cuda, cuMemHostGetDevicePointer, &seen, addr, 0));
    if (seen != cuda_address(addr))
        return cecl_fail(ceclUnhandledCudaError,
                         "pinned memory %p is at %#llx for GPU %d; the same address is expected",
                         addr, (unsigned long long)seen, cuda->base.ordinal);
    return ceclSuccess;
}

static ceclResult_t alloc_words(struct cuda_device *cuda, size_t count, void **words)
{
    CECL_TRY(CUDA_CALL(cuda, cuMemHostAlloc, words, count * sizeof(uint32_t),
                       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    const ceclResult_t result = check_address(cuda, *words);
    if (result == ceclSuccess)
        memset(*words, 0, count * sizeof(uint32_t));
    else
        cuda->cu->cuMemFreeHost(*words);
    return result;
}

ceclResult_t cuda_words_alloc(struct cecl_device *dev, size_t count, uint32_t **words)
{
    void *memory = NULL;
    CUDA_TRY_BESIDE(cuda, dev, alloc_words(cuda, count, &memory));
    *words = memory;
    return ceclSuccess;
}

void cuda_words_free(struct cecl_device *dev, uint32_t *words)
{
    if (!words)
        return;
    CUDA_UNDO_BESIDE(cuda, dev, CUDA_CALL(cuda, cuMemFreeHost, words));
}

static ceclResult_t host_share(struct cuda_device *cuda, void *addr, size_t bytes)
{
    CECL_TRY(CUDA_CALL(cuda, cuMemHostRegister, addr, bytes,
                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    const ceclResult_t result = check_address(cuda, addr);
    if (result != ceclSuccess)
        cuda->cu->cuMemHostUnregister(addr);
    return result;
}

ceclResult_t cuda_host_share(struct cecl_device *dev, void *addr, size_t bytes)
{
    CUDA_RETURN_BESIDE(cuda, dev, host_share(cuda, addr, bytes));
}

void cuda_host_unshare(struct cecl_device *dev, void *addr, size_t bytes)
{
    CUDA_UNDO_BESIDE(cuda, dev, CUDA_CALL(cuda, cuMemHostUnregister, addr));
}

void cuda_host_write(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        atomic_store((_Atomic uint32_t *)&words[i], value);
}

void cuda_host_set_bits(struct cecl_device *dev, uint32_t *word, uint32_t bits)
{
    atomic_fetch_or((_Atomic uint32_t *)word, bits);
}

/* Returns ceclInProgress if the stream's work is not done in time. */
static ceclResult_t ends_within(struct cuda_device *cuda, CUstream stream, int ms)
{
    const int64_t start = cecl_now_ns();
    ceclResult_t result = cuda_stream_query(&cuda->base, stream);
    for (int64_t spent = 0; result == ceclInProgress && spent < ms * INT64_C(1000000);) {
        if (spent > SPIN_NS)
            cecl_pause_us(PAUSE_US);
        result = cuda_stream_query(&cuda->base, stream);
        spent = cecl_now_ns() - start;
    }
    return result;
}

/* Streams share as many hardware queues as CUDA_DEVICE_MAX_CONNECTIONS says, by default 8. A stream that waits for a
 * flag holds a queue. If waiting streams hold all queues, stream writes and kernels of all other streams are held up.
 * Copies, and stream operations right after a copy, have other queues (docs/data/results.md, "Hardware queues"). But a
 * copy is held up while the program frees memory. So this function first tries a write without a copy: to an unused
 * word, because a held-up write might land only after its word was freed. If the trial is held up, the caller writes
 * the words after a copy. */
static ceclResult_t find_held_up(struct cuda_device *cuda, bool *held_up)
{
    const struct cecl_memop trial = {&cuda->scratch[CUDA_SCRATCH_TRIAL], 1, CECL_MEMOP_WRITE};
    ceclResult_t result = cuda_stream_query(&cuda->base, cuda->release);
    if (result == ceclSuccess) /* otherwise an earlier trial is still held up */
        result = cuda_memops(&cuda->base, cuda->release, &trial, 1);
    if (result == ceclSuccess)
        result = ends_within(cuda, cuda->release, HELD_UP_MS);
    *held_up = result == ceclInProgress;
    return *held_up ? ceclSuccess : result;
}

static ceclResult_t write_words(struct cuda_device *cuda, CUstream stream, uint32_t *words,
                                size_t count, uint32_t value)
{
    struct cecl_memop ops[RELEASE_BATCH];
    for (size_t done = 0; done < count;) {
        size_t n = 0;
        for (; n < RELEASE_BATCH && done + n < count; n++)
            ops[n] = (struct cecl_memop){&words[done + n], value, CECL_MEMOP_WRITE};
        if (stream == cuda->side)
            CECL_TRY(CUDA_CALL(cuda, cuMemcpyAsync, cuda_address(&cuda->scratch[CUDA_SCRATCH_COPY]),
                               cuda_address(words), sizeof(*words), stream));
        CECL_TRY(cuda_memops(&cuda->base, stream, ops, n));
        done += n;
    }
    return ceclSuccess;
}

static ceclResult_t release(struct cuda_device *cuda, uint32_t *words, size_t count, uint32_t value)
{
    bool held_up;
    CECL_TRY(find_held_up(cuda, &held_up));
    ceclResult_t result = ceclInProgress;
    if (!held_up) {
        CECL_TRY(write_words(cuda, cuda->release, words, count, value));
        result = ends_within(cuda, cuda->release, HELD_UP_MS);
        if (result == ceclInProgress) /* the trial was not held up, but these writes are */
            atomic_store(&cuda->unlanded, true);
    }
    if (result == ceclInProgress) {
        CECL_TRY(write_words(cuda, cuda->side, words, count, value));
        result = ends_within(cuda, cuda->side, LAND_MS);
    }
    if (result != ceclInProgress)
        return result;
    atomic_store(&cuda->unlanded, true);
    return cecl_fail(ceclUnhandledCudaError,
                     "%zu words were not written in %d ms: do streams that wait hold all hardware "
                     "queues (CUDA_DEVICE_MAX_CONNECTIONS), or is the GPU busy with copies?",
                     count, LAND_MS);
}

/* Uses stream memory operations, and a copy only if these are held up. Not a memset, because that may be a kernel, and
 * the kernels that hold the SMs may be waiting for these words. A copy is held up while the program frees memory, and
 * the freeing may wait for these words. */
ceclResult_t cuda_words_release(struct cecl_device *dev, uint32_t *words, size_t count,
                                uint32_t value)
{
    CUDA_RETURN_BESIDE(cuda, dev, release(cuda, words, count, value));
}

static ceclResult_t read_words(struct cuda_device *cuda, const uint32_t *words, size_t count,
                               uint32_t *out)
{
    for (size_t done = 0; done < count;) {
        const size_t n = count - done < CUDA_SCRATCH_WORDS ? count - done : CUDA_SCRATCH_WORDS;
        CECL_TRY(CUDA_CALL(cuda, cuMemcpyAsync, cuda_address(cuda->scratch),
                           cuda_address(words + done), n * sizeof(*words), cuda->side));
        CECL_TRY(CUDA_CALL(cuda, cuStreamSynchronize, cuda->side));
        memcpy(out + done, cuda->scratch, n * sizeof(*out));
        done += n;
    }
    return ceclSuccess;
}

ceclResult_t cuda_words_read(struct cecl_device *dev, const uint32_t *words, size_t count,
                             uint32_t *out)
{
    CUDA_RETURN_BESIDE(cuda, dev, read_words(cuda, words, count, out));
}
