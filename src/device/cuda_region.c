/* Memory that the program allocated itself, on the CUDA device.
 *
 * Memory of cudaMalloc is shared by its legacy IPC handle, mapped memory (cuMemMap) by a file descriptor of its handle.
 * Memory of a stream-ordered pool is not shared: the pool would have to be made for sharing, and peers would have to
 * free their imports before the owner frees the memory. */
#include <string.h>

#include "device/cuda.h"
#include "util/fds.h"

/* The driver cuts small allocations out of blocks of this size. */
#define BLOCK_BYTES ((CUdeviceptr)2 << 20)

struct memory {
    /* legacy: whether the memory has an IPC handle. types: the kinds of handle as which it can be exported (bits of
     * CUmemAllocationHandleType) */
    unsigned legacy, types;
    CUmemoryPool pool; /* for stream-ordered memory */
    CUdeviceptr start; /* start of the allocation, or of the whole reservation */
    size_t bytes;
    unsigned long long id;
};

static ceclResult_t look(struct cuda_device *cuda, CUdeviceptr at, struct memory *found)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                   CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *values[] = {&found->legacy, &found->types, &found->pool,
                      &found->start,  &found->bytes, &found->id};
    *found = (struct memory){0};
    return CUDA_CALL(cuda, cuPointerGetAttributes, sizeof(which) / sizeof(which[0]), which, values,
                     at);
}

static uint32_t kind_of(const struct memory *memory)
{
    if (memory->pool || memory->id == 0)
        return CECL_REGION_NONE;
    if (memory->legacy)
        return CECL_REGION_HANDLE;
    return memory->types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CECL_REGION_FILE
                                                                    : CECL_REGION_NONE;
}

static ceclResult_t find(struct cuda_device *cuda, CUdeviceptr at, struct cecl_region *region)
{
    struct memory memory;
    CUdeviceptr base = 0;
    size_t bytes = 0;

    CECL_TRY(look(cuda, at, &memory));
    uint32_t kind = kind_of(&memory);
    if (cuda->cu->cuMemGetAddressRange(&base, &bytes, at) != CUDA_SUCCESS) {
        kind = CECL_REGION_NONE; /* if its end is not known, memory cannot be shared */
        base = at;
        bytes = 1;
    }
    const bool mapped = kind == CECL_REGION_FILE;
    *region = (struct cecl_region){.base = base,
                                   .bytes = bytes,
                                   .home = mapped ? memory.start : base,
                                   .home_bytes = mapped ? memory.bytes : bytes,
                                   .id = memory.id,
                                   .kind = kind};
    return ceclSuccess;
}

ceclResult_t cuda_region_find(struct cecl_device *dev, const void *ptr, struct cecl_region *region)
{
    CECL_TRY(cuda_check_pointer(dev, ptr, 1, "buffer"));
    CUDA_RETURN_BESIDE(cuda, dev, find(cuda, cuda_address(ptr), region));
}

static CUresult ask_id(struct cuda_device *cuda, const void *ptr, unsigned long long *id)
{
    *id = 0;
    return cuda->cu->cuPointerGetAttribute(id, CU_POINTER_ATTRIBUTE_BUFFER_ID, cuda_address(ptr));
}

/* Ids are unique in the process, so any current context will do; this function makes one current only if the thread has
 * none. A region is mapped and unmapped as a whole, so the id at `ptr` is that of the whole region. */
ceclResult_t cuda_region_id(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                            uint64_t *id)
{
    struct cuda_device *cuda = cuda_of(dev);
    unsigned long long found = 0;
    CUresult error = ask_id(cuda, ptr, &found);
    if (error == CUDA_ERROR_INVALID_CONTEXT) {
        bool pushed;
        CECL_TRY(cuda_enter(cuda, &pushed));
        error = ask_id(cuda, ptr, &found);
        cuda_leave(cuda, pushed);
    }
    /* The address is not memory of CUDA. */
    if (error == CUDA_ERROR_INVALID_VALUE) {
        *id = 0;
        return ceclSuccess;
    }
    *id = found;
    return cecl_driver_check(cuda->cu, error, "cuPointerGetAttribute");
}

/* ---- export */

_Static_assert(sizeof(CUipcMemHandle) == sizeof(((struct cecl_region_export *)0)->handle),
               "an IPC handle has 64 bytes");

static ceclResult_t export_handle(struct cuda_device *cuda, CUdeviceptr base, unsigned char *bytes)
{
    CUipcMemHandle handle;
    CECL_TRY(CUDA_CALL(cuda, cuIpcGetMemHandle, &handle, base));
    memcpy(bytes, &handle, sizeof(handle));
    return ceclSuccess;
}

