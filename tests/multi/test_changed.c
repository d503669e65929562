/* Between two calls the program changes what is mapped where its buffers lie. The next call gives the
 * right bytes, or refuses the buffer by its name; it never gives wrong bytes or ends the process. */
#include "memory.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define POISON 0x77

/* How calls take memory. */
enum mode { ON_USE, REGISTERED, PRIVATE, MODES };
/* In which buffer the memory is: an all-gather in place, or an all-to-all to the pool. */
enum role { RECV, SEND, ROLES };

static ceclComm_t comm;
static enum mode mode;
static unsigned char *pool, *host;
static size_t room; /* bytes of both */

static void open_comm(enum mode how, size_t bytes)
{
    ceclConfig_t config = multi_config();
    mode = how;
    config.registerOnUse = how == ON_USE;
    config.smPolicy = CECL_SM_ALLOW;
    comm = multi_comm(&config);
    room = bytes;
    host = malloc(room);
    assert_non_null(host);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&pool, room));
}

static void close_comm(void)
{
    multi_ok(NULL, ceclCommDestroy(comm));
    free(host);
}

/* ---- one call on `bytes` bytes at `at` */

static const char *name_of(enum role role)
{
    return role == RECV ? "recvbuff" : "sendbuff";
}

static ceclResult_t call(enum role role, unsigned char *at, size_t bytes)
{
    const size_t block = bytes / (size_t)multi_nranks;
    return role == RECV
               ? ceclAllGather(at + (size_t)multi_rank * block, at, block, ceclUint8, comm, NULL)
               : ceclAlltoAll(at, pool, block, ceclUint8, comm, NULL);
}

static void fill(enum role role, unsigned char *at, size_t bytes, uint64_t seed)
{
    const size_t block = bytes / (size_t)multi_nranks, mine = (size_t)multi_rank * block;
    memset(host, POISON, bytes);
    multi_put(comm, pool, host, bytes);
    if (role == RECV)
        multi_fill(host + mine, seed, multi_rank, block);
    else
        multi_fill(host, seed, multi_rank, bytes);
    multi_put(comm, at, host, bytes);
}

static void check(enum role role, const unsigned char *at, size_t bytes, uint64_t seed)
{
    const size_t block = bytes / (size_t)multi_nranks, mine = (size_t)multi_rank * block;
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, host, role == RECV ? at : pool, bytes);
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < block; i++)
            if (host[(size_t)r * block + i] != multi_byte(seed, r, role == RECV ? i : mine + i))
                fail_msg("rank %d: mode %d, %s: byte %zu of rank %d is %#x", multi_rank, (int)mode,
                         name_of(role), i, r, host[(size_t)r * block + i]);
}

static void expect_refused(enum role role, unsigned char *at, size_t bytes, const char *words)
{
    char name[64];
    snprintf(name, sizeof(name), "%s %p: ", name_of(role), (void *)at);
    multi_refused(comm, call(role, at, bytes), ceclInvalidArgument, name);
    if (!strstr(ceclGetLastError(comm), words))
        fail_msg("\"%s\" is not in \"%s\"", words, ceclGetLastError(comm));
}

/* ---- mappings of a file, on the host device */

struct mapped {
    unsigned char *at;
    size_t half, bytes; /* of the two halves `bytes` are in use */
    int fd, other;      /* the file, with another half behind them, and another file */
};

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void map(unsigned char *at, size_t bytes, int flags, int fd, size_t offset)
{
    const int rights = PROT_READ | PROT_WRITE;
    assert_ptr_equal(mmap(at, bytes, rights, flags | MAP_FIXED, fd, (off_t)offset), at);
}

