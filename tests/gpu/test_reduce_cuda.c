/* Reductions on a GPU give the host's bits (tests/unit/test_reduce_host.c says that those are right):
 * every type and operation, any alignment, both kernels, any number of SMs; and write nothing else.
 * Needs one GPU; with a second, sources lie there too. */
#include "../reduce_inputs.h"
#include "cuda_fixture.h"

#define SOURCES 9
#define ROOM (512 << 10) /* bytes of a buffer */
#define MARGIN 256       /* bytes before and behind dst that are looked at */
#define GUARD 0x5a

/* On the GPU and, the same bytes, here. The last one is dst. */
static unsigned char *device[SOURCES + 1], *here[SOURCES + 1];
static unsigned char *result; /* what came back */
static cudaStream_t stream;

static const char *const kernels[] = {"auto", "wide", "bulk"};

static void fill(ceclDataType_t type, uint64_t seed)
{
    for (int b = 0; b < SOURCES; b++) {
        random_fill(here[b], type, ROOM / formats[type].bytes, &seed);
        must_cuda(cudaMemcpy(device[b], here[b], ROOM, cudaMemcpyDefault));
    }
}

/* Where each buffer's elements begin: on a multiple of 16, all alike off it, or each otherwise. */
enum lie { ALIGNED, ALIKE, DIFFERENT, NLIES };
static size_t offset_of(enum lie lie, int buffer, ceclDataType_t type)
{
    const size_t off = lie == ALIGNED ? 0 : lie == ALIKE ? 3 : (size_t)buffer * 5 + 1;
    return MARGIN + off * formats[type].bytes;
}

/* `r` on the GPU, whose dst is buffer `home`, against `expected` [bytes]. */
static void gpu_gives(const struct cecl_reduction *r, int home, const unsigned char *expected,
                      enum lie lie)
{
    const size_t bytes = r->count * formats[r->type].bytes;
    const size_t at = (size_t)((unsigned char *)r->dst - device[home]);
    unsigned char *const before = here[home];
    must_cuda(cudaMemcpyAsync(device[home], before, ROOM, cudaMemcpyDefault, stream));
    must(cecl_reduce_cuda(stream, r));
    must_cuda(
        cudaMemcpyAsync(result, device[home], at + bytes + MARGIN, cudaMemcpyDefault, stream));
    must_cuda(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < at + bytes + MARGIN; i++) {
        const int inside = i >= at && i < at + bytes;
        const unsigned char wanted = inside ? expected[i - at] : before[i];
        if (result[i] != wanted)
            fail_msg(
                "%s %s of %u, %d elements, %s, %u SMs, lie %d: byte %d %s dst is %#x, %#x expected",
                op_names[r->op], formats[r->type].name, r->nsrc, (int)r->count, kernels[r->kernel],
                r->max_sms, (int)lie, (int)i - (int)at, inside ? "of" : "outside", result[i],
                wanted);
    }
}

/* With every kernel and several numbers of SMs. place: the source that dst is; -1: none. */
static void gpu_gives_what_the_host_gives(struct cecl_reduction r, enum lie lie, int place)
{
    static unsigned char expected[ROOM];
    static const uint32_t sms[] = {1, 4, 16, 0};
    const void *src[SOURCES], *host_src[SOURCES];
    const int home = place < 0 ? SOURCES : place;
    for (int s = 0; s < (int)r.nsrc; s++) {
        src[s] = device[s] + offset_of(lie, s, r.type);
        host_src[s] = here[s] + offset_of(lie, s, r.type);
    }
    r.divisor = r.nsrc;
    r.dst = expected;
    r.src = host_src;
    cecl_reduce_host(&r);
    r.dst = device[home] + offset_of(lie, home, r.type);
    r.src = src;
    for (int k = CECL_REDUCE_AUTO; k <= CECL_REDUCE_BULK; k++)
        for (int s = k == CECL_REDUCE_AUTO ? 3 : 0; s < (k == CECL_REDUCE_AUTO ? 4 : 3); s++) {
            r.kernel = (uint8_t)k;
            r.max_sms = sms[s];
            gpu_gives(&r, home, expected, lie);
        }
    if (place >= 0)
        must_cuda(cudaMemcpy(device[home], here[home], ROOM, cudaMemcpyDefault));
}

