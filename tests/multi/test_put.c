/* One-sided calls between processes: from and to memory of every kind, on several streams, passed on from rank to rank
 * without their hosts, and beside collectives. Every byte is compared. */
#include <stdio.h>

#include "memory.h"
#include "multi.h"

#define BYTES 70001
#define ROUNDS 60
#define TRANSFERS 24
#define SLOT 9000 /* bytes in a window for each transfer */
#define STREAMS 3
#define GUARD 0xa5

static int after(int rank)
{
    return (rank + 1) % multi_nranks;
}

static int before(int rank)
{
    return (rank + multi_nranks - 1) % multi_nranks;
}

static void fill(ceclComm_t comm, void *device, uint64_t seed, int rank, size_t bytes)
{
    unsigned char *host = malloc(bytes + 1);
    assert_non_null(host);
    multi_fill(host, seed, rank, bytes);
    multi_put(comm, device, host, bytes);
    free(host);
}

static void guard(ceclComm_t comm, void *device, size_t bytes)
{
    unsigned char *host = malloc(bytes + 1);
    assert_non_null(host);
    memset(host, GUARD, bytes);
    multi_put(comm, device, host, bytes);
    free(host);
}

/* The first bytes are what rank `from` filled in, and the rest was not touched. */
static void check(ceclComm_t comm, const void *device, uint64_t seed, int from, size_t bytes,
                  size_t all)
{
    unsigned char *host = malloc(all + 1);
    assert_non_null(host);
    multi_get(comm, host, device, all);
    for (size_t i = 0; i < all; i++)
        if (host[i] != (i < bytes ? multi_byte(seed, from, i) : GUARD))
            fail_msg("rank %d: seed %llu: byte %zu of %zu from rank %d", multi_rank,
                     (unsigned long long)seed, i, bytes, from);
    free(host);
}

static void wait_for(ceclComm_t comm, int peer, int signal, int count, ceclStream_t stream)
{
    const ceclSignalWait_t wait = {peer, signal, count};
    multi_ok(comm, ceclWaitSignal(1, &wait, comm, stream));
}

/* ---- memory of every kind */

/* Each rank puts into the next one's window, and gets the same bytes back. */
static void there_and_back(ceclComm_t comm, int window_kind, int local_kind, uint64_t seed)
{
    struct memory shared = memory_new(comm, memory_kind(window_kind), BYTES + 100),
                  local = memory_new(comm, memory_kind(local_kind), BYTES + 100);
    const size_t bytes = BYTES - (size_t)seed * 997, offset = (size_t)seed * 3;
    ceclWindow_t window;
    guard(comm, shared.at, BYTES + 100);
    fill(comm, local.at, seed, multi_rank, bytes);
    multi_ok(comm, ceclWindowShare(comm, shared.at, BYTES + 100, &window));
    multi_ok(comm, ceclPutSignal(local.at, bytes, ceclUint8, after(multi_rank), window, offset, 1,
                                 comm, 0));
    wait_for(comm, before(multi_rank), 1, 1, 0);
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    check(comm, shared.at + offset, seed, before(multi_rank), bytes, BYTES + 100 - offset);
    guard(comm, local.at, BYTES + 100);
    multi_ok(comm, ceclGet(local.at, bytes, ceclUint8, after(multi_rank), window, offset, comm, 0));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    check(comm, local.at, seed, multi_rank, bytes, BYTES + 100);
    multi_ok(comm, ceclWindowFree(comm, window));
    memory_free(comm, &shared);
    memory_free(comm, &local);
}

static void memory_of_every_kind_is_reached(void **state)
{
    uint64_t seed = 1;
    (void)state;
    ceclComm_t comm = multi_comm(NULL);
    for (int window = 0; window < MEMORY_PRIVATE; window++)
        for (int local = 0; local < MEMORY_KINDS; local++, seed++)
            there_and_back(comm, window, local, seed);
    multi_ok(NULL, ceclCommDestroy(comm));
}

