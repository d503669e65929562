/* The mesh of one rank, while the fuzzer plays all other ranks, correctly or not: their messages to the rank's inboxes,
 * and their writes to the shared memory. An exchange must give what the peers brought, strangers must not be heard, no
 * descriptor may leak, and all waits must end. The rank is never rank 0, which makes the memory. */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../descriptors.h"
#include "../open_descriptors.h"
#include "boot/mesh_internal.h"
#include "input.h"
#include "util/clock.h"

#define RANKS_MOST 4
#define PART_MOST 3000
#define PATIENCE_MS 20 /* how long the rank waits for a peer that does not come */
#define FILES 8
#define POSTS_MOST 16

/* A message that was sent to the inbox of posts and not taken yet. */
struct letter {
    int who, nfds;
    size_t bytes;
    unsigned seed;
};

static struct input in;
static struct cecl_mesh *mesh;
static struct cecl_invitation all[RANKS_MOST];
static struct cecl_inbox theirs[RANKS_MOST]
                               [2]; /* where peers listen: for exchanges, and for posts */
static int lives[RANKS_MOST];       /* eventfds: the peers' processes */
static struct mesh_row *rows;       /* the fuzzer's mapping */
static int nranks, rank, memory, files[FILES];
static ino_t inodes[FILES];
static struct letter letters[POSTS_MOST];
static int nletters;
static bool is_disturbed; /* a peer has ended, has said that it ends, or has written random bytes */

static int other_rank(void)
{
    const int who = (int)take_below(&in, (unsigned)nranks - 1);
    return who + (who >= rank);
}

static uint8_t part_byte(unsigned seed, int from, size_t i)
{
    return (uint8_t)(seed * 17 + (unsigned)from * 59 + i * 7 + 3);
}

static int call(char kind)
{
    const int fd = inbox_call(all[rank].at.name, kind);
    REQUIRE(fd >= 0, "connect: %s", strerror(errno));
    return fd;
}

static struct inbox_head head_of(int who, uint32_t number)
{
    return inbox_head_of(&all[rank].at, who, number);
}

static void say(char kind, const struct inbox_head *head, const void *body, size_t bytes,
                const int *fds, int nfds)
{
    uint8_t message[sizeof(*head) + CECL_INBOX_BYTES + 64];
    const int fd = call(kind);
    memcpy(message, head, sizeof(*head));
    if (bytes > 0)
        memcpy(message + sizeof(*head), body, bytes);
    REQUIRE(send_descriptors(fd, message, sizeof(*head) + bytes, fds, nfds, MSG_DONTWAIT) > 0,
            "send: %s", strerror(errno));
    close(fd);
}

/* A caller that sends a wrong secret, any bytes and descriptors, or nothing. */
static void be_a_stranger(char kind)
{
    uint8_t bytes[sizeof(struct inbox_head) + 64];
    const size_t count = take_below(&in, sizeof(bytes));
    struct inbox_head head = head_of(0, take_byte(&in));
    take_bytes(&in, bytes, count);
    const int fd = call(kind);
    if (take_below(&in, 2)) { /* one bit of the secret is wrong */
        const unsigned bit = take_below(&in, 8 * sizeof(head.secret));
        head.secret[bit / 8] ^= (uint8_t)(1u << bit % 8);
        (void)send_descriptors(fd, &head, sizeof(head), files, 1, MSG_DONTWAIT);
    } else if (count > 0) {
        (void)send_descriptors(fd, bytes, count, files, (int)take_below(&in, 4), MSG_DONTWAIT);
    }
    close(fd);
}

static void come(int who, const char *kind, const void *part, size_t bytes, size_t done)
{
    struct mesh_row *row = &rows[who];
    const uint32_t turn = atomic_load(&row->came);
    struct mesh_slot *slot = &row->slots[turn % 2];
    const size_t left = bytes - done;
    slot->bytes = bytes;
    memset(slot->kind, 0, sizeof(slot->kind));
    memcpy(slot->kind, kind, strnlen(kind, sizeof(slot->kind) - 1));
    if (left > 0)
        memcpy(slot->piece, (const char *)part + done,
               left < MESH_PIECE_BYTES ? left : MESH_PIECE_BYTES);
    atomic_store(&row->came, turn + 1);
}

