/* The messages of the mesh: hellos, frames of exchanges, messages between two ranks with
 * descriptors, and news of peers' ends. One rank is the code under test; the fuzzer plays all
 * others, correctly or not. The results of an exchange must be what the peers sent; strangers
 * must not get in; no descriptor may leak; all waits end. */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../descriptors.h"
#include "boot/mesh.h"
#include "boot/process.h"
#include "input.h"
#include "util/clock.h"

#define RANKS_MOST 4
#define PART_MOST 300
#define JOIN_MS 3000 /* longer than MESH_LONG_MS */
#define POSTS_MOST 16
#define FILES 8
#define STRANGERS_MOST 16
#define ROOM (CECL_MESH_POST_BYTES + 64)

/* ---- the messages in their binary form */

struct hello {
    uint32_t magic;
    uint16_t rank, channel;
    uint8_t secret[16];
};
#define HELLO_MAGIC 0x6d657368u
enum { DATA, LIFE, POST, CHANNELS };

struct frame {
    uint32_t magic, sequence;
    uint64_t bytes;
    char kind[8];
};
#define FRAME_MAGIC 0x6365636cu

struct post_head {
    uint32_t magic;
    uint16_t bytes, nfds;
};
#define POST_MAGIC 0x74736f70u

struct news {
    uint32_t kind;
    uint32_t has_words, words[2];
    char why[256];
};
enum { GOODBYE = 1, ABORT = 2 };

/* ---- the peers, which the fuzzer plays */

/* A message that was sent, and not yet received. */
struct letter {
    unsigned seed;
    size_t bytes;
    int nfds;
    bool is_bad;
};

struct peer {
    int data, life, post;   /* the fuzzer's ends; -1: not open */
    int called;             /* how often this rank has called it */
    bool greeted[CHANNELS]; /* the peer has proved the secret on this connection */
    bool is_silent;         /* the peer's later bytes are ignored */
    bool has_left;          /* it has hung up, or has refused a call */
    bool told, left;        /* news of the peer's end is on its way; the news is a goodbye */
    bool post_ended;        /* a message was bad */
    struct letter letters[POSTS_MOST];
    int first, count; /* index and number of the letters */
};

static struct input in;
static struct cecl_mesh *mesh;
static struct cecl_invitation mine;
static struct peer peers[RANKS_MOST];
/* callers that said hello, but are none of the ranks */
static int strangers[STRANGERS_MOST], nstrangers;
static int nranks, rank, files[FILES];
static ino_t inodes[FILES];
static bool is_easy; /* the peers connect by themselves, correctly */
static bool is_disturbed, is_broken, is_interrupted;
static uint32_t sequence;
static int64_t init_deadline;

static uint8_t part_byte(unsigned seed, int from, size_t i)
{
    return (uint8_t)(seed * 17 + (unsigned)from * 59 + i * 7 + 3);
}