static void private_memory_cannot_be_shared(void **state)
{
    ceclWindow_t window;
    (void)state;
    ceclComm_t comm = multi_comm(NULL);
    struct memory shared = memory_new(comm, MEMORY_SHARED, BYTES),
                  hidden = memory_new(comm, MEMORY_PRIVATE, BYTES);
    const bool is_bad = multi_rank == multi_nranks - 1;
    multi_refused(comm, ceclWindowShare(comm, is_bad ? hidden.at : shared.at, BYTES, &window),
                  ceclInvalidUsage, "cannot open");
    multi_ok(comm, ceclWindowShare(comm, shared.at, is_bad ? 0 : BYTES, &window));
    multi_refused(comm, ceclPut(shared.at, 1, ceclUint8, multi_nranks - 1, window, 0, comm, 0),
                  ceclInvalidArgument, "end outside the 0 bytes");
    multi_ok(comm, ceclWindowFree(comm, window));
    memory_free(comm, &shared);
    memory_free(comm, &hidden);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* Windows come and go, at the same addresses; the memory is freed at once after each. */
static void windows_come_and_go(void **state)
{
    (void)state;
    ceclComm_t comm = multi_comm(NULL);
    for (uint64_t round = 0; round < 12; round++)
        there_and_back(comm, MEMORY_SHARED, MEMORY_SHARED, round);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* ---- random programs */

struct transfer {
    int owner, mover, number;
    bool gets;
    size_t bytes;
    int relays; /* the bytes are those that put `relays` has brought to the mover; -1: its own */
    int stream_of_owner, stream_of_mover;
    int source; /* the transfer whose bytes these are */
};

static struct transfer transfers[TRANSFERS];

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* The latest put to a rank that no other transfer overwrites; -1: there is none. */
static int find_relay(int count, int mover)
{
    int found = -1;
    for (int i = 0; i < count; i++)
        if (!transfers[i].gets && transfers[i].owner == mover)
            found = i;
    return found;
}

/* All ranks draw the same. */
static void draw_transfers(uint64_t *state)
{
    for (int i = 0; i < TRANSFERS; i++) {
        struct transfer *t = &transfers[i];
        t->owner = (int)draw(state, (uint64_t)multi_nranks);
        t->mover = (t->owner + 1 + (int)draw(state, (uint64_t)multi_nranks - 1)) % multi_nranks;
        t->gets = draw(state, 2);
        t->number = (int)draw(state, 3) * 31;
        t->bytes = 1 + (size_t)draw(state, draw(state, 2) ? 300 : SLOT - 1);
        t->relays = !t->gets && draw(state, 2) ? find_relay(i, t->mover) : -1;
        t->stream_of_owner = (int)draw(state, STREAMS);
        t->stream_of_mover = (int)draw(state, STREAMS);
        t->source = i;
        if (t->relays >= 0) { /* on the stream that has waited for those bytes */
            t->bytes = transfers[t->relays].bytes;
            t->stream_of_mover = transfers[t->relays].stream_of_owner;
            t->source = transfers[t->relays].source;
        }
    }
}

/* Who filled in the bytes of a transfer. */
static int filler(const struct transfer *t)
{
    const struct transfer *source = &transfers[t->source];
    return source->gets ? source->owner : source->mover;
}

struct round {
    ceclComm_t comm;
    ceclWindow_t window;
    unsigned char *shared, *local;
    ceclStream_t streams[STREAMS], aside;
    uint64_t seed;
};

static void prepare(const struct round *round)
{
    guard(round->comm, round->shared, TRANSFERS * SLOT);
    guard(round->comm, round->local, TRANSFERS * SLOT);
    for (int i = 0; i < TRANSFERS; i++) {
        const struct transfer *t = &transfers[i];
        const uint64_t seed = round->seed * TRANSFERS + (uint64_t)i;
        if (t->gets && t->owner == multi_rank)
            fill(round->comm, round->shared + i * SLOT, seed, multi_rank, t->bytes);
        if (!t->gets && t->relays < 0 && t->mover == multi_rank)
            fill(round->comm, round->local + i * SLOT, seed, multi_rank, t->bytes);
    }
}

static void own(const struct round *round, const struct transfer *t)
{
    ceclStream_t stream = round->streams[t->stream_of_owner];
    multi_ok(round->comm, ceclSignal(t->mover, t->number, round->comm, stream));
    wait_for(round->comm, t->mover, t->number, 1, stream);
}

static void move(const struct round *round, int i)
{
    const struct transfer *t = &transfers[i];
    ceclComm_t comm = round->comm;
    ceclStream_t stream = round->streams[t->stream_of_mover];
    unsigned char *at = t->relays >= 0 ? round->shared + t->relays * SLOT : round->local + i * SLOT;
    const size_t offset = (size_t)i * SLOT;
    wait_for(comm, t->owner, t->number, 1, stream);
    if (!t->gets) {
        multi_ok(comm, ceclPutSignal(at, t->bytes, ceclUint8, t->owner, round->window, offset,
                                     t->number, comm, stream));
        return;
    }
    multi_ok(comm, ceclGet(at, t->bytes, ceclUint8, t->owner, round->window, offset, comm, stream));
    multi_ok(comm, ceclSignal(t->owner, t->number, comm, stream));
}

static void check_round(const struct round *round)
{
    for (int i = 0; i < TRANSFERS; i++) {
        const struct transfer *t = &transfers[i];
        const uint64_t seed = round->seed * TRANSFERS + (uint64_t)t->source;
        if (t->gets ? t->mover == multi_rank : t->owner == multi_rank)
            check(round->comm, (t->gets ? round->local : round->shared) + i * SLOT, seed, filler(t),
                  t->bytes, SLOT);
    }
}

/* Collectives of all ranks go on meanwhile, on a stream of their own. */
static void gather_aside(const struct round *round, unsigned char *blocks, size_t bytes)
{
    multi_ok(round->comm, ceclAllGather(blocks + (size_t)multi_rank * bytes, blocks, bytes,
                                        ceclUint8, round->comm, round->aside));
}

static void random_programs_are_right(void **state)
{
    const size_t block = 5000;
    struct round round = {.comm = multi_comm(NULL)};
    ceclComm_t comm = round.comm;
    uint64_t random = 20251125;
    (void)state;
    struct memory shared = memory_new(comm, multi_rank % 2 ? MEMORY_PIECES : MEMORY_SHARED,
                                      TRANSFERS * SLOT),
                  local = memory_new(comm, MEMORY_PRIVATE, TRANSFERS * SLOT);
    unsigned char *blocks;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&blocks, (size_t)multi_nranks * block));
    round.shared = shared.at;
    round.local = local.at;
    multi_ok(comm, ceclWindowShare(comm, shared.at, TRANSFERS * SLOT, &round.window));
    for (int s = 0; s < STREAMS; s++)
        multi_ok(comm, ceclStreamCreate(comm, &round.streams[s]));
    multi_ok(comm, ceclStreamCreate(comm, &round.aside));
    for (int n = 0; n < multi_share(ROUNDS); n++) {
        round.seed = (uint64_t)n + 1;
        draw_transfers(&random);
        prepare(&round);
        fill(comm, blocks + (size_t)multi_rank * block, round.seed, multi_rank, block);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < TRANSFERS; i++) {
            if (transfers[i].owner == multi_rank)
                own(&round, &transfers[i]);
            if (transfers[i].mover == multi_rank)
                move(&round, i);
            if (i % 8 == n % 8)
                gather_aside(&round, blocks, block);
        }
        for (int s = 0; s < STREAMS; s++)
            multi_ok(comm, ceclStreamSynchronize(comm, round.streams[s]));
        multi_ok(comm, ceclStreamSynchronize(comm, round.aside));
        check_round(&round);
        for (int r = 0; r < multi_nranks; r++)
            check(comm, blocks + (size_t)r * block, round.seed, r, block, block);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    multi_ok(comm, ceclWindowFree(comm, round.window));
    memory_free(comm, &shared);
    memory_free(comm, &local);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* A rank whose memory is in a window makes no call while the others use it, not even after they are done. */
static void a_rank_that_is_not_called_upon_does_nothing(void **state)
{
    (void)state;
    ceclComm_t comm = multi_comm(NULL);
    struct memory shared = memory_new(comm, MEMORY_SHARED, BYTES),
                  local = memory_new(comm, MEMORY_SHARED, BYTES);
    ceclWindow_t window;
    guard(comm, shared.at, BYTES);
    multi_ok(comm, ceclWindowShare(comm, shared.at, BYTES, &window));
    if (multi_rank == 1) {
        fill(comm, local.at, 3, 1, 1000);
        for (int i = 0; i < 50; i++) {
            multi_ok(comm, ceclPut(local.at, 1000, ceclUint8, 0, window, 77, comm, 0));
            multi_ok(comm, ceclGet(local.at + 2000, 1000, ceclUint8, 0, window, 77, comm, 0));
        }
        multi_ok(comm, ceclStreamSynchronize(comm, 0));
        check(comm, local.at + 2000, 3, 1, 1000, 1000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == 0)
        check(comm, shared.at + 77, 3, 1, 1000, BYTES - 77);
    multi_ok(comm, ceclWindowFree(comm, window));
    memory_free(comm, &shared);
    memory_free(comm, &local);
    multi_ok(NULL, ceclCommDestroy(comm));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_every_kind_is_reached),
        cmocka_unit_test(private_memory_cannot_be_shared),
        cmocka_unit_test(windows_come_and_go),
        cmocka_unit_test(random_programs_are_right),
        cmocka_unit_test(a_rank_that_is_not_called_upon_does_nothing),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 100);
}
