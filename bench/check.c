/* Whether a side's result is right: random input, poisoned output, every byte compared. Expected
 * bytes are computed, never copied. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Byte i of what rank `rank` contributes. Eight bytes share one hash of their place. */
static uint64_t word(uint64_t seed, int rank, size_t index)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u + index;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    return (x ^ (x >> 27)) * 0x94d049bb133111ebu;
}

static void fill(unsigned char *out, uint64_t seed, int rank, size_t from, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        const uint64_t w = word(seed, rank, (from + i) / 8);
        const size_t at = (from + i) % 8, n = bytes - i < 8 - at ? bytes - i : 8 - at;
        memcpy(out + i, (const unsigned char *)&w + at, n);
        i += n;
    }
}

static bool upload(const struct run *run, void *dst, const void *src, size_t bytes)
{
    BENCH_TRY(run, ceclMemcpyAsync(run->comm, dst, src, bytes, run->stream));
    BENCH_TRY(run, ceclStreamSynchronize(run->comm, run->stream));
    return true;
}

static long long count_wrong(const unsigned char *got, const unsigned char *want, size_t bytes)
{
    long long wrong = 0;
    if (memcmp(got, want, bytes) != 0)
        for (size_t i = 0; i < bytes; i++)
            wrong += got[i] != want[i];
    return wrong;
}

/* The bytes of the result that come from rank `from`. */
static void expect(const struct run *run, unsigned char *out, uint64_t seed, int from, size_t block)
{
    const size_t offset = run->options.op == ceclOpAllGather ? 0 : (size_t)run->rank * block;
    fill(out, seed, from, offset, block);
}

static long long run_and_compare(struct side *side, const struct run *run, const void *send,
                                 size_t block, uint64_t seed, unsigned char *host)
{
    const size_t all = (size_t)run->nranks * block;
    unsigned char *want = malloc(block + 1);
    long long wrong = 0;
    if (!want || !side->call(side, run, send, block) ||
        ceclMemcpyAsync(run->comm, host, side->recv, all, run->stream) != ceclSuccess ||
        ceclStreamSynchronize(run->comm, run->stream) != ceclSuccess) {
        free(want);
        complain(run, side->name, ceclGetLastError(run->comm));
        return -1;
    }
    if (run->options.corrupt && run->rank == 0)
        host[all / 2] ^= 1;
    for (int r = 0; r < run->nranks; r++) {
        expect(run, want, seed, r, block);
        wrong += count_wrong(host + (size_t)r * block, want, block);
    }
    free(want);
    return wrong;
}

long long check_side(struct side *side, const struct run *run, size_t bytes, bool in_place,
                     uint64_t seed)
{
    const size_t block = block_of(run, bytes), all = (size_t)run->nranks * block;
    const size_t mine = run->options.op == ceclOpAllGather ? block : all;
    const void *send = send_place(side, run, block, in_place);
    unsigned char *host = malloc(all + 1);
    long long wrong = -1;
    if (!host)
        return complain(run, "check", "no host memory") ? 0 : -1;
    memset(host, 0xA5,
           all); /* the poison comes first: in place, the input lies inside the output */
    if (upload(run, side->recv, host, all)) {
        fill(host, seed, run->rank, 0, mine);
        if (upload(run, (void *)(uintptr_t)send, host, mine)) {
            MPI_Barrier(MPI_COMM_WORLD);
            wrong = run_and_compare(side, run, send, block, seed, host);
        }
    }
    free(host);
    return wrong;
}
