/* Reductions on a GPU give the same bits as on the host (tests/unit/test_reduce_host.c checks the host's): every type and
 * operation, any alignment, both kernels, any number of SMs, one or several destinations. They write nothing else. Before
 * and after the reduction their kernels also write and await flags. One GPU is enough, with the host as the peers;
 * results and flags also lie on a second GPU if there is one. (In the multi-rank tests, reductions read peers' memory.)
 *
 * CECL_TEST_SHORT=1: only a few sizes, and no kernel waits for something that comes after its launch, because tools
 * that observe kernels may delay that until the kernel has ended. */
#include "../reduce_inputs.h"
#include "cuda_fixture.h"

#define SOURCES 9
#define ROOM (512 << 10) /* bytes of a buffer */
#define MARGIN 256       /* guard bytes before and after dst */
#define GUARD 0x5a
#define ALSO 3      /* destinations besides dst */
#define SHORT_S 280 /* time limit under a tool that observes kernels */

/* The buffers on the GPU, and the same bytes on the host. The last one is dst. */
static unsigned char *device[SOURCES + 1], *here[SOURCES + 1];
static unsigned char *result; /* bytes copied back */
static cudaStream_t stream;

static const char *const kernels[] = {"auto", "wide", "bulk"};

static void fill(ceclDataType_t type, uint64_t seed)
{
    for (int b = 0; b < SOURCES; b++) {
        random_fill(here[b], type, ROOM / formats[type].bytes, &seed);
        must_cuda(cudaMemcpy(device[b], here[b], ROOM, cudaMemcpyDefault));
    }
}

static struct cecl_reduction reduction_of(ceclDataType_t type, uint64_t count, uint32_t nsrc,
                                          const void *const *src, void *dst, uint32_t max_sms)
{
    return (struct cecl_reduction){
        .dst = dst, .src = src, .nsrc = nsrc, .max_sms = max_sms, .count = count, .type = type};
}

static ceclDataType_t result_type(const struct cecl_reduction *r)
{
    return r->widens ? ceclFloat32 : r->type;
}

/* Where each buffer's elements begin: ALIKE is the same offset from a multiple of 16 in all buffers. */
enum lie { ALIGNED, ALIKE, DIFFERENT, NLIES };
static size_t offset_of(enum lie lie, int buffer, ceclDataType_t type)
{
    const size_t off = lie == ALIGNED ? 0 : lie == ALIKE ? 3 : (size_t)buffer * 5 + 1;
    return MARGIN + off * formats[type].bytes;
}

/* Runs `r` on the GPU with buffer `home` as dst, and compares with `expected` [bytes]. */
static void gpu_gives(const struct cecl_reduction *r, int home, const unsigned char *expected,
                      enum lie lie)
{
    const size_t bytes = r->count * formats[result_type(r)].bytes;
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

/* Runs every kernel with several numbers of SMs. place: the source that is also dst; -1: none. */
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
    r.dst = device[home] + offset_of(lie, home, result_type(&r));
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
        if (is_short() && type != ceclFloat32 && type != ceclBfloat16 && type != ceclFloat8e4m3)
            continue;
        fill((ceclDataType_t)type, 11 + (uint64_t)type);
        for (int op = 0; op < CECL_NUM_RED_OPS; op++)
            if (op != ceclAvg || formats[type].fraction > 0)
                visit((struct cecl_reduction){.type = (ceclDataType_t)type, .op = (ceclRedOp_t)op});
    }
}

static void visit_counts_and_lies(struct cecl_reduction r)
{
    static const uint64_t counts[] = {1, 13, 1000, 50021};
    for (r.nsrc = is_short() ? 3 : 1; r.nsrc <= (is_short() ? 3 : SOURCES);
         r.nsrc += r.nsrc == 5 ? 3 : 1)
        for (size_t c = 0; c < (is_short() ? 3 : sizeof(counts) / sizeof(*counts)); c++) {
            r.count = counts[c];
            gpu_gives_what_the_host_gives(r, (enum lie)((r.nsrc + c) % NLIES), -1);
        }
    r.nsrc = 4;
    for (int lie = 0; lie < NLIES; lie++)
        gpu_gives_what_the_host_gives(r, (enum lie)lie, -1);
}

TEST(every_type_and_operation_gives_the_hosts_bits)
{
    for_every_pair(visit_counts_and_lies);
}

TEST(sums_that_widen_give_the_hosts_bits)
{
    static const ceclDataType_t types[] = {ceclFloat16, ceclBfloat16};
    for (int i = 0; i < 4; i++) {
        fill(types[i % 2], 31 + (uint64_t)i);
        visit_counts_and_lies((struct cecl_reduction){
            .type = types[i % 2], .op = i < 2 ? ceclSum : ceclAvg, .widens = true});
    }
}

