/* A rank's side of the TCP bootstrap, and making a unique id. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/oob.h"
#include "boot/tcp.h"
#include "util/clock.h"
#include "util/settings.h"
#include "util/siphash.h"

uint64_t cecl_tcp_tag(const uint8_t secret[16], const char *side, const uint8_t root_nonce[16],
                      const uint8_t rank_nonce[16], int32_t rank, int32_t nranks)
{
    uint8_t text[4 + 16 + 16 + 8] = {0};
    memcpy(text, side, 4);
    memcpy(text + 4, root_nonce, 16);
    memcpy(text + 20, rank_nonce, 16);
    memcpy(text + 36, &rank, 4);
    memcpy(text + 40, &nranks, 4);
    return cecl_siphash(secret, text, sizeof(text));
}

socklen_t cecl_tcp_address(const struct cecl_tcp_id *id, struct sockaddr_storage *address)
{
    *address = (struct sockaddr_storage){.ss_family = id->family};
    if (id->family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)address;
        v4->sin_port = id->port;
        memcpy(&v4->sin_addr, id->address, sizeof(v4->sin_addr));
        return sizeof(*v4);
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    v6->sin6_port = id->port;
    v6->sin6_scope_id = id->scope;
    memcpy(&v6->sin6_addr, id->address, sizeof(v6->sin6_addr));
    return sizeof(*v6);
}

/* ---- the id */

static void take_address(struct cecl_tcp_id *id, const struct sockaddr *address)
{
    id->family = address->sa_family;
    if (id->family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        memcpy(id->address, &v4->sin_addr, sizeof(v4->sin_addr));
    } else {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        memcpy(id->address, &v6->sin6_addr, sizeof(v6->sin6_addr));
        id->scope = v6->sin6_scope_id;
    }
}

/* How well an interface's address serves: 0 not at all. A named interface is the only one looked
 * at. */
static int fitness(const struct ifaddrs *one, const char *wanted)
{
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP))
        return 0;
    const int family = one->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || (wanted && strcmp(one->ifa_name, wanted) != 0))
        return 0;
    const int version = family == AF_INET ? 1 : 0;
    return (one->ifa_flags & IFF_LOOPBACK ? 1 : 3) + version;
}

static ceclResult_t choose_address(struct cecl_tcp_id *id)
{
    const char *wanted = cecl_setting_text(CECL_SET_SOCKET_IFNAME);
    struct ifaddrs *all;
    int best = 0;
    if (getifaddrs(&all) != 0)
        return cecl_fail(ceclSystemError, "getifaddrs: %s", strerror(errno));
    for (const struct ifaddrs *one = all; one; one = one->ifa_next)
        if (fitness(one, wanted) > best) {
            best = fitness(one, wanted);
            take_address(id, one->ifa_addr);
        }
    freeifaddrs(all);
    if (best == 0 && wanted)
        return cecl_fail(ceclSystemError,
                         "CECL_SOCKET_IFNAME=%s: no such interface is up with an IP address",
                         wanted);
    return best > 0 ? ceclSuccess : cecl_fail(ceclSystemError, "no network interface is up");
}

static ceclResult_t open_listener(struct cecl_tcp_id *id, int *listener)
{
    struct sockaddr_storage address;
    socklen_t length = cecl_tcp_address(id, &address);
    const int fd = socket(id->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "no TCP socket: %s", strerror(errno));
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        ceclResult_t result = cecl_fail(ceclSystemError, "listening on TCP: %s", strerror(errno));
        close(fd);
        return result;
    }
    id->port = id->family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                     : ((struct sockaddr_in6 *)&address)->sin6_port;
    *listener = fd;
    return ceclSuccess;
}

ceclResult_t cecl_tcp_unique_id(ceclUniqueId *out)
{
    struct cecl_tcp_id id = {.magic = CECL_TCP_MAGIC};
    int64_t timeout_ms = 0;
    bool is_set;
    int listener = -1;

    CECL_TRY(cecl_setting_read(CECL_SET_INIT_TIMEOUT_MS, &timeout_ms, &is_set));
    CECL_TRY(cecl_net_random(id.secret, sizeof(id.secret)));
    CECL_TRY(choose_address(&id));
    CECL_TRY(open_listener(&id, &listener));
    CECL_TRY(cecl_tcp_serve(listener, id.secret, timeout_ms)); /* takes the listener in any case */
    memset(out, 0, sizeof(*out));
    memcpy(out, &id, sizeof(id));
    return ceclSuccess;
}

/* ---- joining */

struct client {
    int fd;
    int64_t deadline;
};

static ceclResult_t connect_root(const struct cecl_tcp_id *id, int64_t deadline, int *out)
{
    struct sockaddr_storage address;
    const socklen_t length = cecl_tcp_address(id, &address);
    const int fd = socket(id->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "no TCP socket: %s", strerror(errno));
    int error = connect(fd, (struct sockaddr *)&address, length) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        struct pollfd poller = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof(error);
        const int ready = poll(&poller, 1, cecl_ms_left(deadline));
        if (ready <= 0)
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    if (error == 0) {
        const int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        *out = fd;
        return ceclSuccess;
    }
    close(fd);
    if (error == ECONNREFUSED)
        return cecl_fail(
            ceclInvalidUsage,
            "unique id: nobody listens; it was used already, or the process that made it "
            "has ended");
    return cecl_fail(error == ETIMEDOUT ? ceclTimeout : ceclSystemError,
                     "connecting to the rank that made the unique id: %s", strerror(error));
}

