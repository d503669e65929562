/* The kernels of splits.h. They give the same results as splits.c and splits_host.c, but many threads find
 * the places of blocks at the same time. */
#include "sm/copy.cuh"
#include "sm/meeting.cuh"
#include "sm/splits.h"

#define BLOCKS CECL_SPLITS_BLOCKS_MAX
#define THREADS CECL_SPLITS_THREADS
#define WARPS (THREADS / 32)
#define BEYOND (CECL_SPLITS_ROWS_MAX + 1u)

static_assert(BLOCKS == THREADS, "a thread for each block");
static_assert(CECL_SPLITS_CHUNK % (COPY_VECTORS * 32 * 16) == 0,
              "a chunk is copied in whole rounds");

DEVICE uint32_t bounded(uint64_t rows)
{
    return rows < BEYOND ? (uint32_t)rows : BEYOND;
}

DEVICE uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The sum of `mine` over all threads before this one. `room` is shared memory for THREADS numbers. */
DEVICE uint64_t sum_before(uint64_t mine, uint64_t *room)
{
    const uint32_t t = threadIdx.x;
    uint64_t sum = mine;
    for (uint32_t step = 1; step < THREADS; step *= 2) {
        room[t] = sum;
        __syncthreads();
        if (t >= step)
            sum += room[t - step];
        __syncthreads();
    }
    return sum - mine;
}

/* This rank's blocks in its sendbuff, indexed by the blocks' numbers. */
struct sent {
    cecl_splits_block blocks[BLOCKS];
    /* index of the first block that ends beyond sendbuff, in the order of the input; BLOCKS: none */
    uint32_t beyond;
};

DEVICE void find_sent(const cecl_splits &call, sent *sent, uint64_t *room)
{
    const cecl_splits_form &form = call.form;
    const uint32_t i = threadIdx.x, blocks = form.nranks * form.experts;
    const uint64_t rows = i < blocks ? bounded(call.splits[i]) : 0;
    if (i == 0)
        sent->beyond = BLOCKS;
    uint64_t begin = sum_before(rows, room);
    if (i < blocks) {
        const uint32_t block = cecl_splits_input(&form, i);
        if (call.offsets)
            begin = bounded(call.offsets[i]);
        const uint64_t place = least(begin, form.send_rows),
                       fits = least(rows, form.send_rows - place);
        sent->blocks[block] = {(uint32_t)fits, (uint32_t)place};
        if (fits < rows)
            atomicMin(&sent->beyond, i);
    }
    __syncthreads();
}