static void for_every_pair(void (*visit)(struct cecl_reduction))
{
    for (int type = 0; type < CECL_NUM_TYPES; type++) {
        fill((ceclDataType_t)type, 11 + (uint64_t)type);
        for (int op = 0; op < CECL_NUM_RED_OPS; op++)
            if (op != ceclAvg || formats[type].fraction > 0)
                visit((struct cecl_reduction){.type = (ceclDataType_t)type, .op = (ceclRedOp_t)op});
    }
}

static void visit_counts_and_lies(struct cecl_reduction r)
{
    static const uint64_t counts[] = {1, 13, 1000, 50021};
    for (r.nsrc = 1; r.nsrc <= SOURCES; r.nsrc += r.nsrc == 5 ? 3 : 1)
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
            r.count = counts[c];
            gpu_gives_what_the_host_gives(r, (enum lie)((r.nsrc + c) % NLIES), -1);
        }
    r.nsrc = 4;
    for (int lie = 0; lie < NLIES; lie++)
        gpu_gives_what_the_host_gives(r, (enum lie)lie, -1);
}

static void every_type_and_operation_gives_the_hosts_bits(void **state)
{
    (void)state;
    for_every_pair(visit_counts_and_lies);
}

static void visit_places(struct cecl_reduction r)
{
    r.count = 30011;
    r.nsrc = 4;
    gpu_gives_what_the_host_gives(r, ALIGNED, 0);
    gpu_gives_what_the_host_gives(r, ALIKE, 3);
    gpu_gives_what_the_host_gives(r, ALIGNED, 2);
}

static void in_place_gives_the_hosts_bits(void **state)
{
    (void)state;
    for_every_pair(visit_places);
}

/* Every pattern of the small types, alone: widened, and narrowed. */
static void every_pattern_passes_as_on_the_host(void **state)
{
    static const ceclDataType_t small[] = {ceclFloat16, ceclBfloat16, ceclFloat8e4m3,
                                           ceclFloat8e5m2};
    (void)state;
    for (int t = 0; t < 4; t++) {
        const unsigned bytes = formats[small[t]].bytes;
        for (uint32_t i = 0; i < 65536; i++)
            memcpy(here[0] + MARGIN + i * bytes, &i, bytes);
        must_cuda(cudaMemcpy(device[0], here[0], ROOM, cudaMemcpyDefault));
        for (int op = 0; op < CECL_NUM_RED_OPS; op++)
            gpu_gives_what_the_host_gives(
                (struct cecl_reduction){
                    .type = small[t], .op = (ceclRedOp_t)op, .nsrc = 1, .count = 65536},
                ALIGNED, -1);
    }
}

static void as_many_sources_as_are_promised(void **state)
{
    static const void *src[CECL_REDUCE_CUDA_SOURCES_MAX], *host_src[CECL_REDUCE_CUDA_SOURCES_MAX];
    static unsigned char expected[ROOM];
    (void)state;
    fill(ceclFloat32, 5);
    for (int s = 0; s < CECL_REDUCE_CUDA_SOURCES_MAX; s++) {
        src[s] = device[s % SOURCES] + 16 * s;
        host_src[s] = here[s % SOURCES] + 16 * s;
    }
    struct cecl_reduction r = {.dst = expected,
                               .src = host_src,
                               .nsrc = CECL_REDUCE_CUDA_SOURCES_MAX,
                               .count = 20000,
                               .type = ceclFloat32};
    cecl_reduce_host(&r);
    r.src = src;
    r.dst = device[SOURCES] + MARGIN;
    for (r.kernel = CECL_REDUCE_AUTO; r.kernel <= CECL_REDUCE_BULK; r.kernel++)
        gpu_gives(&r, SOURCES, expected, ALIGNED);
}

/* As large as takes the measured choice to the bulk kernel, many times around its ring. */
static void a_large_reduction_gives_the_hosts_bits(void **state)
{
    const uint64_t count = (8 << 20) + 5;
    unsigned char *there = NULL, *in = malloc(5 * count), *out = malloc(5 * count);
    const void *src[4], *host_src[4];
    uint64_t seed = 3;
    (void)state;
    assert_true(in && out);
    must_cuda(cudaMalloc((void **)&there, 5 * count));
    random_fill(in, ceclFloat8e4m3, 4 * count, &seed);
    must_cuda(cudaMemcpy(there, in, 4 * count, cudaMemcpyDefault));
    for (size_t s = 0; s < 4; s++) {
        src[s] = there + s * (8 << 20);
        host_src[s] = in + s * (8 << 20);
    }
    struct cecl_reduction r = {.dst = out,
                               .src = host_src,
                               .nsrc = 4,
                               .count = count,
                               .type = ceclFloat8e4m3,
                               .op = ceclAvg,
                               .divisor = 3};
    cecl_reduce_host(&r);
    r.src = src;
    r.dst = there + 4 * (8 << 20) + 16;
    must(cecl_reduce_cuda(stream, &r));
    must_cuda(cudaStreamSynchronize(stream));
    must_cuda(cudaMemcpy(in, r.dst, count, cudaMemcpyDefault));
    assert_memory_equal(in, out, count);
    must_cuda(cudaFree(there));
    free(in);
    free(out);
}