static int file_of(size_t bytes)
{
    const int fd = memfd_create("cecl test", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

/* Addresses without memory. They are kept until the program ends: what a rank still knows of memory that
 * lay there before may differ from what the others know. */
static unsigned char *reserve(size_t bytes)
{
    unsigned char *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

static void take_memory(unsigned char *at, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    assert_ptr_equal(mmap(at, bytes, PROT_NONE, flags, -1, 0), at);
}

static struct mapped mapped_new(size_t halves)
{
    struct mapped m = {.half = (size_t)multi_nranks * page()};
    m.fd = file_of(3 * m.half);
    m.other = file_of(2 * m.half);
    m.at = reserve(2 * m.half);
    m.bytes = halves * m.half;
    map(m.at, m.bytes, MAP_SHARED, m.fd, 0);
    return m;
}

static void mapped_end(struct mapped *m)
{
    take_memory(m->at, m->half);
    close(m->fd);
    close(m->other);
}

static void second_half_is_another_file(struct mapped *m)
{
    map(m->at + m->half, m->half, MAP_SHARED, m->other, m->half);
}
static void second_half_is_another_page(struct mapped *m)
{
    map(m->at + m->half, m->half, MAP_SHARED, m->fd, 2 * m->half);
}
static void first_half_is_another_file(struct mapped *m)
{
    map(m->at, m->half, MAP_SHARED, m->other, 0);
}
static void all_is_private(struct mapped *m)
{
    map(m->at, m->bytes, MAP_PRIVATE, m->fd, 0);
}
static void second_half_is_private(struct mapped *m)
{
    map(m->at + m->half, m->half, MAP_PRIVATE, m->fd, m->half);
}
static void first_half_is_private(struct mapped *m)
{
    map(m->at, m->half, MAP_PRIVATE, m->fd, 0);
}
static void second_half_is_of_no_file(struct mapped *m)
{
    map(m->at + m->half, m->half, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
/* Holes are of one page: other threads of the program may take the addresses, but not for that little. */
static void it_shrinks(struct mapped *m)
{
    assert_ptr_equal(mremap(m->at, m->bytes, m->bytes - page(), 0), m->at);
}
static void it_has_a_hole(struct mapped *m)
{
    assert_int_equal(munmap(m->at + m->half, page()), 0);
}
static void it_has_no_rights(struct mapped *m)
{
    assert_int_equal(mprotect(m->at + m->half, page(), PROT_NONE), 0);
}
static void it_is_read_only(struct mapped *m)
{
    assert_int_equal(mprotect(m->at + m->half, page(), PROT_READ), 0);
}
static void its_file_is_truncated(struct mapped *m)
{
    assert_int_equal(ftruncate(m->fd, (off_t)m->half), 0);
}
static void it_grows(struct mapped *m)
{
    m->bytes = 2 * m->half;
    map(m->at + m->half, m->half, MAP_SHARED, m->fd, m->half);
}
/* As mremap does, but without a moment in which nobody has the old addresses. */
static void move(unsigned char *from, unsigned char *to, const struct mapped *m)
{
    map(to, m->bytes, MAP_SHARED, m->fd, 0);
    take_memory(from, m->bytes);
}
static void it_is_moved_away(struct mapped *m)
{
    move(m->at, reserve(m->bytes), m);
}
static void it_is_moved_away_and_back(struct mapped *m)
{
    unsigned char *away = reserve(m->bytes);
    move(m->at, away, m);
    expect_refused(RECV, m->at, m->bytes, "no memory of this process");
    expect_refused(SEND, m->at, m->bytes, "no memory of this process");
    move(away, m->at, m);
}
static void it_is_mapped_again(struct mapped *m)
{
    map(m->at, m->bytes, MAP_SHARED, m->fd, 0);
}
/* The kernel keeps the halves apart from then on. */
static void it_is_split(struct mapped *m)
{
    assert_int_equal(madvise(m->at + m->half, m->half, MADV_DONTFORK), 0);
}

/* What the next call says; NULL: it gives the right bytes. Where memory is not registered by itself, what
 * was registered becomes private: any memory will do. */
struct change {
    void (*make)(struct mapped *m);
    const char *on_use, *else_;
    size_t halves;  /* in use before the change */
    bool recv_only; /* a sendbuff is not refused */
};
#define ENDS "before its range does"
#define NONE "no memory of this process, at byte"
static const struct change changes[] = {
    {second_half_is_another_file, ENDS, NULL, 2, false},
    {second_half_is_another_page, ENDS, NULL, 2, false},
    {first_half_is_another_file, ENDS, NULL, 2, false},
    {all_is_private, NULL, NULL, 2, false},
    {second_half_is_private, ENDS, NULL, 2, false},
    {first_half_is_private, NULL, NULL, 2, false},
    {second_half_is_of_no_file, ENDS, NULL, 2, false},
    {it_shrinks, NONE, NONE, 2, false},
    {it_has_a_hole, NONE, NONE, 2, false},
    {it_has_no_rights, "that can be read", "that can be read", 2, false},
    {it_is_read_only, "that can be written", "that can be written", 2, true},
    {its_file_is_truncated, "too short", "too short", 2, false},
    {it_grows, NULL, NULL, 1, false},
    {it_is_moved_away, "no memory of this process", "no memory of this process", 2, false},
    {it_is_moved_away_and_back, NULL, NULL, 2, false},
    {it_is_mapped_again, NULL, NULL, 2, false},
    {it_is_split, NULL, NULL, 2, false},
};
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

static void change_and_call(const struct change *change, enum role role)
{
    struct mapped m = mapped_new(change->halves);
    const char *words = mode == ON_USE ? change->on_use : change->else_;
    ceclRegistration_t handle = NULL;
    if (mode == REGISTERED)
        multi_ok(comm, ceclCommRegister(comm, m.at, m.bytes, &handle));
    for (uint64_t i = 0; i < 2; i++) { /* the second call has a kept plan */
        fill(role, m.at, m.bytes, i);
        multi_ok(comm, call(role, m.at, m.bytes));
        check(role, m.at, m.bytes, i);
    }
    const bool refused = words && (role == RECV || !change->recv_only);
    if (words)
        fill(role, m.at, m.bytes, 2);
    change->make(&m);
    for (uint64_t i = 2; i < 4; i++) {
        if (refused) {
            expect_refused(role, m.at, m.bytes, words);
            continue;
        }
        if (!words)
            fill(role, m.at, m.bytes, i);
        multi_ok(comm, call(role, m.at, m.bytes));
        check(role, m.at, m.bytes, words ? 2 : i);
    }
    mapped_end(&m);
    if (handle)
        multi_ok(comm, ceclCommDeregister(comm, handle));
}

static void make_all_changes(enum mode how)
{
    open_comm(how, 2 * (size_t)multi_nranks * page());
    if (multi_on_gpus(comm)) {
        close_comm();
        skip(); /* cuMemMap makes and ends mappings of whole pieces, as below */
    }
    for (size_t i = 0; i < CHANGES; i++)
        for (int role = 0; role < ROLES; role++)
            change_and_call(&changes[i], (enum role)role);
    close_comm();
}

static void changed_mappings_that_were_registered_on_use(void **state)
{
    (void)state;
    make_all_changes(ON_USE);
}

static void changed_mappings_that_the_program_registered(void **state)
{
    (void)state;
    make_all_changes(REGISTERED);
}

static void changed_mappings_that_were_not_registered(void **state)
{
    (void)state;
    make_all_changes(PRIVATE);
}

/* A root sends out of its buffer, and writes nothing there. */
static void a_root_may_broadcast_memory_that_is_read_only(void **state)
{
    (void)state;
    open_comm(ON_USE, page());
    if (multi_on_gpus(comm)) {
        close_comm();
        skip(); /* memory is mapped for reading and writing */
    }
    for (int root = 0; root < multi_nranks; root++) {
        const int fd = file_of(page());
        unsigned char *at = reserve(page());
        map(at, page(), MAP_SHARED, fd, 0);
        if (multi_rank == root) {
            multi_fill(at, 5, root, page());
            assert_int_equal(mprotect(at, page(), PROT_READ), 0);
        }
        multi_ok(comm, ceclBroadcast(at, at, page(), ceclUint8, root, comm, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        for (size_t i = 0; i < page(); i++)
            assert_int_equal(at[i], multi_byte(5, root, i));
        munmap(at, page());
        close(fd);
    }
    close_comm();
}

/* A call of one rank is a copy, of memory that nobody registers. */
static void a_rank_alone_is_refused_a_buffer_with_a_hole(void **state)
{
    (void)state;
    ceclComm_t alone;
    multi_ok(NULL, ceclCommInitMpi(&alone, MPI_COMM_SELF, NULL));
    if (multi_on_gpus(alone)) {
        multi_ok(NULL, ceclCommDestroy(alone));
        skip(); /* a copy of memory that is gone is an error of CUDA's */
    }
    const size_t bytes = 3 * page();
    unsigned char *send = reserve(bytes), *recv = reserve(bytes);
    map(send, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    map(recv, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++)
        multi_ok(alone, ceclAllGather(send, recv, bytes, ceclUint8, alone, NULL));
    multi_ok(alone, ceclStreamSynchronize(alone, NULL));
    take_memory(send + page(), page());
    multi_refused(alone, ceclAllGather(send, recv, bytes, ceclUint8, alone, NULL),
                  ceclInvalidArgument, "can be read, at byte");
    multi_ok(NULL, ceclCommDestroy(alone));
}

/* ---- pieces that come and go, on both devices */

enum { PLACES = 5, LEAST = 2, ROUNDS = 1200, BLOCK = 1500, WHOLE_EVERY = 50 };

/* A range in which pieces lie side by side from its start on. */
struct range {
    const struct memory_pieces *ops;
    unsigned char *at;
    size_t piece; /* bytes */
    uint64_t pieces[PLACES];
    size_t count;
};

/* Numbers that are the same on all ranks, or of each rank's own. */
static uint64_t draw(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static void put_piece(struct range *range, size_t place)
{
    range->ops->map(comm, range->at + place * range->piece, range->pieces[place], range->piece);
}

static void take_piece(struct range *range, size_t place)
{
    range->ops->unmap(comm, range->at + place * range->piece, range->piece);
}

static void grow(struct range *range)
{
    range->pieces[range->count] = range->ops->make(comm, range->piece);
    put_piece(range, range->count++);
}

static void shrink(struct range *range)
{
    take_piece(range, --range->count);
    range->ops->free(comm, range->pieces[range->count]);
}

static void replace(struct range *range, size_t place)
{
    take_piece(range, place);
    range->ops->free(comm, range->pieces[place]);
    range->pieces[place] = range->ops->make(comm, range->piece);
    put_piece(range, place);
}

static void swap(struct range *range, size_t a, size_t b)
{
    const uint64_t piece = range->pieces[a];
    take_piece(range, a);
    if (a != b)
        take_piece(range, b);
    range->pieces[a] = range->pieces[b];
    range->pieces[b] = piece;
    put_piece(range, a);
    if (a != b)
        put_piece(range, b);
}

static void change_pieces(struct range *range, uint64_t *own)
{
    const size_t a = draw(own) % range->count, b = draw(own) % range->count;
    switch (draw(own) % 5) {
    case 0: replace(range, a); break;
    case 1: swap(range, a, b); break;
    case 2:
        if (range->count < PLACES)
            grow(range);
        break;
    case 3:
        if (range->count > LEAST)
            shrink(range);
        break;
    default: break; /* nothing changes */
    }
}

/* One round: over a seam, within a piece, or all of two pieces. On the host device a piece is a mapping of
 * its own, and a buffer lies within one if it is registered. */
static void call_on_pieces(struct range *range, uint64_t round, uint64_t *all, uint64_t *own)
{
    const enum role role = (enum role)(draw(all) % ROLES);
    const bool over_a_seam = draw(all) % 2 == 0, whole = round % WHOLE_EVERY == 0;
    const size_t nranks = (size_t)multi_nranks;
    const size_t bytes = whole ? 2 * range->piece / nranks * nranks : nranks * BLOCK;
    const size_t seams = range->count - 1;
    size_t begin = draw(own) % seams * range->piece;
    if (!whole && over_a_seam)
        begin += range->piece - 1 - draw(own) % (bytes - 1);
    else if (!whole)
        begin += draw(own) % 2 * range->piece + draw(own) % (range->piece - bytes + 1);
    unsigned char *at = range->at + begin;
    if (!multi_on_gpus(comm) && mode == ON_USE && (whole || over_a_seam)) {
        expect_refused(role, at, bytes, ENDS);
        return;
    }
    fill(role, at, bytes, round);
    multi_ok(comm, call(role, at, bytes));
    check(role, at, bytes, round);
}

static void let_pieces_come_and_go(enum mode how)
{
    uint64_t all = 4711, own = 815 + (uint64_t)multi_rank;
    open_comm(how, 2);
    struct range range = {.ops = memory_pieces(comm)};
    const size_t least = (size_t)multi_nranks * BLOCK, granule = range.ops->granule(comm);
    range.piece = (least + granule - 1) / granule * granule;
    range.at = range.ops->reserve(comm, PLACES * range.piece);
    close_comm();
    open_comm(how, 2 * range.piece);
    while (range.count < LEAST + 1)
        grow(&range);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        call_on_pieces(&range, round, &all, &own);
        change_pieces(&range, &own);
    }
    while (range.count > 0)
        shrink(&range);
    range.ops->unreserve(comm, range.at, PLACES * range.piece);
    close_comm();
}

static void pieces_come_and_go_between_calls(void **state)
{
    (void)state;
    let_pieces_come_and_go(ON_USE);
}

static void pieces_that_are_not_registered_come_and_go_between_calls(void **state)
{
    (void)state;
    let_pieces_come_and_go(PRIVATE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_mappings_that_were_registered_on_use),
        cmocka_unit_test(changed_mappings_that_the_program_registered),
        cmocka_unit_test(changed_mappings_that_were_not_registered),
        cmocka_unit_test(a_root_may_broadcast_memory_that_is_read_only),
        cmocka_unit_test(a_rank_alone_is_refused_a_buffer_with_a_hole),
        cmocka_unit_test(pieces_come_and_go_between_calls),
        cmocka_unit_test(pieces_that_are_not_registered_come_and_go_between_calls),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 200);
}