/* This rank's line without its blocks. */
DEVICE cecl_splits_line head_of(const cecl_splits &call, const sent &sent, uint32_t number)
{
    const uint64_t beyond =
        sent.beyond < BLOCKS ? 1 + cecl_splits_input(&call.form, sent.beyond) : 0;
    cecl_splits_line line = {call.recv_offset, call.scales_offset, beyond, 0};
    line.seal = cecl_splits_seal(&call, call.rank, number, &line);
    return line;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    cecl_splits_tell(const __grid_constant__ cecl_splits call)
{
    __shared__ sent sent;
    __shared__ uint64_t room[THREADS];
    const cecl_splits_form &form = call.form;
    const uint32_t blocks = form.nranks * form.experts;
    const uint64_t apart = cecl_splits_line_bytes(form.nranks, form.experts);
    if (__syncthreads_or(word_load(call.end) != 0)) /* the communicator has failed */
        return;
    const uint32_t number = word_load(call.number) + 1;
    find_sent(call, &sent, room);
    const cecl_splits_line mine = head_of(call, sent, number);
    for (uint32_t i = 0; i < form.nranks; i++) {
        const uint32_t peer = rank_after(call.rank, i, form.nranks);
        cecl_splits_line *line = (cecl_splits_line *)(call.slices + peer * call.slice +
                                                      call.table_offset + call.rank * apart);
        if (threadIdx.x < blocks)
            ((cecl_splits_block *)(line + 1))[threadIdx.x] = sent.blocks[threadIdx.x];
        if (threadIdx.x == 0)
            *line = mine;
    }
    if (threadIdx.x == 0)
        word_store(call.number, number);
    fence_sys(); /* flags that are copied next must not overtake the lines */
}

/* ---- places */

/* What each thread block knows: the numbers of rows in the table, and where groups of blocks begin. A group of rank
 * `to` is all blocks for one of its experts or, in the order `back`, all blocks that come from one rank. */
struct places {
    uint32_t rows[CECL_SPLITS_RANKS_MAX * BLOCKS]; /* [from][to * experts + expert] */
    uint64_t begin[BLOCKS];                        /* [to][group] */
    /* the lines, without their blocks. They are read only once, because a peer that has given up may overwrite its line
     * by its next call */
    cecl_splits_line lines[CECL_SPLITS_RANKS_MAX];
    uint32_t needed[CECL_SPLITS_RANKS_MAX];
};

DEVICE uint32_t groups_of(const cecl_splits_form &form)
{
    return form.back ? form.nranks : form.experts;
}

DEVICE uint32_t members_of(const cecl_splits_form &form)
{
    return form.back ? form.experts : form.nranks;
}

/* How many rows member `m` of a group has. */
DEVICE uint32_t rows_of(const cecl_splits_form &form, const places &p, uint32_t to, uint32_t group,
                        uint32_t m)
{
    const uint32_t from = form.back ? group : m, expert = form.back ? m : group;
    return p.rows[from * form.nranks * form.experts + to * form.experts + expert];
}

/* How many rows the first `members` members of a group have in all. */
DEVICE uint64_t rows_before(const cecl_splits_form &form, const places &p, uint32_t to,
                            uint32_t group, uint32_t members)
{
    uint64_t sum = 0;
    for (uint32_t m = 0; m < members; m++)
        sum += rows_of(form, p, to, group, m);
    return sum;
}

DEVICE const cecl_splits_line *line_of(const cecl_splits &call, uint32_t rank)
{
    const unsigned char *table = call.slices + call.rank * call.slice + call.table_offset;
    return cecl_splits_line_at(&call.form, table, rank);
}

/* For rank `to`: replaces each group's number of rows by the row at which the group begins. One thread calls it. */
DEVICE void begin_groups(const cecl_splits_form &form, places *p, uint32_t to)
{
    const uint32_t groups = groups_of(form);
    uint64_t next = 0, needed = 0;
    for (uint32_t g = 0; g < groups; g++) {
        const uint64_t rows = p->begin[to * groups + g];
        const uint64_t some = rows > 0 ? rows : form.align > 1;
        p->begin[to * groups + g] = next;
        needed = rows > 0 ? next + rows : needed;
        next += (some + form.align - 1) / form.align * form.align;
    }
    p->needed[to] = bounded(needed);
}

/* Reports the first trouble to the host, and ignores later ones. One thread calls it. */
DEVICE void tell_host(const cecl_splits &call, const cecl_splits_trouble &found)
{
    if (found.what == CECL_SPLITS_FINE || word_load(&call.trouble->what) != CECL_SPLITS_FINE)
        return;
    word_store(&call.trouble->rank, found.rank);
    word_store(&call.trouble->to, found.to);
    word_store(&call.trouble->expert, found.expert);
    word_store(&call.trouble->experts, found.experts);
    word_store(&call.trouble->rows, found.rows);
    word_store(&call.trouble->room, found.room);
    word_release(&call.trouble->what, found.what);
}

/* Reads the lines of all ranks. Returns true if rows may be moved by these lines: the communicator has not failed, and
 * all lines are from this call. All threads of a thread block get the same answer; thread blocks may get different
 * ones. */
DEVICE bool read_lines(const cecl_splits &call, places *p)
{
    const uint32_t r = threadIdx.x;
    const bool ended = word_load(call.end) != 0;
    bool is_other = false;
    if (r < call.form.nranks) {
        p->lines[r] = *line_of(call, r);
        is_other =
            p->lines[r].seal != cecl_splits_seal(&call, r, word_load(call.number), &p->lines[r]);
    }
    if (!__syncthreads_or(ended || is_other))
        return true;
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        const uint32_t others = __ballot_sync(0xffffffffu, is_other);
        if (threadIdx.x == 0 && others != 0 && !ended)
            tell_host(call, {CECL_SPLITS_OTHER, (uint32_t)__ffs((int)others) - 1, 0, 0, 0, 0, 0});
    }
    return false;
}