/* Receives bytes, and descriptors, which the caller must close. */
static ssize_t receive_with(int socket, void *data, size_t room, int *fds, int *nfds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(CECL_MESH_POST_FDS * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = data, .iov_len = room};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *nfds = 0;
    if (got < 0)
        return got;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        const size_t bytes = c->cmsg_len - CMSG_LEN(0);
        memcpy(fds + *nfds, CMSG_DATA(c), bytes);
        *nfds += (int)(bytes / sizeof(int));
    }
    return got;
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static void hang_up(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- connecting */

static int *end_of(struct peer *p, int channel)
{
    int *const ends[CHANNELS] = {&p->data, &p->life, &p->post};
    return ends[channel];
}

/* A lower rank is called for each connection in turn. A rank that gives up calls the ranks to
 * which it has no connection, and sends them the reason. */
static int reach_peer(int fd, const struct sockaddr *to, socklen_t length)
{
    const struct sockaddr_un *address = (const struct sockaddr_un *)(const void *)to;
    const unsigned how = is_easy ? 0 : take_below(&in, 24);
    const int who = length > 3 ? address->sun_path[1] - 'a' : -1;
    REQUIRE(who >= 0 && who < nranks && who != rank, "it calls rank %d", who);
    errno = how == 1 ? EAGAIN : how == 2 ? ECONNREFUSED : ENOMEM;
    struct peer *p = &peers[who];
    p->has_left = p->has_left || how == 2;
    if (how >= 1 && how <= 3)
        return -1;
    if (who > rank || p->called == CHANNELS) {
        close(world_connect(fd));
        return 0;
    }
    *end_of(p, p->called++) = world_connect(fd);
    return 0;
}

/* A rank listens until it has made its connections, or gives up. */
static bool is_taken(const struct sockaddr *name)
{
    const char *const text = ((const struct sockaddr_un *)(const void *)name)->sun_path + 1;
    if (text[1] != 'x') /* this rank's own name */
        return false;
    const struct peer *p = &peers[text[0] - 'a'];
    return !p->has_left && !(p->greeted[DATA] && p->greeted[LIFE] && p->greeted[POST]);
}

/* Whether the hello is valid for a connection of that peer. A second hello of the peer is
 * refused. */
static bool is_greeting(const struct hello *hello)
{
    return hello->magic == HELLO_MAGIC && hello->rank > rank && hello->rank < nranks &&
           hello->channel < CHANNELS && !peers[hello->rank].greeted[hello->channel] &&
           memcmp(hello->secret, mine.secret, sizeof(hello->secret)) == 0;
}

static void note_greeting(const struct hello *hello, int fd)
{
    struct peer *p = &peers[hello->rank];
    p->greeted[hello->channel] = true;
    *end_of(p, hello->channel) = fd;
}

/* Calls the rank under test, as a higher rank does. One bit may be changed: the hello may then be
 * that of another rank, or of the other connection. */
static void greet(int who, unsigned channel, unsigned flags)
{
    struct hello hello = {
        .magic = HELLO_MAGIC, .rank = (uint16_t)who, .channel = (uint16_t)channel};
    memcpy(hello.secret, mine.secret, sizeof(hello.secret));
    const unsigned bit = take_below(&in, 8 * (unsigned)sizeof(hello));
    if (flags & 1)
        ((uint8_t *)&hello)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    const int fd = world_call();
    const size_t bytes = flags & 2 ? take_below(&in, sizeof(hello)) : sizeof(hello);
    if (fd < 0)
        return;
    world_send(fd, &hello, bytes);
    if (bytes == sizeof(hello) && is_greeting(&hello))
        note_greeting(&hello, fd);
    else if (bytes == sizeof(hello) && nstrangers < STRANGERS_MOST)
        strangers[nstrangers++] = fd;
    else
        close(fd);
}

/* The rank has received all hellos: it must have rejected strangers. */
static void check_strangers(void)
{
    for (int i = 0; i < nstrangers && world_waiting() == 0; i++) {
        char byte;
        const ssize_t got = recv(strangers[i], &byte, 1, MSG_DONTWAIT);
        REQUIRE(got == 0 || (got < 0 && errno == ECONNRESET), "a stranger was let in");
    }
}

/* A step of the peers while ranks connect without errors. False: all steps are done. */
static bool connect_easily(void)
{
    for (int p = rank + 1; p < nranks; p++)
        for (unsigned channel = 0; channel < CHANNELS; channel++)
            if (!peers[p].greeted[channel]) {
                greet(p, channel, 0);
                return true;
            }
    return false;
}

static void say_anything(struct peer *p)
{
    uint8_t bytes[64];
    const size_t count = 1 + take_below(&in, sizeof(bytes) - 1);
    take_bytes(&in, bytes, count);
    if (p->data >= 0)
        world_send(p->data, bytes, count);
    p->is_silent = is_disturbed = true;
}

static void act_while_meeting(void)
{
    const int who = (int)take_below(&in, RANKS_MOST);
    struct peer *p = &peers[who];
    switch (take_below(&in, 8)) {
    case 0:
    case 1:
    case 2:
    case 3: greet(who, take_below(&in, CHANNELS + 1), take_byte(&in) & 3); break;
    case 4: say_anything(p); break;
    case 5:
        p->is_silent = p->has_left = true;
        hang_up(&p->data);
        break;
    case 6: connect_easily(); break;
    default: world_pass(take_byte(&in) * 8);
    }
}

static bool act(void)
{
    if (mesh)
        return false;
    if (is_easy)
        return connect_easily();
    if (!world_hears_one()) /* the reason of a rank that gives up */
        check_strangers();
    if (in.left == 0)
        return false;
    act_while_meeting();
    return true;
}

/* ---- every rank's invitation */

static void invite(struct cecl_invitation *all)
{
    REQUIRE(memchr(mine.name, 0, sizeof(mine.name)), "its name has no terminating 0");
    for (int r = 0; r < nranks; r++) {
        all[r] = (struct cecl_invitation){.name = {(char)('a' + r)}};
        memset(all[r].name + 1, 'x', sizeof(all[r].name) - 1); /* compared to the last byte */
        memset(all[r].secret, 'a' + r, sizeof(all[r].secret));
    }
    all[rank] = mine;
}

/* The hello on a connection to a lower rank must prove that rank's secret. */
static void check_hello(const struct peer *p, int fd, unsigned channel)
{
    struct hello hello;
    uint8_t expected[16];
    if (fd < 0)
        return;
    int fds[CECL_MESH_POST_FDS], nfds;
    const ssize_t got = receive_with(fd, &hello, sizeof(hello), fds, &nfds);
    close_all(fds, nfds);
    memset(expected, 'a' + (int)(p - peers), sizeof(expected));
    REQUIRE(got == (ssize_t)sizeof(hello) && hello.magic == HELLO_MAGIC && hello.rank == rank &&
                hello.channel == channel && memcmp(hello.secret, expected, 16) == 0,
            "a wrong hello");
}

static bool somebody_has_left(void)
{
    bool has = false;
    for (int r = 0; r < nranks; r++)
        has = has || peers[r].has_left;
    return has;
}

static bool open_mesh(void)
{
    static struct cecl_oob oob;
    struct cecl_invitation all[RANKS_MOST];
    struct cecl_mesh *made = NULL;
    init_deadline = cecl_deadline(JOIN_MS);
    oob = (struct cecl_oob){
        .nranks = nranks, .rank = rank, .timeout_ms = JOIN_MS, .deadline = init_deadline};
    ceclResult_t result = cecl_mesh_new(&oob, 1000, &mine, &made);
    REQUIRE(result == ceclSuccess, "result %d: %s", (int)result, cecl_message());
    invite(all);
    result = cecl_mesh_connect(made, all, sizeof(all[0]));
    if (result != ceclSuccess) {
        REQUIRE(!strstr(cecl_message(), "left while") || somebody_has_left(), "nobody has left: %s",
                cecl_message());
        cecl_mesh_tell_abort(made, cecl_message());
        cecl_mesh_close(made);
        made = NULL;
    }
    for (int r = 0; r < rank && result == ceclSuccess; r++)
        for (unsigned channel = 0; channel < CHANNELS; channel++)
            check_hello(&peers[r], *end_of(&peers[r], (int)channel), channel);
    for (int r = rank + 1; r < nranks && result == ceclSuccess; r++)
        for (unsigned channel = 0; channel < CHANNELS; channel++)
            REQUIRE(peers[r].greeted[channel], "rank %d has not proved the secret", r);
    REQUIRE(result == ceclSuccess || !is_easy, "result %d: %s", (int)result, cecl_message());
    mesh = made;
    return made;
}

/* ---- exchanges */

enum how {
    RIGHT,
    OTHER_SEQUENCE, /* these three: complete frames of another exchange */
    OTHER_BYTES,
    OTHER_KIND,
    NO_FRAME, /* after these three, later bytes are unreadable */
    CUT,
    NOTHING,
    HOWS
};

/* The steps of all peers in one exchange. */
struct plan {
    struct frame head; /* head of a correct frame */
    unsigned seed;
    enum how worst;
    bool sends_fds;
    int file[RANKS_MOST]; /* the file of each peer's descriptor */
};

/* Makes a frame. Returns how the receiver must treat it. */
static enum how frame_of(const struct plan *plan, enum how how, int who, uint8_t *frame,
                         size_t *all)
{
    struct frame head = plan->head;
    head.sequence += how == OTHER_SEQUENCE;
    head.bytes = how == OTHER_BYTES ? take_below(&in, PART_MOST) : head.bytes;
    head.kind[0] = (char)(head.kind[0] ^ (how == OTHER_KIND));
    head.magic ^= how == NO_FRAME;
    memcpy(frame, &head, sizeof(head));
    for (size_t i = 0; i < head.bytes; i++)
        frame[sizeof(head) + i] = part_byte(plan->seed, who, i);
    *all = sizeof(head) + head.bytes;
    return how == OTHER_BYTES && head.bytes == plan->head.bytes ? RIGHT : how;
}

/* Sends a frame, or its first bytes, with descriptors. */
static void send_frame(struct peer *p, const uint8_t *frame, size_t bytes, int file, int nfds)
{
    int fds[8];
    for (int i = 0; i < 8; i++)
        fds[i] = files[file];
    (void)send_descriptors(p->data, frame, bytes, fds, nfds, MSG_DONTWAIT);
}

static void play_peer(struct plan *plan, int who)
{
    struct peer *p = &peers[who];
    const unsigned flags = take_byte(&in);
    uint8_t frame[sizeof(struct frame) + PART_MOST];
    size_t all;
    enum how how = flags % 16 < HOWS ? (enum how)(flags % 16) : RIGHT;
    how = frame_of(plan, how, who, frame, &all);
    const size_t sent = how == CUT ? 1 + take_below(&in, (unsigned)all - 1) : all;
    const int nfds = flags & 32 ? (int)take_below(&in, 7) : plan->sends_fds;
    plan->file[who] = (int)take_below(&in, FILES);
    if (p->data < 0 || p->is_silent)
        how = NOTHING;
    plan->worst = how > plan->worst ? how : plan->worst;
    if (how != NOTHING)
        send_frame(p, frame, sent, plan->file[who], nfds);
    if (how == CUT)
        hang_up(&p->data);
}

static struct plan play_peers(const char *kind, size_t bytes, bool sends_fds)
{
    struct plan plan = {.head = {.magic = FRAME_MAGIC, .sequence = sequence, .bytes = bytes},
                        .seed = sequence,
                        .sends_fds = sends_fds};
    memcpy(plan.head.kind, kind, strlen(kind));
    for (int r = 0; r < nranks; r++)
        if (r != rank)
            play_peer(&plan, r);
    return plan;
}

/* Peers read the frames of this rank, so that no buffer fills up; the frames must be correct. */
static void check_sent(const struct plan *plan, const uint8_t *part)
{
    uint8_t got[sizeof(struct frame) + 4096];
    int fds[CECL_MESH_POST_FDS], nfds;
    for (int r = 0; r < nranks; r++) {
        if (r == rank || peers[r].data < 0)
            continue;
        const ssize_t bytes = receive_with(peers[r].data, got, sizeof(got), fds, &nfds);
        close_all(fds, nfds);
        if (bytes < (ssize_t)(sizeof(plan->head) + plan->head.bytes))
            continue;
        REQUIRE(memcmp(got, &plan->head, sizeof(plan->head)) == 0, "rank %d: a wrong header", r);
        REQUIRE(!part || memcmp(got + sizeof(plan->head), part, plan->head.bytes) == 0,
                "rank %d was sent another part", r);
    }
}

/* Whether the result fits the peers' steps. */
static void check_result(const struct plan *plan, ceclResult_t result)
{
    const bool was_broken = is_broken;
    is_broken = cecl_mesh_broken(mesh);
    if (was_broken) {
        REQUIRE(result != ceclSuccess && is_broken, "a broken mesh works again");
        return;
    }
    sequence++;
    if (is_broken && (is_interrupted || cecl_ms_left(init_deadline) == 0))
        return;
    REQUIRE(plan->worst != RIGHT || !is_broken, "right frames break the mesh: %s", cecl_message());
    REQUIRE(plan->worst == RIGHT || result != ceclSuccess, "a wrong frame is accepted");
    REQUIRE(plan->worst < NO_FRAME || is_broken, "the mesh is still used after half a frame");
    if (plan->worst > RIGHT && plan->worst < NO_FRAME)
        REQUIRE(result == ceclInvalidUsage && !is_broken, "result %d: %s", (int)result,
                cecl_message());
}

static void gather(void)
{
    static const char *const kinds[] = {"a", "alloc", "seventh", "free"};
    const char *kind = kinds[take_below(&in, 4)];
    const size_t bytes = take_below(&in, PART_MOST);
    uint8_t part[PART_MOST];
    uint8_t *all = malloc((size_t)nranks * bytes + 1);
    REQUIRE(all, "no memory");
    const struct plan plan = play_peers(kind, bytes, false);
    for (size_t i = 0; i < bytes; i++)
        part[i] = part_byte(plan.seed, rank, i);
    const ceclResult_t result = cecl_mesh_allgather(mesh, kind, part, all, bytes);
    check_result(&plan, result);
    REQUIRE(result == ceclSuccess || plan.worst != RIGHT || is_broken || is_interrupted,
            "right frames give %d: %s", (int)result, cecl_message());
    for (int r = 0; r < nranks && result == ceclSuccess; r++)
        for (size_t i = 0; i < bytes; i++)
            REQUIRE(all[(size_t)r * bytes + i] == part_byte(plan.seed, r, i),
                    "byte %zu of rank %d is wrong", i, r);
    check_sent(&plan, part);
    free(all);
}

/* Peers' verdicts are the bytes of their frames. If any of the bytes means failure, all ranks
 * fail. */
static void agree(void)
{
    const ceclResult_t own = (ceclResult_t)(take_below(&in, 12) % 10);
    const struct plan plan = play_peers("agree", 4 + 256, false);
    const ceclResult_t result = cecl_mesh_agree(mesh, own);
    check_result(&plan, result);
    REQUIRE(result != ceclSuccess || (nranks == 1 && own == ceclSuccess),
            "it reports success, and its peers do not");
    check_sent(&plan, NULL);
}

/* A received descriptor must refer to the file that was sent. */
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
    int fds[RANKS_MOST];
    const struct plan plan = play_peers("fd", 0, true);
    const ceclResult_t result = cecl_mesh_exchange_fd(mesh, files[0], fds);
    check_result(&plan, result);
    for (int r = 0; r < nranks && result == ceclSuccess; r++)
        if (r != rank)
            check_descriptor(fds[r], plan.file[r]);
    check_sent(&plan, NULL);
}