/* The root's words after a status that is no success. */
static ceclResult_t take_words(const struct client *client, const struct cecl_tcp_reply *reply)
{
    char words[CECL_MESSAGE_BYTES] = "";
    const size_t bytes =
        reply->bytes < sizeof(words) - 1 ? (size_t)reply->bytes : sizeof(words) - 1;
    if (cecl_net_recv(client->fd, words, bytes, client->deadline, "the root") != ceclSuccess)
        return (ceclResult_t)reply->status;
    return cecl_fail((ceclResult_t)reply->status, "%s", words);
}

static ceclResult_t client_allgather(struct cecl_oob *oob, const void *send, void *recv,
                                     size_t bytes)
{
    const struct client *client = oob->context;
    const struct cecl_tcp_request request = {.bytes = bytes};
    struct cecl_tcp_reply reply;

    if (bytes > CECL_TCP_MAX_PART)
        return cecl_fail(ceclInternalError, "bootstrap exchange of %zu bytes", bytes);
    CECL_TRY(cecl_net_send(client->fd, &request, sizeof(request), client->deadline, "the root"));
    CECL_TRY(cecl_net_send(client->fd, send, bytes, client->deadline, "the root"));
    CECL_TRY(cecl_net_recv(client->fd, &reply, sizeof(reply), client->deadline, "the root"));
    if (reply.status != ceclSuccess)
        return take_words(client, &reply);
    if (reply.bytes != (uint64_t)oob->nranks * bytes)
        return cecl_fail(ceclInternalError, "the root sent %llu bytes, %zu expected",
                         (unsigned long long)reply.bytes, (size_t)oob->nranks * bytes);
    return cecl_net_recv(client->fd, recv, (size_t)reply.bytes, client->deadline, "the root");
}

static void client_close(struct cecl_oob *oob)
{
    struct client *client = oob->context;
    close(client->fd);
    free(client);
}

static ceclResult_t shake_hands(const struct client *client, const struct cecl_tcp_id *id,
                                int nranks, int rank)
{
    struct cecl_tcp_challenge challenge;
    struct cecl_tcp_answer answer = {.magic = CECL_TCP_MAGIC, .rank = rank, .nranks = nranks};
    struct cecl_tcp_proof proof;
    struct cecl_tcp_reply reply;
    const char *root = "the rank that made the unique id";

    CECL_TRY(cecl_net_random(answer.nonce, sizeof(answer.nonce)));
    CECL_TRY(cecl_net_recv(client->fd, &challenge, sizeof(challenge), client->deadline, root));
    if (challenge.magic != CECL_TCP_MAGIC)
        return cecl_fail(ceclInvalidUsage, "unique id: what listens at its address is not cecl");
    answer.tag =
        cecl_tcp_tag(id->secret, "rank", challenge.nonce, answer.nonce, answer.rank, answer.nranks);
    CECL_TRY(cecl_net_send(client->fd, &answer, sizeof(answer), client->deadline, root));
    if (cecl_net_recv(client->fd, &proof, sizeof(proof), client->deadline, root) != ceclSuccess)
        return cecl_fail(
            ceclInvalidUsage,
            "unique id: refused; its secret is not that of the job at its address, or that "
            "job has begun");
    const uint64_t expected = cecl_tcp_tag(id->secret, "root", challenge.nonce, answer.nonce, 0, 0);
    if (!cecl_net_equal(&proof.tag, &expected, sizeof(expected)))
        return cecl_fail(ceclInvalidUsage,
                         "unique id: what listens at its address has another secret");
    CECL_TRY(cecl_net_recv(client->fd, &reply, sizeof(reply), client->deadline, root));
    return reply.status == ceclSuccess ? ceclSuccess : take_words(client, &reply);
}

ceclResult_t cecl_tcp_join(struct cecl_oob *oob, const ceclUniqueId *unique, int nranks, int rank,
                           int64_t deadline)
{
    struct cecl_tcp_id id;
    memcpy(&id, unique, sizeof(id));
    if (id.magic != CECL_TCP_MAGIC || (id.family != AF_INET && id.family != AF_INET6))
        return cecl_fail(ceclInvalidUsage, "unique id: not one of ceclGetUniqueId");

    struct client *client = malloc(sizeof(*client));
    if (!client)
        return cecl_fail(ceclOutOfMemory, "no host memory to join with");
    client->deadline = deadline;
    ceclResult_t result = connect_root(&id, deadline, &client->fd);
    if (result == ceclSuccess) {
        result = shake_hands(client, &id, nranks, rank);
        if (result != ceclSuccess)
            close(client->fd);
    }
    if (result != ceclSuccess) {
        free(client);
        return result;
    }
    *oob = (struct cecl_oob){.nranks = nranks,
                             .rank = rank,
                             .context = client,
                             .allgather = client_allgather,
                             .close = client_close};
    return ceclSuccess;
}