DEVICE void find_places(const cecl_splits &call, places *p)
{
    const cecl_splits_form &form = call.form;
    const uint32_t blocks = form.nranks * form.experts, groups = groups_of(form);
    for (uint32_t i = threadIdx.x; i < form.nranks * blocks; i += THREADS)
        p->rows[i] = bounded(cecl_splits_blocks(line_of(call, i / blocks))[i % blocks].rows);
    __syncthreads();
    if (threadIdx.x < form.nranks * groups)
        p->begin[threadIdx.x] =
            rows_before(form, *p, threadIdx.x / groups, threadIdx.x % groups, members_of(form));
    __syncthreads();
    if (threadIdx.x < form.nranks)
        begin_groups(form, p, threadIdx.x);
    __syncthreads();
}

/* Where the block from rank `from` to an expert of rank `to` lies in recvbuff, cut off where recvbuff ends. */
struct place {
    uint32_t at, rows;
};
DEVICE place place_of(const cecl_splits_form &form, const places &p, uint32_t from, uint32_t to,
                      uint32_t expert)
{
    const uint32_t group = form.back ? from : expert, member = form.back ? expert : from;
    const uint64_t at =
        least(p.begin[to * groups_of(form) + group] + rows_before(form, p, to, group, member),
              form.recv_rows);
    return {(uint32_t)at,
            (uint32_t)least(rows_of(form, p, to, group, member), form.recv_rows - at)};
}

/* ---- what only one thread block does */

DEVICE void write_out(const cecl_splits &call, const places &p)
{
    const cecl_splits_form &form = call.form;
    const uint32_t blocks = form.nranks * form.experts;
    uint32_t from, expert;
    if (threadIdx.x >= blocks)
        return;
    cecl_splits_received(&form, threadIdx.x, &from, &expert);
    const place mine = place_of(form, p, from, call.rank, expert);
    call.out[threadIdx.x] = mine.rows;
    call.out[blocks + threadIdx.x] = mine.at;
}

/* The expert of the first block that does not fit into the recvbuff of rank `to`. */
DEVICE uint32_t expert_beyond(const cecl_splits_form &form, const places &p, uint32_t to)
{
    uint32_t from, expert = 0;
    for (uint32_t i = 0; i < form.nranks * form.experts; i++) {
        cecl_splits_received(&form, i, &from, &expert);
        const uint32_t group = form.back ? from : expert, member = form.back ? expert : from;
        if (place_of(form, p, from, to, expert).rows < rows_of(form, p, to, group, member))
            break;
    }
    return expert;
}

/* One thread tells the host what does not fit, as cecl_splits_judge finds it. */
DEVICE void judge(const cecl_splits &call, const places &p)
{
    const cecl_splits_form &form = call.form;
    cecl_splits_trouble found = {CECL_SPLITS_FINE, 0, 0, 0, form.experts, 0, 0};
    for (uint32_t r = 0; r < form.nranks && found.what == CECL_SPLITS_FINE; r++) {
        const uint32_t beyond = (uint32_t)p.lines[r].beyond;
        if (beyond > 0)
            found = {CECL_SPLITS_SEND, r, (beyond - 1) / form.experts, (beyond - 1) % form.experts,
                     form.experts,     0, (uint32_t)form.send_rows};
    }
    for (uint32_t r = 0; r < form.nranks && found.what == CECL_SPLITS_FINE; r++)
        if (p.needed[r] > form.recv_rows)
            found = {
                CECL_SPLITS_RECV,        r, 0, expert_beyond(form, p, r), form.experts, p.needed[r],
                (uint32_t)form.recv_rows};
    tell_host(call, found);
}

/* ---- sending */

/* One of the two arrays: rows or scales. */
struct array {
    const void *at;
    uint64_t row_bytes;
    bool is_scales;
};

DEVICE uint64_t offset_of(const places &p, const array &a, uint32_t to)
{
    return a.is_scales ? p.lines[to].scales_offset : p.lines[to].recv_offset;
}

/* This rank's blocks in the order in which they are sent, which begins with the blocks for the next rank. */
struct blocks {
    uint32_t at[BLOCKS], rows[BLOCKS], place[BLOCKS];
    uint32_t chunks[BLOCKS + 1]; /* number of chunks of all blocks before */
};

