/* The unique id of the TCP bootstrap: choosing the address to listen at, and the tags
 * that prove the secret. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "boot/net.h"
#include "boot/oob.h"
#include "boot/tcp.h"
#include "util/settings.h"
#include "util/siphash.h"

#define BACKLOG 4096

uint64_t cecl_tcp_rank_tag(const uint8_t secret[16], const uint8_t root_nonce[16],
                           const struct cecl_tcp_answer *answer)
{
    uint8_t text[4 + 16 + 16 + 4 + 4 + 8 + 8 + sizeof(answer->process)] = "rank";
    memcpy(text + 4, root_nonce, 16);
    memcpy(text + 20, answer->nonce, 16);
    memcpy(text + 36, &answer->rank, 4);
    memcpy(text + 40, &answer->nranks, 4);
    memcpy(text + 44, &answer->patience_ms, 8);
    memcpy(text + 52, &answer->timeout_ms, 8);
    memcpy(text + 60, &answer->process, sizeof(answer->process));
    return cecl_siphash(secret, text, sizeof(text));
}

uint64_t cecl_tcp_root_tag(const uint8_t secret[16], const uint8_t root_nonce[16],
                           const uint8_t rank_nonce[16])
{
    uint8_t text[4 + 16 + 16] = "root";
    memcpy(text + 4, root_nonce, 16);
    memcpy(text + 20, rank_nonce, 16);
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

void cecl_tcp_send_at_once(int fd)
{
    const int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* without it, only slower */
}

bool cecl_tcp_is_loopback(const struct cecl_tcp_id *id)
{
    struct in6_addr v6;
    memcpy(&v6, id->address, sizeof(v6));
    return id->family == AF_INET ? id->address[0] == 127 : IN6_IS_ADDR_LOOPBACK(&v6);
}

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

/* How well an interface's address suits; 0: not at all. Only the interface that is named is
 * considered, or loopback: nobody on the network needs to reach a job on one host. */
static int fitness(const struct ifaddrs *one, const char *wanted)
{
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP))
        return 0;
    const int family = one->ifa_addr->sa_family;
    if (wanted ? strcmp(one->ifa_name, wanted) != 0 : !(one->ifa_flags & IFF_LOOPBACK))
        return 0;
    return family == AF_INET ? 2 : family == AF_INET6 ? 1 : 0;
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
    return best > 0 ? ceclSuccess
                    : cecl_fail(ceclSystemError,
                                "no loopback interface is up; CECL_SOCKET_IFNAME may name another");
}

static ceclResult_t open_listener(struct cecl_tcp_id *id, int *listener)
{
    struct sockaddr_storage address;
    socklen_t length = cecl_tcp_address(id, &address);
    const int fd = socket(id->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return cecl_fail(ceclSystemError, "no TCP socket: %s", strerror(errno));
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, BACKLOG) != 0 ||
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
    struct cecl_tcp_id id = {.magic = CECL_TCP_MAGIC, .process = cecl_process_self()};
    int64_t timeout_ms = 0;
    bool is_set;
    int listener = -1;

    CECL_TRY(cecl_setting_read(CECL_SET_INIT_TIMEOUT_MS, &timeout_ms, &is_set));
    CECL_TRY(cecl_net_random(id.secret, sizeof(id.secret)));
    CECL_TRY(choose_address(&id));
    CECL_TRY(open_listener(&id, &listener));
    /* takes over the listener, also on failure */
    CECL_TRY(cecl_tcp_serve(listener, id.secret, timeout_ms));
    memset(out, 0, sizeof(*out));
    memcpy(out, &id, sizeof(id));
    return ceclSuccess;
}
