/* A program's own memory on the CUDA device: what may be a buffer, which memory is shared and how, ids that distinguish
 * memory from earlier memory at the same address, and imports within this process. The multi-rank tests (register,
 * pieces, mixed) import memory of all kinds in other processes. */
#include <pthread.h>

#include <cuda.h>

#include "cuda_fixture.h"
#include "util/fds.h"

#define BYTES ((size_t)8 << 20) /* so large that it gets an allocation of its own */
#define HANDLES 3               /* granules mapped side by side */

static bool fill(void *at, size_t bytes, uint32_t seed)
{
    uint32_t *words = malloc(bytes);
    if (!words)
        return false;
    for (size_t i = 0; i < bytes / 4; i++)
        words[i] = pattern_word(seed, i);
    const bool done = cudaMemcpy(at, words, bytes / 4 * 4, cudaMemcpyDefault) == cudaSuccess &&
                      cudaDeviceSynchronize() == cudaSuccess;
    free(words);
    return done;
}

static bool holds(const void *at, size_t bytes, uint32_t seed)
{
    uint32_t *words = calloc(1, bytes);
    bool same = words && cudaMemcpy(words, at, bytes / 4 * 4, cudaMemcpyDefault) == cudaSuccess;
    for (size_t i = 0; same && i < bytes / 4; i++)
        same = words[i] == pattern_word(seed, i);
    free(words);
    return same;
}

static struct cecl_region region_at(const void *ptr)
{
    struct cecl_region region = {0};
    must(OPS(gpu[0])->region_find(gpu[0], ptr, &region));
    return region;
}

static uint64_t id_at(const void *ptr)
{
    uint64_t id = 12345;
    must(OPS(gpu[0])->region_id(gpu[0], ptr, NULL, &id));
    return id;
}

static struct cecl_region_export export_of(const void *ptr)
{
    const struct cecl_region region = region_at(ptr);
    struct cecl_region_export exported = {.fd = -1};
    must(OPS(gpu[0])->region_export(gpu[0], &region, &exported));
    assert_int_equal(exported.base, region.base);
    assert_int_equal(exported.bytes, region.bytes);
    assert_int_equal(exported.process, cecl_fork_process());
    assert_int_equal(exported.ordinal, 0);
    return exported;
}

static char *allocate(size_t bytes)
{
    char *memory = NULL;
    must_cuda(cudaMalloc((void **)&memory, bytes));
    return memory;
}

/* HANDLES granules side by side in one reservation, followed by an empty granule. */
struct row {
    char *base;
    size_t piece;
};

static void map_piece(const struct row *row, size_t i)
{
    struct cecl_mem mem = {0};
    must(OPS(gpu[0])->mem_create(gpu[0], row->piece, &mem));
    must(OPS(gpu[0])->mem_map(gpu[0], row->base + i * row->piece, &mem));
    OPS(gpu[0])->mem_release(gpu[0], &mem);
}

static struct row row_make(void)
{
    struct row row = {.piece = gpu[0]->granularity};
    void *base = NULL;
    must(OPS(gpu[0])->reserve(gpu[0], (HANDLES + 1) * row.piece, &base));
    row.base = base;
    for (size_t i = 0; i < HANDLES; i++)
        map_piece(&row, i);
    return row;
}

static void row_end(const struct row *row)
{
    for (size_t i = 0; i < HANDLES; i++)
        OPS(gpu[0])->mem_unmap(gpu[0], row->base + i * row->piece, row->piece);
    OPS(gpu[0])->unreserve(gpu[0], row->base, (HANDLES + 1) * row->piece);
}

TEST(allocation_of_cuda_malloc_is_one_region_from_any_of_its_bytes)
{
    char *memory = allocate(BYTES);
    const char *bytes[] = {memory, memory + 4097, memory + BYTES - 1};
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        const struct cecl_region region = region_at(bytes[i]);
        assert_int_equal(region.kind, CECL_REGION_HANDLE);
        assert_int_equal(region.base, (uintptr_t)memory);
        assert_int_equal(region.bytes, BYTES);
        assert_int_equal(region.home, region.base);
        assert_int_equal(region.home_bytes, region.bytes);
        assert_int_not_equal(region.id, 0);
        assert_int_equal(region.id, id_at(bytes[i]));
    }
    must_cuda(cudaFree(memory));
}