static ceclResult_t export_file(struct cuda_device *cuda, CUdeviceptr base, int *fd)
{
    CUmemGenericAllocationHandle handle = 0;
    int made = -1;
    CECL_TRY(CUDA_CALL(cuda, cuMemRetainAllocationHandle, &handle, (void *)(uintptr_t)base));
    const ceclResult_t result = CUDA_CALL(cuda, cuMemExportToShareableHandle, &made, handle,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    cuda->cu->cuMemRelease(handle);
    if (result == ceclSuccess)
        *fd = cecl_fds_adopt(made);
    return result;
}

static ceclResult_t check_unchanged(struct cecl_device *dev, const struct cecl_region *region)
{
    uint64_t now = 0;
    if (region->kind == CECL_REGION_NONE)
        return cecl_fail(ceclInvalidUsage, "memory at %#llx of GPU %d cannot be shared",
                         (unsigned long long)region->base, dev->ordinal);
    CECL_TRY(cuda_region_id(dev, (const void *)(uintptr_t)region->base, NULL, &now));
    if (now != region->id)
        return cecl_fail(ceclInvalidUsage,
                         "memory at %#llx of GPU %d: freed since it was found (buffer id %llu; "
                         "%llu is expected)",
                         (unsigned long long)region->base, dev->ordinal, (unsigned long long)now,
                         (unsigned long long)region->id);
    return ceclSuccess;
}

ceclResult_t cuda_region_export(struct cecl_device *dev, const struct cecl_region *region,
                                struct cecl_region_export *exported)
{
    struct cecl_region_export made = {.kind = region->kind,
                                      .ordinal = dev->ordinal,
                                      .process = cecl_fork_process(),
                                      .base = region->base,
                                      .bytes = region->bytes,
                                      .id = region->id,
                                      .fd = -1};
    CECL_TRY(check_unchanged(dev, region));
    CUDA_TRY_BESIDE(cuda, dev,
                    region->kind == CECL_REGION_HANDLE
                        ? export_handle(cuda, region->base, made.handle)
                        : export_file(cuda, region->base, &made.fd));
    *exported = made;
    return ceclSuccess;
}

/* ---- import */

/* Lets this device reach memory of another GPU of this process. cecl never withdraws this access, because CUDA does not
 * count its users, and others may rely on it. */
static ceclResult_t reach(struct cuda_device *cuda, int ordinal)
{
    CUdevice device;
    CUcontext theirs = NULL;
    if (ordinal == cuda->base.ordinal)
        return ceclSuccess;
    CECL_TRY(CUDA_CALL(cuda, cuDeviceGet, &device, ordinal));
    CECL_TRY(CUDA_CALL(cuda, cuDevicePrimaryCtxRetain, &theirs, device));
    const CUresult error = cuda->cu->cuCtxEnablePeerAccess(theirs, 0);
    cuda->cu->cuDevicePrimaryCtxRelease(device);
    if (error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return ceclSuccess;
    return cecl_driver_check(cuda->cu, error, "cuCtxEnablePeerAccess");
}

/* Opens a peer's handle. For a small allocation the driver maps the whole block, and returns the allocation's address
 * in the block. No document promises that; if a driver returned the block's start, cecl would write to other memory. So
 * this function checks the offset within the block. */
static ceclResult_t open_handle(struct cuda_device *cuda, const struct cecl_region_export *exported,
                                void **addr)
{
    CUipcMemHandle handle;
    CUdeviceptr opened = 0;
    memcpy(&handle, exported->handle, sizeof(handle));
    const CUresult error =
        cuda->cu->cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    const ceclResult_t result = cecl_driver_check(cuda->cu, error, "cuIpcOpenMemHandle");
    if (error == CUDA_ERROR_ALREADY_MAPPED)
        return ceclInProgress;
    CECL_TRY(result);
    if ((opened - exported->base) % BLOCK_BYTES != 0) /* stays open: closing waits for the GPU */
        return cecl_fail(ceclUnhandledCudaError,
                         "cuIpcOpenMemHandle: a peer's memory at %#llx is at %#llx here; the same "
                         "offset within a block of %llu bytes is expected",
                         (unsigned long long)exported->base, (unsigned long long)opened,
                         (unsigned long long)BLOCK_BYTES);
    *addr = (void *)(uintptr_t)opened;
    return ceclSuccess;
}

static ceclResult_t import_handle(struct cuda_device *cuda,
                                  const struct cecl_region_export *exported, void **addr)
{
    /* CUDA refuses to open a handle in the process that made it. */
    if (exported->process != cecl_fork_process())
        return open_handle(cuda, exported, addr);
    CECL_TRY(reach(cuda, exported->ordinal));
    *addr = (void *)(uintptr_t)exported->base;
    return ceclSuccess;
}

static ceclResult_t import_file(struct cuda_device *cuda, const struct cecl_region_export *exported,
                                void *at, void **addr)
{
    struct cecl_mem mem = {0};
    CECL_TRY(cuda_mem_import(&cuda->base, exported->fd, exported->bytes, &mem));
    const ceclResult_t result =
        CUDA_CALL(cuda, cuMemMap, cuda_address(at), mem.bytes, 0, mem.handle, 0);
    cuda_mem_release(&cuda->base, &mem); /* the mapping does not need the handle */
    if (result == ceclSuccess)
        *addr = at;
    return result;
}

ceclResult_t cuda_region_access(struct cecl_device *dev, void *addr, size_t bytes)
{
    CUDA_RETURN_BESIDE(cuda, dev, cuda_access(cuda, cuda_address(addr), bytes));
}

ceclResult_t cuda_region_import(struct cecl_device *dev, const struct cecl_region_export *exported,
                                void *at, void **addr)
{
    CUDA_RETURN_BESIDE(cuda, dev,
                       exported->kind == CECL_REGION_HANDLE
                           ? import_handle(cuda, exported, addr)
                           : import_file(cuda, exported, at, addr));
}

static ceclResult_t close_inside(struct cuda_device *cuda,
                                 const struct cecl_region_export *exported, void *addr)
{
    if (exported->kind == CECL_REGION_FILE)
        cuda_mem_unmap(&cuda->base, addr, exported->bytes);
    else if (exported->process != cecl_fork_process())
        cuda->cu->cuIpcCloseMemHandle(cuda_address(addr));
    return ceclSuccess;
}

void cuda_region_close(struct cecl_device *dev, const struct cecl_region_export *exported,
                       void *addr)
{
    CUDA_UNDO_BESIDE(cuda, dev, close_inside(cuda, exported, addr));
}
