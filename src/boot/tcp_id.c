/* The unique id of the TCP bootstrap: choosing the address to listen at, and the tags that prove the secret. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>

#include "boot/net.h"
#include "boot/oob.h"
#include "boot/tcp.h"
#include "util/settings.h"
#include "util/siphash.h"

uint64_t cecl_tcp_rank_tag(const uint8_t secret[16], const struct cecl_tcp_said *said)
{
    uint8_t text[4 + offsetof(struct cecl_tcp_said, tag)] = "rank";
    memcpy(text + 4, said, sizeof(text) - 4);
    return cecl_siphash(secret, text, sizeof(text));
}

uint64_t cecl_tcp_root_tag(const uint8_t secret[16], const struct cecl_tcp_said *said)
{
    uint8_t text[4 + sizeof(said->tag)] = "root";
    memcpy(text + 4, &said->tag, sizeof(said->tag));
    return cecl_siphash(secret, text, sizeof(text));
}

/* A host counts as lost if it is silent for QUIET_S seconds, and then answers none of PROBES probes, which are PROBE_S
 * seconds apart. */
#define QUIET_S 10
#define PROBE_S 5
#define PROBES 4

/* A failure is ignored, because it only delays messages, or the news that a host is lost. */
void cecl_tcp_set_up(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, QUIET_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, PROBES},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * (QUIET_S + PROBES * PROBE_S)}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

bool cecl_tcp_is_loopback(const struct cecl_tcp_id *id)
{
    return id->at.any.sa_family == AF_INET ? ntohl(id->at.v4.sin_addr.s_addr) >> 24 == 127
                                           : IN6_IS_ADDR_LOOPBACK(&id->at.v6.sin6_addr);
}

/* A link-local IPv6 address is valid only with the number of an interface, and each host numbers its own interfaces. So
 * this function replaces the number in the id by this host's, if CECL_SOCKET_IFNAME names the interface. */
union cecl_tcp_address cecl_tcp_from_here(const struct cecl_tcp_id *id)
{
    union cecl_tcp_address at = id->at;
    const char *named = cecl_setting_text(CECL_SET_SOCKET_IFNAME);
    if (at.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&at.v6.sin6_addr) && named)
        at.v6.sin6_scope_id = if_nametoindex(named);
    return at;
}

/* How well an interface's address suits; 0: not at all. If CECL_SOCKET_IFNAME names an interface, only its addresses
 * suit; otherwise only loopback, which is enough for a job on one host. */
static int fitness(const struct ifaddrs *one, const char *wanted)
{
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP))
        return 0;
    const int family = one->ifa_addr->sa_family;
    if (wanted ? strcmp(one->ifa_name, wanted) != 0 : !(one->ifa_flags & IFF_LOOPBACK))
        return 0;
    return family == AF_INET ? 2 : family == AF_INET6 ? 1 : 0;
}

static ceclResult_t choose_address(union cecl_tcp_address *at)
{
    const char *wanted = cecl_setting_text(CECL_SET_SOCKET_IFNAME);
    struct ifaddrs *all;
    int best = 0;
    if (getifaddrs(&all) != 0)
        return cecl_fail(ceclSystemError, "getifaddrs: %s", strerror(errno));
    for (const struct ifaddrs *one = all; one; one = one->ifa_next)
        if (fitness(one, wanted) > best) {
            best = fitness(one, wanted);
            memcpy(at, one->ifa_addr, cecl_tcp_length(one->ifa_addr->sa_family));
        }
    freeifaddrs(all);
    if (best == 0 && wanted)
        return cecl_fail(ceclSystemError,
                         "CECL_SOCKET_IFNAME=%s: no such interface is up with an IP address",
                         wanted);
    return best > 0
               ? ceclSuccess
               : cecl_fail(
                     ceclSystemError,
                     "no loopback interface is up; set CECL_SOCKET_IFNAME to another interface");
}

/* at  the address, with any port */
static ceclResult_t make_id(const union cecl_tcp_address *at, ceclUniqueId *out)
{
    struct cecl_tcp_id id = {.magic = CECL_TCP_MAGIC, .at = *at};
    int64_t timeout_ms = 0;
    int listener = -1;

    CECL_TRY(cecl_setting_read(CECL_SET_INIT_TIMEOUT_MS, &timeout_ms));
    CECL_TRY(cecl_net_random(id.secret, sizeof(id.secret)));
    CECL_TRY(
        cecl_net_listen(SOCK_STREAM, &id.at.any, cecl_tcp_length(id.at.any.sa_family), &listener));
    /* cecl_tcp_serve takes over the listener, also on failure */
    CECL_TRY(cecl_tcp_serve(listener, id.secret, timeout_ms));
    memset(out, 0, sizeof(*out));
    memcpy(out, &id, sizeof(id));
    return ceclSuccess;
}

ceclResult_t cecl_tcp_unique_id(ceclUniqueId *out)
{
    union cecl_tcp_address at = {.v6 = {0}};
    CECL_TRY(choose_address(&at));
    return make_id(&at, out);
}

ceclResult_t cecl_tcp_unique_id_beside(struct cecl_lifeline *line, ceclUniqueId *out)
{
    union cecl_tcp_address at = {.v6 = {0}};
    socklen_t length = sizeof(at);
    pthread_mutex_lock(&line->lock); /* another thread may close it */
    const int failed = getsockname(line->fd, &at.any, &length);
    pthread_mutex_unlock(&line->lock);
    if (failed)
        return cecl_fail(ceclRemoteError, "this rank has no address, because its connection to the "
                                          "process that made the unique id has ended");
    if (at.any.sa_family == AF_INET)
        at.v4.sin_port = 0;
    else
        at.v6.sin6_port = 0;
    return make_id(&at, out);
}
