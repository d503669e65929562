/* The messages of the TCP bootstrap: what a root reads from its callers, and what a rank reads from the listener at its
 * id's address. The fuzzer plays the other side, with the right secret or without it, in pieces, out of order, with
 * random bytes. Without the secret, a caller must learn nothing. A rank that has joined gets exactly the parts of all
 * ranks. All waits end. */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

#include "boot/oob.h"
#include "boot/tcp.h"
#include "input.h"

#define CLIENTS 6
#define SENT_MOST 8192
#define RECEIVED_MOST (1u << 18)
#define WORDS_MOST 512

static struct input in;
static const uint8_t secret[16] = "a secret of many";

/* ---- the root under test; the fuzzer plays the clients */

static struct client {
    int fd;
    bool right;     /* its first bytes were those of a rank that joins */
    bool is_silent; /* the client sends no more */
    int rank, nranks;
    uint64_t proof;                    /* the proof that the root must send to this client */
    uint8_t part[CECL_OOB_PART_BYTES]; /* the part that the client sends, if `right` */
    uint8_t sent[SENT_MOST];           /* sent after the part; if not `right`: all it sends */
    size_t nsent;
    uint8_t *received; /* [RECEIVED_MOST] */
    size_t nreceived;
} clients[CLIENTS];
static int nclients;
static int joiners; /* this many ranks join before the script begins */

static void hear(struct client *c)
{
    if (c->fd >= 0)
        c->nreceived +=
            world_drain(c->fd, c->received + c->nreceived, RECEIVED_MOST - c->nreceived);
}

static void say(struct client *c, const void *data, size_t bytes)
{
    if (c->fd < 0 || c->is_silent || c->nsent + bytes > SENT_MOST)
        return;
    const size_t sent = world_send(c->fd, data, bytes);
    memcpy(c->sent + c->nsent, data, sent);
    c->nsent += sent;
    c->is_silent = sent < bytes; /* a message was cut off, so none can follow */
}

/* The new client replaces the one of the last run. It has no connection yet. */
static struct client *begin_client(void)
{
    struct client *c = &clients[nclients++];
    uint8_t *received = c->received;
    memset(c, 0, offsetof(struct client, sent));
    c->nsent = c->nreceived = 0;
    memset(c->sent, 0, sizeof(c->sent));
    c->received = received;
    c->fd = -1;
    return c;
}

static struct cecl_tcp_said joining(const struct client *c, int rank, int nranks)
{
    struct cecl_tcp_said a = {.kind = CECL_TCP_MAGIC,
                              .rank = rank,
                              .nranks = nranks,
                              .timeout_ms = 1000,
                              .host = (uint64_t)rank / 2};
    for (size_t i = 0; i < sizeof(a.part); i++)
        a.part[i] = (char)(i * 7 + (size_t)(c - clients) * 31);
    return a;
}

static void sign(struct client *c, struct cecl_tcp_said *a)
{
    a->tag = cecl_tcp_rank_tag(secret, a);
    memcpy(c->part, a->part, sizeof(c->part));
    c->proof = cecl_tcp_root_tag(secret, a);
    c->rank = a->rank;
    c->nranks = a->nranks;
    c->right = true;
}

static bool may_answer(const struct client *c)
{
    return c->fd >= 0 && c->nsent == 0 && !c->right;
}

static void join(struct client *c, int rank, int nranks)
{
    struct cecl_tcp_said a = joining(c, rank, nranks);
    sign(c, &a);
    say(c, &a, sizeof(a));
    c->nsent = 0;
}

/* Joins with any numbers; sometimes one bit of the signed message is wrong. */
static void answer(struct client *c)
{
    const unsigned flags = take_byte(&in);
    if (!may_answer(c))
        return;
    struct cecl_tcp_said a =
        joining(c, (int)(take_byte(&in) % 5) - (flags >> 6 == 1), (int)(take_byte(&in) % 5));
    take_bytes(&in, a.nonce, 4);
    if (flags & 1)
        a.patience_ms = (int64_t)take_word(&in);
    if (flags & 2)
        a.timeout_ms = (int64_t)take_word(&in);
    if (flags & 4)
        a.nranks = (int32_t)take_word(&in);
    if (a.nranks > 300 && a.nranks < 70000) /* the root checks all seats at each tick */
        a.nranks %= 300;
    sign(c, &a);
    if (flags & 8) {
        const unsigned bit = take_below(&in, 8 * (unsigned)sizeof(a));
        ((uint8_t *)&a)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        c->right = false;
    }
    const size_t first = flags & 16 ? take_below(&in, sizeof(a)) : sizeof(a);
    say(c, &a, first);
    if (flags & 32)
        world_pass(take_byte(&in) * 20);
    say(c, (uint8_t *)&a + first, sizeof(a) - first);
    if (c->right && c->nsent == sizeof(a))
        c->nsent = 0;
    else
        c->right = false;
}