static void sources_of_a_peer_give_the_hosts_bits(void **state)
{
    unsigned char *own[SOURCES + 1];
    int reaches = 0;
    (void)state;
    need_two();
    must_cuda(cudaDeviceCanAccessPeer(&reaches, 0, 1));
    if (!reaches)
        skip();
    must_cuda(cudaDeviceEnablePeerAccess(1, 0));
    memcpy(own, device, sizeof(own));
    must_cuda(cudaSetDevice(1));
    for (int b = 1; b < SOURCES; b += 2)
        must_cuda(cudaMalloc((void **)&device[b], ROOM));
    must_cuda(cudaSetDevice(0));
    for (int t = 0; t < 2; t++) {
        const ceclDataType_t type = t ? ceclBfloat16 : ceclInt32;
        fill(type, 77);
        for (uint32_t nsrc = 2; nsrc <= SOURCES; nsrc++)
            gpu_gives_what_the_host_gives(
                (struct cecl_reduction){.type = type, .nsrc = nsrc, .count = 50021}, ALIKE, -1);
    }
    for (int b = 1; b < SOURCES; b += 2)
        must_cuda(cudaFree(device[b]));
    memcpy(device, own, sizeof(own));
}

static void what_cannot_be_reduced_is_refused(void **state)
{
    const void *src[CECL_REDUCE_CUDA_SOURCES_MAX + 1] = {device[0], device[1]};
    (void)state;
    struct cecl_reduction good = {
        .dst = device[2], .src = src, .nsrc = 2, .count = 8, .type = ceclInt32};
    struct cecl_reduction r = good;
    must(cecl_reduce_cuda(stream, &r));
    r.op = ceclAvg;
    refused(ceclInvalidArgument, "ceclAvg of int32", cecl_reduce_cuda(stream, &r));
    r = good;
    r.nsrc = 0;
    refused(ceclInvalidArgument, "of 0 sources: 1 to 128", cecl_reduce_cuda(stream, &r));
    r.nsrc = CECL_REDUCE_CUDA_SOURCES_MAX + 1;
    refused(ceclInvalidArgument, "of 129 sources: 1 to 128", cecl_reduce_cuda(stream, &r));
    r = good;
    r.dst = device[2] + 2;
    refused(ceclInvalidArgument, "aligned to its elements", cecl_reduce_cuda(stream, &r));
    r = good;
    src[1] = device[1] + 1;
    refused(ceclInvalidArgument, "aligned to its elements", cecl_reduce_cuda(stream, &r));
    must_cuda(cudaStreamSynchronize(stream));
}

static int start(void **state)
{
    gpus_open(state);
    must_cuda(cudaStreamCreate(&stream));
    must_cuda(cudaMallocHost((void **)&result, ROOM));
    must(cecl_reduce_cuda_prepare());
    for (int b = 0; b <= SOURCES; b++) {
        must_cuda(cudaMalloc((void **)&device[b], ROOM));
        must_cuda(cudaMallocHost((void **)&here[b], ROOM));
    }
    memset(here[SOURCES], GUARD, ROOM);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operation_gives_the_hosts_bits),
        cmocka_unit_test(in_place_gives_the_hosts_bits),
        cmocka_unit_test(every_pattern_passes_as_on_the_host),
        cmocka_unit_test(as_many_sources_as_are_promised),
        cmocka_unit_test(a_large_reduction_gives_the_hosts_bits),
        cmocka_unit_test(sources_of_a_peer_give_the_hosts_bits),
        cmocka_unit_test(what_cannot_be_reduced_is_refused),
    };
    const int skipped = fixture_start();
    return skipped ? skipped : cmocka_run_group_tests(tests, start, gpus_close);
}
