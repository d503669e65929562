/* Calls by splits of the fuzzer; see splits.h. */
#include "splits.h"

#include "ok.h"

#define RANKS 8
#define BLOCKS 64 /* most rows of a rank */
#define ROW 40    /* most bytes of a row */
#define SCALE 8
#define ROWS 64 /* most rows of a buffer */
#define SHIFT 16
#define UNTOUCHED 0x5A
/* larger than any buffer, but sums of it do not wrap around */
#define HUGE_ROWS (UINT64_C(1) << 40)

enum op { VDEV, DISPATCH, COMBINE, OPS };
enum array { SEND, RECV, SEND_SCALES, RECV_SCALES, SPLITS, OUT, ARRAYS };

static struct call {
    enum op op;
    int nranks;
    ceclExperts_t experts;
    size_t row, sendrows, recvrows, blocks; /* blocks of a rank */
    size_t shift[ARRAYS];                   /* offset of the array in the memory, in bytes */
    uint64_t splits[RANKS][BLOCKS], offsets[RANKS][BLOCKS];
} c;

/* A rank's memory, and its expected contents. */
static uint8_t *memory[ARRAYS][RANKS];
static uint8_t recv[RANKS][ROWS * ROW + SHIFT], scales[RANKS][ROWS * SCALE + SHIFT];
static uint64_t out[RANKS][2 * BLOCKS];

/* ---- drawing */

static uint64_t draw_rows(struct input *in, unsigned most)
{
    const unsigned how = take_byte(in);
    return how == 255 ? take_word(in) : how % 3 == 0 ? 0 : how % (most + 1);
}

static void draw(struct input *in, int nranks)
{
    c = (struct call){.op = (enum op)take_below(in, OPS), .nranks = nranks, .row = 1};
    c.experts.experts = c.op == VDEV ? 1 : 1 + take_below(in, BLOCKS / RANKS);
    c.experts.align = c.op == VDEV ? 1 : 1 + take_below(in, 9);
    c.experts.scalebytes = c.op == VDEV ? 0 : take_below(in, SCALE + 1);
    c.row += take_below(in, ROW);
    c.sendrows = take_below(in, 4) == 0 ? take_below(in, ROWS + 1) : ROWS;
    c.recvrows = 1 + (take_below(in, 4) == 0 ? take_below(in, ROWS) : ROWS - 1);
    c.blocks = (size_t)nranks * c.experts.experts;
    for (int i = SEND; i < SPLITS; i++)
        c.shift[i] = take_below(in, SHIFT);
    const unsigned most = 1 + take_below(in, 12);
    for (int r = 0; r < nranks; r++)
        for (size_t i = 0; i < c.blocks; i++) {
            c.splits[r][i] = draw_rows(in, most);
            c.offsets[r][i] = c.op == COMBINE ? draw_rows(in, ROWS) : 0;
        }
}

/* ---- the model */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint8_t byte_of(int rank, enum array array, size_t at)
{
    return (uint8_t)(at * 7 + at / 251 + (size_t)rank * 61 + (size_t)array * 17);
}

/* The index of a block in its sender's arrays. */
static size_t index_of(int to, size_t expert)
{
    return c.op == COMBINE ? expert * (size_t)c.nranks + (size_t)to
                           : (size_t)to * c.experts.experts + expert;
}

/* Where a block begins in its sender's buffer. */
static uint64_t begin_of(int from, size_t index)
{
    uint64_t before = 0;
    if (c.op == COMBINE)
        return least(c.offsets[from][index], HUGE_ROWS);
    for (size_t i = 0; i < index; i++)
        before += least(c.splits[from][i], HUGE_ROWS);
    return before;
}

/* How many rows of a block its sender has. */
static uint64_t sent(int from, size_t index)
{
    const uint64_t begin = begin_of(from, index);
    return begin >= c.sendrows ? 0 : least(c.splits[from][index], c.sendrows - begin);
}

/* The first rank that sends more rows than it has, or -1. */
static int sends_too_many(void)
{
    for (int r = 0; r < c.nranks; r++)
        for (size_t i = 0; i < c.blocks; i++)
            if (sent(r, i) < c.splits[r][i])
                return r;
    return -1;
}