/* Tries each number of sources, because each has another scale and divisor. */
TEST_IF(is_short(), averages_of_the_largest_numbers_are_the_hosts_and_finite, NULL, NULL)
{
    static const ceclDataType_t types[] = {ceclFloat16, ceclBfloat16, ceclFloat32, ceclFloat64};
    for (int t = 0; t < 4; t++) {
        struct cecl_reduction r = {.type = types[t], .op = ceclAvg, .count = 20011};
        const unsigned bytes = formats[r.type].bytes;
        uint64_t seed = 9;
        for (int b = 0; b < SOURCES; b++) {
            large_fill(here[b], r.type, ROOM / bytes, &seed);
            must_cuda(cudaMemcpy(device[b], here[b], ROOM, cudaMemcpyDefault));
        }
        for (r.nsrc = 2; r.nsrc <= SOURCES; r.nsrc++)
            for (int lie = 0; lie < NLIES; lie++) {
                gpu_gives_what_the_host_gives(r, (enum lie)lie, -1);
                for (uint64_t i = 0; lie == ALIGNED && i < r.count; i++) {
                    uint64_t got = 0;
                    memcpy(&got, result + MARGIN + i * bytes, bytes);
                    assert_false(not_finite(r.type, got));
                }
            }
    }
}

static void visit_places(struct cecl_reduction r)
{
    r.count = 30011;
    r.nsrc = 4;
    gpu_gives_what_the_host_gives(r, ALIGNED, 0);
    gpu_gives_what_the_host_gives(r, ALIKE, 3);
    gpu_gives_what_the_host_gives(r, ALIGNED, 2);
}

TEST_IF(!is_short(), in_place_gives_the_hosts_bits, NULL, NULL)
{
    for_every_pair(visit_places);
}