TEST(small_allocations_are_regions_of_their_own)
{
    const size_t sizes[] = {256, 1000, (size_t)1 << 20};
    char *memory[3];
    struct cecl_region regions[3];
    for (int i = 0; i < 3; i++) {
        memory[i] = allocate(sizes[i]);
        regions[i] = region_at(memory[i] + sizes[i] - 1);
        assert_int_equal(regions[i].kind, CECL_REGION_HANDLE);
        assert_int_equal(regions[i].base, (uintptr_t)memory[i]);
        assert_true(regions[i].bytes >= sizes[i]);
    }
    assert_int_not_equal(regions[0].id, regions[1].id);
    assert_int_not_equal(regions[1].id, regions[2].id);
    for (int i = 0; i < 3; i++)
        must_cuda(cudaFree(memory[i]));
}

TEST(each_mapped_handle_is_a_region_at_home_in_the_reservation)
{
    struct cecl_region regions[HANDLES], beyond;
    const struct row row = row_make();
    for (size_t i = 0; i < HANDLES; i++) {
        regions[i] = region_at(row.base + i * row.piece + 5);
        assert_int_equal(regions[i].kind, CECL_REGION_FILE);
        assert_int_equal(regions[i].base, (uintptr_t)row.base + i * row.piece);
        assert_int_equal(regions[i].bytes, row.piece);
        assert_int_equal(regions[i].home, (uintptr_t)row.base);
        assert_int_equal(regions[i].home_bytes, (HANDLES + 1) * row.piece);
        assert_int_equal(regions[i].id, id_at(row.base + i * row.piece));
    }
    assert_int_not_equal(regions[0].id, regions[1].id);
    assert_int_not_equal(regions[1].id, regions[2].id);
    refused(ceclInvalidArgument, "is expected",
            OPS(gpu[0])->region_find(gpu[0], (char *)row.base + HANDLES * row.piece, &beyond));
    row_end(&row);
}

static void assert_not_shared(const void *ptr)
{
    const struct cecl_region region = region_at(ptr);
    struct cecl_region_export exported;
    assert_int_equal(region.kind, CECL_REGION_NONE);
    assert_true(region.base <= (uintptr_t)ptr && (uintptr_t)ptr - region.base < region.bytes);
    refused(ceclInvalidUsage, "cannot be shared",
            OPS(gpu[0])->region_export(gpu[0], &region, &exported));
}

TEST(handle_made_without_a_descriptor_is_not_shared)
{
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle = 0;
    void *function = driver_function("cuMemCreate", 10020);
    memcpy(&create, &function, sizeof(create));
    assert_int_equal(create(&handle, gpu[0]->granularity, &prop, 0), CUDA_SUCCESS);
    struct memory memory =
        memory_map(gpu[0], (struct cecl_mem){.handle = handle, .bytes = gpu[0]->granularity});
    assert_not_shared(memory.at + 3);
    memory_end(&memory);
}

/* ---- what may be a buffer: the GPU's memory, up to the last byte */

static ceclResult_t check(const void *ptr, size_t bytes)
{
    return OPS(gpu[0])->check_pointer(gpu[0], ptr, bytes, "sendbuff");
}

TEST(memory_of_cuda_malloc_is_taken_whole_and_in_part)
{
    char *memory = allocate(BYTES);
    must(check(memory, BYTES));
    must(check(memory + 4096, BYTES - 4096));
    must(check(memory + BYTES - 1, 1));
    must(check(memory + 1, 0));
    must_cuda(cudaFree(memory));
}

TEST(range_past_the_end_of_its_allocation_is_refused_with_what_is_left)
{
    char *memory = allocate(BYTES);
    refused(ceclInvalidArgument, "8388609 bytes needed, 8388608 left", check(memory, BYTES + 1));
    refused(ceclInvalidArgument, "2 bytes needed, 1 left", check(memory + BYTES - 1, 2));
    refused(ceclInvalidArgument, "left in its allocation", check(memory, SIZE_MAX));
    must_cuda(cudaFree(memory));
}

TEST(memory_of_a_stream_ordered_pool_is_taken_and_not_shared)
{
    void *memory = NULL;
    must_cuda(cudaMallocAsync(&memory, BYTES, NULL));
    must_cuda(cudaStreamSynchronize(NULL));
    must(check(memory, BYTES));
    assert_not_shared(memory);
    must_cuda(cudaFreeAsync(memory, NULL));
    must_cuda(cudaStreamSynchronize(NULL));
}

