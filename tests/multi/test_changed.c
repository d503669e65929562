/* On the host device, the program changes the mappings of its buffers between two calls. The next call gives the right
 * bytes, or refuses the buffer and names it. It never gives wrong bytes or ends the process. */
#include "given.h"

#include "memory.h"

/* Skips the test on GPUs. */
static void open_on_host(enum given_mode how, size_t bytes, const char *why)
{
    given_open(how, bytes);
    if (!multi_on_gpus(given_comm))
        return;
    given_close();
    skip_because(why);
}
#define WHOLE_PIECES "cuMemMap maps and unmaps whole pieces: see test_pieces.c"

struct mapped {
    unsigned char *at;
    size_t half, bytes; /* `bytes` of the two halves are in use */
    int fd, other;      /* the mapped file, which has a third half, and another file */
    bool has_holes;     /* every second page is unmapped; another thread may map memory there */
};

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static struct mapped mapped_new(size_t halves)
{
    struct mapped m = {.half = (size_t)multi_nranks * page()};
    m.fd = host_file(3 * m.half);
    m.other = host_file(2 * m.half);
    m.at = host_reserve(2 * m.half);
    m.bytes = halves * m.half;
    host_map(m.at, m.bytes, MAP_SHARED, m.fd, 0);
    return m;
}

static void mapped_end(struct mapped *m)
{
    for (size_t at = 0; at < m->half; at += m->has_holes ? 2 * page() : page())
        host_unmap(m->at + at, page());
    close(m->fd);
    close(m->other);
}

#define REMAPPED(name, at, bytes, flags, fd, offset) \
    static void name(struct mapped *m) \
    { \
        host_map(at, bytes, flags, fd, offset); \
    }
REMAPPED(second_half_is_another_file, m->at + m->half, m->half, MAP_SHARED, m->other, m->half)
REMAPPED(second_half_is_another_page, m->at + m->half, m->half, MAP_SHARED, m->fd, 2 * m->half)
REMAPPED(first_half_is_another_file, m->at, m->half, MAP_SHARED, m->other, 0)
REMAPPED(all_is_private, m->at, m->bytes, MAP_PRIVATE, m->fd, 0)
REMAPPED(second_half_is_private, m->at + m->half, m->half, MAP_PRIVATE, m->fd, m->half)
REMAPPED(first_half_is_private, m->at, m->half, MAP_PRIVATE, m->fd, 0)
REMAPPED(second_half_is_of_no_file, m->at + m->half, m->half, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
REMAPPED(it_is_mapped_again, m->at, m->bytes, MAP_SHARED, m->fd, 0)
/* No change leaves a hole of more than one page, so few mappings of other threads fit into it. */
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
    host_map(m->at + m->half, m->half, MAP_SHARED, m->fd, m->half);
}
/* Moves a mapping as mremap does, but keeps its old addresses reserved. */
static void move(unsigned char *from, unsigned char *to, const struct mapped *m)
{
    host_map(to, m->bytes, MAP_SHARED, m->fd, 0);
    host_unmap(from, m->bytes);
}
static void it_is_moved_away(struct mapped *m)
{
    move(m->at, host_reserve(m->bytes), m);
}
static void it_is_moved_away_and_back(struct mapped *m)
{
    unsigned char *away = host_reserve(m->bytes);
    move(m->at, away, m);
    given_refused(RECV, m->at, m->bytes, "no memory of this process");
    given_refused(SEND, m->at, m->bytes, "no memory of this process");
    move(away, m->at, m);
}
/* After this the kernel keeps the halves as two mappings. */
static void it_is_split(struct mapped *m)
{
    assert_int_equal(madvise(m->at + m->half, m->half, MADV_DONTFORK), 0);
}

/* Words of the next call's error with register-on-use (on_use) and without it (else_); NULL: the call succeeds. Without
 * register-on-use, changed memory counts as private, even if it was registered, and a call takes private memory. */