static void share_descriptor(void)
{
    const int root = (int)take_below(&in, (unsigned)nranks);
    int fd = root == rank ? files[1] : -1;
    const struct plan plan = play_peers("share", 0, true);
    const ceclResult_t result = cecl_mesh_share_fd(mesh, root, &fd);
    check_result(&plan, result);
    if (root != rank && result == ceclSuccess)
        check_descriptor(fd, plan.file[root]);
    REQUIRE(root == rank || result == ceclSuccess || fd == -1, "a failed call changes *fd");
    check_sent(&plan, NULL);
}

/* ---- messages between two ranks */

static int other_rank(void)
{
    const int who = (int)take_below(&in, (unsigned)nranks);
    return who != rank ? who : nranks > 1 ? (rank + 1) % nranks : -1;
}

/* A message, with a head that fits or not. */
static struct letter draw_letter(unsigned flags, struct post_head *head)
{
    const unsigned fault = flags >> 4;
    struct letter letter = {.seed = flags, .bytes = take_below(&in, 1000) % 300, .nfds = 0};
    letter.bytes = flags & 1 ? CECL_MESH_POST_BYTES - letter.bytes % 3 : letter.bytes;
    letter.nfds = flags & 2 ? (int)take_below(&in, CECL_MESH_POST_FDS + 1) : 0;
    letter.is_bad = fault >= 1 && fault <= 4;
    *head = (struct post_head){
        .magic = POST_MAGIC, .bytes = (uint16_t)letter.bytes, .nfds = (uint16_t)letter.nfds};
    switch (fault) {
    case 1: head->magic ^= 1u << take_below(&in, 32); break;
    case 2: head->bytes = (uint16_t)(head->bytes + 1 + take_byte(&in)); break;
    case 3: head->nfds = (uint16_t)(head->nfds + 1 + take_byte(&in)); break;
    case 4: letter.bytes = CECL_MESH_POST_BYTES + 1 + take_below(&in, 60); break;
    default: break;
    }
    return letter;
}