/* Where a block begins in its receiver's buffer, after the `next` rows before it. */
static uint64_t arrive(int to, int from, size_t index, size_t place, uint64_t next)
{
    const uint64_t rows = sent(from, index), at = least(next, c.recvrows),
                   fits = least(rows, c.recvrows - at), first = begin_of(from, index);
    out[to][place] = fits;
    out[to][c.blocks + place] = at;
    for (size_t i = 0; i < fits * c.row; i++)
        recv[to][c.shift[RECV] + at * c.row + i] = byte_of(from, SEND, (size_t)first * c.row + i);
    for (size_t i = 0; i < fits * c.experts.scalebytes; i++)
        scales[to][c.shift[RECV_SCALES] + at * c.experts.scalebytes + i] =
            byte_of(from, SEND_SCALES, (size_t)first * c.experts.scalebytes + i);
    return next + rows;
}

/* Computes a rank's output. Returns whether the rank has room for it. */
static bool receive(int to)
{
    const size_t majors = c.op == COMBINE ? (size_t)c.nranks : c.experts.experts,
                 minors = c.op == COMBINE ? c.experts.experts : (size_t)c.nranks;
    uint64_t next = 0, end = 0;
    memset(recv[to], UNTOUCHED, sizeof(recv[to]));
    memset(scales[to], UNTOUCHED, sizeof(scales[to]));
    for (size_t i = 0; i < majors; i++) {
        const uint64_t first = next, align = c.op == COMBINE ? 1 : c.experts.align;
        for (size_t j = 0; j < minors; j++) {
            const size_t from = c.op == COMBINE ? i : j, expert = c.op == COMBINE ? j : i;
            const uint64_t before = next;
            next = arrive(to, (int)from, index_of(to, expert), i * minors + j, next);
            end = next > before ? next : end;
        }
        next += next == first && align > 1;
        next += (align - next % align) % align;
    }
    return end <= c.recvrows;
}

/* The rank that the error must name; -1: no error. */
static int model(void)
{
    int bad = sends_too_many();
    for (int r = 0; r < c.nranks; r++)
        if (!receive(r) && bad < 0)
            bad = r;
    return bad;
}

/* ---- making the call */

static size_t bytes_of(enum array array)
{
    return array == SPLITS || array == OUT                ? 2 * BLOCKS * sizeof(uint64_t)
           : array == SEND_SCALES || array == RECV_SCALES ? ROWS * SCALE + SHIFT
                                                          : ROWS * ROW + SHIFT;
}

static void fill(int rank)
{
    for (int i = 0; i < ARRAYS; i++)
        memset(memory[i][rank], UNTOUCHED, bytes_of((enum array)i));
    for (size_t i = 0; i < c.sendrows * c.row; i++)
        memory[SEND][rank][c.shift[SEND] + i] = byte_of(rank, SEND, i);
    for (size_t i = 0; i < c.sendrows * c.experts.scalebytes; i++)
        memory[SEND_SCALES][rank][c.shift[SEND_SCALES] + i] = byte_of(rank, SEND_SCALES, i);
    memcpy(memory[SPLITS][rank], c.splits[rank], c.blocks * sizeof(uint64_t));
    memcpy(memory[SPLITS][rank] + c.blocks * sizeof(uint64_t), c.offsets[rank],
           c.blocks * sizeof(uint64_t));
}

static uint8_t *at(enum array array, int rank)
{
    return memory[array][rank] + c.shift[array];
}

static ceclResult_t call(int rank, ceclComm_t comm)
{
    const uint64_t *splits = (const void *)memory[SPLITS][rank];
    uint64_t *told = (void *)memory[OUT][rank];
    if (c.op == VDEV)
        return ceclAlltoAllvDevice(at(SEND, rank), c.sendrows, splits, at(RECV, rank), c.recvrows,
                                   told, c.row, ceclUint8, comm, NULL);
    c.experts.sendscales = at(SEND_SCALES, rank);
    c.experts.recvscales = at(RECV_SCALES, rank);
    return (c.op == DISPATCH ? ceclDispatch : ceclCombine)(
        at(SEND, rank), c.sendrows, splits, at(RECV, rank), c.recvrows, told, &c.experts, c.row,
        ceclUint8, comm, NULL);
}

