/* A program's own memory on the CUDA device: which memory is shared and how, ids that distinguish
 * memory from earlier memory at the same address, and imports within this process and in
 * another. */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cuda.h>

#include "cuda_fixture.h"
#include "util/fds.h"
#include "util/fork.h"

#define BYTES ((size_t)8 << 20) /* large enough for allocations of their own */
#define HANDLES 3               /* granules mapped side by side */

/* ---- Patterns in memory of any kind. No asserts in functions that the peer process calls, too. */

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

/* ---- The peer: a process that was forked before CUDA started, with a device of its own. It
 * carries out orders that it receives over a socket. */

enum what { RESERVE, UNRESERVE, IMPORT, CLOSE, FILL, CHECK };

struct order {
    uint32_t what, seed;
    uint64_t at, bytes;
    struct cecl_region_export exported;
};

struct answer {
    int32_t result;
    uint64_t addr;
    char message[200];
};

static int to_peer = -1;

/* Sends an order, with exported.fd as a descriptor, if there is one. */
static bool send_order(int socket, const struct order *order)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec vector = {(void *)(uintptr_t)order, sizeof(*order)};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (order->what == IMPORT && order->exported.fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &order->exported.fd, sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*order);
}

static bool receive_order(int socket, struct order *order)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec vector = {order, sizeof(*order)};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*order))
        return false;
    order->exported.fd = -1;
    if (CMSG_FIRSTHDR(&message))
        memcpy(&order->exported.fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return true;
}

static ceclResult_t import_as_told(struct cecl_device *dev, struct order *order, uint64_t *got)
{
    void *addr = NULL;
    ceclResult_t result =
        OPS(dev)->region_import(dev, &order->exported, (void *)(uintptr_t)order->at, &addr);
    if (result == ceclSuccess && order->exported.kind == CECL_REGION_FILE)
        result = OPS(dev)->region_access(dev, addr, order->exported.bytes);
    *got = (uintptr_t)addr;
    if (order->exported.fd >= 0)
        cecl_fds_close(order->exported.fd);
    return result;
}

static ceclResult_t obey(struct cecl_device *dev, struct order *order, uint64_t *addr)
{
    void *at = (void *)(uintptr_t)order->at;
    ceclResult_t result = ceclSuccess;
    switch (order->what) {
    case RESERVE:
        result = OPS(dev)->reserve(dev, order->bytes, &at);
        *addr = (uintptr_t)at;
        return result;
    case UNRESERVE: OPS(dev)->unreserve(dev, at, order->bytes); return ceclSuccess;
    case IMPORT: return import_as_told(dev, order, addr);
    case CLOSE: OPS(dev)->region_close(dev, &order->exported, at); return ceclSuccess;
    case FILL:
        return fill(at, order->bytes, order->seed)
                   ? ceclSuccess
                   : cecl_fail(ceclUnhandledCudaError, "the peer cannot write at %p", at);
    default:
        return holds(at, order->bytes, order->seed)
                   ? ceclSuccess
                   : cecl_fail(ceclInternalError, "the peer reads other words at %p", at);
    }
}

/* The peer's main loop. It ends when the test closes its end of the socket. */
static int be_peer(int socket)
{
    struct cecl_device *dev = NULL;
    struct order order;
    int count = 0;
    alarm(PROGRAM_S);
    while (receive_order(socket, &order)) {
        struct answer answer = {0};
        if (!dev) {
            cudaGetDeviceCount(&count);
            cudaSetDevice(count > 1);
            answer.result = cecl_cuda_open(count > 1, &dev);
        }
        if (answer.result == ceclSuccess)
            answer.result = obey(dev, &order, &answer.addr);
        if (answer.result != ceclSuccess)
            snprintf(answer.message, sizeof(answer.message), "%.199s", cecl_message());
        if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer))
            break;
    }
    if (dev)
        OPS(dev)->close(dev);
    return 0;
}

/* Starts the peer. Call this before any use of CUDA. */
static void start_peer(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        abort();
    const pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        close(ends[0]);
        _exit(be_peer(ends[1]));
    }
    close(ends[1]);
    to_peer = ends[0];
}

/* Sends the peer an order, and returns the address that it answers. */
static uint64_t peer_does(const struct order *order)
{
    struct answer answer = {0};
    assert_true(send_order(to_peer, order));
    assert_int_equal(recv(to_peer, &answer, sizeof(answer), 0), sizeof(answer));
    if (answer.result != ceclSuccess)
        fail_msg("order %u: %s", order->what, answer.message);
    return answer.addr;
}

static uint64_t peer_reserves(size_t bytes)
{
    const struct order order = {.what = RESERVE, .bytes = bytes};
    return peer_does(&order);
}