static void peer_posts(void)
{
    const int who = other_rank();
    const unsigned flags = take_byte(&in);
    uint8_t message[sizeof(struct post_head) + ROOM];
    struct post_head head;
    int fds[CECL_MESH_POST_FDS];
    if (who < 0 || peers[who].post < 0 || peers[who].count == POSTS_MOST)
        return;
    struct peer *p = &peers[who];
    struct letter letter = draw_letter(flags, &head);
    memcpy(message, &head, sizeof(head));
    for (size_t i = 0; i < letter.bytes; i++)
        message[sizeof(head) + i] = part_byte(letter.seed, who, i);
    for (int i = 0; i < letter.nfds; i++)
        fds[i] = files[(letter.seed + (unsigned)i) % FILES];
    const size_t cut = flags >> 4 == 5 ? take_below(&in, sizeof(head)) : 0;
    letter.is_bad = letter.is_bad || cut > 0;
    if (send_descriptors(p->post, message, cut ? cut : sizeof(head) + letter.bytes, fds,
                         letter.nfds, MSG_DONTWAIT) > 0)
        p->letters[(p->first + p->count++) % POSTS_MOST] = letter;
}

/* A received message must be the peer's next one. */
static void check_letter(int who, const uint8_t *message, size_t bytes, const int *fds, int nfds)
{
    struct peer *p = &peers[who];
    const struct letter letter = p->letters[p->first];
    REQUIRE(p->count > 0 && !letter.is_bad && !p->post_ended, "rank %d sent no message", who);
    p->count--;
    p->first = (p->first + 1) % POSTS_MOST;
    REQUIRE(bytes == letter.bytes && nfds == letter.nfds, "%zu bytes, %d descriptors", bytes, nfds);
    for (size_t i = 0; i < bytes; i++)
        REQUIRE(message[i] == part_byte(letter.seed, who, i), "byte %zu is wrong", i);
    for (int i = 0; i < nfds; i++)
        check_descriptor(fds[i], (int)((letter.seed + (unsigned)i) % FILES));
}