static void compare(const char *what, int rank, const void *got, const void *wanted, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        REQUIRE(((const uint8_t *)got)[i] == ((const uint8_t *)wanted)[i],
                "splits, call %d among %d ranks: byte %zu of %s of rank %d is wrong", (int)c.op,
                c.nranks, i, what, rank);
}

/* Every rank gets the same result: success, or an error that names the rank whose buffer is too
 * small. */
static void check_error(int rank, ceclComm_t comm, int bad)
{
    ceclResult_t error = ceclInternalError;
    char name[16];
    snprintf(name, sizeof(name), "rank %d", bad);
    OK(ceclCommGetAsyncError(comm, &error));
    REQUIRE(error == (bad < 0 ? ceclSuccess : ceclInvalidUsage),
            "splits: rank %d gets result %d, and rank %d has too little room: %s", rank, (int)error,
            bad, ceclGetLastError(comm));
    REQUIRE(bad < 0 || strstr(ceclGetLastError(comm), name), "splits: rank %d is not named: %s",
            bad, ceclGetLastError(comm));
}

bool splits_run(struct input *in, int nranks, ceclComm_t comms[])
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_ALLOW;
    draw(in, nranks);
    const int bad = model();
    const bool grouped = take_below(in, 2);
    for (int i = 0; i < ARRAYS; i++) {
        OK(ceclGroupStart());
        for (int r = 0; r < nranks; r++)
            OK(ceclMemAlloc(comms[r], (void **)&memory[i][r], bytes_of((enum array)i)));
        OK(ceclGroupEnd());
    }
    for (int r = 0; r < nranks; r++) {
        fill(r);
        OK(ceclSetOptions(comms[r], &options));
    }
    if (grouped)
        OK(ceclGroupStart());
    for (int r = 0; r < nranks; r++)
        OK(call(r, comms[r]));
    if (grouped)
        OK(ceclGroupEnd());
    for (int r = 0; r < nranks; r++)
        REQUIRE(ceclStreamSynchronize(comms[r], NULL) == ceclSuccess || bad >= 0, "%s",
                ceclGetLastError(comms[r]));
    for (int r = 0; r < nranks; r++) {
        check_error(r, comms[r], bad);
        compare("recvbuff", r, memory[RECV][r], recv[r], sizeof(recv[r]));
        compare("recvscales", r, memory[RECV_SCALES][r], scales[r], sizeof(scales[r]));
        compare("recvsplits", r, memory[OUT][r], out[r], 2 * c.blocks * sizeof(uint64_t));
    }
    for (int i = 0; i < ARRAYS && bad < 0; i++)
        for (int r = 0; r < nranks; r++)
            OK(ceclMemFree(comms[r], memory[i][r]));
    return bad < 0;
}

ceclResult_t splits_misuse(unsigned which, ceclComm_t comm, char *send, char *recvbuff)
{
    uint64_t splits[2 * BLOCKS] = {0}, told[2 * BLOCKS], scale = 0;
    ceclExperts_t experts = {.experts = 1, .align = 1};
    switch (which) {
    case 0: return ceclAlltoAllvDevice(send, 4, NULL, recvbuff, 4, told, 1, ceclUint8, comm, NULL);
    case 1:
        return ceclAlltoAllvDevice(send, 4, splits, recvbuff, 0, told, 1, ceclUint8, comm, NULL);
    case 2: /* memory that peers' kernels cannot access */
        return ceclAlltoAllvDevice(send, 4, splits, &scale, 4, told, 1, ceclUint8, comm, NULL);
    case 3: experts.experts = BLOCKS * RANKS * RANKS + 1; break;
    case 4: experts.align = 0; break;
    case 5: experts.scalebytes = 1; break; /* without arrays */
    default:
        return ceclCombine(send, 4, splits, recvbuff, 4, splits + 1, &experts, 1, ceclUint8, comm,
                           NULL);
    }
    return ceclDispatch(send, 4, splits, recvbuff, 4, told, &experts, 1, ceclUint8, comm, NULL);
}