/* Every bit pattern of the small types, as the only source: it is widened, and narrowed. */
TEST_IF(!is_short(), every_pattern_passes_as_on_the_host, NULL, NULL)
{
    static const ceclDataType_t small[] = {ceclFloat16, ceclBfloat16, ceclFloat8e4m3,
                                           ceclFloat8e5m2};
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

TEST_IF(!is_short(), as_many_sources_as_are_promised, NULL, NULL)
{
    static const void *src[CECL_REDUCE_CUDA_SOURCES_MAX], *host_src[CECL_REDUCE_CUDA_SOURCES_MAX];
    static unsigned char expected[ROOM];
    fill(ceclFloat32, 5);
    for (int s = 0; s < CECL_REDUCE_CUDA_SOURCES_MAX; s++) {
        src[s] = device[s % SOURCES] + 16 * s;
        host_src[s] = here[s % SOURCES] + 16 * s;
    }
    struct cecl_reduction r =
        reduction_of(ceclFloat32, 20000, CECL_REDUCE_CUDA_SOURCES_MAX, host_src, expected, 0);
    cecl_reduce_host(&r);
    r.src = src;
    r.dst = device[SOURCES] + MARGIN;
    for (r.kernel = CECL_REDUCE_AUTO; r.kernel <= CECL_REDUCE_BULK; r.kernel++)
        gpu_gives(&r, SOURCES, expected, ALIGNED);
}

static const struct way {
    const char *name;
    uint8_t kernel;
    enum lie lie;
    uint32_t nsrc, sms;
} ways[] = {
    {"wide, 4 sources", CECL_REDUCE_WIDE, ALIGNED, 4, 4},
    {"wide, 2 sources, one block", CECL_REDUCE_WIDE, ALIKE, 2, 1},
    {"any number of sources", CECL_REDUCE_WIDE, ALIGNED, 5, 16},
    {"any alignment", CECL_REDUCE_WIDE, DIFFERENT, 5, 3},
    {"bulk", CECL_REDUCE_BULK, ALIKE, 4, 4},
    {"bulk, one block", CECL_REDUCE_BULK, ALIGNED, 9, 1},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* Computes fp32 sums of the data in `here` into `expected`. Returns the arguments for the same sums on the GPU. */
static struct cecl_reduction reduction_by(const struct way *way, uint64_t count, const void **src,
                                          void *expected)
{
    const void *host_src[SOURCES];
    for (int s = 0; s < (int)way->nsrc; s++) {
        src[s] = device[s] + offset_of(way->lie, s, ceclFloat32);
        host_src[s] = here[s] + offset_of(way->lie, s, ceclFloat32);
    }
    struct cecl_reduction r =
        reduction_of(ceclFloat32, count, way->nsrc, host_src, expected, way->sms);
    r.kernel = way->kernel;
    cecl_reduce_host(&r);
    r.src = src;
    r.dst = device[SOURCES] + offset_of(way->lie, SOURCES, ceclFloat32);
    return r;
}

TEST(every_place_gets_the_hosts_bits)
{
    static const uint64_t counts[] = {1, 13, 1000, 50021};
    static unsigned char expected[ROOM];
    unsigned char *extra[ALSO];
    void *also[ALSO];
    const void *src[SOURCES];
    fill(ceclFloat32, 21);
    for (int a = 0; a < ALSO; a++)
        must_cuda(cudaMalloc((void **)&extra[a], ROOM));
    for (size_t w = 0; w < WAYS; w++)
        for (size_t c = 0; c < (is_short() ? 3 : 4); c++) {
            struct cecl_reduction r = reduction_by(&ways[w], counts[c], src, expected);
            const size_t bytes = counts[c] * sizeof(float);
            for (r.nalso = 1; r.nalso <= ALSO; r.nalso++) {
                for (int a = 0; a < ALSO; a++) {
                    /* the last destination has another alignment, so no vectors fit all */
                    also[a] = extra[a] + offset_of(ways[w].lie, SOURCES, ceclFloat32) +
                              (a == 2 ? sizeof(float) : 0);
                    must_cuda(cudaMemcpy(extra[a], here[SOURCES], ROOM, cudaMemcpyDefault));
                }
                r.also = also;
                gpu_gives(&r, SOURCES, expected, ways[w].lie);
                for (int a = 0; a < ALSO; a++) {
                    const size_t at = (size_t)((unsigned char *)also[a] - extra[a]);
                    const bool gets = a < (int)r.nalso;
                    must_cuda(cudaMemcpy(result, extra[a], at + bytes + MARGIN, cudaMemcpyDefault));
                    for (size_t i = 0; i < at + bytes + MARGIN; i++) {
                        const bool inside = gets && i >= at && i < at + bytes;
                        if (result[i] != (inside ? expected[i - at] : GUARD))
                            fail_msg("%s, %zu elements: byte %td of place %d of %u is %#x",
                                     ways[w].name, (size_t)r.count, (ptrdiff_t)i - (ptrdiff_t)at, a,
                                     r.nalso, result[i]);
                    }
                }
            }
        }
    for (int a = 0; a < ALSO; a++)
        must_cuda(cudaFree(extra[a]));
}

/* The result replaces all sources, as in an in-place all-reduce. */
static void replaces_its_sources(struct cecl_reduction r, enum lie lie)
{
    static unsigned char expected[ROOM];
    const void *host_src[SOURCES], *src[SOURCES];
    void *also[ALSO];
    const size_t at = offset_of(lie, 0, ceclFloat32), bytes = r.count * sizeof(float);
    for (int s = 0; s < (int)r.nsrc; s++) {
        host_src[s] = here[s] + at;
        src[s] = device[s] + at;
        must_cuda(cudaMemcpyAsync(device[s], here[s], ROOM, cudaMemcpyDefault, stream));
    }
    for (int a = 0; a + 1 < (int)r.nsrc; a++)
        also[a] = device[a + 1] + at;
    r.src = host_src;
    r.dst = expected;
    cecl_reduce_host(&r);
    r.src = src;
    r.dst = device[0] + at;
    r.also = also;
    r.nalso = r.nsrc - 1;
    must(cecl_reduce_cuda(stream, &r));
    for (int s = 0; s < (int)r.nsrc; s++) {
        must_cuda(cudaMemcpyAsync(result, device[s], ROOM, cudaMemcpyDefault, stream));
        must_cuda(cudaStreamSynchronize(stream));
        if (memcmp(result, here[s], at) != 0 || memcmp(result + at, expected, bytes) != 0 ||
            memcmp(result + at + bytes, here[s] + at + bytes, ROOM - at - bytes) != 0)
            fail_msg(
                "%s, %u sources, %zu elements, %u SMs, lie %d: source %d is not the result, or "
                "more",
                kernels[r.kernel], r.nsrc, (size_t)r.count, r.max_sms, lie, s);
    }
}

TEST(a_result_replaces_all_of_its_sources)
{
    static const uint64_t counts[] = {1, 13, 5021, 120021};
    fill(ceclFloat32, 22);
    for (size_t c = 0; c < (is_short() ? 3 : 4); c++)
        for (uint8_t kernel = CECL_REDUCE_WIDE; kernel <= CECL_REDUCE_BULK; kernel++)
            for (uint32_t nsrc = 2; nsrc <= ALSO + 1; nsrc++)
                for (uint32_t sms = 1; sms <= 32; sms += 7)
                    for (int lie = ALIGNED; lie <= ALIKE; lie++)
                        replaces_its_sources((struct cecl_reduction){.type = ceclFloat32,
                                                                     .kernel = kernel,
                                                                     .nsrc = nsrc,
                                                                     .max_sms = sms,
                                                                     .count = counts[c]},
                                             (enum lie)lie);
}

/* ---- meetings: this GPU is rank ME of PEERS + 1; the host writes the peers' words */

#define ME 1
#define PEERS 3
#define ROW 16
#define EVERYTHING \
    (CECL_MEET_SIGNAL_FIRST | CECL_MEET_WAIT_FIRST | CECL_MEET_SIGNAL_LAST | CECL_MEET_WAIT_LAST | \
     CECL_MEET_DONE)

static struct {
    uint32_t rows[PEERS + 1][ROW]; /* [holder][writer] */
    uint32_t ended, done;
} * words;                /* pinned */
static uint32_t *leaving; /* on the GPU */
/* streams that wait neither for each other nor for plain copies */
static cudaStream_t meeting, beside;

static void words_start(uint32_t base)
{
    for (int holder = 0; holder <= PEERS; holder++)
        for (int writer = 0; writer <= PEERS; writer++)
            words->rows[holder][writer] = base;
    words->ended = words->done = 0;
}

static struct cecl_meeting meeting_of(uint32_t does, uint32_t base)
{
    return (struct cecl_meeting){.does = does,
                                 .first = base + 1,
                                 .last = base + 2,
                                 .rank = ME,
                                 .nranks = PEERS + 1,
                                 .row = words->rows[ME],
                                 .word = &words->rows[0][ME],
                                 .apart = sizeof(words->rows[0]),
                                 .ended = &words->ended,
                                 .leaving = leaving,
                                 .done = &words->done,
                                 .done_value = 77};
}

/* Lets all peers reach the barrier, except the first `but` ranks after ME. */
static void peers_come(uint32_t value, int but)
{
    for (int i = but; i < PEERS; i++)
        host_writes(&words->rows[ME][(ME + 1 + i) % (PEERS + 1)], value);
}

static uint32_t word_now(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static bool peers_are_told(uint32_t value)
{
    for (int i = 1; i <= PEERS; i++)
        if (word_now(&words->rows[(ME + i) % (PEERS + 1)][ME]) != value)
            return false;
    return true;
}

static bool peers_are_told_within(uint32_t value, int ms)
{
    const int64_t deadline = cecl_deadline(ms);
    while (!peers_are_told(value))
        if (cecl_now_ms() > deadline)
            return false;
    return true;
}

static bool stream_ends_within(cudaStream_t which, int ms)
{
    const int64_t deadline = cecl_deadline(ms);
    while (cudaStreamQuery(which) == cudaErrorNotReady)
        if (cecl_now_ms() > deadline)
            return false;
    return cudaStreamQuery(which) == cudaSuccess;
}

/* If the condition is false, ends all waits of the kernel before the test fails, because nothing else would. */
#define or_release(condition, base) \
    do { \
        if (!(condition)) { \
            peers_come((base) + 2, 0); \
            (void)!cudaStreamSynchronize(meeting); \
            fail_msg("%s: not so: %s", way->name, #condition); \
        } \
    } while (0)

static bool nothing_is_written(size_t bytes)
{
    must_cuda(cudaMemcpyAsync(result, device[SOURCES], bytes, cudaMemcpyDefault, beside));
    if (!stream_ends_within(beside, SOON_MS))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (result[i] != GUARD)
            return false;
    return true;
}

static bool result_is(const struct cecl_reduction *r, const unsigned char *expected)
{
    const size_t bytes = r->count * sizeof(float);
    must_cuda(cudaMemcpyAsync(result, r->dst, bytes, cudaMemcpyDefault, beside));
    return stream_ends_within(beside, SOON_MS) && memcmp(result, expected, bytes) == 0;
}

static uint32_t blocks_left(void)
{
    uint32_t left = 1;
    must_cuda(cudaMemcpyAsync(&left, leaving, sizeof(left), cudaMemcpyDefault, beside));
    must_cuda(cudaStreamSynchronize(beside));
    return left;
}

static void dst_is_guarded(void)
{
    must_cuda(cudaMemcpy(device[SOURCES], here[SOURCES], ROOM, cudaMemcpyDefault));
    must_cuda(cudaDeviceSynchronize());
}

/* Checks a whole meeting. Sources get their real data only after the kernel has begun to wait for peers. */
static void a_kernel_meets(const struct way *way, uint32_t base)
{
    static unsigned char expected[ROOM];
    const void *src[SOURCES];
    uint64_t seed = 600 + base;
    fill(ceclFloat32, 500 + base % 100); /* not the real data */
    dst_is_guarded();
    for (int b = 0; b < SOURCES; b++)
        random_fill(here[b], ceclFloat32, ROOM / sizeof(float), &seed);
    struct cecl_reduction r = reduction_by(way, 50021, src, expected);
    const struct cecl_meeting all = meeting_of(EVERYTHING, base);
    r.meeting = &all;
    words_start(base);
    must(cecl_reduce_cuda(meeting, &r));

    or_release(peers_are_told_within(base + 1, SOON_MS), base);
    for (int b = 0; b < SOURCES; b++)
        must_cuda(cudaMemcpyAsync(device[b], here[b], ROOM, cudaMemcpyDefault, beside));
    or_release(stream_ends_within(beside, SOON_MS), base);
    peers_come(base + 1, 1); /* all but one */
    pause_ms(20);
    or_release(cudaStreamQuery(meeting) == cudaErrorNotReady, base);
    or_release(peers_are_told(base + 1), base);
    or_release(nothing_is_written(ROOM), base);
    peers_come(base + 1, 0);

    or_release(peers_are_told_within(base + 2, SOON_MS), base);
    or_release(result_is(&r, expected), base);
    peers_come(base + 2, 1);
    pause_ms(20);
    or_release(cudaStreamQuery(meeting) == cudaErrorNotReady, base);
    or_release(word_now(&words->done) == 0, base);
    peers_come(base + 2, 0);

    or_release(stream_ends_within(meeting, SOON_MS), base);
    assert_int_equal(words->done, 77);
    assert_int_equal(words->rows[ME][ME], base);
    assert_int_equal(blocks_left(), 0);
}

TEST_IF(!is_short(), a_reduction_sends_and_awaits_the_flags_around_it, NULL, NULL)
{
    for (size_t w = 0; w < WAYS; w++) {
        a_kernel_meets(&ways[w], 0);
        a_kernel_meets(&ways[w], UINT32_MAX - 1); /* the first value is the largest */
    }
}

/* The kernel does what `does` says, and nothing else. It never waits: its words are set before. */
static void a_kernel_does(const struct way *way, uint32_t does, bool ended)
{
    static unsigned char expected[ROOM];
    const void *src[SOURCES];
    const uint32_t base = 40;
    const struct cecl_meeting some = meeting_of(does, base);
    struct cecl_reduction r = reduction_by(way, is_short() ? 5021 : 50021, src, expected);
    const uint32_t told = ended                             ? base
                          : (does & CECL_MEET_SIGNAL_LAST)  ? base + 2
                          : (does & CECL_MEET_SIGNAL_FIRST) ? base + 1
                                                            : base;
    r.meeting = &some;
    dst_is_guarded();
    words_start(base);
    words->ended = ended;
    peers_come(base + 2, 0);
    must(cecl_reduce_cuda(meeting, &r));
    if (!stream_ends_within(meeting, is_short() ? 60000 : SOON_MS))
        fail_msg("%s, does %u: it does not end", way->name, does);
    if (!peers_are_told(told))
        fail_msg("%s, does %u, ended %d: %u at the next rank, %u expected", way->name, does, ended,
                 words->rows[ME + 1][ME], told);
    assert_true(result_is(&r, expected));
    assert_int_equal(words->rows[ME][ME], base);
    assert_int_equal(words->done, does & CECL_MEET_DONE ? 77 : 0);
    assert_int_equal(blocks_left(), 0);
}

/* If `ended`, a communicator has failed: its kernels write no more words to peers, end their waits, and set `done`. */
TEST(a_meeting_is_as_much_as_is_asked_for_and_a_word_silences_it)
{
    fill(ceclFloat32, 31);
    for (int ended = 0; ended < 2; ended++)
        for (size_t w = 0; w < WAYS; w++)
            for (uint32_t does = 0; does <= EVERYTHING; does++)
                a_kernel_does(&ways[w], does, ended);
}

/* A hundred kernels in a row: each must find the count of leaving blocks at 0 again. */
TEST_IF(!is_short(), meetings_follow_each_other, NULL, NULL)
{
    const void *src[SOURCES];
    static unsigned char expected[ROOM];
    fill(ceclFloat32, 33);
    words_start(0);
    peers_come(1000, 0);
    for (uint32_t i = 0; i < 100; i++) {
        struct cecl_reduction r = reduction_by(&ways[i % WAYS], 5021 + i, src, expected);
        struct cecl_meeting all = meeting_of(EVERYTHING, 2 * i);
        all.done_value = i + 1;
        r.meeting = &all;
        must(cecl_reduce_cuda(meeting, &r));
    }
    assert_true(stream_ends_within(meeting, SOON_MS));
    assert_true(peers_are_told(200));
    assert_int_equal(words->done, 100);
    assert_int_equal(blocks_left(), 0);
}

/* ---- with a second GPU: memory there that both GPUs access, and a stream of it */

static unsigned char *there, *out;
static uint32_t (*told)[2]; /* two ranks' words, [reader][writer]: rank 1 reads told[1][0] */
static uint32_t *never;     /* value 0 */
static cudaStream_t stream_there;

static void open_there(void)
{
    need_two();
    reach(0, 1);
    reach(1, 0);
    must(cecl_reduce_cuda_prepare());
    must_cuda(cudaMalloc((void **)&there, ROOM));
    must_cuda(cudaMalloc((void **)&out, ROOM));
    must_cuda(cudaMalloc((void **)&told, 2 * sizeof(*told)));
    must_cuda(cudaMemset(told, 0, 2 * sizeof(*told)));
    must_cuda(cudaMalloc((void **)&never, sizeof(*never)));
    must_cuda(cudaMemset(never, 0, sizeof(*never)));
    must_cuda(cudaStreamCreateWithFlags(&stream_there, cudaStreamNonBlocking));
    must_cuda(cudaDeviceSynchronize());
}

static void close_there(void)
{
    must_cuda(cudaFree(there));
    must_cuda(cudaFree(out));
    must_cuda(cudaFree(told));
    must_cuda(cudaFree(never));
    must_cuda(cudaStreamDestroy(stream_there));
    must_cuda(cudaSetDevice(0));
}

static struct cecl_meeting waits_for(uint32_t round)
{
    return (struct cecl_meeting){.does = CECL_MEET_WAIT_FIRST,
                                 .first = round,
                                 .rank = 1,
                                 .nranks = 2,
                                 .row = told[1],
                                 .word = &told[0][1],
                                 .apart = sizeof(*told),
                                 .ended = never};
}

/* The reduction by which GPU 1, after the wait, copies `got` to `out`. */
static struct cecl_reduction taking(const struct way *way, const void *const *got, uint64_t count,
                                    uint32_t sms, const struct cecl_meeting *waits)
{
    struct cecl_reduction r =
        reduction_of(ceclFloat32, count, 1, got, out + ((uintptr_t)*got & 15), sms);
    r.kernel = way->kernel;
    r.meeting = waits;
    return r;
}

static void all_was_there(const struct way *way, const struct cecl_reduction *takes,
                          const unsigned char *expected, uint32_t round)
{
    const size_t bytes = takes->count * sizeof(float);
    must_cuda(cudaMemcpy(result, takes->dst, bytes, cudaMemcpyDefault));
    if (memcmp(result, expected, bytes) != 0)
        fail_msg("%s, round %u: the word came before all data", way->name, round);
}

/* Ends GPU 1's wait, also after a failure. */
static void all_is_told(uint32_t round)
{
    (void)!cudaMemcpy(&told[1][0], &round, sizeof(round), cudaMemcpyDefault);
    must_cuda(cudaStreamSynchronize(stream_there));
}

/* GPU 1 waits in a kernel for GPU 0's word, which comes after GPU 0's data. GPU 0 sends the word by the kernel that
 * wrote the data, or by a copy on another stream, after an event. Copies fill the links in some rounds. */
static void a_told_peer_has_all(bool by_copy, uint64_t count)
{
    static unsigned char expected[ROOM];
    uint32_t *value = NULL;
    cudaEvent_t written;
    struct crowd crowd;
    open_there();
    crowd_open(&crowd, 2);
    words_start(0);
    must_cuda(cudaSetDevice(0));
    must_cuda(cudaMalloc((void **)&value, sizeof(*value)));
    must_cuda(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    for (uint32_t round = 1; round <= 40 * WAYS; round++) {
        const struct way *way = &ways[round % WAYS];
        const void *src[SOURCES], *got = there + offset_of(way->lie, SOURCES, ceclFloat32);
        void *also = (void *)(uintptr_t)got;
        must_cuda(cudaSetDevice(0));
        fill(ceclFloat32, round);
        must_cuda(cudaMemcpy(value, &round, sizeof(round), cudaMemcpyDefault));
        must_cuda(cudaDeviceSynchronize());
        struct cecl_reduction r = reduction_by(way, count, src, expected);
        const struct cecl_meeting tells = {.does = CECL_MEET_SIGNAL_LAST,
                                           .last = round,
                                           .rank = 0,
                                           .nranks = 2,
                                           .row = told[0],
                                           .word = &told[0][0],
                                           .apart = sizeof(*told),
                                           .ended = &words->ended,
                                           .leaving = leaving};
        const struct cecl_meeting waits = waits_for(round);
        const struct cecl_reduction takes =
            taking(way, &got, count, by_copy ? 32 : way->sms, &waits);
        r.also = &also;
        r.nalso = 1;
        r.max_sms = by_copy ? 32 : way->sms;
        r.meeting = by_copy ? NULL : &tells;
        crowd_come(&crowd, round / WAYS % 2 ? 2 : 0);
        must_cuda(cudaSetDevice(1));
        must(cecl_reduce_cuda(stream_there, &takes));
        (void)!cudaSetDevice(0);
        const ceclResult_t sent = cecl_reduce_cuda(meeting, &r);
        if (by_copy) {
            (void)!cudaEventRecord(written, meeting);
            (void)!cudaStreamWaitEvent(beside, written, 0);
            (void)!cudaMemcpyAsync(&told[1][0], value, sizeof(*value), cudaMemcpyDefault, beside);
        }
        const bool ends = sent == ceclSuccess &&
                          stream_ends_within(by_copy ? beside : meeting, SOON_MS) &&
                          stream_ends_within(stream_there, SOON_MS);
        all_is_told(round);
        must(sent);
        assert_true(ends);
        all_was_there(way, &takes, expected, round);
    }
    must_cuda(cudaEventDestroy(written));
    must_cuda(cudaFree(value));
    crowd_close(&crowd);
    close_there();
}

TEST_IF(!is_short(), a_peer_that_was_told_has_all_of_the_result, NULL, NULL)
{
    a_told_peer_has_all(false, 50021);
}

TEST_IF(!is_short(), a_peer_that_a_copy_told_has_all_of_the_result, NULL, NULL)
{
    a_told_peer_has_all(true, 100021);
}

/* A kernel of GPU 0 and a copy engine of GPU `copier` write adjacent bytes of `to` at the same time; `to` is on either
 * GPU, and the boundary is unaligned. No byte is lost, and no other byte changes. */
static void side_by_side(uint64_t *x, unsigned char *to, int copier, cudaStream_t copies,
                         const unsigned char *from, uint32_t round)
{
    const size_t word = sizeof(uint32_t), first = MARGIN + random_bits(x) % 32 * word,
                 written = (1 + random_bits(x) % 700) * word,
                 copied = (1 + random_bits(x) % 5000) * word;
    const bool copy_first = random_bits(x) % 2;
    const size_t kernel_at = copy_first ? first + copied : first,
                 copy_at = copy_first ? first : first + written;
    const void *src = device[0] + kernel_at;
    const struct cecl_meeting waits = meeting_of(CECL_MEET_WAIT_FIRST, 0);
    struct cecl_reduction r = reduction_of(ceclUint32, written / word, 1, &src, to + kernel_at,
                                           1 + (uint32_t)(random_bits(x) % 8));
    struct cecl_memop gate = {&words->done, 1, CECL_MEMOP_WAIT};
    r.meeting = &waits;
    words_start(0);
    must_cuda(cudaMemcpy(to, here[SOURCES], ROOM, cudaMemcpyDefault));
    must_cuda(cudaSetDevice(copier));
    must(OPS(gpu[copier])->memops(gpu[copier], (ceclStream_t)copies, &gate, 1));
    must_cuda(cudaMemcpyAsync(to + copy_at, from + copy_at, copied, cudaMemcpyDefault, copies));
    must_cuda(cudaSetDevice(0));
    must(cecl_reduce_cuda(meeting, &r));
    for (volatile int wait = (int)(random_bits(x) % 3000); wait > 0; wait--)
        ;
    if (round % 2)
        host_writes(&words->done, 1);
    for (volatile int wait = (int)(random_bits(x) % 8000); wait > 0; wait--)
        ;
    peers_come(1, 0);
    host_writes(&words->done, 1);
    must_cuda(cudaStreamSynchronize(meeting));
    must_cuda(cudaStreamSynchronize(copies));
    const size_t end = first + written + copied;
    must_cuda(cudaMemcpy(result, to, end + MARGIN, cudaMemcpyDefault));
    for (size_t i = 0; i < end + MARGIN; i++) {
        const bool inside = i >= first && i < end;
        const unsigned char wanted = !inside                                ? GUARD
                                     : i >= copy_at && i < copy_at + copied ? here[1][i]
                                                                            : here[0][i];
        if (result[i] != wanted)
            fail_msg("round %u: byte %zu is %#x, not %#x; the kernel wrote %zu at %zu, GPU %d's "
                     "copy engine %zu at %zu",
                     round, i, result[i], wanted, written, kernel_at, copier, copied, copy_at);
    }
}

TEST_IF(!is_short(), a_kernel_and_a_copy_engine_write_side_by_side, NULL, NULL)
{
    uint64_t x = 91;
    open_there();
    fill(ceclUint32, 35);
    must_cuda(cudaMemcpy(out, here[1], ROOM, cudaMemcpyDefault));
    for (uint32_t round = 0; round < 3000; round++) {
        side_by_side(&x, there, 0, beside, device[1], round);
        side_by_side(&x, device[SOURCES], 1, stream_there, out, round);
    }
    close_there();
}

#define HALF (4 << 20) /* bytes that each GPU reduces, half of the input */

static struct side {
    unsigned char *in, *got; /* [2 * HALF] */
    cudaStream_t stream;
} sides[2];

static void sides_open(const uint32_t *in[2])
{
    for (int g = 0; g < 2; g++) {
        must_cuda(cudaSetDevice(g));
        must(cecl_reduce_cuda_prepare());
        must_cuda(cudaMalloc((void **)&sides[g].in, 2 * HALF));
        must_cuda(cudaMalloc((void **)&sides[g].got, 2 * HALF));
        must_cuda(cudaStreamCreateWithFlags(&sides[g].stream, cudaStreamNonBlocking));
        must_cuda(cudaMemcpy(sides[g].in, in[g], 2 * HALF, cudaMemcpyDefault));
    }
}

static void sides_close(void)
{
    for (int g = 0; g < 2; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamDestroy(sides[g].stream));
        must_cuda(cudaFree(sides[g].in));
        must_cuda(cudaFree(sides[g].got));
    }
    memset(sides, 0, sizeof(sides));
}

static void sides_poison(void)
{
    for (int g = 0; g < 2; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaMemset(sides[g].got, GUARD, 2 * HALF));
        must_cuda(cudaDeviceSynchronize());
    }
}

/* Each GPU reduces its half of both inputs, and writes the result to both GPUs. */
static void sides_reduce(uint32_t sms)
{
    for (int g = 0; g < 2; g++) {
        const size_t half = (size_t)g * HALF;
        const void *src[] = {sides[0].in + half, sides[1].in + half};
        void *also = sides[1 - g].got + half;
        struct cecl_reduction r =
            reduction_of(ceclUint32, HALF / sizeof(uint32_t), 2, src, sides[g].got + half, sms);
        r.also = &also;
        r.nalso = 1;
        r.kernel = CECL_REDUCE_BULK;
        must_cuda(cudaSetDevice(g));
        must(cecl_reduce_cuda(sides[g].stream, &r));
    }
    for (int g = 0; g < 2; g++)
        must_cuda(cudaStreamSynchronize(sides[g].stream));
}

/* If the link is full, a kernel's writes to a peer pile up, and its reads of the tile in shared memory wait behind them.
 * New data must not replace the tile before these reads. */
TEST_IF(!is_short(), a_tile_stays_until_it_was_read, NULL, NULL)
{
    static const uint32_t sms[] = {8, 16, 32};
    const size_t count = 2 * HALF / sizeof(uint32_t);
    uint32_t *plain[3] = {NULL, NULL, NULL}; /* the two inputs, and their sum */
    uint32_t *got = NULL;
    struct crowd crowd;
    bool has = false;
    need_two();
    must(cecl_reduce_cuda_has_bulk(&has));
    if (!has)
        skip_because("this GPU has no bulk copies");
    crowd_open(&crowd, 2);
    must_cuda(cudaMallocHost((void **)&got, 2 * HALF));
    for (int i = 0; i < 3; i++) {
        plain[i] = malloc(2 * HALF);
        assert_non_null(plain[i]);
    }
    for (size_t i = 0; i < count; i++) {
        plain[0][i] = pattern_word(1, i);
        plain[1][i] = pattern_word(2, i);
        plain[2][i] = plain[0][i] + plain[1][i];
    }
    sides_open((const uint32_t *[]){plain[0], plain[1]});
    for (uint32_t round = 0; round < 90; round++) {
        sides_poison();
        crowd_come(&crowd, 1);
        sides_reduce(sms[round % 3]);
        for (int g = 0; g < 2; g++) {
            size_t wrong = 0, first = 0;
            must_cuda(cudaMemcpy(got, sides[g].got, 2 * HALF, cudaMemcpyDefault));
            for (size_t i = 0; i < count; i++)
                if (got[i] != plain[2][i] && wrong++ == 0)
                    first = i;
            if (wrong > 0)
                fail_msg("round %u, %u SMs: GPU %d has %zu wrong words of %zu; the first, %zu, is "
                         "%#x, not %#x",
                         round, sms[round % 3], g, wrong, count, first, got[first],
                         plain[2][first]);
        }
    }
    sides_close();
    crowd_close(&crowd);
    for (int i = 0; i < 3; i++)
        free(plain[i]);
    must_cuda(cudaFreeHost(got));
    must_cuda(cudaSetDevice(0));
}

TEST_IF(!is_short(), what_cannot_be_reduced_is_refused, NULL, NULL)
{
    const void *src[CECL_REDUCE_CUDA_SOURCES_MAX + 1] = {device[0], device[1]};
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
    must_cuda(cudaStreamCreateWithFlags(&meeting, cudaStreamNonBlocking));
    must_cuda(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    must_cuda(cudaHostAlloc((void **)&words, sizeof(*words), cudaHostAllocPortable));
    must_cuda(cudaMalloc((void **)&leaving, sizeof(*leaving)));
    must_cuda(cudaMemset(leaving, 0, sizeof(*leaving)));
    must_cuda(cudaDeviceSynchronize());
    return 0;
}

int main(void)
{
    const int skipped = fixture_start();
    if (is_short())
        alarm(SHORT_S);
    return skipped ? skipped : tests_run(start, gpus_close);
}
