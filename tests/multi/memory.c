#include "memory.h"

/* ---- the host device */

int host_file(size_t bytes)
{
    const int fd = memfd_create("cecl test", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

unsigned char *host_reserve(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

void host_map(void *at, size_t bytes, int flags, int fd, size_t offset)
{
    const int rights = PROT_READ | PROT_WRITE;
    assert_ptr_equal(mmap(at, bytes, rights, flags | MAP_FIXED, fd, (off_t)offset), at);
}

void host_unmap(void *at, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    assert_ptr_equal(mmap(at, bytes, PROT_NONE, flags, -1, 0), at);
}

/* Maps memory at `at` (NULL: anywhere) in one step, so no other thread's mapping can take the address in between. */
static void map(struct memory *m, void *at, bool shared)
{
    int flags = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    m->fd = shared ? host_file(m->bytes) : -1;
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

static size_t host_granule(ceclComm_t comm)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned char *pieces_reserve(ceclComm_t comm, size_t bytes)
{
    return host_reserve(bytes);
}

static void host_unreserve(ceclComm_t comm, unsigned char *at, size_t bytes)
{
    assert_int_equal(munmap(at, bytes), 0);
}

static uint64_t host_piece(ceclComm_t comm, size_t bytes)
{
    return (uint64_t)host_file(bytes);
}

static void host_piece_free(ceclComm_t comm, uint64_t piece)
{
    assert_int_equal(close((int)piece), 0);
}

static void host_piece_map(ceclComm_t comm, unsigned char *at, uint64_t piece, size_t bytes)
{
    host_map(at, bytes, MAP_SHARED, (int)piece, 0);
}

static void host_piece_unmap(ceclComm_t comm, unsigned char *at, size_t bytes)
{
    host_unmap(at, bytes);
}

static const struct memory_pieces host_pieces = {host_granule,    pieces_reserve,  host_unreserve,
                                                 host_piece,      host_piece_free, host_piece_map,
                                                 host_piece_unmap};

/* ---- GPUs */

#ifdef CECL_TEST_CUDA
#include <cuda.h>
#include <dlfcn.h>

#define CALLS(X) \
    X(cuInit) \
    X(cuDeviceGet) \
    X(cuDevicePrimaryCtxRetain) \
    X(cuCtxSetCurrent) \
    X(cuStreamSynchronize) \
    X(cuMemAlloc) \
    X(cuMemFree) \
    X(cuMemGetInfo) \
    X(cuMemAllocAsync) \
    X(cuMemFreeAsync) \
    X(cuMemGetAllocationGranularity) \
    X(cuMemAddressReserve) \
    X(cuMemAddressFree) \
    X(cuMemCreate) \
    X(cuMemRelease) \
    X(cuMemMap) \
    X(cuMemUnmap) \
    X(cuMemSetAccess)

/* cuda.h defines some names as macros, such as cuMemAlloc for cuMemAlloc_v2; fields get the latter names. */
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

static CUmemAllocationProp piece_prop(CUdevice device)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static size_t gpu_granule(ceclComm_t comm)
{
    const CUmemAllocationProp prop = piece_prop(use_gpu(comm));
    size_t bytes = 0;
    TRY(cuMemGetAllocationGranularity, &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return bytes;
}

static unsigned char *gpu_reserve(ceclComm_t comm, size_t bytes)
{
    CUdeviceptr at = 0;
    use_gpu(comm);
    TRY(cuMemAddressReserve, &at, bytes, 0, 0, 0);
    return (unsigned char *)(uintptr_t)at;
}

static void gpu_unreserve(ceclComm_t comm, unsigned char *at, size_t bytes)
{
    use_gpu(comm);
    TRY(cuMemAddressFree, (CUdeviceptr)(uintptr_t)at, bytes);
}

static uint64_t gpu_piece(ceclComm_t comm, size_t bytes)
{
    const CUmemAllocationProp prop = piece_prop(use_gpu(comm));
    CUmemGenericAllocationHandle handle = 0;
    TRY(cuMemCreate, &handle, bytes, &prop, 0);
    return handle;
}

static void gpu_piece_free(ceclComm_t comm, uint64_t piece)
{
    use_gpu(comm);
    TRY(cuMemRelease, piece);
}

static void gpu_piece_map(ceclComm_t comm, unsigned char *at, uint64_t piece, size_t bytes)
{
    const CUmemAllocationProp prop = piece_prop(use_gpu(comm));
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    TRY(cuMemMap, (CUdeviceptr)(uintptr_t)at, bytes, 0, piece, 0);
    TRY(cuMemSetAccess, (CUdeviceptr)(uintptr_t)at, bytes, &access, 1);
}

static void gpu_piece_unmap(ceclComm_t comm, unsigned char *at, size_t bytes)
{
    use_gpu(comm);
    TRY(cuMemUnmap, (CUdeviceptr)(uintptr_t)at, bytes);
}

/* Maps at least two pieces. A mapping keeps its memory after the handle is released. */
static void map_pieces(ceclComm_t comm, struct memory *m)
{
    m->seam = gpu_granule(comm);
    const size_t pieces = m->bytes <= m->seam ? 2 : (m->bytes + m->seam - 1) / m->seam;
    m->bytes = pieces * m->seam;
    m->at = gpu_reserve(comm, m->bytes);
    for (size_t i = 0; i < pieces; i++) {
        const uint64_t piece = gpu_piece(comm, m->seam);
        gpu_piece_map(comm, m->at + i * m->seam, piece, m->seam);
        gpu_piece_free(comm, piece);
    }
}

static void gpu_new(ceclComm_t comm, struct memory *m)
{
    CUdeviceptr at = 0;
    if (m->kind == MEMORY_PIECES) {
        map_pieces(comm, m);
        return;
    }
    use_gpu(comm);
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
            gpu_piece_unmap(comm, m->at + i, m->seam);
        gpu_unreserve(comm, m->at, m->bytes);
    }
}

static const struct memory_pieces gpu_pieces = {gpu_granule,    gpu_reserve,    gpu_unreserve,
                                                gpu_piece,      gpu_piece_free, gpu_piece_map,
                                                gpu_piece_unmap};
#define GPU_PIECES &gpu_pieces

int memory_gpu_mib(void)
{
    size_t left = 0, all = 0;
    if (driver.cuMemGetInfo)
        TRY(cuMemGetInfo, &left, &all);
    return (int)((all - left) >> 20);
}
#else
#define GPU_PIECES NULL

int memory_gpu_mib(void)
{
    return 0;
}

static void gpu_new(ceclComm_t comm, struct memory *m)
{
    fail_msg("built without CUDA: no memory of kind %d", (int)m->kind);
}

static void gpu_free(ceclComm_t comm, struct memory *m)
{
}
#endif

/* ---- both devices */

const struct memory_pieces *memory_pieces(ceclComm_t comm)
{
    return multi_on_gpus(comm) ? GPU_PIECES : &host_pieces;
}

struct memory memory_new(ceclComm_t comm, enum memory_kind kind, size_t bytes)
{
    struct memory m = {.kind = kind, .bytes = bytes, .fd = -1};
    if (kind == MEMORY_POOL)
        m.at = multi_alloc(comm, bytes);
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
