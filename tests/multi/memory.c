/* Memory of all kinds; see memory.h. */
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- the host device */

/* A mapping at `at` (NULL: anywhere), which replaces what is there. In one step: no other thread's
 * mapping can come in between. */
static void map(struct memory *m, void *at, bool shared)
{
    int flags = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    m->fd = shared ? memfd_create("cecl test", MFD_CLOEXEC) : -1;
    if (shared && (m->fd < 0 || ftruncate(m->fd, (off_t)m->bytes) != 0))
        fail_msg("no memfd of %zu bytes", m->bytes);
    flags |= at ? MAP_FIXED : 0;
    void *got = mmap(at, m->bytes, PROT_READ | PROT_WRITE, flags, m->fd, 0);
    if (got == MAP_FAILED)
        fail_msg("no mapping of %zu bytes", m->bytes);
    m->at = got;
    m->mapped = true;
}

static void host_new(struct memory *m)
{
    if (m->kind == MEMORY_PRIVATE)
        assert_non_null(m->at = malloc(m->bytes));
    else
        map(m, NULL, true);
}

static void host_free(struct memory *m)
{
    if (m->mapped)
        munmap(m->at, m->bytes);
    else
        free(m->at);
    if (m->fd >= 0)
        close(m->fd);
}

static void host_renew(struct memory *m, enum memory_kind kind)
{
    const struct memory old = *m;
    assert_true(old.mapped);
    m->kind = kind;
    map(m, old.at, kind != MEMORY_PRIVATE);
    if (old.fd >= 0)
        close(old.fd);
}

/* ---- GPUs */

#ifdef CECL_TEST_CUDA
#include <cuda.h>
#include <dlfcn.h>

#define CALLS(X)                                                                                   \
    X(cuInit)                                                                                      \
    X(cuDeviceGet)                                                                                 \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuStreamSynchronize)                                                                         \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemGetInfo)                                                                                \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemGetAllocationGranularity)                                                               \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemAddressFree)                                                                            \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuMemMap)                                                                                    \
    X(cuMemUnmap)                                                                                  \
    X(cuMemSetAccess)

/* cuda.h makes some names macros, for their version: a field's name is the function's full name. */
static struct {
#define FIELD(name) __typeof__(name) *name;
    CALLS(FIELD)
} driver;

#define TEXT(name) #name
#define TRY(name, ...) tried(driver.name(__VA_ARGS__), #name)

static void tried(CUresult result, const char *name)
{
    if (result != CUDA_SUCCESS)
        fail_msg("rank %d: %s: CUDA error %d", multi_rank, name, (int)result);
}

static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    if (!found)
        fail_msg("the CUDA driver has no %s", name);
    memcpy(function, &found, sizeof(found));
}

/* Makes the primary context of comm's GPU current. Returns the GPU. */
static CUdevice use_gpu(ceclComm_t comm)
{
    static CUcontext context;
    CUdevice device;
    int ordinal;
    multi_ok(comm, ceclCommCuDevice(comm, &ordinal));
    if (!driver.cuInit) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        assert_non_null(library);
#define FIND(name) find(library, TEXT(name), &driver.name);
        CALLS(FIND)
        TRY(cuInit, 0);
    }
    TRY(cuDeviceGet, &device, ordinal);
    if (!context)
        TRY(cuDevicePrimaryCtxRetain, &context, device);
    TRY(cuCtxSetCurrent, context);
    return device;
}

static CUdeviceptr address(const struct memory *m)
{
    return (CUdeviceptr)(uintptr_t)m->at;
}

