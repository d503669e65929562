/* Checks a side's result: the input is random, the output is filled before the call, and every byte is compared.
 * The expected bytes are computed on the host: each word is a hash of its place. This takes about as long as copying
 * the result back. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The key of the bytes that rank `from` sends as its block `block`. */
static uint64_t key_of(uint64_t seed, int from, int block)
{
    return mix(mix(seed + 0x9e3779b97f4a7c15u) + ((uint64_t)from << 32) + (uint64_t)block);
}

static uint64_t word(uint64_t key, size_t index)
{
    return mix(key + index * 0x9e3779b97f4a7c15u);
}

static void fill(unsigned char *out, uint64_t key, size_t bytes)
{
    const size_t words = bytes / 8, rest = bytes % 8;
    for (size_t i = 0; i < words; i++) {
        const uint64_t w = word(key, i);
        memcpy(out + 8 * i, &w, 8);
    }
    const uint64_t last = word(key, words);
    memcpy(out + 8 * words, &last, rest);
}

/* How many bytes differ between two words. */
static long long bytes_differing(uint64_t a, uint64_t b)
{
    long long count = 0;
    for (uint64_t x = a ^ b; x; x >>= 8)
        count += (x & 0xff) != 0;
    return count;
}

static long long count_wrong(const unsigned char *got, uint64_t key, size_t bytes)
{
    const size_t words = bytes / 8, rest = bytes % 8;
    long long wrong = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t g;
        memcpy(&g, got + 8 * i, 8);
        if (g != word(key, i))
            wrong += bytes_differing(g, word(key, i));
    }
    const uint64_t last = word(key, words);
    uint64_t g = 0, want = 0;
    memcpy(&g, got + 8 * words, rest);
    memcpy(&want, &last, rest);
    return wrong + bytes_differing(g, want);
}

#define UNTOUCHED 0xA5 /* what outputs hold before a call */

static long long count_changed(const unsigned char *got, size_t bytes)
{
    long long changed = 0;
    for (size_t i = 0; i < bytes; i++)
        changed += got[i] != UNTOUCHED;
    return changed;
}

static bool move(const struct run *run, void *dst, const void *src, size_t bytes)
{
    BENCH_TRY(run, ceclMemcpyAsync(run->comm, dst, src, bytes, run->stream));
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    return true;
}

/* Fills the output, then the input: in place the input lies inside the output. */
static bool prepare(struct side *side, const struct run *run, const void *send, size_t block,
                    uint64_t seed)
{
    const size_t all = recv_bytes_of(run, block), mine = send_bytes_of(run, block);
    memset(run->host, UNTOUCHED, all);
    if (!move(run, side->recv, run->host, all))
        return false;
    for (size_t at = 0; at < mine; at += block) {
        const uint64_t key = key_of(seed, run->rank, (int)(at / block));
        if (run->options.op->reduces)
            elements_fill(run->host + at, run->options.type, key, block);
        else
            fill(run->host + at, key, block);
    }
    return move(run, (void *)(uintptr_t)send, run->host, mine);
}

/* --corrupt=byte changes one byte of rank 0's result. */
static bool spoil(struct side *side, const struct run *run, size_t all)
{
    unsigned char *victim = (unsigned char *)side->recv + all / 2, byte;
    if (run->options.corrupt != CORRUPT_BYTE || run->rank != 0)
        return true;
    if (!move(run, &byte, victim, 1))
        return false;
    byte ^= 1;
    return move(run, victim, &byte, 1);
}

/* Checks the block to which all ranks contributed. */
static long long count_wrong_sums(const struct run *run, size_t block, uint64_t seed)
{
    const int mine = run->options.op->block_per_rank ? run->rank : 0;
    uint64_t *keys = malloc((size_t)run->nranks * sizeof(*keys));
    if (!keys)
        return -1;
    for (int r = 0; r < run->nranks; r++)
        keys[r] = key_of(seed, r, mine);
    const long long wrong = elements_wrong(run->host, result_type(&run->options), keys, run->nranks,
                                           recv_bytes_of(run, block));
    free(keys);
    return wrong;
}

/* Checks blocks that came from one rank each. */
static long long count_wrong_blocks(const struct run *run, size_t block, uint64_t seed)
{
    const struct op *op = run->options.op;
    const int mine = op->block_per_rank ? run->rank : 0;
    long long wrong = 0;
    if (op->passes_on) {
        const int from = neighbors_of(op, run->rank, run->nranks).from;
        return from < 0 ? count_changed(run->host, block)
                        : count_wrong(run->host, key_of(seed, from, mine), block);
    }
    for (int r = 0; r < run->nranks; r++)
        wrong += count_wrong(run->host + (size_t)r * block, key_of(seed, r, mine), block);
    return wrong;
}

long long check_side(struct side *side, const struct run *run, size_t block, bool in_place,
                     uint64_t seed)
{
    const size_t all = recv_bytes_of(run, block);
    const void *send = send_place(side, run, block, in_place);
    if (!prepare(side, run, send, block, seed))
        return -1;
    run->team->barrier(); /* no peer may write before this rank's output is filled */
    if (run->options.corrupt != CORRUPT_SKIP && !side->call(side, run, send, block))
        return -1;
    if (ceclStreamSynchronize(run->comm, run->stream) != ceclSuccess) {
        complain(run, side->name, ceclGetLastError(run->comm));
        return -1;
    }
    if (!spoil(side, run, all) || !move(run, run->host, side->recv, all))
        return -1;
    return run->options.op->reduces ? count_wrong_sums(run, block, seed)
                                    : count_wrong_blocks(run, block, seed);
}