static void say_anything(struct client *c)
{
    uint8_t bytes[64];
    const size_t count = 1 + take_below(&in, sizeof(bytes) - 1);
    take_bytes(&in, bytes, count);
    say(c, bytes, count);
}

static void leave(struct client *c)
{
    if (c->fd < 0)
        return;
    hear(c);
    close(c->fd);
    c->fd = -1;
}

static void act_one(unsigned what, struct client *c)
{
    switch (what) {
    case 0:
    case 1:
    case 2:
    case 3: answer(c); break;
    case 4: say_anything(c); break;
    case 5: leave(c); break;
    default: world_pass(take_byte(&in) * 8);
    }
}

static bool act_as_clients(void)
{
    for (int i = 0; i < nclients; i++)
        hear(&clients[i]);
    if (nclients < joiners) {
        begin_client()->fd = world_call();
        return true;
    }
    for (int i = 0; i < joiners; i++)
        if (may_answer(&clients[i])) {
            join(&clients[i], i, joiners);
            return true;
        }
    if (in.left > 0) {
        const unsigned what = take_below(&in, 10);
        if (nclients == 0 || (what >= 8 && nclients < CLIENTS))
            begin_client()->fd = world_call();
        else if (what < 8)
            act_one(what, &clients[take_below(&in, (unsigned)nclients)]);
        return true;
    }
    bool acted = false; /* the script is over: clients only receive, until the root has left */
    for (int i = 0; i < nclients; i++)
        if (clients[i].fd >= 0 && shutdown(clients[i].fd, SHUT_WR) == 0 && !clients[i].is_silent)
            acted = clients[i].is_silent = true;
    return acted;
}

/* The client that has the seat of `rank`; NULL if several clients may have it. */
static const struct client *holder_of(int rank, int nranks)
{
    const struct client *holder = NULL;
    for (int i = 0; i < nclients; i++) {
        const struct client *c = &clients[i];
        if (!c->right || c->rank != rank || c->nranks != nranks)
            continue;
        if (holder)
            return NULL;
        holder = c;
    }
    REQUIRE(holder, "rank %d of %d had joined, but no client proved to be that rank", rank, nranks);
    return holder;
}

static void check_parts(const struct client *c, const uint8_t *data, uint64_t bytes)
{
    REQUIRE(bytes == (uint64_t)c->nranks * CECL_OOB_PART_BYTES, "%llu bytes for %d ranks",
            (unsigned long long)bytes, c->nranks);
    for (int r = 0; r < c->nranks; r++) {
        const struct client *holder = holder_of(r, c->nranks);
        REQUIRE(!holder || memcmp(data + (size_t)r * CECL_OOB_PART_BYTES, holder->part,
                                  CECL_OOB_PART_BYTES) == 0,
                "the part of rank %d is not the part that it sent", r);
    }
}

/* Checks the message of a failed job, the last thing that the root sends a rank. */
static void check_words(const uint8_t *words, uint64_t bytes, size_t left, int32_t status)
{
    REQUIRE(status > 0 && status <= ceclTimeout && bytes > 0 && bytes < WORDS_MOST,
            "status %d with %llu bytes", status, (unsigned long long)bytes);
    REQUIRE(left <= bytes && !memchr(words, 0, left), "%zu bytes of a message of %llu", left,
            (unsigned long long)bytes);
}

/* Checks the root's replies. The first has all ranks' parts; the others answer what the client sends after that. */
static void check_replies(const struct client *c, size_t at)
{
    struct cecl_tcp_reply reply;
    for (bool is_first = true; c->nreceived - at >= sizeof(reply); is_first = false) {
        memcpy(&reply, c->received + at, sizeof(reply));
        at += sizeof(reply);
        const size_t left = c->nreceived - at;
        if (reply.status != ceclSuccess) {
            check_words(c->received + at, reply.bytes, left, reply.status);
            return;
        }
        if (reply.bytes > left)
            return; /* the client or the root has left */
        if (is_first)
            check_parts(c, c->received + at, reply.bytes);
        else
            REQUIRE(reply.bytes == 0 || reply.bytes == (uint64_t)c->nranks * CECL_OOB_PART_BYTES,
                    "%llu bytes on a line of %d ranks", (unsigned long long)reply.bytes, c->nranks);
        at += (size_t)reply.bytes;
    }
}