static void peer_unreserves(uint64_t at, size_t bytes)
{
    const struct order order = {.what = UNRESERVE, .at = at, .bytes = bytes};
    peer_does(&order);
}

static uint64_t peer_imports(const struct cecl_region_export *exported, uint64_t at)
{
    const struct order order = {.what = IMPORT, .at = at, .exported = *exported};
    return peer_does(&order);
}

static void peer_closes(const struct cecl_region_export *exported, uint64_t addr)
{
    const struct order order = {.what = CLOSE, .at = addr, .exported = *exported};
    peer_does(&order);
}

static void peer_fills(uint64_t at, size_t bytes, uint32_t seed)
{
    const struct order order = {.what = FILL, .at = at, .bytes = bytes, .seed = seed};
    peer_does(&order);
}

static void peer_checks(uint64_t at, size_t bytes, uint32_t seed)
{
    const struct order order = {.what = CHECK, .at = at, .bytes = bytes, .seed = seed};
    peer_does(&order);
}

/* ---- short forms */

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

/* ---- finding */

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

TEST(memory_of_a_stream_ordered_pool_is_not_shared)
{
    void *memory = NULL;
    must_cuda(cudaMallocAsync(&memory, BYTES, NULL));
    must_cuda(cudaStreamSynchronize(NULL));
    assert_not_shared(memory);
    must_cuda(cudaFreeAsync(memory, NULL));
    must_cuda(cudaStreamSynchronize(NULL));
}

static void assert_refused(const void *ptr, const char *why)
{
    struct cecl_region region;
    char place[32];
    snprintf(place, sizeof(place), "%p", ptr);
    refused(ceclInvalidArgument, why, OPS(gpu[0])->region_find(gpu[0], ptr, &region));
    if (ptr)
        assert_non_null(strstr(cecl_message(), place));
}

TEST(memory_that_is_not_of_the_gpu_is_refused_by_its_address)
{
    uint32_t *words = NULL;
    void *managed = NULL;
    char *plain = calloc(1, 4096);
    must(OPS(gpu[0])->words_alloc(gpu[0], 16, &words));
    must_cuda(cudaMallocManaged(&managed, 65536, cudaMemAttachGlobal));
    assert_refused(NULL, "NULL");
    assert_refused(plain, "unknown to CUDA");
    assert_refused(words, "pinned host memory");
    assert_refused(managed, "managed memory");
    must_cuda(cudaFree(managed));
    OPS(gpu[0])->words_free(gpu[0], words);
    free(plain);
}

TEST(memory_of_another_gpu_is_refused)
{
    need_two();
    must_cuda(cudaSetDevice(1));
    char *memory = allocate(BYTES);
    must_cuda(cudaSetDevice(0));
    assert_refused(memory, "memory of GPU 1");
    must_cuda(cudaFree(memory));
}

/* ---- ids */

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
    assert_int_equal(id_at(second + row.piece), third); /* the memory beside it stayed */
    refused(ceclInvalidUsage, "freed since",
            OPS(gpu[0])->region_export(gpu[0], &before, &exported));
    row_end(&row);
}

/* A region's use by a call changes nothing: a region is mapped and unmapped as a whole. */
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

static double nanoseconds_of_an_id(const void *ptr)
{
    enum { TIMES = 100000 };
    struct timespec begin, end;
    const uint64_t id = id_at(ptr);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < TIMES; i++) {
        uint64_t now = 0;
        if (OPS(gpu[0])->region_id(gpu[0], ptr, NULL, &now) != ceclSuccess || now != id)
            fail_msg("call %d: id %llu after %llu", i, (unsigned long long)now,
                     (unsigned long long)id);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
           TIMES;
}

TEST(id_stays_over_many_calls_and_its_cost_is_told)
{
    char *memory = allocate(BYTES);
    const struct row row = row_make();
    print_message("region_id: %.0f ns for cudaMalloc, %.0f ns for mapped memory\n",
                  nanoseconds_of_an_id(memory + 100), nanoseconds_of_an_id(row.base + 100));
    row_end(&row);
    must_cuda(cudaFree(memory));
}

/* ---- imports within this process */

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
    struct kit kit = kit_make(gpu[1]);
    struct memory target = memory_make(gpu[1], PATTERN_WORDS * 4);
    must(copy_one(gpu[1], kit.stream, target.at, memory, PATTERN_WORDS * 4));
    assert_true(ends_within(gpu[1], kit.stream, SOON_MS));
    assert_true(holds(target.at, PATTERN_WORDS * 4, 2));
    memory_end(&target);
    kit_end(&kit);
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