static bool has_bad_letter(const struct peer *p)
{
    return p->count > 0 && p->letters[p->first].is_bad && !p->post_ended;
}

/* A peer's next message is bad: the error names that rank, and no more messages are received from
 * it. */
static void check_bad_letter(void)
{
    int named = -1;
    REQUIRE(sscanf(cecl_message(), "a message of rank %d ", &named) == 1 && named >= 0 &&
                named < nranks && has_bad_letter(&peers[named]),
            "a message is refused: %s", cecl_message());
    peers[named].post_ended = true;
}

/* The next message of some peer, or the error that it is bad. */
static void take(void)
{
    uint8_t *message = malloc(CECL_MESH_POST_BYTES);
    int fds[CECL_MESH_POST_FDS], nfds = -1, who = -1;
    size_t bytes = 0;
    bool waits = false;
    REQUIRE(message, "no memory");
    for (int r = 0; r < nranks; r++)
        waits = waits || (peers[r].count > 0 && !peers[r].post_ended);
    cecl_mesh_await(mesh, 0);
    const ceclResult_t result =
        cecl_mesh_take(mesh, &who, message, CECL_MESH_POST_BYTES, &bytes, fds, &nfds);
    if (result == ceclSuccess)
        check_letter(who, message, bytes, fds, nfds);
    else if (result == ceclRemoteError)
        check_bad_letter();
    else
        REQUIRE(result == ceclInProgress && !waits, "result %d", (int)result);
    free(message);
}