/* Whether the root asked the client to connect again, because the client was too slow to send a whole answer. */
static bool was_put_off(const struct client *c)
{
    static const struct cecl_tcp_proof again = {CECL_TCP_AGAIN};
    return !c->right && c->nsent < sizeof(struct cecl_tcp_said) && c->nreceived == sizeof(again) &&
           memcmp(c->received, &again, sizeof(again)) == 0;
}

static void check_client(const struct client *c)
{
    if (was_put_off(c))
        return;
    if (!c->right)
        REQUIRE(c->nreceived == 0, "a stranger received %zu bytes", c->nreceived);
    if (c->nreceived < sizeof(c->proof))
        return;
    REQUIRE(memcmp(c->received, &c->proof, sizeof(c->proof)) == 0, "no proof of the root");
    check_replies(c, sizeof(c->proof));
}

static int reach_nobody(int fd, const struct sockaddr *to, socklen_t length)
{
    errno = ECONNREFUSED;
    return -1;
}

static void fuzz_root(void)
{
    static const struct world_script script = {act_as_clients, reach_nobody};
    static const int64_t timeouts[] = {1000, 60000, 1, 100};
    nclients = 0;
    joiners = (int)take_below(&in, 5);
    world_begin(&script);
    const ceclResult_t result =
        cecl_tcp_serve(world_listener(), secret, timeouts[take_below(&in, 4)]);
    REQUIRE(result == ceclSuccess, "result %d", (int)result);
    for (int i = 0; i < nclients; i++)
        leave(&clients[i]);
    world_end();
    for (int i = 0; i < nclients; i++)
        check_client(&clients[i]);
}

/* ---- the rank under test; the fuzzer plays the root, and `clients[0]` is the rank as the root sees it */

static struct {
    int nranks, rank;
    unsigned easy;     /* the root makes the first `easy` steps of the join correctly */
    size_t part;       /* bytes of each rank's part */
    bool is_disturbed; /* time has passed, or the root has left, so any wait may fail */
} job;

#define REPLY_AT sizeof(struct cecl_tcp_proof)
#define PARTS_AT (REPLY_AT + sizeof(struct cecl_tcp_reply))

/* The root's proof to the rank, computed from what the rank has sent. */
static uint64_t proof_for(const struct client *c)
{
    struct cecl_tcp_said a = {0};
    if (c->nreceived >= sizeof(a))
        memcpy(&a, c->received, sizeof(a));
    return cecl_tcp_root_tag(secret, &a);
}

static void prove_to_rank(struct client *c, unsigned flags)
{
    struct cecl_tcp_proof proof = {proof_for(c)};
    if (flags & 1)
        proof.tag ^= UINT64_C(1) << take_below(&in, 64);
    say(c, &proof, sizeof(proof));
}

static void reply_to_rank(struct client *c, unsigned flags)
{
    uint8_t data[4 * CECL_OOB_PART_BYTES];
    struct cecl_tcp_reply reply = {.bytes = (uint64_t)job.nranks * CECL_OOB_PART_BYTES};
    if (flags & 1)
        reply.status = (int32_t)take_byte(&in);
    if (flags & 2)
        reply.bytes = flags & 4 ? take_word(&in) : take_below(&in, 600);
    const size_t follow = reply.bytes < sizeof(data) ? (size_t)reply.bytes : sizeof(data);
    for (size_t i = 0; i < follow; i++)
        data[i] = (uint8_t)(1 + (i + c->nsent) % 250);
    say(c, &reply, sizeof(reply));
    say(c, data, flags & 8 ? take_below(&in, (unsigned)follow + 1) : follow);
}

static void check_answer(const struct client *c)
{
    struct cecl_tcp_said a;
    if (c->nreceived < sizeof(a))
        return;
    memcpy(&a, c->received, sizeof(a));
    REQUIRE(a.kind == CECL_TCP_MAGIC && a.rank == job.rank && a.nranks == job.nranks,
            "the rank says that it is %d of %d", a.rank, a.nranks);
    REQUIRE(a.tag == cecl_tcp_rank_tag(secret, &a), "the rank's tag is wrong");
    REQUIRE(strncmp(a.part, "what this rank brings", job.part) == 0, "the rank sends another part");
}

/* Whether the root has proved that it knows the secret, and whether it has sent all parts after that. */
static void read_answer(const struct client *c, bool *proved, bool *replied)
{
    struct cecl_tcp_reply reply;
    const uint64_t proof = proof_for(c), bytes = (uint64_t)job.nranks * CECL_OOB_PART_BYTES;
    *proved = c->nsent >= REPLY_AT && memcmp(c->sent, &proof, sizeof(proof)) == 0;
    memcpy(&reply, c->sent + REPLY_AT, sizeof(reply));
    *replied = *proved && c->nsent >= PARTS_AT + bytes && reply.status == ceclSuccess &&
               reply.bytes == bytes;
}