TEST(range_over_mappings_of_the_pool_is_taken_and_past_them_refused)
{
    const struct row row = row_make();
    const size_t bytes = HANDLES * row.piece;
    must(check(row.base, row.piece));
    must(check(row.base + row.piece - 1, 1));
    must(check(row.base, bytes));
    refused(ceclInvalidArgument, "sendbuff", check(row.base, bytes + 1));
    refused(ceclInvalidArgument, "sendbuff", check(row.base + bytes, 1));
    for (size_t i = 0; i < HANDLES; i++)
        OPS(gpu[0])->mem_unmap(gpu[0], row.base + i * row.piece, row.piece);
    refused(ceclInvalidArgument, "sendbuff", check(row.base, 1));
    OPS(gpu[0])->unreserve(gpu[0], row.base, (HANDLES + 1) * row.piece);
}

/* The memory must be neither found nor taken as a buffer. */
static void assert_refused(const void *ptr, size_t bytes, const char *why)
{
    struct cecl_region region;
    char place[32];
    snprintf(place, sizeof(place), "%p", ptr);
    refused(ceclInvalidArgument, why, OPS(gpu[0])->region_find(gpu[0], ptr, &region));
    if (ptr)
        assert_non_null(strstr(cecl_message(), place));
    refused(ceclInvalidArgument, why, check(ptr, bytes));
    assert_non_null(strstr(cecl_message(), "sendbuff"));
}

TEST(other_memory_is_refused)
{
    static char plain[4096];
    uint32_t *words = NULL;
    void *managed = NULL, *freed = NULL;
    must(OPS(gpu[0])->words_alloc(gpu[0], 16, &words));
    must_cuda(cudaMallocManaged(&managed, 65536, cudaMemAttachGlobal));
    must_cuda(cudaMalloc(&freed, BYTES));
    must(check(freed, BYTES));
    must_cuda(cudaFree(freed));
    assert_refused(NULL, 1, "NULL");
    assert_refused(plain, sizeof(plain), "unknown to CUDA");
    assert_refused(words, 64, "pinned host memory");
    assert_refused(managed, 65536, "managed memory");
    refused(ceclInvalidArgument, "unknown to CUDA", check(freed, BYTES));
    OPS(gpu[0])->words_free(gpu[0], words);
    must_cuda(cudaFree(managed));
}

TEST(memory_of_another_gpu_is_refused_naming_both)
{
    need_two();
    must_cuda(cudaSetDevice(1));
    char *memory = allocate(BYTES);
    must_cuda(cudaSetDevice(0));
    assert_refused(memory, BYTES, "memory of GPU 1");
    refused(ceclInvalidArgument, "memory of GPU 1; memory of GPU 0", check(memory, BYTES));
    must_cuda(cudaFree(memory));
}

TEST(mapped_memory_of_a_peer_is_refused)
{
    need_two();
    struct memory memory = memory_make(gpu[1], 4096);
    struct memory view = memory_view(gpu[0], &memory);
    refused(ceclInvalidArgument, "memory of GPU 1; memory of GPU 0", check(view.at, 4096));
    memory_end(&view);
    memory_end(&memory);
}

TEST(memory_allocated_anew_has_another_id)
{
    const size_t sizes[] = {1000, BYTES};
    for (int i = 0; i < 2; i++) {
        struct cecl_region_export exported;
        char *memory = allocate(sizes[i]);
        const struct cecl_region before = region_at(memory);
        must_cuda(cudaFree(memory));
        assert_int_equal(id_at(memory), 0);
        char *again = allocate(sizes[i]); /* usually at the same address */
        print_message("%zu bytes: %s address\n", sizes[i],
                      again == memory ? "the same" : "another");
        assert_int_not_equal(id_at(again), before.id);
        refused(ceclInvalidUsage, "freed since",
                OPS(gpu[0])->region_export(gpu[0], &before, &exported));
        must_cuda(cudaFree(again));
    }
}

