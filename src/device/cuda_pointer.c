/* What CUDA knows about a pointer, and which pointers the CUDA device refuses. */
#include "device/cuda.h"

struct pointer {
    unsigned type, managed, mapped;
    int ordinal;
    CUdeviceptr start; /* start of the allocation, or of the whole reservation for mapped memory */
    size_t bytes;      /* 0 when CUDA does not know */
};

/* Looks up what CUDA knows of an address. For an address unknown to CUDA all values are 0; that is a success. */
static ceclResult_t look(struct cuda_device *cuda, CUdeviceptr at, struct pointer *found)
{
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_MAPPED,           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&found->type,    &found->managed, &found->mapped,
                      &found->ordinal, &found->start,   &found->bytes};
    *found = (struct pointer){0};
    return CUDA_CALL(cuda, cuPointerGetAttributes, sizeof(which) / sizeof(which[0]), which, values,
                     at);
}

/* Checks that the bytes end within the allocation, or the reservation, and that the last byte exists. Does not look at
 * bytes between, because a buffer may be mapped in parts (PyTorch's expandable segments). */
static ceclResult_t check_end(struct cuda_device *cuda, const void *ptr, size_t bytes,
                              const struct pointer *first, const char *name)
{
    const CUdeviceptr at = cuda_address(ptr);
    struct pointer last;

    if (first->bytes > 0 && bytes > first->bytes - (size_t)(at - first->start))
        return cecl_fail(ceclInvalidArgument, "%s %p: %zu bytes needed, %zu left in its allocation",
                         name, ptr, bytes, first->bytes - (size_t)(at - first->start));
    if (bytes == 0)
        return ceclSuccess;
    CECL_TRY(look(cuda, at + bytes - 1, &last));
    if (last.type != CU_MEMORYTYPE_DEVICE || !last.mapped || last.ordinal != first->ordinal)
        return cecl_fail(ceclInvalidArgument,
                         "%s %p: the last of its %zu bytes is not memory of GPU %d", name, ptr,
                         bytes, cuda->base.ordinal);
    return ceclSuccess;
}

static ceclResult_t check(struct cuda_device *cuda, const void *ptr, size_t bytes, const char *name)
{
    const int mine = cuda->base.ordinal;
    struct pointer first;

    CECL_TRY(look(cuda, cuda_address(ptr), &first));
    if (first.managed)
        return cecl_fail(ceclInvalidArgument,
                         "%s %p: managed memory, which may move while it is copied; memory of "
                         "GPU %d is expected (cudaMalloc, ceclMemAlloc)",
                         name, ptr, mine);
    if (first.type != CU_MEMORYTYPE_DEVICE)
        return cecl_fail(ceclInvalidArgument, "%s %p: %s; memory of GPU %d is expected", name, ptr,
                         first.type == CU_MEMORYTYPE_HOST
                             ? "pinned host memory"
                             : "memory unknown to CUDA (host memory, or freed)",
                         mine);
    if (!first.mapped)
        return cecl_fail(ceclInvalidArgument,
                         "%s %p: a reserved address with no memory mapped; memory of GPU %d is "
                         "expected",
                         name, ptr, mine);
    if (first.ordinal != cuda->device)
        return cecl_fail(ceclInvalidArgument,
                         "%s %p: memory of GPU %d; memory of GPU %d is expected", name, ptr,
                         first.ordinal, mine);
    return check_end(cuda, ptr, bytes, &first, name);
}

ceclResult_t cuda_check_pointer(struct cecl_device *dev, const void *ptr, size_t bytes,
                                const char *name)
{
    if (!ptr)
        return cecl_fail(ceclInvalidArgument, "%s: NULL; memory of GPU %d is expected", name,
                         dev->ordinal);
    CUDA_RETURN_WITHIN(cuda, dev, check(cuda, ptr, bytes, name));
}