/* Makes the next of the correct steps. False: all are done. */
static bool act_easily(struct client *c)
{
    if (c->nsent >= (job.easy > 1 ? PARTS_AT : job.easy * REPLY_AT))
        return false;
    if (c->nsent == 0)
        prove_to_rank(c, 0);
    else
        reply_to_rank(c, 0);
    return true;
}

static bool act_as_root(void)
{
    struct client *c = &clients[0];
    if (c->fd < 0)
        return false;
    hear(c);
    if (act_easily(c))
        return true;
    if (in.left == 0) {
        job.is_disturbed = true;
        leave(c);
        return true;
    }
    switch (take_below(&in, 8)) {
    case 0:
    case 1:
    case 2: prove_to_rank(c, take_byte(&in)); break;
    case 3:
    case 4: reply_to_rank(c, take_byte(&in)); break;
    case 5: say_anything(c); break;
    case 6:
        job.is_disturbed = true;
        leave(c);
        break;
    default: job.is_disturbed = true; world_pass(take_byte(&in) * 8);
    }
    return true;
}

static int reach_root(int fd, const struct sockaddr *to, socklen_t length)
{
    const unsigned how = take_below(&in, 16);
    errno = how == 1 ? ECONNREFUSED : how == 2 ? ECONNRESET : how == 3 ? ETIMEDOUT : EINPROGRESS;
    if (how >= 1 && how <= 3)
        return -1;
    clients[0].fd = world_connect(fd);
    return how == 4 ? -1 : 0;
}

static void make_id(ceclUniqueId *unique)
{
    struct cecl_tcp_id id = {.magic = CECL_TCP_MAGIC};
    const unsigned flags = take_byte(&in);
    id.at.v4.sin_port = htons(1); /* with IPv6, if available */
    id.at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    id.at.any.sa_family = flags & 1 ? AF_INET6 : AF_INET;
    memcpy(id.secret, secret, sizeof(secret));
    if (flags >> 4 == 1)
        ((uint8_t *)&id)[take_below(&in, offsetof(struct cecl_tcp_id, secret))] ^= take_byte(&in);
    memset(unique, 0, sizeof(*unique));
    memcpy(unique, &id, sizeof(id));
}

static void fuzz_rank(void)
{
    static const struct world_script script = {act_as_root, reach_root};
    const struct client *root = &clients[0];
    const char part[CECL_OOB_PART_BYTES] = "what this rank brings";
    struct cecl_oob oob;
    ceclUniqueId unique;
    bool proved, replied;
    memset(&job, 0, sizeof(job));
    job.nranks = 1 + (int)take_below(&in, 4);
    job.rank = (int)take_below(&in, (unsigned)job.nranks);
    job.easy = take_below(&in, 3);
    job.part = 1 + take_below(&in, sizeof(part));
    nclients = 0;
    begin_client();
    make_id(&unique);
    world_begin(&script);
    uint8_t *all = malloc((size_t)job.nranks * job.part); /* the exact size */
    REQUIRE(all, "no memory");
    cecl_oob_from_id(&oob, &unique, job.nranks, job.rank, 1000);
    const ceclResult_t result = oob.allgather(&oob, part, all, job.part);
    cecl_lifeline_close(&oob.line);
    hear(&clients[0]);
    check_answer(root);
    read_answer(root, &proved, &replied);
    REQUIRE(result != ceclSuccess || replied, "the rank succeeds without a reply");
    REQUIRE(result == ceclSuccess || !replied || job.is_disturbed, "a reply is refused: %s",
            cecl_message());
    for (size_t r = 0; r < (size_t)job.nranks && result == ceclSuccess; r++)
        REQUIRE(memcmp(all + r * job.part, root->sent + PARTS_AT + r * CECL_OOB_PART_BYTES,
                       job.part) == 0,
                "the rank returns bytes that the root did not send");
    REQUIRE(!oob.is_known || proved, "the rank is known to a root without the secret");
    free(all);
    leave(&clients[0]);
    world_end();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].received = malloc(RECEIVED_MOST);
        REQUIRE(clients[i].received, "no memory");
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    in = (struct input){data, bytes < 4096 ? bytes : 4096};
    if (take_below(&in, 2) == 0)
        fuzz_root();
    else
        fuzz_rank();
    return 0;
}