TEST(handle_mapped_anew_has_another_id)
{
    struct cecl_region_export exported;
    const struct row row = row_make();
    char *second = row.base + row.piece;
    const struct cecl_region before = region_at(second);
    const uint64_t third = id_at(second + row.piece);
    OPS(gpu[0])->mem_unmap(gpu[0], second, row.piece);
    assert_int_not_equal(id_at(second), before.id);
    print_message("id of a reserved address with no memory: %llu\n",
                  (unsigned long long)id_at(second));
    map_piece(&row, 1);
    assert_int_not_equal(id_at(second), 0);
    assert_int_not_equal(id_at(second), before.id);
    assert_int_equal(id_at(second + row.piece), third); /* the memory beside it is still the same */
    refused(ceclInvalidUsage, "freed since",
            OPS(gpu[0])->region_export(gpu[0], &before, &exported));
    row_end(&row);
}

/* A region is mapped and unmapped as a whole, so its id does not depend on what a call uses of it. */
TEST(handles_that_are_swapped_have_other_ids)
{
    const size_t piece = gpu[0]->granularity;
    struct cecl_mem mem[2] = {{0}};
    uint64_t before[2];
    void *base = NULL;
    must(OPS(gpu[0])->reserve(gpu[0], 2 * piece, &base));
    char *at[2] = {base, (char *)base + piece};
    for (int i = 0; i < 2; i++) {
        must(OPS(gpu[0])->mem_create(gpu[0], piece, &mem[i]));
        must(OPS(gpu[0])->mem_map(gpu[0], at[i], &mem[i]));
        before[i] = id_at(at[i]);
    }
    for (int i = 0; i < 2; i++)
        OPS(gpu[0])->mem_unmap(gpu[0], at[i], piece);
    for (int i = 0; i < 2; i++)
        must(OPS(gpu[0])->mem_map(gpu[0], at[i], &mem[1 - i]));
    for (int i = 0; i < 2; i++) {
        const struct cecl_use use = {.name = "recvbuff",
                                     .buffer = at[i],
                                     .low = (uintptr_t)at[i],
                                     .high = (uintptr_t)at[i] + piece,
                                     .written = true};
        uint64_t id = 0;
        must(OPS(gpu[0])->region_id(gpu[0], at[i], &use, &id));
        assert_int_equal(id, id_at(at[i]));
        assert_int_not_equal(id, 0);
        assert_int_not_equal(id, before[i]);
    }
    assert_null(OPS(gpu[0])->check_uses);
    for (int i = 0; i < 2; i++) {
        OPS(gpu[0])->mem_unmap(gpu[0], at[i], piece);
        OPS(gpu[0])->mem_release(gpu[0], &mem[i]);
    }
    OPS(gpu[0])->unreserve(gpu[0], base, 2 * piece);
}

TEST(host_memory_that_cuda_does_not_know_has_no_id)
{
    char *plain = calloc(1, 4096);
    assert_int_equal(id_at(plain), 0);
    assert_int_equal(id_at(NULL), 0);
    free(plain);
}

struct asked {
    const void *ptr;
    uint64_t id;
    struct cecl_region region;
    ceclResult_t result;
};

/* No asserts here: cmocka's longjmp must not leave this thread. */
static void *ask_from_a_fresh_thread(void *argument)
{
    struct asked *asked = argument;
    asked->result = OPS(gpu[0])->region_id(gpu[0], asked->ptr, NULL, &asked->id);
    if (asked->result == ceclSuccess)
        asked->result = OPS(gpu[0])->region_find(gpu[0], asked->ptr, &asked->region);
    return NULL;
}

TEST(thread_without_context_is_told_the_same)
{
    pthread_t thread;
    char *memory = allocate(BYTES);
    struct asked asked = {.ptr = memory};
    const struct cecl_region region = region_at(memory);
    assert_int_equal(pthread_create(&thread, NULL, ask_from_a_fresh_thread, &asked), 0);
    pthread_join(thread, NULL);
    assert_int_equal(asked.result, ceclSuccess);
    assert_int_equal(asked.id, region.id);
    assert_int_equal(asked.region.id, region.id);
    assert_int_equal(asked.region.base, region.base);
    assert_int_equal(asked.region.kind, region.kind);
    must_cuda(cudaFree(memory));
}