/* Two pieces at least. A mapping keeps its handle alive. */
static void map_pieces(struct memory *m, CUdevice device)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    TRY(cuMemGetAllocationGranularity, &m->seam, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const size_t pieces = m->bytes <= m->seam ? 2 : (m->bytes + m->seam - 1) / m->seam;
    m->bytes = pieces * m->seam;
    TRY(cuMemAddressReserve, &at, m->bytes, 0, 0, 0);
    for (size_t i = 0; i < pieces; i++) {
        CUmemGenericAllocationHandle handle;
        TRY(cuMemCreate, &handle, m->seam, &prop, 0);
        TRY(cuMemMap, at + i * m->seam, m->seam, 0, handle, 0);
        TRY(cuMemRelease, handle);
    }
    TRY(cuMemSetAccess, at, m->bytes, &access, 1);
    m->at = (unsigned char *)(uintptr_t)at;
}

static void gpu_new(ceclComm_t comm, struct memory *m)
{
    const CUdevice device = use_gpu(comm);
    CUdeviceptr at = 0;
    if (m->kind == MEMORY_PIECES) {
        map_pieces(m, device);
        return;
    }
    if (m->kind == MEMORY_SHARED) {
        TRY(cuMemAlloc, &at, m->bytes);
    } else {
        TRY(cuMemAllocAsync, &at, m->bytes, NULL);
        TRY(cuStreamSynchronize, NULL);
    }
    m->at = (unsigned char *)(uintptr_t)at;
}

static void gpu_free(ceclComm_t comm, struct memory *m)
{
    use_gpu(comm);
    if (m->kind == MEMORY_SHARED) {
        TRY(cuMemFree, address(m));
    } else if (m->kind == MEMORY_PRIVATE) {
        TRY(cuMemFreeAsync, address(m), NULL);
        TRY(cuStreamSynchronize, NULL);
    } else {
        for (size_t i = 0; i < m->bytes; i += m->seam)
            TRY(cuMemUnmap, address(m) + i, m->seam);
        TRY(cuMemAddressFree, address(m), m->bytes);
    }
}

int memory_gpu_mib(void)
{
    size_t left = 0, all = 0;
    if (driver.cuMemGetInfo)
        TRY(cuMemGetInfo, &left, &all);
    return (int)((all - left) >> 20);
}
#else
int memory_gpu_mib(void)
{
    return 0;
}

static void gpu_new(ceclComm_t comm, struct memory *m)
{
    (void)comm;
    fail_msg("built without CUDA: no memory of kind %d", (int)m->kind);
}

static void gpu_free(ceclComm_t comm, struct memory *m)
{
    (void)comm;
    (void)m;
}
#endif

/* ---- both */

struct memory memory_new(ceclComm_t comm, enum memory_kind kind, size_t bytes)
{
    struct memory m = {.kind = kind, .bytes = bytes, .fd = -1};
    if (kind == MEMORY_POOL)
        multi_ok(comm, ceclMemAlloc(comm, (void **)&m.at, bytes));
    else if (multi_on_gpus(comm))
        gpu_new(comm, &m);
    else
        host_new(&m);
    return m;
}

static void free_in_pool(ceclComm_t comm, struct memory *m)
{
    ceclResult_t async;
    multi_ok(comm, ceclCommGetAsyncError(comm, &async));
    if (async == ceclSuccess)
        multi_ok(comm, ceclMemFree(comm, m->at));
}

void memory_free(ceclComm_t comm, struct memory *m)
{
    if (!m->at)
        return;
    if (m->kind == MEMORY_POOL)
        free_in_pool(comm, m);
    else if (multi_on_gpus(comm))
        gpu_free(comm, m);
    else
        host_free(m);
    *m = (struct memory){.fd = -1};
}

void memory_renew(ceclComm_t comm, struct memory *m, enum memory_kind kind)
{
    enum { TRIES = 8 };
    struct memory made[TRIES];
    const struct memory old = *m;
    int count = 0;
    if (!multi_on_gpus(comm)) {
        host_renew(m, kind);
        return;
    }
    memory_free(comm, m);
    do
        made[count] = memory_new(comm, kind, old.bytes);
    while (made[count++].at != old.at && count < TRIES);
    *m = made[count - 1];
    for (int i = 0; i < count - 1; i++)
        memory_free(comm, &made[i]);
}