/* ---- imports in another process */

TEST(peer_reads_and_writes_an_allocation)
{
    char *memory = allocate(BYTES);
    assert_true(fill(memory, BYTES, 10));
    const struct cecl_region_export exported = export_of(memory + BYTES / 2);
    const uint64_t there = peer_imports(&exported, 0);
    peer_checks(there, BYTES, 10);
    peer_fills(there + 4096, BYTES - 4096, 11);
    assert_true(holds(memory + 4096, BYTES - 4096, 11));
    assert_true(holds(memory, 4096, 10));
    peer_closes(&exported, there);
    must_cuda(cudaFree(memory));
}

TEST(peer_reads_and_writes_small_allocations_of_one_block)
{
    const size_t sizes[] = {1000, 3000, 70000};
    char *memory[3];
    struct cecl_region_export exported[3];
    uint64_t there[3];
    for (uint32_t i = 0; i < 3; i++) {
        memory[i] = allocate(sizes[i]);
        assert_true(fill(memory[i], sizes[i], 20 + i));
        exported[i] = export_of(memory[i]);
    }
    for (uint32_t i = 0; i < 3; i++)
        there[i] = peer_imports(&exported[i], 0);
    for (uint32_t i = 0; i < 3; i++)
        peer_checks(there[i], sizes[i], 20 + i);
    peer_fills(there[1], sizes[1], 30);
    assert_true(holds(memory[0], sizes[0], 20));
    assert_true(holds(memory[1], sizes[1], 30));
    assert_true(holds(memory[2], sizes[2], 22));
    peer_closes(&exported[0], there[0]); /* the others stay */
    peer_checks(there[1], sizes[1], 30);
    peer_checks(there[2], sizes[2], 22);
    for (uint32_t i = 1; i < 3; i++)
        peer_closes(&exported[i], there[i]);
    for (uint32_t i = 0; i < 3; i++)
        must_cuda(cudaFree(memory[i]));
}

TEST(peer_may_import_an_allocation_twice)
{
    char *memory = allocate(BYTES);
    assert_true(fill(memory, BYTES, 40));
    const struct cecl_region_export exported = export_of(memory);
    const uint64_t first = peer_imports(&exported, 0), second = peer_imports(&exported, 0);
    peer_closes(&exported, first);
    peer_checks(second, BYTES, 40);
    peer_closes(&exported, second);
    must_cuda(cudaFree(memory));
}

TEST(peer_imports_what_was_allocated_anew)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < 4; i++) {
        char *memory = allocate(BYTES);
        const uint64_t id = id_at(memory);
        assert_int_not_equal(id, last);
        assert_true(fill(memory, BYTES, 50 + i));
        const struct cecl_region_export exported = export_of(memory);
        const uint64_t there = peer_imports(&exported, 0);
        peer_checks(there, BYTES, 50 + i);
        peer_closes(&exported, there);
        must_cuda(cudaFree(memory));
        last = id;
    }
}

TEST(peer_maps_handles_side_by_side_as_they_are_here)
{
    struct cecl_region_export exported[HANDLES];
    const struct row row = row_make();
    const size_t bytes = HANDLES * row.piece;
    assert_true(fill(row.base, bytes, 60));
    const uint64_t there = peer_reserves(bytes);
    for (size_t i = 0; i < HANDLES; i++) {
        exported[i] = export_of(row.base + i * row.piece);
        assert_int_equal(peer_imports(&exported[i], there + i * row.piece), there + i * row.piece);
        cecl_fds_close(exported[i].fd);
    }
    peer_checks(there, bytes, 60);
    peer_fills(there + 4096, bytes - 4096, 61); /* one copy over all granules */
    assert_true(holds(row.base + 4096, bytes - 4096, 61));
    for (size_t i = 0; i < HANDLES; i++)
        peer_closes(&exported[i], there + i * row.piece);
    peer_unreserves(there, bytes);
    row_end(&row);
}

TEST(import_of_a_descriptor_outlives_the_owners_mapping)
{
    const struct row row = row_make();
    assert_true(fill(row.base, row.piece, 70));
    const struct cecl_region_export exported = export_of(row.base);
    const uint64_t there = peer_imports(&exported, peer_reserves(row.piece));
    cecl_fds_close(exported.fd);
    row_end(&row);
    peer_checks(there, row.piece, 70);
    peer_closes(&exported, there);
    peer_unreserves(there, row.piece);
}

static int finish(void **state)
{
    close(to_peer);
    wait(NULL);
    return gpus_close(state);
}

int main(void)
{
    start_peer();
    const int skipped = fixture_start();
    return skipped ? skipped : tests_run(gpus_open, finish);
}