TEST(thread_of_another_gpu_is_told_the_same)
{
    need_two();
    char *memory = allocate(BYTES);
    const struct cecl_region region = region_at(memory);
    must_cuda(cudaSetDevice(1));
    assert_int_equal(id_at(memory), region.id);
    assert_int_equal(region_at(memory).id, region.id);
    must_cuda(cudaSetDevice(0));
    must_cuda(cudaFree(memory));
}

TEST(handle_of_this_process_is_the_memory_itself)
{
    void *addr = NULL;
    char *memory = allocate(BYTES);
    const struct cecl_region_export exported = export_of(memory + 100);
    must(OPS(gpu[0])->region_import(gpu[0], &exported, NULL, &addr));
    assert_ptr_equal(addr, memory);
    OPS(gpu[0])->region_close(gpu[0], &exported, addr);
    assert_true(fill(memory, BYTES, 1)); /* the memory is still there after closing */
    must_cuda(cudaFree(memory));
}

TEST(handle_is_reached_by_another_gpu_of_this_process)
{
    need_two();
    char *memory = allocate(BYTES);
    assert_true(fill(memory, BYTES, 2));
    const struct cecl_region_export exported = export_of(memory);
    for (int i = 0; i < 2; i++) { /* access that is already enabled is no error */
        void *addr = NULL;
        must(OPS(gpu[1])->region_import(gpu[1], &exported, NULL, &addr));
        assert_ptr_equal(addr, memory);
        OPS(gpu[1])->region_close(gpu[1], &exported, addr);
    }
    must_cuda(cudaSetDevice(1));
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
    struct kit theirs = kit_make(gpu[1]);
    must(copy_one(gpu[1], theirs.stream, theirs.memory.at, memory, PATTERN_WORDS * 4));
    assert_true(ends_within(gpu[1], theirs.stream, SOON_MS));
    assert_true(holds(theirs.memory.at, PATTERN_WORDS * 4, 2));
    kit_end(&theirs);
    must_cuda(cudaSetDevice(0));
    must_cuda(cudaFree(memory));
}

TEST(descriptor_is_imported_by_each_gpu_of_this_process)
{
    const struct row row = row_make();
    assert_true(fill(row.base, row.piece, 3));
    const struct cecl_region_export exported = export_of(row.base);
    for (int g = 0; g < 2 && gpu[g]; g++) {
        void *base = NULL, *addr = NULL;
        must_cuda(cudaSetDevice(g));
        must(OPS(gpu[g])->reserve(gpu[g], row.piece, &base));
        must(OPS(gpu[g])->region_import(gpu[g], &exported, base, &addr));
        must(OPS(gpu[g])->region_access(gpu[g], addr, row.piece));
        assert_ptr_equal(addr, base);
        assert_true(holds(addr, row.piece, 3 + (uint32_t)g));
        assert_true(fill(addr, row.piece, 4 + (uint32_t)g));
        OPS(gpu[g])->region_close(gpu[g], &exported, addr);
        OPS(gpu[g])->unreserve(gpu[g], base, row.piece);
        must_cuda(cudaSetDevice(0));
        assert_true(holds(row.base, row.piece, 4 + (uint32_t)g));
    }
    cecl_fds_close(exported.fd);
    row_end(&row);
}

static void share_with_oneself(const void *ptr)
{
    const struct cecl_region_export exported = export_of(ptr);
    void *base = NULL, *addr = NULL;
    must(OPS(gpu[0])->reserve(gpu[0], exported.bytes, &base));
    must(OPS(gpu[0])->region_import(gpu[0], &exported, base, &addr));
    OPS(gpu[0])->region_close(gpu[0], &exported, addr);
    OPS(gpu[0])->unreserve(gpu[0], base, exported.bytes);
    if (exported.fd >= 0)
        cecl_fds_close(exported.fd);
}

TEST(sharing_leaves_a_capture_valid)
{
    ceclStream_t stream = NULL;
    char *memory = allocate(BYTES);
    const struct row row = row_make();
    must(OPS(gpu[0])->stream_create(gpu[0], false, &stream));
    must_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_int_not_equal(id_at(memory), 0);
    share_with_oneself(memory);
    share_with_oneself(row.base);
    end_capture_and_check_it(stream);
    must(OPS(gpu[0])->stream_destroy(gpu[0], stream));
    row_end(&row);
    must_cuda(cudaFree(memory));
}

GPU_TESTS(gpus_open, gpus_close)