/* The peers come to this exchange with these parts. `oddly`: one gives another kind or length, or stays away. */
static bool all_come(const char *kind, const uint8_t *part, size_t bytes, bool oddly)
{
    const int odd = oddly ? other_rank() : -1;
    const unsigned how = oddly ? take_below(&in, 3) : 0;
    for (int r = 0; r < nranks; r++) {
        if (r == rank || (r == odd && how == 0))
            continue;
        come(r, r == odd && how == 1 ? "other" : kind, part + (size_t)r * PART_MOST,
             r == odd && how == 2 ? bytes + 1 : bytes, 0);
    }
    return odd < 0;
}

static void make_memory(size_t bytes, bool is_sealed)
{
    memory = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(memory >= 0 && ftruncate(memory, (off_t)bytes) == 0, "memfd: %s", strerror(errno));
    if (is_sealed)
        REQUIRE(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "seals: %s", strerror(errno));
}

/* Rank 0 sends the memory, which sometimes is too small, can shrink, or is missing. Returns whether it is good. */
static bool hand_out(void)
{
    const unsigned how = take_below(&in, 16);
    const int nfds = how != 2;
    const struct inbox_head head = head_of(0, 0);
    make_memory(mesh_rows_bytes(nranks) - (how == 3), how != 4);
    const bool is_good = how < 2 || how > 4;
    if (is_good) {
        rows = mmap(NULL, mesh_rows_bytes(nranks), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
        REQUIRE(rows != MAP_FAILED, "mmap: %s", strerror(errno));
    }
    say(MESH_POST, &head, NULL, 0, &memory, nfds);
    return is_good;
}

/* All peers, or all but one, send descriptors of their processes, and come to a join's exchanges. Returns whether all
 * do. */
static bool come_to_join(void)
{
    const struct cecl_vote good = {.result = ceclSuccess};
    const int silent = take_below(&in, 16) == 1 ? other_rank() : -1;
    for (int r = 0; r < nranks; r++) {
        if (r == rank)
            continue;
        const struct inbox_head head = head_of(r, 0);
        if (r != silent)
            say(MESH_EXCHANGE, &head, NULL, 0, &lives[r], 1);
        come(r, "fd", &good, sizeof(good), 0);
        come(r, "agree", &good, sizeof(good), 0);
    }
    return silent < 0;
}

static bool open_mesh(void)
{
    static struct cecl_oob oob;
    oob = (struct cecl_oob){.nranks = nranks,
                            .rank = rank,
                            .timeout_ms = PATIENCE_MS,
                            .deadline = cecl_deadline(PATIENCE_MS)};
    ceclResult_t result = cecl_mesh_new(&oob, PATIENCE_MS, 0, &all[rank], &mesh);
    REQUIRE(result == ceclSuccess, "result %d: %s", (int)result, cecl_message());
    while (take_below(&in, 4) == 1)
        be_a_stranger(take_below(&in, 2) ? MESH_EXCHANGE : MESH_POST);
    bool is_good = hand_out();
    if (rows)
        is_good = come_to_join();
    result = cecl_mesh_connect(mesh, all, sizeof(all[0]), NULL);
    REQUIRE(is_good == (result == ceclSuccess), "result %d: %s", (int)result, cecl_message());
    if (result == ceclSuccess)
        cecl_mesh_joined(mesh);
    return result == ceclSuccess;
}

static void check_result(ceclResult_t result, bool was_broken, bool is_even)
{
    REQUIRE(!was_broken || result != ceclSuccess, "a broken mesh works again");
    REQUIRE(is_even || result != ceclSuccess, "ranks differ, and it is not noticed");
    REQUIRE(!is_even || was_broken || is_disturbed || result == ceclSuccess, "result %d: %s",
            (int)result, cecl_message());
}

static void gather(void)
{
    static const char *const kinds[] = {"a", "alloc", "seventh", "free"};
    static uint8_t part[RANKS_MOST * PART_MOST], got[RANKS_MOST * PART_MOST];
    const char *kind = kinds[take_below(&in, 4)];
    const size_t bytes = take_below(&in, MESH_PIECE_BYTES + 1);
    const unsigned seed = take_byte(&in);
    const bool was_broken = cecl_mesh_broken(mesh);
    for (int r = 0; r < nranks; r++)
        for (size_t i = 0; i < bytes; i++)
            part[(size_t)r * PART_MOST + i] = part_byte(seed, r, i);
    const bool is_even = all_come(kind, part, bytes, take_below(&in, 8) == 1);
    const ceclResult_t result =
        cecl_mesh_allgather(mesh, kind, part + (size_t)rank * PART_MOST, got, bytes);
    check_result(result, was_broken, is_even);
    for (int r = 0; r < nranks && result == ceclSuccess && !is_disturbed; r++)
        for (size_t i = 0; i < bytes; i++)
            REQUIRE(got[(size_t)r * bytes + i] == part_byte(seed, r, i),
                    "byte %zu of rank %d is wrong", i, r);
}

static void agree(void)
{
    static uint8_t part[RANKS_MOST * PART_MOST];
    const ceclResult_t own = (ceclResult_t)(take_below(&in, 12) % 10);
    const bool was_broken = cecl_mesh_broken(mesh);
    bool all_agree = own == ceclSuccess;
    for (int r = 0; r < nranks; r++) {
        struct cecl_vote vote = {.result = take_below(&in, 4) ? 0 : take_byte(&in) - 3};
        memset(vote.words, 'c', take_below(&in, sizeof(vote.words) + 1));
        memcpy(part + (size_t)r * PART_MOST, &vote, sizeof(vote));
        all_agree = all_agree && (r == rank || vote.result == 0);
    }
    const bool is_even = all_come("agree", part, sizeof(struct cecl_vote), take_below(&in, 8) == 1);
    check_result(cecl_mesh_agree(mesh, own), was_broken || !all_agree, is_even && all_agree);
}

static void check_descriptor(int fd, int file)
{
    struct stat status;
    REQUIRE(fd >= 0 && fstat(fd, &status) == 0 && status.st_ino == inodes[file],
            "descriptor %d is not of file %d", fd, file);
    REQUIRE(fcntl(fd, F_GETFD) & FD_CLOEXEC, "descriptor %d stays open after exec", fd);
    close(fd);
}

static void exchange_descriptors(void)
{
    static uint8_t part[RANKS_MOST * PART_MOST];
    const bool was_broken = cecl_mesh_broken(mesh), oddly = take_below(&in, 8) == 1;
    const uint32_t number = (uint32_t)cecl_mesh_exchanges(mesh);
    int fds[RANKS_MOST], file[RANKS_MOST];
    memset(part, 0, sizeof(part));
    for (int r = 0; r < nranks; r++) {
        file[r] = (int)take_below(&in, FILES);
        const struct inbox_head head = head_of(r, number), old = head_of(r, number - 1);
        if (take_below(&in, 4) == 1)
            be_a_stranger(MESH_EXCHANGE);
        if (r != rank && take_below(&in, 4) == 1)
            say(MESH_EXCHANGE, &old, NULL, 0, files, 1);
        if (r != rank)
            say(MESH_EXCHANGE, &head, NULL, 0, &files[file[r]], 1);
    }
    const bool is_even = all_come("fd", part, sizeof(struct cecl_vote), oddly);
    const ceclResult_t result = cecl_mesh_exchange_fd(mesh, files[0], fds);
    check_result(result, was_broken, is_even);
    for (int r = 0; r < nranks && result == ceclSuccess; r++)
        if (r != rank)
            check_descriptor(fds[r], file[r]);
}

static void peer_posts(void)
{
    uint8_t body[CECL_INBOX_BYTES + 64];
    int fds[CECL_INBOX_FDS];
    const unsigned flags = take_byte(&in);
    struct letter letter = {.who = other_rank(), .seed = flags};
    letter.bytes = flags & 1 ? CECL_INBOX_BYTES - take_byte(&in) % 3u : take_byte(&in);
    letter.nfds = flags & 2 ? (int)take_below(&in, CECL_INBOX_FDS + 1) : 0;
    const bool is_too_long = flags >> 4 == 3;
    const struct inbox_head head = head_of(letter.who, take_byte(&in));
    letter.bytes = is_too_long ? CECL_INBOX_BYTES + 1 + take_below(&in, 60) : letter.bytes;
    if (nletters == POSTS_MOST)
        return;
    for (size_t i = 0; i < letter.bytes; i++)
        body[i] = part_byte(letter.seed, letter.who, i);
    for (int i = 0; i < letter.nfds; i++)
        fds[i] = files[(letter.seed + (unsigned)i) % FILES];
    say(MESH_POST, &head, body, letter.bytes, fds, letter.nfds);
    if (!is_too_long) /* no rank sends such a message */
        letters[nletters++] = letter;
}

static void take(void)
{
    uint8_t message[CECL_INBOX_BYTES];
    struct cecl_letter taken = {.rank = -1};
    const bool waits = nletters > 0;
    const struct letter letter = letters[0];
    (void)cecl_mesh_await(mesh, true, 0);
    const ceclResult_t result = cecl_mesh_take(mesh, message, sizeof(message), &taken);
    REQUIRE(result == (waits ? ceclSuccess : ceclInProgress), "result %d: %s", (int)result,
            cecl_message());
    if (waits)
        memmove(letters, letters + 1, (size_t)--nletters * sizeof(letters[0]));
    if (result != ceclSuccess)
        return;
    REQUIRE(taken.rank == letter.who && taken.bytes == letter.bytes && taken.nfds == letter.nfds,
            "rank %d, %zu bytes, %d descriptors", taken.rank, taken.bytes, taken.nfds);
    for (size_t i = 0; i < taken.bytes; i++)
        REQUIRE(message[i] == part_byte(letter.seed, letter.who, i), "byte %zu is wrong", i);
    for (int i = 0; i < taken.nfds; i++)
        check_descriptor(taken.fds[i], (int)((letter.seed + (unsigned)i) % FILES));
}

static void post(void)
{
    const int who = other_rank(), nfds = (int)take_below(&in, CECL_INBOX_FDS + 1);
    const size_t bytes = take_below(&in, CECL_INBOX_BYTES + 1);
    uint8_t message[CECL_INBOX_BYTES], got[CECL_INBOX_BYTES];
    int fds[CECL_INBOX_FDS];
    struct cecl_letter letter;
    for (size_t i = 0; i < bytes; i++)
        message[i] = part_byte(5, rank, i);
    for (int i = 0; i < nfds; i++)
        fds[i] = files[i % FILES];
    const ceclResult_t result =
        cecl_mesh_post(mesh, who, message, bytes, fds, nfds, cecl_deadline(100));
    REQUIRE(result == ceclSuccess || is_disturbed, "result %d: %s", (int)result, cecl_message());
    if (result != ceclSuccess)
        return;
    REQUIRE(cecl_inbox_take(&theirs[who][1], nranks, got, sizeof(got), &letter) == ceclSuccess &&
                letter.rank == rank && letter.bytes == bytes && letter.nfds == nfds,
            "no message came, or another one");
    REQUIRE(memcmp(got, message, bytes) == 0, "other bytes came");
    for (int i = 0; i < nfds; i++)
        check_descriptor(letter.fds[i], i % FILES);
}

/* A peer ends, says how it ends, or writes any bytes where it may write. */
static void peer_ends(void)
{
    struct mesh_row *row = &rows[other_rank()];
    const unsigned at = take_below(&in, sizeof(*row) - sizeof(uint32_t));
    is_disturbed = true;
    switch (take_below(&in, 4)) {
    case 0: eventfd_write(lives[row - rows], 1); break;
    case 1:
        memset(row->why, 'c', sizeof(row->why));
        atomic_store(&row->state, take_byte(&in));
        break;
    case 2: take_bytes(&in, &row->epoch, sizeof(row->epoch)); break;
    default: take_bytes(&in, (char *)row + at, sizeof(uint32_t));
    }
}

static void hear_news(void)
{
    uint32_t epoch;
    const ceclResult_t result =
        take_below(&in, 2) ? cecl_mesh_news(mesh) : cecl_mesh_watch(mesh, (int)take_below(&in, 2));
    REQUIRE(result == ceclSuccess || (result == ceclRemoteError && is_disturbed), "result %d: %s",
            (int)result, cecl_message());
    const int who = other_rank();
    REQUIRE(is_disturbed ||
                (!cecl_mesh_left(mesh, who) && cecl_mesh_check_peer(mesh, who) == ceclSuccess),
            "rank %d has gone: %s", who, cecl_message());
    (void)cecl_mesh_left_with(mesh, who, &epoch);
}

static void step(void)
{
    switch (take_below(&in, 11)) {
    case 0:
    case 1: gather(); break;
    case 2: agree(); break;
    case 3: exchange_descriptors(); break;
    case 4:
    case 5: peer_posts(); break;
    case 6:
    case 7: take(); break;
    case 8: post(); break;
    case 9: take_below(&in, 6) ? be_a_stranger(MESH_POST) : peer_ends(); break;
    default: hear_news();
    }
}

static void open_peers(void)
{
    memset(all, 0, sizeof(all));
    for (int r = 0; r < nranks; r++) {
        lives[r] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        theirs[r][0] = theirs[r][1] = (struct cecl_inbox){.listener = -1, .caller = -1};
        if (r == rank)
            continue;
        all[r] = (struct cecl_invitation){.process = 1 + (uint64_t)r};
        snprintf(all[r].at.name, sizeof(all[r].at.name), "cecl-fuzz-%d-%d", (int)getpid(), r);
        memset(all[r].at.secret, 'a' + r, sizeof(all[r].at.secret));
        REQUIRE(cecl_inbox_open(&theirs[r][0], &all[r].at, MESH_EXCHANGE) == ceclSuccess &&
                    cecl_inbox_open(&theirs[r][1], &all[r].at, MESH_POST) == ceclSuccess,
                "%s", cecl_message());
    }
}

static void close_peers(void)
{
    for (int r = 0; r < nranks; r++) {
        cecl_inbox_close(&theirs[r][0]);
        cecl_inbox_close(&theirs[r][1]);
        close(lives[r]);
    }
    if (rows)
        munmap(rows, mesh_rows_bytes(nranks));
    close(memory);
    rows = NULL;
    mesh = NULL;
    nletters = 0;
    is_disturbed = false;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    for (int i = 0; i < FILES; i++) {
        struct stat status;
        files[i] = memfd_create("fuzz", MFD_CLOEXEC);
        REQUIRE(files[i] >= 0 && fstat(files[i], &status) == 0, "memfd: %s", strerror(errno));
        inodes[i] = status.st_ino;
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    in = (struct input){data, bytes < 2048 ? bytes : 2048};
    const int before = open_descriptors();
    nranks = 2 + (int)take_below(&in, RANKS_MOST - 1);
    rank = 1 + (int)take_below(&in, (unsigned)nranks - 1);
    open_peers();
    if (open_mesh())
        while (in.left > 0)
            step();
    cecl_mesh_close(mesh);
    close_peers();
    REQUIRE(open_descriptors() == before, "%d descriptors, %d before", open_descriptors(), before);
    return 0;
}