static void post(void)
{
    const int who = other_rank();
    const size_t bytes = take_below(&in, 1200) * 4;
    const int nfds = (int)take_below(&in, CECL_MESH_POST_FDS + 2) - 1;
    uint8_t message[1200 * 4], got[ROOM];
    int fds[CECL_MESH_POST_FDS + 1], came[CECL_MESH_POST_FDS], ncame;
    for (size_t i = 0; i < bytes; i++)
        message[i] = part_byte(5, rank, i);
    for (int i = 0; i <= CECL_MESH_POST_FDS; i++)
        fds[i] = files[i % FILES];
    const ceclResult_t result =
        cecl_mesh_post(mesh, who, message, bytes, fds, nfds, cecl_deadline(100));
    if (who < 0 || nfds < 0 || bytes > CECL_MESH_POST_BYTES) {
        REQUIRE(result == ceclInvalidArgument, "result %d of a bad call", (int)result);
        return;
    }
    REQUIRE(result == ceclSuccess || peers[who].told || peers[who].post < 0 || is_disturbed ||
                peers[who].post_ended || is_interrupted,
            "result %d: %s", (int)result, cecl_message());
    if (result != ceclSuccess || peers[who].post < 0)
        return;
    const ssize_t size = receive_with(peers[who].post, got, sizeof(got), came, &ncame);
    REQUIRE(size == (ssize_t)(sizeof(struct post_head) + bytes) && ncame == nfds,
            "%zd bytes and %d descriptors came", size, ncame);
    REQUIRE(memcmp(got + sizeof(struct post_head), message, bytes) == 0, "other bytes came");
    for (int i = 0; i < ncame; i++)
        check_descriptor(came[i], i % FILES);
}