/* Fills in a thread's block: its rows, and the place at the receiver. */
DEVICE void find_block(const cecl_splits &call, const places &p, blocks *b)
{
    const cecl_splits_form &form = call.form;
    const uint32_t i = threadIdx.x, to = rank_after(call.rank, 1 + i / form.experts, form.nranks),
                   expert = i % form.experts;
    const place there = place_of(form, p, call.rank, to, expert);
    b->at[i] = cecl_splits_blocks(line_of(call, call.rank))[to * form.experts + expert].at;
    b->place[i] = there.at;
    b->rows[i] = (uint32_t)cecl_splits_here(&form, b->at[i], there.rows);
}

/* Cuts an array's blocks into chunks. A block gets no chunks if the receiver's array does not lie in the receiver's
 * slice. Uses p->begin as room for sums. */
DEVICE void find_chunks(const cecl_splits &call, const array &a, places *p, blocks *b)
{
    const cecl_splits_form &form = call.form;
    const uint32_t i = threadIdx.x, count = form.nranks * form.experts;
    uint64_t chunks = 0;
    if (i < count) {
        const uint32_t to = rank_after(call.rank, 1 + i / form.experts, form.nranks);
        if (cecl_splits_lies(&call, offset_of(*p, a, to), form.recv_rows * a.row_bytes))
            chunks = (b->rows[i] * a.row_bytes + CECL_SPLITS_CHUNK - 1) / CECL_SPLITS_CHUNK;
    }
    const uint64_t before = sum_before(chunks, p->begin);
    if (i < count)
        b->chunks[i] = (uint32_t)before;
    if (i == count - 1)
        b->chunks[count] = (uint32_t)(before + chunks);
    __syncthreads();
}

/* The block that has chunk number `chunk`. */
DEVICE uint32_t block_with(const blocks &b, uint32_t count, uint32_t chunk)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (b.chunks[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

DEVICE void send_chunk(const cecl_splits &call, const array &a, const places &p, const blocks &b,
                       uint32_t chunk)
{
    const cecl_splits_form &form = call.form;
    const uint32_t i = block_with(b, form.nranks * form.experts, chunk),
                   to = rank_after(call.rank, 1 + i / form.experts, form.nranks);
    const uint64_t bytes = b.rows[i] * a.row_bytes,
                   first = (uint64_t)(chunk - b.chunks[i]) * CECL_SPLITS_CHUNK;
    warp_copy(call.slices + to * call.slice + offset_of(p, a, to) + b.place[i] * a.row_bytes +
                  first,
              (const unsigned char *)a.at + b.at[i] * a.row_bytes + first,
              (uint32_t)least(bytes - first, CECL_SPLITS_CHUNK));
}

/* All thread blocks send an array's chunks. A warp takes its next chunk as soon as it has copied one. */
DEVICE void send_array(const cecl_splits &call, const array &a, places *p, blocks *b)
{
    find_chunks(call, a, p, b);
    const uint32_t chunks = b->chunks[call.form.nranks * call.form.experts];
    for (uint32_t chunk = blockIdx.x * WARPS + threadIdx.x / 32; chunk < chunks;
         chunk += gridDim.x * WARPS)
        send_chunk(call, a, *p, *b, chunk);
    __syncthreads(); /* b->chunks is written again only after this */
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    cecl_splits_move(const __grid_constant__ cecl_splits call)
{
    extern __shared__ __align__(16) unsigned char memory[];
    places *p = (places *)memory;
    blocks *b = (blocks *)(p + 1);
    if (!read_lines(call, p))
        return;
    find_places(call, p);
    if (blockIdx.x == 0) {
        write_out(call, *p);
        if (threadIdx.x == 0)
            judge(call, *p);
    }
    if (threadIdx.x < call.form.nranks * call.form.experts)
        find_block(call, *p, b);
    __syncthreads(); /* from here on p->begin is room for sums */
    send_array(call, {call.rows, call.form.row_bytes, false}, p, b);
    if (call.form.scale_bytes > 0)
        send_array(call, {call.scales, call.form.scale_bytes, true}, p, b);
    fence_sys();
}

static_assert(sizeof(places) + sizeof(blocks) <= CECL_SPLITS_SHARED,
              "the shared memory fits into what a launch asks for");