struct change {
    void (*make)(struct mapped *m);
    const char *on_use, *else_;
    size_t halves;  /* how many halves calls use before the change */
    bool recv_only; /* only a recvbuff is refused */
};
#define NONE "no memory of this process, at byte"
static const struct change changes[] = {
    {second_half_is_another_file, GIVEN_ENDS, NULL, 2, false},
    {second_half_is_another_page, GIVEN_ENDS, NULL, 2, false},
    {first_half_is_another_file, GIVEN_ENDS, NULL, 2, false},
    {all_is_private, NULL, NULL, 2, false},
    {second_half_is_private, GIVEN_ENDS, NULL, 2, false},
    {first_half_is_private, NULL, NULL, 2, false},
    {second_half_is_of_no_file, GIVEN_ENDS, NULL, 2, false},
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

static void change_and_call(const struct change *change, enum given_role role)
{
    struct mapped m = mapped_new(change->halves);
    const char *words = given_mode == ON_USE ? change->on_use : change->else_;
    ceclRegistration_t handle = NULL;
    if (given_mode == REGISTERED)
        multi_ok(given_comm, ceclCommRegister(given_comm, m.at, m.bytes, &handle));
    for (uint64_t i = 0; i < 2; i++) { /* the second call has a kept plan */
        given_fill(role, m.at, m.bytes, i);
        multi_ok(given_comm, given_call(role, m.at, m.bytes));
        given_check(role, m.at, m.bytes, i);
    }
    const bool refused = words && (role == RECV || !change->recv_only);
    if (words)
        given_fill(role, m.at, m.bytes, 2);
    change->make(&m);
    for (uint64_t i = 2; i < 4; i++) {
        if (refused) {
            given_refused(role, m.at, m.bytes, words);
            continue;
        }
        if (!words)
            given_fill(role, m.at, m.bytes, i);
        multi_ok(given_comm, given_call(role, m.at, m.bytes));
        given_check(role, m.at, m.bytes, words ? 2 : i);
    }
    mapped_end(&m);
    if (handle)
        multi_ok(given_comm, ceclCommDeregister(given_comm, handle));
}

static void make_all_changes(enum given_mode how)
{
    open_on_host(how, 2 * (size_t)multi_nranks * page(), WHOLE_PIECES);
    for (size_t i = 0; i < CHANGES; i++)
        for (int role = 0; role < ROLES; role++)
            change_and_call(&changes[i], (enum given_role)role);
    given_close();
}

TEST(changed_mappings_that_were_registered_on_use)
{
    make_all_changes(ON_USE);
}

TEST(changed_mappings_that_the_program_registered)
{
    make_all_changes(REGISTERED);
}

TEST(changed_mappings_that_were_not_registered)
{
    make_all_changes(PRIVATE);
}

TEST(a_root_may_broadcast_memory_that_is_read_only)
{
    open_on_host(ON_USE, page(), "memory is mapped for reading and writing");
    for (int root = 0; root < multi_nranks; root++) {
        const int fd = host_file(page());
        unsigned char *at = host_reserve(page());
        host_map(at, page(), MAP_SHARED, fd, 0);
        if (multi_rank == root) {
            model_fill(at, 5, root, page());
            assert_int_equal(mprotect(at, page(), PROT_READ), 0);
        }
        multi_ok(given_comm, ceclBroadcast(at, at, page(), ceclUint8, root, given_comm, NULL));
        multi_ok(given_comm, ceclStreamSynchronize(given_comm, NULL));
        multi_check_device(given_comm, at, 5, root, page(), page());
        munmap(at, page());
        close(fd);
    }
    given_close();
}

static ceclResult_t message_to_itself(const void *from, void *to)
{
    (void)!ceclGroupStart();
    const ceclResult_t sent = ceclSend(from, page(), ceclUint8, multi_rank, given_comm, NULL),
                       received = ceclRecv(to, page(), ceclUint8, multi_rank, given_comm, NULL),
                       ended = ceclGroupEnd();
    return sent != ceclSuccess ? sent : received != ceclSuccess ? received : ended;
}

TEST(memory_that_is_read_only_may_be_sent_and_not_received_into)
{
    open_on_host(ON_USE, page(), "memory is mapped for reading and writing");
    const int fd = host_file(2 * page());
    unsigned char *at = host_reserve(2 * page());
    host_map(at, 2 * page(), MAP_SHARED, fd, 0);
    model_fill(at, 5, multi_rank, page());
    assert_int_equal(mprotect(at, page(), PROT_READ), 0);
    multi_ok(given_comm, message_to_itself(at, at + page()));
    multi_ok(given_comm, ceclStreamSynchronize(given_comm, NULL));
    multi_check_device(given_comm, at + page(), 5, multi_rank, page(), page());
    multi_refused(given_comm, message_to_itself(at + page(), at), ceclInvalidArgument,
                  "no memory of this process that can be written");
    munmap(at, 2 * page());
    close(fd);
    given_close();
}

/* Gathers blocks of one page, two pages apart: the call uses every other page of `at`. */
static ceclResult_t begin_gather_apart(struct mapped *m, uint64_t seed)
{
    size_t counts[64], displs[64];
    assert_true(multi_nranks <= 64);
    for (int r = 0; r < multi_nranks; r++) {
        counts[r] = page();
        displs[r] = 2 * page() * (size_t)r;
    }
    unsigned char *mine = m->at + displs[multi_rank];
    model_fill(mine, seed, multi_rank, page());
    return ceclAllGatherv(mine, page(), m->at, counts, displs, ceclUint8, given_comm, NULL);
}

static void gather_apart(struct mapped *m, uint64_t seed)
{
    multi_ok(given_comm, begin_gather_apart(m, seed));
    multi_ok(given_comm, ceclStreamSynchronize(given_comm, NULL));
    for (int r = 0; r < multi_nranks; r++)
        multi_check_device(given_comm, m->at + 2 * page() * (size_t)r, seed, r, page(), page());
}

/* The pages between the blocks are unmapped, or have no access rights. */
static void make_holes(struct mapped *m, bool unmapped)
{
    m->has_holes = unmapped;
    for (size_t r = 0; r < (size_t)multi_nranks; r++)
        if (unmapped)
            assert_int_equal(munmap(m->at + (2 * r + 1) * page(), page()), 0);
        else
            host_unmap(m->at + (2 * r + 1) * page(), page());
}

TEST(holes_between_blocks_are_refused)
{
    for (int how = ON_USE; how <= PRIVATE; how++) {
        open_on_host((enum given_mode)how, page(), WHOLE_PIECES);
        for (int i = 0; i < 4; i++) {
            const bool after = i < 2, unmapped = i % 2 == 0;
            struct mapped m = mapped_new(2);
            ceclRegistration_t handle = NULL;
            if (how == REGISTERED)
                multi_ok(given_comm, ceclCommRegister(given_comm, m.at, m.bytes, &handle));
            if (after)
                gather_apart(&m, 1);
            make_holes(&m, unmapped);
            multi_refused(given_comm, begin_gather_apart(&m, 2), ceclInvalidArgument,
                          "no memory of this process");
            if (handle)
                multi_ok(given_comm, ceclCommDeregister(given_comm, handle));
            mapped_end(&m);
        }
        given_close();
    }
}

/* A call with one rank is a copy; its memory is never registered. */
TEST(a_rank_alone_is_refused_a_buffer_with_a_hole)
{
    ceclComm_t alone;
    multi_ok(NULL, ceclCommInitMpi(&alone, MPI_COMM_SELF, NULL));
    if (multi_on_gpus(alone)) {
        multi_ok(NULL, ceclCommDestroy(alone));
        skip_because("CUDA itself reports a copy of unmapped memory");
    }
    const size_t bytes = 3 * page();
    unsigned char *send = host_reserve(bytes), *recv = host_reserve(bytes);
    host_map(send, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    host_map(recv, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++)
        multi_ok(alone, ceclAllGather(send, recv, bytes, ceclUint8, alone, NULL));
    multi_ok(alone, ceclStreamSynchronize(alone, NULL));
    host_unmap(send + page(), page());
    multi_refused(alone, ceclAllGather(send, recv, bytes, ceclUint8, alone, NULL),
                  ceclInvalidArgument, "can be read, at byte");
    multi_ok(NULL, ceclCommDestroy(alone));
}