/* ---- news of peers' ends */

static void peer_tells(void)
{
    const int who = other_rank();
    const unsigned flags = take_byte(&in);
    struct news news = {.kind = flags % 4, .has_words = take_byte(&in)};
    memset(news.why, 'c', take_below(&in, sizeof(news.why) + 1));
    if (who < 0 || peers[who].life < 0)
        return;
    world_send(peers[who].life, &news, flags & 16 ? take_below(&in, sizeof(news)) : sizeof(news));
    if (!peers[who].told)
        peers[who].left = news.kind == GOODBYE && !(flags & 16);
    peers[who].told = true;
    if (flags & 48) /* half a message stays incomplete */
        hang_up(&peers[who].life);
}

static void check_news(ceclResult_t result)
{
    bool lost = false, told = false;
    for (int r = 0; r < nranks; r++) {
        told = told || peers[r].told;
        lost = lost || (peers[r].told && !peers[r].left);
    }
    REQUIRE(result == ceclSuccess || result == ceclRemoteError, "result %d", (int)result);
    REQUIRE(result == ceclSuccess || told || is_broken, "an end that no peer has sent: %s",
            cecl_message());
    REQUIRE(result != ceclSuccess || !lost, "the end of a peer is not noticed");
}

static void hear_news(void)
{
    check_news(take_below(&in, 2) ? cecl_mesh_news(mesh)
                                  : cecl_mesh_watch(mesh, (int)take_below(&in, 2)));
    for (int r = 0; r < nranks; r++)
        if (r != rank && cecl_mesh_left(mesh, r))
            REQUIRE(peers[r].told && peers[r].left, "rank %d has not left", r);
    const int who = (int)take_below(&in, (unsigned)nranks);
    const ceclResult_t checked = cecl_mesh_check_peer(mesh, who);
    REQUIRE(checked == ceclSuccess || peers[who].told || is_broken, "rank %d has gone: %s", who,
            cecl_message());
}

static void step(void)
{
    switch (take_below(&in, 14)) {
    case 0:
    case 1: gather(); break;
    case 2: agree(); break;
    case 3: exchange_descriptors(); break;
    case 4: share_descriptor(); break;
    case 5:
    case 6: peer_posts(); break;
    case 7:
    case 8: take(); break;
    case 9: post(); break;
    case 10: peer_tells(); break;
    case 11: hear_news(); break;
    case 12: cecl_mesh_joined(mesh); break;
    default:
        if (take_byte(&in) < 20) {
            is_interrupted = true;
            cecl_mesh_interrupt(mesh);
        }
    }
}

/* ---- the fuzzer */

static void forget_peers(void)
{
    memset(peers, 0, sizeof(peers));
    for (int r = 0; r < RANKS_MOST; r++)
        peers[r].data = peers[r].life = peers[r].post = -1;
    mesh = NULL;
    is_disturbed = is_broken = is_interrupted = false;
    sequence = 0;
}

static void hang_all_up(void)
{
    for (int r = 0; r < RANKS_MOST; r++) {
        hang_up(&peers[r].data);
        hang_up(&peers[r].life);
        hang_up(&peers[r].post);
    }
    close_all(strangers, nstrangers);
    nstrangers = 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
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
    static const struct world_script script = {act, reach_peer, is_taken, SOCK_SEQPACKET};
    in = (struct input){data, bytes < 2048 ? bytes : 2048};
    forget_peers();
    nranks = 1 + (int)take_below(&in, RANKS_MOST);
    rank = (int)take_below(&in, (unsigned)nranks);
    is_easy = take_below(&in, 4) != 0;
    world_begin(&script);
    if (open_mesh())
        while (in.left > 0)
            step();
    cecl_mesh_close(mesh);
    hang_all_up();
    world_end();
    return 0;
}
